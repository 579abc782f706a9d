"""Exact linear algebra on integers modulo 2^64, at the speed of float64 matrix products.

A ring element is an int64 in [-2^(K-1), 2^(K-1)), the representative nearest to zero. NumPy's own
int64 products are exact but slow, so operands are cut into limbs so small that a float64 product
of limbs and its sum stay below 2^53, where float64 is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Scalar = TypeVar("Scalar", bound=np.generic)

EXACT_BITS = 53  # integers up to 2^53 are exact in float64
WORD_BITS = 64
COLUMN_ELEMENTS = 1 << 23  # of unrolled windows at a time: 64 MiB
ENCODED_ELEMENTS = 1 << 18  # at a time, beside the result: what a processor's cache holds


def center(z: Integers, ring_bits: int) -> Integers:
    """z modulo 2^ring_bits, as the representative nearest to zero."""
    unused = WORD_BITS - ring_bits
    high = z << unused
    high >>= unused
    return high


def fits(low: int, high: int, ring_bits: int) -> bool:
    """Whether integers between the two are what `center` makes of them."""
    limit = 1 << (ring_bits - 1)
    return -limit <= low and high < limit


def matmul(x: Integers, w: Integers) -> Integers:
    """x @ w modulo 2^64, with the broadcasting of np.matmul."""
    return _bilinear(x, w, x.shape[-1], lambda limb: limb, np.matmul)


@dataclass(frozen=True)
class Windows:
    """Where the windows of a convolution or a pool lie: one entry for each spatial dimension."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads_low: tuple[int, ...]
    pads_high: tuple[int, ...]
    dilations: tuple[int, ...]

    def over(self, x: npt.NDArray[Scalar], padding: int = 0) -> npt.NDArray[Scalar]:
        """A view of x [N, C, *spatial], padded, as [N, C, *positions, *kernel]."""
        spatial = tuple(range(2, x.ndim))
        pads = [(0, 0), (0, 0), *zip(self.pads_low, self.pads_high, strict=True)]
        reach = tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))
        padded = np.pad(x, pads, constant_values=padding) if any(map(any, pads)) else x
        every = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=spatial)
        positions = tuple(slice(None, None, s) for s in self.strides)
        kernel = tuple(slice(None, None, d) for d in self.dilations)
        return every[(slice(None), slice(None), *positions, *kernel)]


def conv(x: Integers, w: Integers, windows: Windows, groups: int) -> Integers:
    """Convolution of x [N, C, *spatial] with w [O, C/groups, *kernel], modulo 2^64."""
    positions = windows.over(x[:1]).shape[2 : x.ndim]
    inner = int(np.prod(w.shape[1:]))
    flat_w = w.reshape(groups, w.shape[0] // groups, inner)
    image_elements = groups * inner * int(np.prod(positions))
    step = max(1, COLUMN_ELEMENTS // max(1, image_elements))

    def columns(limb: Floats) -> Floats:
        return _columns(limb, windows, groups)

    parts = [
        _bilinear(x[i : i + step], flat_w, inner, columns, lambda c, v: np.matmul(v, c))
        for i in range(0, x.shape[0], step)
    ]
    return np.concatenate(parts).reshape(x.shape[0], w.shape[0], *positions)


class Products(Protocol):
    """Who multiplies: each result is right modulo 2^ring_bits, and need not be centered."""

    def matmul(self, x: Integers, w: Integers, ring_bits: int) -> Integers:
        """x @ w, with the broadcasting of np.matmul."""

    def conv(
        self, x: Integers, w: Integers, windows: Windows, groups: int, ring_bits: int
    ) -> Integers:
        """Convolution of x [N, C, *spatial] with w [O, C/groups, *kernel]."""


class NumpyProducts:
    """This file's own: the reference."""

    def matmul(self, x: Integers, w: Integers, ring_bits: int) -> Integers:
        return matmul(x, w)

    def conv(
        self, x: Integers, w: Integers, windows: Windows, groups: int, ring_bits: int
    ) -> Integers:
        return conv(x, w, windows, groups)


def _columns(x: Floats, windows: Windows, groups: int) -> Floats:
    """[N, C, *spatial] unrolled to [N, groups, C/groups * kernel, positions]."""
    rank = x.ndim - 2
    view = windows.over(x)
    order = (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank))
    inner = x.shape[1] // groups * int(np.prod(windows.kernel))
    positions = int(np.prod(view.shape[2 : 2 + rank]))
    return view.transpose(order).reshape(x.shape[0], groups, inner, positions)


def _bilinear(
    x: Integers,
    w: Integers,
    inner: int,
    arrange: Callable[[Floats], Floats],
    multiply: Callable[[Floats, Floats], Floats],
) -> Integers:
    """The sum over limbs of multiply(arrange(x limb), w limb), modulo 2^64.

    Args:
        inner: how many products one element of the result adds up.
        arrange: lays a limb of x out for `multiply`; done once a limb.
    """
    x_limbs, w_limbs = _limbs(_magnitude_bits(x), _magnitude_bits(w), inner)
    total: Integers | None = None
    for x_shift, x_limb in _split(x, x_limbs):
        arranged = arrange(x_limb)
        for w_shift, w_limb in _split(w, w_limbs):
            if x_shift + w_shift < WORD_BITS:
                part = multiply(arranged, w_limb).astype(np.int64) << (x_shift + w_shift)
                total = part if total is None else total + part
    assert total is not None, "the lowest limbs always multiply"
    return total


@dataclass(frozen=True)
class _Limbs:
    count: int
    bits: int


def _limbs(x_bits: int, w_bits: int, inner: int) -> tuple[_Limbs, _Limbs]:
    """The fewest limb products whose sums stay exact."""
    room = EXACT_BITS - max(inner, 1).bit_length()
    for x_count, w_count in sorted(product(range(1, 9), repeat=2), key=lambda n: n[0] * n[1]):
        x_limb, w_limb = -(-x_bits // x_count), -(-w_bits // w_count)
        if x_limb + w_limb <= room:
            return _Limbs(x_count, x_limb), _Limbs(w_count, w_limb)
    raise AssertionError(f"no limbs fit an inner dimension of {inner}")


def _split(z: Integers, limbs: _Limbs) -> Iterator[tuple[int, Floats]]:
    """(shift, limb) pairs, z = sum of limb * 2^shift; all but the top limb are non-negative."""
    for i in range(limbs.count):
        shift = i * limbs.bits
        limb = z >> min(shift, WORD_BITS - 1)
        if i + 1 < limbs.count:
            limb = limb & ((1 << limbs.bits) - 1)
        yield shift, limb.astype(np.float64)


def _magnitude_bits(z: Integers) -> int:
    """The least b with -2^b <= z <= 2^b, and at least 1."""
    if z.size == 0:
        return 1
    return max(int(z.max()).bit_length(), (-int(z.min())).bit_length(), 1)


def sum_pool(x: Integers, windows: Windows) -> Integers:
    """Sums over windows of x [N, C, *spatial]; padding counts as zero."""
    view = windows.over(x)
    total: Integers = view.sum(axis=tuple(range(x.ndim, view.ndim)), dtype=np.int64)
    return total


def max_pool(x: Integers, windows: Windows) -> Integers:
    """Maxima over windows of x [N, C, *spatial]; padding never wins."""
    view = windows.over(x, padding=np.iinfo(np.int64).min)
    largest: Integers = view.max(axis=tuple(range(x.ndim, view.ndim)))
    return largest


def truncate(z: Integers, bits: int, tau: Integers | int) -> Integers:
    """floor((z + tau) / 2^bits) with 0 <= tau < 2^bits, without overflow at any z."""
    low = z & ((1 << bits) - 1)
    return (z >> bits) + ((low + tau) >> bits)


def encode(x: npt.ArrayLike, frac_bits: int, ring_bits: int) -> Integers:
    """Real numbers as integers round(x * 2^frac_bits), ties to even; they must fit the ring."""
    numbers = np.asarray(x)
    found = np.empty(numbers.shape, np.int64)
    flat, places, limit = numbers.reshape(-1), found.reshape(-1), 2.0 ** (ring_bits - 1)
    for start in range(0, flat.size, ENCODED_ELEMENTS):
        block = slice(start, start + ENCODED_ELEMENTS)
        # A product with a power of two is exact, and a fifth of what ldexp takes.
        scaled = np.rint(np.asarray(flat[block], np.float64) * 2.0**frac_bits)
        if not -limit <= float(scaled.min()) <= float(scaled.max()) < limit:
            raise OverflowError(
                f"a value doesn't fit {ring_bits} bits at {frac_bits} fraction bits"
            )
        places[block] = scaled
    return found


def decode(z: Integers, frac_bits: int) -> Floats:
    """Integers as the real numbers they stand for."""
    return np.asarray(z.astype(np.float64) * 2.0**-frac_bits)


def slices(starts: Sequence[int], steps: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    """The index that takes `shape` elements from `starts` in steps of `steps`, not zero."""
    made = []
    for start, step, size in zip(starts, steps, shape, strict=True):
        stop = start + step * size
        made.append(slice(start, stop if stop >= 0 else None, step))
    return tuple(made)
