"""The exponential of a masked opening, in integers that all parties compute alike.

z is opened as c = mu z + r modulo 2^w, for w = s + q; with upper and lower bits c = ct 2^s + cl,
r = rt 2^s + rl:

    mu z = j 2^s + cl - rl,    j = ct - rt modulo 2^q,

exactly, for 0 <= mu z <= (2^q - 1) 2^s. So j is the segment that mu z lies in or the one above,
nobody knows which, and no borrow has to be found. With u nats a unit of mu z and h = 2^s u,

    e^(u mu z) = e^((j + 1) h - u) D(2^s - 1 - cl) D(rl),    D(v) = e^(-u v):

D of the complement of cl is known to those who see c, and for each segment number t who knows r
deals [rt = t] D(rl). Two small tables make D, for the high and the low bits of v. The same lines
run on arrays of uint64 and on values of the party level.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from decimal import Decimal, localcontext
from functools import cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from veilgraph.ir.secret.fourier import FINE_BITS, Words, rounded
from veilgraph.ir.shapes import require

DIGITS = 36
HEIGHT_BITS = 18  # of heights up to 2^14: a product with a decay stays below 2^62
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Segments:
    """The integers that both forms share.

    Attributes:
        window_bits: w; mu z is opened modulo 2^w.
        piece_bits: s.
        multiple: mu.
        opened_bits: precision of what is known of c.
        factor_bits: precision of what is dealt of r.
        sum_bits: of the ring in which products are summed.
    """

    window_bits: int
    piece_bits: int
    multiple: int
    opened_bits: int
    factor_bits: int
    sum_bits: int

    @property
    def number_bits(self) -> int:
        """q."""
        return self.window_bits - self.piece_bits

    @property
    def count(self) -> int:
        return 1 << self.number_bits

    @property
    def read_bits(self) -> int:
        return self.window_bits

    @property
    def frac_bits(self) -> int:
        return self.opened_bits + self.factor_bits

    @property
    def low_bits(self) -> int:
        """Of v, that the second table is for."""
        return self.piece_bits // 2

    @property
    def table_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of both tables of decays."""
        return (1 << (self.piece_bits - self.low_bits),), (1 << self.low_bits,)

    def check(self, ring_bits: int) -> None:
        """ValueError where an operand in such a ring has no such window."""
        inside = 2 <= self.piece_bits < self.window_bits <= ring_bits
        require(inside, "the window leaves the ring, or has no segments")

    def parameters(self) -> dict[str, Any]:
        """As a secret program and the protocols have them."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @staticmethod
    def of(attributes: Mapping[str, Any]) -> Segments:
        return Segments(**{f.name: attributes[f.name] for f in fields(Segments)})


@dataclass(frozen=True)
class ExpSums(Segments):
    """Sums of e^x along rows, of numbers x from 0 on: a form (ir/secret/function_forms.py).

    Attributes:
        in_bits: fraction bits of x.
    """

    block: ClassVar[str] = "exp_sums"
    in_bits: int

    @property
    def nats(self) -> float:
        """h, of a segment."""
        return math.ldexp(1 / self.multiple, self.piece_bits - self.in_bits)

    def tables(self) -> tuple[Integers, ...]:
        return tables(self, self.in_bits)

    def values(self, z: Integers, mask: Integers) -> Integers:
        return sums(self, z, mask, tables(self, self.in_bits))


@dataclass(frozen=True)
class ExpSegments(ExpSums):
    """e^(x - top): a form (ir/secret/function_forms.py).

    Attributes:
        top: in units of x.
        least_bits: heights below 2^-least_bits are zero.
    """

    block: ClassVar[str] = "masked_exp"
    top: int
    least_bits: int

    @property
    def table_shapes(self) -> tuple[tuple[int, ...], ...]:
        return (*super().table_shapes, (self.count,))

    def tables(self) -> tuple[Integers, ...]:
        return (*tables(self, self.in_bits), self._heights())

    def values(self, z: Integers, mask: Integers) -> Integers:
        return values(self, z, mask, tables(self, self.in_bits), self._heights())

    def _heights(self) -> Integers:
        top = math.ldexp(self.top, -self.in_bits)
        return heights(self, self.in_bits, top, 2.0**-self.least_bits)


def decay(high: Any, low: Any) -> Any:
    """D(v), with FINE_BITS, of the entries that its bits have in the tables."""
    return rounded(high * low, FINE_BITS)


def known_of_opened(segments: Segments, found: Any) -> Any:
    """A decay with opened_bits."""
    return rounded(found, FINE_BITS - segments.opened_bits)


def scaled_of_opened(segments: Segments, found: Any, height: Any) -> Any:
    """A decay times a height, with opened_bits."""
    return rounded(found * height, FINE_BITS + HEIGHT_BITS - segments.opened_bits)


def known_of_mask(segments: Segments, found: Any) -> Any:
    """A decay with factor_bits."""
    return rounded(found, FINE_BITS - segments.factor_bits)


def unit_of(segments: Segments, in_bits: int) -> Decimal:
    """u, the nats of a unit of mu z, where z has `in_bits` of fraction."""
    with localcontext() as context:
        context.prec = DIGITS
        return Decimal(1) / segments.multiple / (1 << in_bits)


@cache
def tables(segments: Segments, in_bits: int) -> tuple[Integers, Integers]:
    """D of the high bits of v and of the low ones, with FINE_BITS."""
    unit, low = unit_of(segments, in_bits), segments.low_bits
    high = segments.piece_bits - low
    return _decays(unit * 2**low, 1 << high), _decays(unit, 1 << low)


def _decays(unit: Decimal, count: int) -> Integers:
    """e^(-i unit) for i below count, by decimal arithmetic: on every machine the same."""
    with localcontext() as context:
        context.prec = DIGITS
        step, found = (-unit).exp(), Decimal(2) ** FINE_BITS
        each = []
        for _ in range(count):
            each.append(int(found.to_integral_value()))
            found *= step
    return np.asarray(each, np.int64)


@cache
def heights(segments: Segments, in_bits: int, top: float, least: float) -> Integers:
    """e^((j + 1) h - u - top) for each segment j, with HEIGHT_BITS; 0 where it is below `least`."""
    with localcontext() as context:
        context.prec = DIGITS
        unit = unit_of(segments, in_bits)
        ends = [unit * ((j + 1) * 2**segments.piece_bits - 1) for j in range(segments.count)]
        reals = [(end - Decimal(top)).exp() for end in ends]
        kept = [x if x >= Decimal(least) else Decimal(0) for x in reals]
        return np.asarray([int((x * 2**HEIGHT_BITS).to_integral_value()) for x in kept], np.int64)


def sums(
    segments: Segments, z: Integers, r: Integers, found: tuple[Integers, Integers]
) -> Integers:
    """For each segment the sum, along the last axis, of e^(u mu z - (j + 1) h + u), under mask r.

    On a new last axis in its place; with frac_bits, modulo 2^sum_bits.
    """
    segment, known, dealt = _factors(segments, z, r, found)
    products = known_of_opened(segments, known) * dealt
    zero = np.uint64(0)
    each = [np.where(segment == j, products, zero).sum(axis=-1) for j in range(segments.count)]
    return _centered(np.stack(each, axis=-1).view(np.int64), segments.sum_bits)


def values(
    segments: Segments, z: Integers, r: Integers, found: tuple[Integers, Integers], tall: Integers
) -> Integers:
    """e^(u mu z - top) under mask r, with frac_bits, modulo 2^sum_bits; `tall` are the heights."""
    segment, known, dealt = _factors(segments, z, r, found)
    scaled = scaled_of_opened(segments, known, tall.view(np.uint64)[segment.astype(np.int64)])
    return _centered((scaled * dealt).view(np.int64), segments.sum_bits)


def _factors(
    segments: Segments, z: Integers, r: Integers, found: tuple[Integers, Integers]
) -> tuple[Words, Words, Words]:
    """j, the decay that is known of c, and what is dealt of r."""
    whole, part = (
        np.uint64((1 << bits) - 1) for bits in (segments.window_bits, segments.piece_bits)
    )
    s = np.uint64(segments.piece_bits)
    mask = np.broadcast_to(np.asarray(r, np.int64), z.shape).astype(np.uint64) & whole
    c = (z.astype(np.uint64) * np.uint64(segments.multiple) + mask) & whole
    segment = ((c >> s) - (mask >> s)) & np.uint64(segments.count - 1)
    known = _decay_at(segments, part - (c & part), found)
    return segment, known, known_of_mask(segments, _decay_at(segments, mask & part, found))


def _decay_at(segments: Segments, v: Words, found: tuple[Integers, Integers]) -> Words:
    high, low = (table.view(np.uint64) for table in found)
    lower = v & np.uint64((1 << segments.low_bits) - 1)
    upper = v >> np.uint64(segments.low_bits)
    both: Words = decay(high[upper.astype(np.int64)], low[lower.astype(np.int64)])
    return both


def _centered(x: Integers, bits: int) -> Integers:
    return (x << (64 - bits)) >> (64 - bits)
