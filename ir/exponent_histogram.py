"""How large values are: counted by powers of two, told in shares of 256."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilgraph.ir.plan.tables import Magnitudes

BINS = 16
WHOLE = 256  # shares add up to this, roundings apart
LEAST = -126  # of float32's exponents: a place is a biased exponent, the first all below
SPAN = 256
MANTISSA_BITS = 23
PIECE = 1 << 14  # elements whose intermediate arrays stay in the first caches
FEW = 1 << 11  # elements of small arrays that are counted together: calls take longer than counting


class MagnitudeCount:
    """The magnitudes of the arrays added so far."""

    def __init__(self) -> None:
        self._counts: NDArray[np.int64] = np.zeros(SPAN, np.int64)
        self._total = 0
        self._small: list[NDArray[Any]] = []  # copies that are not counted yet
        self._left = FEW  # elements until they are

    def add(self, values: NDArray[Any]) -> None:
        """Counts elements by the e of 2^(e-1) <= |x| < 2^e in float32; zeros have none."""
        flat = np.asarray(values).ravel()
        self._total += flat.size
        if flat.size > FEW:
            self._count(flat)
            return
        self._small.append(flat.copy())
        self._left -= flat.size
        if self._left <= 0:
            self._count_small()

    def _count_small(self) -> None:
        if self._small:
            self._count(np.concatenate(self._small))
        self._small, self._left = [], FEW

    def _count(self, flat: NDArray[Any]) -> None:
        for first in range(0, flat.size, PIECE):
            with np.errstate(over="ignore"):
                bits = flat[first : first + PIECE].astype(np.float32).view(np.uint32)
            places = (bits >> MANTISSA_BITS).astype(np.uint8)  # without the sign
            self._counts += np.bincount(places, minlength=SPAN)
            self._counts[0] -= bits.size - np.count_nonzero(bits << 1)

    def result(self, name: str) -> Magnitudes | None:
        """Shares from the largest magnitude down; None where all is zero."""
        self._count_small()
        found = np.flatnonzero(self._counts)
        if not found.size:
            return None
        top = int(found[-1])
        bins = self._counts[max(top - BINS + 2, 0) : top + 1][::-1]
        smaller = self._total - int(bins.sum())
        counts = [*map(int, bins), *(0 for _ in range(BINS - 1 - len(bins))), smaller]
        # A share of what is there at all is never told as none: it is what windows are for.
        shares = tuple(max(round(WHOLE * count / self._total), int(count > 0)) for count in counts)
        return Magnitudes(name, top + LEAST, shares)
