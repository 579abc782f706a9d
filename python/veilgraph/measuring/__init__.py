"""Runs that are measured, and what a network makes of a plan."""
