"""Targets: protocol suites, parties and networks."""
