"""Running models over data: what calibration, evaluation and prediction share."""
