"""From real numbers to integers modulo 2^K; encode_fixed_point.py is the door."""
