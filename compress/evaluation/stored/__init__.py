"""Predictions on disk, from which metrics, gates, ensembles and reports are computed again without any model."""
