"""Verbs that measure: seconds and bytes of a plan, and when each step ran."""
