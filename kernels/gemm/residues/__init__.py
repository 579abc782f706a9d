"""Products by residues: bytes modulo several primes, and words of those."""
