"""Real numbers as ring elements and back: every width, every way to give something else."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from veilgraph.ir.errors import AccuracyError, UsageError
from veilgraph.ir.plan.tables import Tensor
from veilgraph.runtime.encoding import decode, encode, word_dtype


def tensor(ring_bits: int = 32, frac_bits: int = 8, **named: float) -> Tensor:
    return Tensor("x", (2, 2), ring_bits, frac_bits, "alice", 0, **named)


@pytest.mark.parametrize("ring_bits", [12, 24, 32, 33, 40, 52, 63, 64])
@pytest.mark.parametrize("frac_bits", [-2, 0, 3, 8])
def test_round_trip(ring_bits: int, frac_bits: int) -> None:
    own = tensor(ring_bits, frac_bits)
    step = math.ldexp(1.0, -frac_bits)
    x = np.array([[0.0, step], [-3 * step, 100 * step]])
    words = encode(x, own)
    assert words.dtype == word_dtype(ring_bits) == (np.uint32 if ring_bits <= 32 else np.uint64)
    assert words.shape == (2, 2)
    found = decode(words, own)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, x)


def test_halves_go_to_even() -> None:
    words = encode(np.array([[0.5, 1.5], [2.5, -0.5]]), tensor(frac_bits=0))
    np.testing.assert_array_equal(decode(words, tensor(frac_bits=0)), [[0, 2], [2, 0]])


@pytest.mark.parametrize("ring_bits", [20, 32, 40, 64])
def test_bits_above_the_ring_are_junk(ring_bits: int) -> None:
    own = tensor(ring_bits, 0)
    words = encode(np.array([[-5, 6], [-7, 8]]), own).astype(np.uint64)
    mask = np.uint64((1 << ring_bits) - 1)
    for junk in (0, 0xDEADBEEF12345678):
        mixed = (words & mask) | (np.uint64(junk) & ~mask)
        found = decode(mixed.astype(word_dtype(ring_bits)), own)
        np.testing.assert_array_equal(found, [[-5, 6], [-7, 8]])


@pytest.mark.parametrize("ring_bits", [8, 32, 40])
def test_the_ends_of_the_ring(ring_bits: int) -> None:
    own, top = tensor(ring_bits, 0), 2.0 ** (ring_bits - 1)
    edge = np.array([[top - 1, 1 - top], [0, 0]])
    found = decode(encode(edge, own), own)
    np.testing.assert_array_equal(found, edge.astype(np.float32))
    for beyond in (top, -top, 1e300):
        with pytest.raises(AccuracyError, match=f"too large for {ring_bits} bits") as caught:
            encode(np.array([[0, beyond], [0, 0]]), own)
        assert caught.value.exit_code == 4


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none(value: float) -> None:
    with pytest.raises(UsageError, match="not finite"):
        encode(np.array([[0, value], [0, 0]]), tensor())


@pytest.mark.parametrize("shape", [(2,), (4,), (2, 2, 1), (), (2, 3), (0,)])
def test_another_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match=r"has shape .*, and the plan needs 2x2"):
        encode(np.zeros(shape), tensor())


@pytest.mark.parametrize("value", [np.array([["a", "b"]] * 2), np.zeros((2, 2), complex), None])
def test_another_type(value: Any) -> None:
    with pytest.raises(UsageError, match="needs real numbers") as caught:
        encode(value, tensor())
    assert caught.value.hint


def test_ragged_lists() -> None:
    with pytest.raises(UsageError, match="its rows have different lengths") as caught:
        encode([[1.0], [1.0, 2.0]], tensor())
    assert caught.value.hint


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, np.float16, np.float32, bool])
def test_any_real_type(dtype: type) -> None:
    x: npt.NDArray[Any] = np.array([[0, 1], [1, 0]], dtype)
    np.testing.assert_array_equal(decode(encode(x, tensor()), tensor()), x.astype(np.float32))


def test_the_declared_range() -> None:
    own = tensor(low=-1.0, high=2.0)
    encode(np.array([[-1.0, 2.0], [0, 0]]), own)
    for outside in (-1.001, 2.001):
        with pytest.raises(
            AccuracyError, match=r"a number in row 0, column 0, outside the range \[-1, 2\]"
        ):
            encode(np.array([[outside, 0], [0, 0]]), own)


def test_empty_tensors() -> None:
    own = Tensor("x", (0, 3), 40, 8, "alice", 0)
    assert decode(encode(np.zeros((0, 3)), own), own).shape == (0, 3)


def test_columns_have_scales_of_their_own() -> None:
    own = Tensor("x", (2, 2), 32, 8, "alice", 0, -1024, 1024, column_exponents=(0, -6))
    words = encode(np.array([[1000, 3], [-0.5, 2**-14]]), own).view(np.int32)
    np.testing.assert_array_equal(words, [[256_000, 3 * 2**14], [-128, 1]])


def test_a_number_outside_names_its_column() -> None:
    own = Tensor("x", (2, 2), 32, 8, "alice", 0, -1024, 1024, column_exponents=(0, -6))
    outside = r"holds a number in row 1, column 1, outside the range \[-16, 16\]"
    with pytest.raises(AccuracyError, match=outside):
        encode(np.array([[1000, 3], [5, -17]]), own)
