"""``export``: a model as one file that other programs run without this package."""
