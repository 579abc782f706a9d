"""The secret level: fixed-point arithmetic modulo 2^K; no parties, no protocols."""
