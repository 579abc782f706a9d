"""Passes from one level to the next; pipeline.py is the ordered list."""
