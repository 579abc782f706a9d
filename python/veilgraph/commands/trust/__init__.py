"""Verbs by which parties learn whom and what to trust: keys, certificates, signatures, plans."""
