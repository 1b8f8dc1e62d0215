"""The family-independent encoder: layers, streams, surgery and cost."""
