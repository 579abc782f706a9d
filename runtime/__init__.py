"""Executes a plan on one party host."""
