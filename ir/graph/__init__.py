"""The graph level: tensor mathematics on real numbers."""
