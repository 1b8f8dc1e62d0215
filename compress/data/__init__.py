"""From a data reference such as ``./reviews.csv`` to batches that are ready for a model."""
