"""Sign and ReLU of a number from one masked opening of its window.

Members know c = z + r modulo 2^w, their provider knows r, and z lies in [-2^(w-1), 2^(w-1) - 2^t].
One bit says whether z is non-negative. Where it is, c fell below r only if it passed 2^w, which its
top bit and r's tell, so z is c - r in any ring: nothing else is opened.
docs/protocols.md has the argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import mul
from typing import Protocol

from veilgraph.ir.party.program import Value, select
from veilgraph.ir.types import planes, words
from veilgraph.targets.parties import Provider

Parts = tuple[Value, ...]  # one a member
WindowTerms = tuple[Parts, Parts, Parts | None]


class Pad(Protocol):
    """A bit that the provider knows something of and the members nothing, as a factor."""

    def times(self, d: Provider, value: Value, whole: Parts) -> Parts:
        """Parts of the bit times what the provider knows and has dealt in `whole`.  Offline."""

    def to_words(self, d: Provider, bits: int) -> Parts:
        """Parts of the bit in Z_2^bits.  Offline."""


@dataclass(frozen=True)
class Known:
    """A bit that the provider knows.  As a factor it is one dealt value."""

    bit: Value

    def times(self, d: Provider, value: Value, whole: Parts) -> Parts:
        zero = d.own(value.program.const(0, value.shape, value.type))
        return d.deal(select(self.bit, value, zero))

    def to_words(self, d: Provider, bits: int) -> Parts:
        return d.deal(self.bit.to_words(bits))


@dataclass(frozen=True)
class Bit:
    """A bit that nobody knows: the XOR of one that the members know, and of a pad."""

    opened: Value
    pad: Pad

    def times(self, d: Provider, value: Value) -> Parts:
        """Parts of the bit times what the provider knows.  Offline; a value and its pad's."""
        whole = d.deal(value)
        under = self.pad.times(d, value, whole)
        return self._picked([a - b for a, b in zip(whole, under, strict=True)], under)

    def of_sum(
        self, d: Provider, known: Sequence[Value], values: Sequence[Value], public: Value
    ) -> Parts:
        """1 round, which waits for nothing of the bit; K bits of each member.  Offline the values,
        and what two products with a bit take.

        The sum is opened under a mask m: of s (sum + m) - s m members know the first factor, and
        the provider the second.
        """
        parts = d.plus_public(sums_of(known, [d.deal(value) for value in values]), public)
        mask = d.random(parts[0].shape, parts[0].type)
        total = d.opened_under(parts, mask.parts)
        kept = self.to_words(d, total.type.bits), self.times(d, mask.value)
        return d.each([s * total - sm for s, sm in zip(*kept, strict=True)])

    def equals(self, public: Value) -> Bit:
        """Whether the bit is what members know."""
        return Bit(~(self.opened ^ public), self.pad)

    def window_terms(self, d: Provider, upper: Value, top: Value, e: int) -> WindowTerms:
        """Offline 3K + 2e bits, of the K bits of `upper`, beyond its pad's."""
        K = upper.type.bits
        kept = self.to_words(d, K), self.times(d, upper)
        return (*kept, self.times(d, top.to_words(e)) if e > 0 else None)

    def to_words(self, d: Provider, bits: int) -> Parts:
        """Parts of the bit in Z_2^bits.  Offline; its pad's."""
        under = self.pad.to_words(d, bits)
        one = under[0].program.const(1, under[0].shape, under[0].type)
        first, *others = under
        return self._picked([one - first, *(-part for part in others)], under)

    def _picked(self, where_set: Sequence[Value], else_: Sequence[Value]) -> Parts:
        pairs = zip(where_set, else_, strict=True)
        return tuple(select(self.opened, one, zero) for one, zero in pairs)


class Sign(Protocol):
    """A bit [c < r] XOR flip that nobody knows; `flip` is r's top bit in what compares windows."""

    def equals(self, public: Value) -> Sign:
        """Whether the bit is what members know.  Called once."""

    def window_terms(self, d: Provider, upper: Value, top: Value, e: int) -> WindowTerms:
        """Parts of the bit, of the bit times `upper`, in its ring, and of the bit AND `top` in
        Z_2^e, where c's top bit is 0; the last one only for e > 0.

        Args:
            upper: known to the provider.
            top: the top bit of r.
        """

    def of_sum(
        self, d: Provider, known: Sequence[Value], values: Sequence[Value], public: Value
    ) -> Parts:
        """Parts of the bit times a sum: of products of what members know and what the provider
        does, and of what is public."""

    def to_words(self, d: Provider, bits: int) -> Parts:
        """Parts of the bit in Z_2^bits."""


class Compare(Protocol):
    """[c < r] of members who know c and a provider who knows r."""

    def __call__(
        self, d: Provider, c: Value, r: Value, low: int, count: int, flip: Value | None = None
    ) -> Sign:
        """[c < r] on `count` bits from `low` up, XOR a bit `flip` that the provider knows."""


def sums_of(known: Sequence[Value], dealt: Sequence[Parts]) -> Parts:
    """Each member's part of the sum of products of what it knows and what was dealt."""
    return tuple(
        reduce(lambda total, each: total + each, map(mul, known, own))
        for own in zip(*dealt, strict=True)
    )


def opened_bit(d: Provider, parts: Sequence[Value]) -> Bit:
    """A bit in parts, opened under one that the provider knows.  1 round; 1 bit of each member."""
    pad = d.random(parts[0].shape, planes(1))
    return Bit(d.opened_under(parts, pad.parts), Known(pad.value))


def opened_window(d: Provider, parts: Sequence[Value]) -> tuple[Value, Value]:
    """c = z + r at the members, and r at the provider.  1 round; w bits of each member."""
    r = d.random(parts[0].shape, parts[0].type)
    return d.opened_under(parts, r.parts), r.value


def non_negative(d: Provider, c: Value, r: Value, dropped: int, compare: Compare) -> Sign:
    """Whether z >= 0, from bits t .. w - 1 of c and r.  The rounds of `compare`.

    Exact for t = 0; else z in (-2^t, 0) may be called non-negative, and z >= 0 never negative.
    """
    window = c.type.bits
    bits = window - dropped - 1
    c_top, r_top = c.bits(window - 1), r.bits(window - 1)
    if not bits:
        return Bit(~c_top, Known(r_top))
    differs = compare(d, c, r, dropped, bits, flip=r_top)
    return differs.equals(c_top)


def kept_where_positive(
    d: Provider, c: Value, r: Value, f: int, K: int, dropped: int, compare: Compare
) -> Parts:
    """Parts of max(floor((z + tau) / 2^f), 0) in Z_2^K, tau = r mod 2^f; for t <= f or f = 0.

    The rounds of `non_negative`; offline what its bit says of `window_terms`,
    e = max(0, K - (w - f)).
    """
    sign = non_negative(d, c, r, dropped, compare)
    window, upper = c.type.bits, (c >> f).mod(K)
    e = K - (window - f)
    s, sr, passed = sign.window_terms(d, (r >> f).mod(K), r.bits(window - 1), e)
    parts = tuple(one * upper - below for one, below in zip(s, sr, strict=True))
    if passed is None:
        return parts
    # c passed 2^w where r's top bit is set and its own is not.
    c_top, zero = c.bits(window - 1), c.program.const(0, c.shape, words(K))
    pairs = zip(parts, passed, strict=True)
    return tuple(y + select(c_top, zero, u.mod(K) << (window - f)) for y, u in pairs)


def window_to_shift(window: int, dropped: int, f: int) -> int:
    """How many bits of z a window's ReLU of shifted parts takes: those that hold a rounded z / 2^f.

    Where fewer bits are dropped from the comparison than from z, the largest z may be rounded up
    beyond its window; and one bit is left in any case.
    """
    return max(window, f + 1) + (dropped < f)
