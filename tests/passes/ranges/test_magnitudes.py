"""How large values are, in shares of 256 by power of two."""

from __future__ import annotations

import numpy as np
import pytest

from veilgraph.ir.plan.tables import Magnitudes
from veilgraph.passes import _native
from veilgraph.passes.ranges.magnitudes import BINS, WHOLE, MagnitudeCount


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
            count.add(np.full((3, 1001), -value, type))
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


def test_parts_count_as_the_whole_does() -> None:
    """Added one by one, of several sizes and types, and changed once they are added."""
    rng = np.random.default_rng(1)
    values = rng.standard_normal(4_000) * 2.0 ** rng.integers(-20, 20, 4_000)
    whole, parts, first = MagnitudeCount(), MagnitudeCount(), 0
    whole.add(values.astype(np.float32))
    for size in (0, 1, 7, 2_047, 3, 1_000, 2, 5):
        part = values[first : first + size].astype((np.float32, np.float64)[size % 2])
        parts.add(part)
        part[:] = 1e30
        first += size
    for each in values[first:]:
        parts.add(np.float32(each))
    assert parts.result("layer") == whole.result("layer")
    assert parts.result("layer") == whole.result("layer")


def test_arrays_that_are_not_contiguous_count_as_copies_do() -> None:
    values = np.random.default_rng(2).standard_normal((6, 8, 4)).astype(np.float32)
    turned, copied = MagnitudeCount(), MagnitudeCount()
    turned.add(values.T[::2])
    copied.add(values.T[::2].copy())
    assert turned.result("layer") == copied.result("layer")


@pytest.mark.parametrize("size", [1, 3, 4, 17, 1_000])
def test_extremes_are_numpys(size: int) -> None:
    rng = np.random.default_rng(size)
    values = (rng.standard_normal(size) * 2.0 ** rng.integers(-140, 120, size)).astype(np.float32)
    for each in (values, -np.abs(values), np.abs(values), np.zeros_like(values)):
        assert _native.extremes(each) == (each.min(), each.max())


def test_extremes_tell_what_is_no_number() -> None:
    for wrong in (np.nan, -np.nan, np.inf, -np.inf):
        values = np.array([1.0, wrong, -2.0], np.float32)
        assert not np.isfinite(_native.extremes(values)).all()
    assert _native.extremes(np.zeros(0, np.float32)) == (np.inf, -np.inf)
