"""The ``calibrate`` stage: probabilities that mean what they say, and a threshold below which the model abstains."""
