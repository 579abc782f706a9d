"""A real function as a Fourier series, in integers that all parties compute alike.

    f(x) 2^F = constant + slope x + sum over j of a_j cos(k_j t x) + b_j sin(k_j t x),

t = 2 pi / 2^w, k_j = first + j step, for integers x modulo 2^w, F = cosine_bits + factor_bits. Of
c = x + r modulo 2^w it splits into 2 N products of what is known of c and what is known of r:

    cos k t c (a cos k t r - b sin k t r) + sin k t c (a sin k t r + b cos k t r).

Cosines have FINE_BITS of precision on the way. Those of the first term and of the step come from
two small tables, for the high and the low bits of an angle; each term is the one before it, turned.
The same lines run on arrays of uint64 and on values of the party level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from math import isqrt
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from veilgraph.ir.shapes import require

Words = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]
FINE_BITS = 30
MOST_ANGLE_BITS = 28  # 2 pi / 2^28 is less than FINE_BITS show
GUARD_BITS = 96  # of the arithmetic that makes tables
BLOCK_ELEMENTS = 1 << 14  # at a time, a dozen arrays: what a processor's caches hold
TOP = 62  # signed numbers below 2^TOP in magnitude are shifted


@dataclass(frozen=True)
class FourierSeries:
    """A function's integers: a form (ir/secret/function_forms.py).

    Attributes:
        window_bits: w; x is opened modulo 2^w.
        first, step: the multiples k_j.
        cosines, sines: a_j and b_j, with coefficient_bits of fraction.
        constant: with F bits of fraction.
        slope: by which the integer x is multiplied, to have F bits of fraction.
        cosine_bits, factor_bits: precision of what is known of c, and of what is dealt of r.
        sum_bits: k', the ring in which the sum is made.
    """

    block: ClassVar[str] = "masked_function"

    window_bits: int
    first: int
    step: int
    cosines: tuple[int, ...]
    sines: tuple[int, ...]
    coefficient_bits: int
    constant: int
    slope: int
    cosine_bits: int
    factor_bits: int
    sum_bits: int

    @property
    def read_bits(self) -> int:
        """Those of the window, and of x where slope x is not zero modulo 2^sum_bits."""
        factors_of_two = (self.slope & -self.slope).bit_length() - 1
        return max(self.window_bits, self.sum_bits - factors_of_two if self.slope else 0)

    @property
    def frac_bits(self) -> int:
        return self.cosine_bits + self.factor_bits

    @property
    def table_shapes(self) -> tuple[tuple[int, ...], ...]:
        split = Split.of(self.window_bits)
        return (2, 1 << split.high), (2, 1 << split.low)

    def tables(self) -> tuple[Integers, ...]:
        return tables(self.window_bits)

    def check(self, ring_bits: int) -> None:
        require(1 <= self.window_bits <= ring_bits, "the window leaves the ring")
        require(len(self.cosines) == len(self.sines) > 0, "cosines and sines differ")

    def values(self, z: Integers, mask: Integers) -> Integers:
        return values(self, z, mask)

    def coarser(self, bits: int) -> FourierSeries:
        """The same without a slope, with so many fraction bits less."""
        of_factor = bits // 2
        return replace(
            self,
            constant=(self.constant + (1 << (bits - 1))) >> bits,
            cosine_bits=self.cosine_bits - (bits - of_factor),
            factor_bits=self.factor_bits - of_factor,
            sum_bits=self.sum_bits - bits,
        )

    def parameters(self) -> dict[str, Any]:
        """As a secret program and the protocol have them."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @staticmethod
    def of(attributes: Mapping[str, Any]) -> FourierSeries:
        return FourierSeries(**{f.name: attributes[f.name] for f in fields(FourierSeries)})


class Turn(NamedTuple):
    """cos and sin of an angle, with FINE_BITS of fraction modulo 2^64."""

    cos: Any
    sin: Any


def rounded(v: Any, bits: int) -> Any:
    """v / 2^bits to the nearest, for a signed v of magnitude below 2^62, modulo 2^64."""
    if bits == 0:
        return v
    found = v + ((1 << TOP) + (1 << (bits - 1)))
    found >>= bits  # of an array in place
    found -= 1 << (TOP - bits)
    return found


def turned(a: Turn, b: Turn) -> Turn:
    """The turn by both angles."""
    cos = a.cos * b.cos
    cos -= a.sin * b.sin
    cos = rounded(cos, FINE_BITS)
    sin = a.sin * b.cos
    sin += a.cos * b.sin
    return Turn(cos, rounded(sin, FINE_BITS))


@dataclass(frozen=True)
class Split:
    """How the bits of an angle are cut: those that are dropped, and those of the two tables."""

    dropped: int
    low: int
    high: int

    @staticmethod
    def of(window_bits: int) -> Split:
        kept = min(window_bits, MOST_ANGLE_BITS)
        return Split(window_bits - kept, kept // 2, kept - kept // 2)


def turns(series: FourierSeries, turn: Callable[[int], Turn]) -> Iterator[Turn]:
    """The turns of all terms of an index, of which `turn` makes one multiple."""
    found = turn(series.first)
    yield found
    if len(series.cosines) > 1:
        step = turn(series.step)
        for _ in series.cosines[1:]:
            found = turned(found, step)
            yield found


def known_of_opened(series: FourierSeries, found: Turn) -> tuple[Any, Any]:
    """What a term's products have of c: its cosine and sine, with cosine_bits."""
    bits = FINE_BITS - series.cosine_bits
    return rounded(found.cos, bits), rounded(found.sin, bits)


def known_of_mask(series: FourierSeries, number: int, found: Turn) -> tuple[Any, Any]:
    """What term `number` has of r, with factor_bits."""
    a, b = series.cosines[number], series.sines[number]
    bits = FINE_BITS + series.coefficient_bits - series.factor_bits
    a, b = a % (1 << 64), b % (1 << 64)
    first = rounded(found.cos * a - found.sin * b, bits)
    return first, rounded(found.sin * a + found.cos * b, bits)


@cache
def tables(window_bits: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """cos and sin of the high bits of an angle, [2, 2^h], and of the low ones, [2, 2^l]."""
    split = Split.of(window_bits)
    return _circle(split.high, 1 << split.high), _circle(split.high + split.low, 1 << split.low)


def _circle(bits: int, count: int) -> npt.NDArray[np.int64]:
    """cos and sin of the first `count` multiples of 2 pi / 2^bits, with FINE_BITS, exactly rounded.

    By turning in integers of GUARD_BITS.
    """
    one = 1 << GUARD_BITS
    step = _unit(bits)
    cos, sin = one, 0
    found = np.zeros((2, count), np.int64)
    spare = GUARD_BITS - FINE_BITS
    half = 1 << (spare - 1)
    for i in range(count):
        found[:, i] = (cos + half) >> spare, (sin + half) >> spare
        cos, sin = (
            (cos * step[0] - sin * step[1]) >> GUARD_BITS,
            (sin * step[0] + cos * step[1]) >> GUARD_BITS,
        )
    return found


def _unit(bits: int) -> tuple[int, int]:
    """cos and sin of 2 pi / 2^bits with GUARD_BITS, by halving the angle of a quarter turn."""
    one = 1 << GUARD_BITS
    if bits <= 2:
        return {0: (one, 0), 1: (-one, 0), 2: (0, one)}[bits]
    cos, sin = 0, one
    for _ in range(bits - 2):
        # cos(a / 2) = sqrt((1 + cos a) / 2), sin(a / 2) = sin a / (2 cos(a / 2))
        half = isqrt((one + cos) << (GUARD_BITS - 1))
        cos, sin = half, (sin << (GUARD_BITS - 1)) // half
    return cos, sin


def values(
    series: FourierSeries, x: npt.NDArray[np.int64], r: npt.NDArray[np.int64] | int
) -> npt.NDArray[np.int64]:
    """f(x) 2^F as the parties compute it under the mask r, modulo 2^sum_bits, signed."""
    found = np.empty(x.shape, np.int64)
    operands = x.reshape(-1), np.broadcast_to(np.asarray(r, np.int64), x.shape).reshape(-1)
    places = found.reshape(-1)
    with np.errstate(over="ignore"):
        for start in range(0, places.size, BLOCK_ELEMENTS):
            block = slice(start, start + BLOCK_ELEMENTS)
            places[block] = _block_values(series, *(each[block] for each in operands))
    return found


def _block_values(series: FourierSeries, x: Integers, r: Integers) -> Integers:
    """Of few elements: each term goes through a dozen arrays of as many."""
    mask = r.astype(np.uint64)
    total = np.full(x.shape, series.constant % (1 << 64), np.uint64)
    total += x.astype(np.uint64) * np.uint64(series.slope % (1 << 64))
    seen = x.astype(np.uint64) + mask
    each = zip(_turns_of(series, seen), _turns_of(series, mask), strict=True)
    for number, (opened, masked) in enumerate(each):
        products = zip(
            known_of_opened(series, opened), known_of_mask(series, number, masked), strict=True
        )
        for a, b in products:
            total += a * b
    above = 64 - series.sum_bits
    return (total.view(np.int64) << above) >> above


def _turns_of(series: FourierSeries, index: Words) -> Iterator[Turn]:
    high, low = (table.view(np.uint64) for table in tables(series.window_bits))
    split = Split.of(series.window_bits)
    unused = np.uint64((1 << series.window_bits) - 1)

    def turn(multiple: int) -> Turn:
        angle = (index * np.uint64(multiple) & unused) >> np.uint64(split.dropped)
        coarse = (angle >> np.uint64(split.low)) & np.uint64(high.shape[1] - 1)
        fine = angle & np.uint64(low.shape[1] - 1)
        return turned(
            Turn(*(row[coarse.astype(np.int64)] for row in high)),
            Turn(*(row[fine.astype(np.int64)] for row in low)),
        )

    return turns(series, turn)
