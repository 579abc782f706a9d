"""Verbs of a service: the parties that serve, and clients who ask."""
