"""How large values are: counted by powers of two, told in shares of 256."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilgraph.ir.plan.tables import Magnitudes
from veilgraph.passes import _native

BINS = 16
WHOLE = 256  # shares add up to this, roundings apart
LEAST = -126  # of float32's exponents: a place is a biased exponent, the first all below
SPAN = 256


def flat_float32(values: NDArray[Any]) -> NDArray[np.float32]:
    """The elements as the native functions take them."""
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, np.float32).ravel()


class MagnitudeCount:
    """The magnitudes of the arrays added so far."""

    def __init__(self) -> None:
        self._counts: NDArray[np.int64] = np.zeros(SPAN, np.int64)
        self._total = 0

    def add(self, values: NDArray[Any]) -> tuple[float, float]:
        """Counts elements by the e of 2^(e-1) <= |x| < 2^e in float32; zeros have none.

        Returns:
            The least and the largest of these, as `_native.extremes` does.
        """
        extremes, counts = _native.magnitudes(flat_float32(values))
        self._counts += counts
        self._total += values.size
        return extremes

    def result(self, name: str) -> Magnitudes | None:
        """Shares from the largest magnitude down; None where all is zero."""
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
