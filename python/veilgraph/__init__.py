"""Veilgraph."""
