"""Fourier series in integers: tables, turns, and the sum that a function is, under any mask."""

from __future__ import annotations

import numpy as np
import pytest

from veilgraph.ir.secret.fourier import FINE_BITS, FourierSeries, Split, rounded, tables, values

FULL = 2.0**FINE_BITS


@pytest.mark.parametrize("window_bits", [1, 2, 3, 4, 9, 16, 25, 31])
def test_tables_are_rounded_cosines_and_sines(window_bits: int) -> None:
    high, low = tables(window_bits)
    split = Split.of(window_bits)
    assert split.dropped + split.high + split.low == window_bits
    count = 1 << split.high
    assert high.shape == (2, count)
    assert low.shape == (2, 1 << split.low)
    for table, angle in (
        (high, 2 * np.pi / count),
        (low, 2 * np.pi / 2.0 ** (split.high + split.low)),
    ):
        angles = angle * np.arange(table.shape[1])
        exact = FULL * np.array([np.cos(angles), np.sin(angles)])
        assert np.abs(table - exact).max() < 0.5 + 1e-5


@pytest.mark.parametrize("bits", [0, 1, 7, 40])
def test_signed_numbers_are_rounded_to_the_nearest(bits: int) -> None:
    v = np.random.default_rng(bits).integers(-(1 << 61), 1 << 61, 500)
    found = rounded(v.view(np.uint64), bits).view(np.int64)
    np.testing.assert_array_equal(found, (v + (1 << bits >> 1)) >> bits)


@pytest.mark.parametrize("window_bits", [3, 12, 21, 33])
def test_a_sum_of_series_is_that_sum_under_any_mask(window_bits: int) -> None:
    rng = np.random.default_rng(window_bits)
    series = FourierSeries(
        window_bits, 3, 2, (3 << 22, -(1 << 20), 0), (0, 1 << 22, 5), 24, 1 << 30, -(1 << 9),
        18, 20, 46,
    )  # fmt: skip
    x = rng.integers(-(1 << 12), 1 << 12, 400)
    r = rng.integers(0, 1 << window_bits, 400)
    angle = 2 * np.pi * x / 2**window_bits
    wanted = 2.0**-8 - x * 2.0**-29
    for number, (a, b) in enumerate(zip(series.cosines, series.sines, strict=True)):
        multiple = 3 + 2 * number
        wanted += (a * np.cos(multiple * angle) + b * np.sin(multiple * angle)) / 2**24
    assert series.frac_bits == 38
    for mask in (0, r):
        assert np.abs(values(series, x, mask) / 2.0**38 - wanted).max() < 2.0**-17


def test_attributes_are_all_of_it() -> None:
    series = FourierSeries(5, 1, 2, (1,), (2,), 20, 3, 4, 14, 16, 40)
    assert FourierSeries.of(series.parameters() | {"bits": 7}) == series
