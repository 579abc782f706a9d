"""The party level: local computation placed on parties, and what crosses between them."""
