"""Recipes: YAML files that chain stages, and the runner that executes them, skipping what is already there."""
