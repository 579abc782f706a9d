"""Models in, the graph level out."""
