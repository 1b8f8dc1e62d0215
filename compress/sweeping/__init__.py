"""Many choices of heads side by side: prune, fuse and evaluate over a grid, from scores that are made once."""
