"""How parties find each other, prove who they are, and agree on keys."""
