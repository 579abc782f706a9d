"""Passes over the secret level."""
