"""Where a party computes; choose.py is the door."""
