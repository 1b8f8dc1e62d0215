"""The one training engine: for members, fused models, budgets and routers, and from random weights."""
