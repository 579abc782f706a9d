"""Both ends of a service: a party that serves, and clients who ask."""
