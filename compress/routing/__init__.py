"""Token routing: a model with Mixture-of-Depths routers in front of some blocks."""
