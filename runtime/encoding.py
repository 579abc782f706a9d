"""Real numbers as ring elements and back: what an owner does before sharing, a receiver after.

x is encoded as round(x 2^frac_bits) modulo 2^ring_bits, half to even, in 32-bit words for rings of
at most 32 bits and 64-bit words above. The plan has the scales (docs/encoding.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import AccuracyError, UsageError
from veilgraph.ir.files.column_files import columns_named, places_of
from veilgraph.ir.plan.given import NO_NUMBER, OTHER, PLAIN, as_rows, where
from veilgraph.ir.plan.tables import Tensor, divided

_PIECE = 1 << 14  # elements

Words = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]


def word_dtype(ring_bits: int) -> np.dtype[Any]:
    return np.dtype("<u4") if ring_bits <= 32 else np.dtype("<u8")


HINT = "Give an array of numbers, as numpy.asarray makes it."


def checked(value: npt.ArrayLike, tensor: Tensor) -> npt.NDArray[Any]:
    """What a user gives for `tensor`, as an array of real numbers that fit it.

    Raises:
        UsageError: another shape or type, or a number that is none.
        AccuracyError: a number outside the range that the plan was made for, or beyond the ring.
    """
    if hasattr(value, "columns") and (tensor.columns or tensor.name in value.columns):
        value = _by_name(value, tensor)
    if tensor.given.lacks:
        value = as_rows(value, tensor.columns)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise UsageError(
            f"`{tensor.name}` is no array: its rows have different lengths.", HINT
        ) from error
    if tensor.given != PLAIN or (array.ndim and array.dtype.kind == OTHER):
        array = tensor.given.numbers(array, f"`{tensor.name}`", tensor.columns)
    if array.dtype.kind not in "fiub":
        raise UsageError(f"`{tensor.name}` has type {array.dtype}, and needs real numbers.", HINT)
    if array.shape != tensor.shape:
        raise UsageError(
            f"`{tensor.name}` has shape {_shape(tensor.given.shape(array.shape))}, and the plan "
            f"needs {_shape(tensor.given_shape)}.",
            "Compile for another shape with --shape, or bring the input into this one.",
        )
    if array.size:
        _check_range(array, tensor)
    return array


def _by_name(frame: Any, tensor: Tensor) -> Any:
    """The columns of a data frame that the plan names, in its order."""
    given = list(map(str, frame.columns))
    names = columns_named(tensor.name, tensor.given_shape, {tensor.name: tensor.columns})
    if tensor.given.lacks:
        rows = frame.to_dict("records")
        return [{name: row[name] for name in names if name in row} for row in rows]
    return frame.iloc[:, places_of(f"`{tensor.name}`", given, names)]


def _check_range(array: npt.NDArray[Any], tensor: Tensor) -> None:
    """Of the least and the greatest number that is encoded; either is NaN where any number is."""
    given = divided(array, tensor.column_exponents)
    low, high = float(given.min()), float(given.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise UsageError(
            f"`{tensor.name}` holds numbers that are not finite: {_not_finite(given, tensor)}.",
            NO_NUMBER,
        )
    if low < tensor.low or high > tensor.high:
        raise AccuracyError(
            f"`{tensor.name}` holds a number {_outside(given, tensor)} that the plan was compiled "
            "for.",
            "Compile with samples like this one in --calibrate, or bring the input into range.",
        )
    scaled = np.rint(np.ldexp([low, high], tensor.frac_bits))
    if np.abs(scaled).max() >= 2.0 ** (tensor.ring_bits - 1):
        raise AccuracyError(
            f"`{tensor.name}` holds a number too large for {tensor.ring_bits} bits with "
            f"{tensor.frac_bits} fraction bits.",
            "Compile with a wider --ring or fewer --frac-bits.",
        )


def _outside(given: npt.NDArray[Any], tensor: Tensor) -> str:
    """Where the number is that is furthest outside, and the range that it left.

    Not the number: errors end up in logs, and logs with others.
    """
    worst = given.argmin() if given.min() < tensor.low else given.argmax()
    place = np.unravel_index(worst, given.shape)
    low, high = tensor.low, tensor.high
    if tensor.column_exponents:
        low, high = np.ldexp([low, high], tensor.column_exponents[int(place[-1])])
    return f"{where(place, tensor.columns)}outside the range [{low:.6g}, {high:.6g}]"


def _not_finite(given: npt.NDArray[Any], tensor: Tensor) -> str:
    """The first number that is a NaN or infinite, and where it is; rows are counted from 0."""
    place = np.argwhere(~np.isfinite(given))[0]
    return f"{given[tuple(place)]:g} {where(place, tensor.columns)}".rstrip(", ")


@dataclass(frozen=True)
class Integers:
    """What is given as the very integers that a tensor holds, and not as real numbers.

    Attributes:
        values: in units of 2^-frac_bits.
    """

    values: npt.NDArray[np.int64]

    def words(self, tensor: Tensor) -> Words:
        """As ring elements; AccuracyError beyond the range that the plan was made for."""
        scale = 2**tensor.frac_bits
        most = min(int(tensor.high * scale), (1 << (tensor.ring_bits - 1)) - 1)
        if self.values.size and (self.values.max() > most or self.values.min() < -most):
            raise AccuracyError(
                f"`{tensor.name}` holds a number outside the range that the plan was compiled for.",
                "Compile for more of it.",
            )
        words = self.values.astype(word_dtype(tensor.ring_bits))
        return words.reshape(tensor.shape)


def encode(value: npt.ArrayLike | Integers, tensor: Tensor) -> Words:
    """`value` as ring elements of `tensor`, which it must fit; see `checked`."""
    if isinstance(value, Integers):
        return value.words(tensor)
    real = divided(checked(value, tensor), tensor.column_exponents).reshape(-1)
    words: Words = np.empty(real.shape, word_dtype(tensor.ring_bits))
    for piece in _pieces(real.size):
        scaled = np.rint(np.ldexp(real[piece].astype(np.float64), tensor.frac_bits))
        words[piece] = scaled.astype(np.int64).astype(words.dtype)
    return words.reshape(tensor.shape)


def decode(words: Words, tensor: Tensor) -> npt.NDArray[np.float32]:
    """The real numbers that ring elements of `tensor` stand for; bits above the ring are junk."""
    flat = words.reshape(-1)
    real = np.empty(flat.shape, np.float32)
    above = np.uint64(64 - tensor.ring_bits)
    for piece in _pieces(flat.size):
        signed = (flat[piece].astype(np.uint64) << above).view(np.int64) >> above.astype(np.int64)
        real[piece] = np.ldexp(signed.astype(np.float64), -tensor.frac_bits)
    return real.reshape(words.shape)


def _pieces(size: int) -> Iterator[slice]:
    """Stretches whose intermediate arrays stay in the second-level cache."""
    return (slice(first, first + _PIECE) for first in range(0, size, _PIECE))


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "()"
