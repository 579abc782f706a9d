"""Real numbers as ring elements and back: what an owner does before sharing, a receiver after.

x is encoded as round(x 2^frac_bits) modulo 2^ring_bits, half to even, in 32-bit words for rings of
at most 32 bits and 64-bit words above. ENCODING.md's scales are in the plan.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import AccuracyError, UsageError
from veilgraph.ir.plan import Tensor

Words = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]


def word_dtype(ring_bits: int) -> np.dtype[Any]:
    return np.dtype("<u4") if ring_bits <= 32 else np.dtype("<u8")


def checked(value: npt.ArrayLike, tensor: Tensor) -> npt.NDArray[np.float64]:
    """What a user gives for `tensor`, as float64.

    Raises:
        UsageError: another shape or type, or a number that is none.
        AccuracyError: a number outside the range that the plan was made for.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise UsageError(f"`{tensor.name}` is no array: {error}.") from error
    if array.dtype.kind not in "fiub":
        raise UsageError(f"`{tensor.name}` has type {array.dtype}, and needs real numbers.")
    if array.shape != tensor.shape:
        raise UsageError(
            f"`{tensor.name}` has shape {_shape(array.shape)}, and the plan needs "
            f"{_shape(tensor.shape)}.",
            "Compile for another shape with --shape, or bring the input into this one.",
        )
    real = array.astype(np.float64)
    if not np.isfinite(real).all():
        raise UsageError(f"`{tensor.name}` holds numbers that are not finite (NaN or infinite).")
    if real.size and (real.min() < tensor.low or real.max() > tensor.high):
        raise AccuracyError(
            f"`{tensor.name}` holds {_outside(real, tensor):.6g}, outside the range "
            f"[{tensor.low:.6g}, {tensor.high:.6g}] that the plan was compiled for.",
            "Compile with samples like this one in --calibrate, or bring the input into range.",
        )
    return real


def encode(value: npt.ArrayLike, tensor: Tensor) -> Words:
    """`value` as ring elements of `tensor`, which it must fit; see `checked`."""
    scaled = np.rint(np.ldexp(checked(value, tensor), tensor.frac_bits))
    if scaled.size and np.abs(scaled).max() >= 2.0 ** (tensor.ring_bits - 1):
        raise AccuracyError(
            f"`{tensor.name}` holds a number too large for {tensor.ring_bits} bits with "
            f"{tensor.frac_bits} fraction bits.",
            "Compile with a wider --ring or fewer --frac-bits.",
        )
    return scaled.astype(np.int64).astype(word_dtype(tensor.ring_bits))


def decode(words: Words, tensor: Tensor) -> npt.NDArray[np.float32]:
    """The real numbers that ring elements of `tensor` stand for; bits above the ring are junk."""
    above = np.uint64(64 - tensor.ring_bits)
    signed = (words.astype(np.uint64) << above).view(np.int64) >> above.astype(np.int64)
    return np.ldexp(signed.astype(np.float64), -tensor.frac_bits).astype(np.float32)


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "()"


def _outside(real: npt.NDArray[np.float64], tensor: Tensor) -> float:
    low, high = float(real.min()), float(real.max())
    return low if low < tensor.low else high
