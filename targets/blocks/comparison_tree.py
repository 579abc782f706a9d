"""[c < r] times payloads by function secret sharing, behind the opening of c: no message after it.

The provider knows r, and makes two trees for it (Boyle et al., EUROCRYPT 2021): two roots, each a
draw that it shares with one member, and words that say nothing to who lacks one of the roots. At
the point c that members opened each expands its tree to its parts of the payloads if c < r, else of
zeros.

Words take W = 2 (128 (n - 2) + (n + 2) P) bits, of n compared bits, at least 3, and payloads of P
bits together. For [c < r] XOR u of a bit u that the provider knows they are 1 - 2u, times whatever
the bit is to be multiplied by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from veilgraph.ir.party.program import Value, compare_parts, compare_words, select
from veilgraph.ir.party.rules import MOST_PAYLOADS
from veilgraph.ir.types import blocks, words
from veilgraph.targets.blocks.window import Parts, WindowTerms, sums_of
from veilgraph.targets.parties import Provider

FEWEST_BITS = 3  # of a tree
VARIANT = "tree"


@dataclass(frozen=True)
class TreeSign:
    """[c < r] XOR flip, or whether it is `public`, which its members have in parts alone.

    Attributes:
        c: what is compared, at the members; in n bits.
        r: at the provider; in n bits.
        flip: a bit that the provider knows; None is 0.
        public: a bit that members know; None is 1.
    """

    c: Value
    r: Value
    flip: Value | None
    public: Value | None = None

    def equals(self, public: Value) -> TreeSign:
        assert self.public is None, "a bit is compared once"
        return replace(self, public=public)

    def window_terms(self, d: Provider, upper: Value, top: Value, e: int) -> WindowTerms:
        """0 rounds; offline 3K bits, and the words for payloads of 2K + e bits.

        Where c's top bit is 0 the bit is the complement of [c < r] XOR top: it is 1 beside a top
        bit that is 1 just where c < r.
        """
        bits = upper.type.bits
        payloads = [_signed(top, _one(upper, bits)), _signed(top, upper)]
        if e > 0:
            payloads.append(top.to_words(e))
        below = self._below(d, payloads)
        zero = d.own(upper.program.const(0, upper.shape, upper.type))
        flips = d.deal(top.to_words(bits)), d.deal(select(top, upper, zero))
        kept = self._flipped(d, below[0], flips[0]), self._flipped(d, below[1], flips[1])
        s, sr = self._public(_ones(d, self.c, bits), kept[0]), self._public(d.deal(upper), kept[1])
        return s, sr, below[2] if e > 0 else None

    def of_sum(
        self, d: Provider, known: Sequence[Value], values: Sequence[Value], public: Value
    ) -> Parts:
        """0 rounds; offline 2K bits a value of K, K more, and the words of a tree for each three.

        The bit itself is one of the values.
        """
        one = _one(self.r, public.type.bits)
        signed = [self._payload(value) for value in (*values, one)]
        trees = (signed[i : i + MOST_PAYLOADS] for i in range(0, len(signed), MOST_PAYLOADS))
        *below, last = (parts for payloads in trees for parts in self._below(d, payloads))
        kept = [
            self._public(d.deal(value), self._unflipped(d, parts, value))
            for value, parts in zip(values, below, strict=True)
        ]
        bit = self._public(_ones(d, self.c, public.type.bits), self._unflipped(d, last, one))
        totals = zip(sums_of(known, kept), bit, strict=True)
        return d.each([total + part * public for total, part in totals])

    def _payload(self, value: Value) -> Value:
        return value if self.flip is None else _signed(self.flip, value)

    def _unflipped(self, d: Provider, below: Parts, value: Value) -> Parts:
        """Parts of what is kept of a value, of those of its payload where c < r."""
        if self.flip is None:
            return below
        zero = d.own(value.program.const(0, value.shape, value.type))
        return self._flipped(d, below, d.deal(select(self.flip, d.own(value), zero)))

    def to_words(self, d: Provider, bits: int) -> Parts:
        """Parts of the bit.  0 rounds; offline K bits, and the words for a payload of K bits."""
        one = _one(self.r, bits)
        if self.flip is None:
            (below,) = self._below(d, [one])
            return self._public(_ones(d, self.c, bits), below)
        (below,) = self._below(d, [_signed(self.flip, one)])
        kept = self._flipped(d, below, d.deal(self.flip.to_words(bits)))
        return self._public(_ones(d, self.c, bits), kept)

    def _flipped(self, d: Provider, below: Parts, flip: Parts) -> Parts:
        return d.each([a + b for a, b in zip(below, flip, strict=True)])

    def _public(self, whole: Parts, parts: Parts) -> Parts:
        """What the parts are of where `public` is 1, else the rest of the whole."""
        if self.public is None:
            return parts
        pairs = zip(whole, parts, strict=True)
        return tuple(select(self.public, part, one - part) for one, part in pairs)

    def _below(self, d: Provider, payloads: Sequence[Value]) -> list[Parts]:
        """Parts of each payload where c < r, else of 0."""
        p, shape, flat = d.parties, self.c.shape, (self.c.elements,)
        bits = self.c.type.bits
        key = p.draw((*d.members, d.host), (1,), blocks())
        roots = [p.draw((i, d.host), flat, blocks()) for i in d.members]
        values = [d.own(payload).reshape(flat) for payload in payloads]
        told = compare_words(key, roots, d.own(self.r).reshape(flat), bits, values)
        for i in d.members:
            told = [p.send(section, d.host, i) for section in told]
        points = self.c.reshape(flat)
        found = [
            compare_parts(key, root, points, told, side, bits) for side, root in enumerate(roots)
        ]
        return [d.each([part.reshape(shape) for part in each]) for each in zip(*found, strict=True)]


def by_tree(
    d: Provider, c: Value, r: Value, low: int, count: int, flip: Value | None = None
) -> TreeSign:
    """[c < r] on `count` bits from `low` up, XOR `flip`.  0 rounds."""
    bits = max(FEWEST_BITS, count)
    point, threshold = ((x >> low).mod(count).mod(bits) for x in (c, r))
    return TreeSign(point, threshold, flip)


def _one(like: Value, bits: int) -> Value:
    return like.program.const(1, like.shape, words(bits))


def _ones(d: Provider, like: Value, bits: int) -> Parts:
    """1 as the first member's part."""
    one, zero = (like.program.const(number, like.shape, words(bits)) for number in (1, 0))
    return d.each([one, *(zero for _ in d.members[1:])])


def _signed(flip: Value, value: Value) -> Value:
    return select(flip, -value, value)
