"""The only place that knows model families: one adapter file per family."""
