"""Measuring what variants of a model cost."""
