"""Divisions by what is known before a launch, as a multiplication and a shift."""

from __future__ import annotations

BOUND = 1 << 31  # of dividends


def divisor(d: int) -> tuple[int, int]:
    """The struct Divisor of kernels/conv2d/divisor.cuh: n // d = n m >> s for 0 <= n < BOUND.

    With 2^(l-1) < d <= 2^l, s = 31 + l and m = floor(2^s / d) + 1, 2^s < m d <= 2^s + 2^l, which is
    what T. Granlund and P. Montgomery, "Division by invariant integers using multiplication"
    (theorem 4.2) ask for; and m is below 2^32, because 2^s / d is at most 2^32 - 2.
    """
    assert 1 <= d < BOUND
    shift = 31 + (d - 1).bit_length()
    return (1 << shift) // d + 1, shift
