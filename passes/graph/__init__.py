"""Passes over the graph level."""
