"""Budgets: a model that runs as many attention heads for an input as the input needs."""
