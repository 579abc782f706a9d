"""Exact products of integers against Python's own, windows against loops, truncation's bounds."""

from __future__ import annotations

import numpy as np
import pytest

from veilgraph.ir.meaning import integers
from veilgraph.ir.meaning.integers import Windows

EXTREMES = (-(2**63), -(2**63) + 1, -1, 0, 1, 2**62, 2**63 - 1)


def wrapped(x: int) -> int:
    return (x + 2**63) % 2**64 - 2**63


@pytest.mark.parametrize(("x_bits", "w_bits"), [(8, 8), (20, 20), (26, 26), (40, 25), (63, 63)])
@pytest.mark.parametrize("inner", [1, 7, 300])
def test_matmul_equals_python_integers(x_bits: int, w_bits: int, inner: int) -> None:
    generator = np.random.default_rng(x_bits * 64 + w_bits + inner)
    x = generator.integers(-(2**x_bits), 2**x_bits, (2, 3, inner))
    w = generator.integers(-(2**w_bits), 2**w_bits, (inner, 2))
    expected = np.vectorize(wrapped, otypes=[np.int64])(x.astype(object) @ w.astype(object))
    np.testing.assert_array_equal(integers.matmul(x, w), expected)


@pytest.mark.parametrize("value", EXTREMES)
def test_matmul_at_the_ends_of_a_word(value: int) -> None:
    x = np.full((1, 100), value)
    w = np.full((100, 1), EXTREMES[0])
    assert integers.matmul(x, w)[0, 0] == wrapped(100 * value * EXTREMES[0])


def test_matmul_of_nothing() -> None:
    assert integers.matmul(np.zeros((2, 0), np.int64), np.zeros((0, 3), np.int64)).tolist() == [
        [0, 0, 0],
        [0, 0, 0],
    ]


WINDOWS = [
    Windows((3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    Windows((3, 2), (2, 1), (1, 0), (1, 1), (1, 2)),
    Windows((1, 1), (2, 2), (0, 0), (0, 0), (1, 1)),
    Windows((2, 3), (1, 2), (0, 2), (1, 0), (2, 1)),
]


def by_loops(x: np.ndarray, windows: Windows, padding: object) -> np.ndarray:
    """[N, C, H, W] as an object array [N, C, H', W', kh, kw]."""
    pads = [(0, 0), (0, 0), *zip(windows.pads_low, windows.pads_high, strict=True)]
    full = np.pad(x.astype(object), pads, constant_values=padding)
    reach = [d * (k - 1) + 1 for k, d in zip(windows.kernel, windows.dilations, strict=True)]
    out = [
        (extent - r) // s + 1
        for extent, r, s in zip(full.shape[2:], reach, windows.strides, strict=True)
    ]
    found = np.empty((*x.shape[:2], *out, *windows.kernel), object)
    for i, j, a, b in np.ndindex(*out, *windows.kernel):
        row = i * windows.strides[0] + a * windows.dilations[0]
        column = j * windows.strides[1] + b * windows.dilations[1]
        found[:, :, i, j, a, b] = full[:, :, row, column]
    return np.vectorize(int, otypes=[object])(found)


@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_conv_equals_loops(windows: Windows, groups: int) -> None:
    generator = np.random.default_rng(groups)
    x = generator.integers(-(2**62), 2**62, (2, 4, 6, 7))
    w = generator.integers(-(2**40), 2**40, (8, 4 // groups, *windows.kernel))
    patches = by_loops(x, windows, 0)
    expected = np.empty((2, 8, *patches.shape[2:4]), np.int64)
    for o in range(8):
        first = o // (8 // groups) * (4 // groups)
        taken = patches[:, first : first + 4 // groups]
        total = (taken * w[o].astype(object)[None, :, None, None]).sum(axis=(1, 4, 5))
        expected[:, o] = np.vectorize(wrapped, otypes=[np.int64])(total)
    np.testing.assert_array_equal(integers.conv(x, w, windows, groups), expected)


def test_conv_takes_large_batches_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    x, w = generator.integers(-9, 9, (5, 2, 4, 4)), generator.integers(-9, 9, (3, 2, 3, 3))
    whole = integers.conv(x, w, WINDOWS[0], 1)
    monkeypatch.setattr(integers, "COLUMN_ELEMENTS", 600)
    np.testing.assert_array_equal(integers.conv(x, w, WINDOWS[0], 1), whole)


@pytest.mark.parametrize("windows", WINDOWS)
def test_pools_equal_loops(windows: Windows) -> None:
    x = np.random.default_rng(1).integers(-100, 100, (2, 3, 6, 7))
    total = by_loops(x, windows, 0).sum(axis=(4, 5)).astype(np.int64)
    largest = by_loops(x, windows, -1000).max(axis=(4, 5)).astype(np.int64)
    np.testing.assert_array_equal(integers.sum_pool(x, windows), total)
    np.testing.assert_array_equal(integers.max_pool(x, windows), largest)


@pytest.mark.parametrize("bits", [1, 8, 32, 40, 63, 64])
def test_center_takes_the_representative_nearest_to_zero(bits: int) -> None:
    values = [wrapped(v) for k in (-1, 0, 1) for v in (k * 2**bits + 1, k * 2**bits - 1)]
    half = 2 ** (bits - 1)
    expected = [(v + half) % 2**bits - half for v in values]
    assert integers.center(np.array(values), bits).tolist() == expected


@pytest.mark.parametrize("bits", [1, 5, 40, 62])
def test_truncate_is_exact_at_any_integer_and_threshold(bits: int) -> None:
    for z in EXTREMES:
        for tau in (0, 1 << (bits - 1), (1 << bits) - 1):
            found = integers.truncate(np.array([z]), bits, np.array([tau]))
            assert found[0] == (z + tau) >> bits


def test_encode_rounds_to_the_nearest_and_refuses_what_does_not_fit() -> None:
    found = integers.encode([0.5, 1.5, -0.5, 0.24, 127.9], 0, 9)
    assert found.tolist() == [0, 2, 0, 0, 128]
    assert integers.encode(-(2.0**31), 0, 32) == -(2**31)
    for x, frac_bits, ring_bits in ((2.0**31, 0, 32), (-1.1, 63, 64), (np.nan, 3, 64)):
        with pytest.raises(OverflowError, match="doesn't fit"):
            integers.encode(x, frac_bits, ring_bits)
    assert integers.decode(np.array([3, -3]), 2).tolist() == [0.75, -0.75]


def test_encoding_takes_one_block_after_another() -> None:
    """Of a tensor in any order of its axes; and what does not fit is in none of them."""
    generator, size = np.random.default_rng(0), integers.ENCODED_ELEMENTS
    x = generator.normal(size=(3, size // 2 + 5)).astype(np.float32)
    wanted = np.rint(np.asarray(x, np.float64) * 2.0**20).astype(np.int64)
    np.testing.assert_array_equal(integers.encode(x, 20, 40), wanted)
    np.testing.assert_array_equal(integers.encode(x.T, 20, 40), wanted.T)
    assert integers.encode(x[:, :0], 20, 40).shape == (3, 0)
    x[-1, -1] = 2.0**20
    with pytest.raises(OverflowError, match="doesn't fit"):
        integers.encode(x, 20, 40)


@pytest.mark.parametrize(("start", "step"), [(0, 1), (1, 2), (6, -1), (5, -2)])
def test_slices(start: int, step: int) -> None:
    x, count = np.arange(7), 3
    (found,) = integers.slices([start], [step], [count])
    assert x[found].tolist() == [start + i * step for i in range(count)]


def test_a_backward_slice_reaches_the_first_element() -> None:
    (found,) = integers.slices([2], [-1], [3])
    assert np.arange(7)[found].tolist() == [2, 1, 0]
