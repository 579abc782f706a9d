"""How large values are, in shares of 256 by power of two."""

from __future__ import annotations

import numpy as np

from veilgraph.ir.exponent_histogram import BINS, FEW, PIECE, WHOLE, MagnitudeCount
from veilgraph.ir.plan.tables import Magnitudes


def counted(*arrays: list[float]) -> Magnitudes | None:
    count = MagnitudeCount()
    for array in arrays:
        count.add(np.array(array))
    return count.result("layer")


def test_shares_are_of_powers_of_two_from_the_largest_down() -> None:
    found = counted([3.0, -2.0, 1.5, 0.75])
    assert found is not None
    assert (found.name, found.top) == ("layer", 2)
    assert found.shares[:3] == (128, 64, 64)
    assert len(found.shares) == BINS
    assert sum(found.shares) == WHOLE


def test_what_is_small_and_zeros_are_the_last_share() -> None:
    found = counted([1.0, 0.0], [1e-9, 1.0])
    assert found is not None
    assert (found.shares[0], found.shares[-1]) == (128, 128)


def test_a_few_large_values_are_told() -> None:
    found = counted([100.0], [0.1] * 100_000)
    assert found is not None
    assert found.top == 7
    assert found.shares[0] == 1


def test_edges_of_powers_of_two_and_of_float32() -> None:
    """2^(e-1) <= |x| < 2^e, whatever the type and the number of elements."""
    for value, top in ((0.5, 0), (np.nextafter(np.float32(0.5), 0), -1), (1.0, 1), (2.0**127, 128)):
        for type in (np.float32, np.float64):
            count = MagnitudeCount()
            count.add(np.full((3, PIECE), -value, type))
            found = count.result("layer")
            assert found is not None
            assert (found.top, found.shares[0]) == (top, WHOLE)
    tiny = counted([1e-40, 0.0])
    assert tiny is not None
    assert tiny.shares[0] == WHOLE // 2  # below all exponents, and no zero
    scalar = MagnitudeCount()
    scalar.add(np.float64(1e300).reshape(()))
    assert scalar.result("layer") is not None


def test_there_are_none_of_zeros() -> None:
    assert counted([0.0, 0.0]) is None
    assert counted() is None


def test_small_arrays_count_as_large_ones_do() -> None:
    """Added one by one, of several sizes and types, and changed once they are added."""
    rng = np.random.default_rng(1)
    values = rng.standard_normal(5 * FEW) * 2.0 ** rng.integers(-20, 20, 5 * FEW)
    whole, parts, first = MagnitudeCount(), MagnitudeCount(), 0
    whole.add(values.astype(np.float32))
    for size in (0, 1, 7, FEW - 1, 3, FEW, 2, FEW + 1, 5):
        part = values[first : first + size].astype((np.float32, np.float64)[size % 2])
        parts.add(part)
        part[:] = 1e30
        first += size
    for each in values[first:]:
        parts.add(np.float32(each))
    assert parts.result("layer") == whole.result("layer")
    assert parts.result("layer") == whole.result("layer")
