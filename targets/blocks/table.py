"""The last merge of a comparison without the round behind it: its opened bits pick in dealt words.

Of F digits the factors of G = G_F-1 + (a sum of products) are opened under mask bits, and beside
them G_F-1 under a bit q. The sum is 0 or 1 as an integer, for its products exclude each other; so
the result, under what was opened beside q, is q + (1 - 2q) times the sum. A factor is
m + (1 - 2m) mu, of its opened bit m and its mask mu: the sum is a polynomial in masks, whose
coefficients members know. The provider deals its monomials, times 1 - 2q and whatever the result is
to be multiplied by.

    digits         2      3      4
    monomials      3      9     21
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_, xor

from veilgraph.ir.party.program import Value, select, stack
from veilgraph.ir.types import planes, words
from veilgraph.targets.blocks.digits import Factor, Group, Term
from veilgraph.targets.blocks.opened_products import OpenedProducts
from veilgraph.targets.blocks.window import Bit, Known, Parts
from veilgraph.targets.parties import Provider


@dataclass(frozen=True)
class Table:
    """q XOR a sum of products: the members know its factors under masks, and the provider these.

    Attributes:
        q: at the provider.
        masks: of each factor, at the provider.
        opened: each factor under its mask, at the members.
    """

    group: Group
    q: Value
    masks: Mapping[Factor, Value]
    opened: Mapping[Factor, Value]

    def times(self, d: Provider, value: Value, whole: Parts) -> Parts:
        """Parts of the bit times what the provider knows and has dealt in `whole`.

        Offline; a value for q, and one a monomial.
        """
        under = Known(self.q).times(d, value, whole)
        signed = select(self.q, -value, value)
        zero = d.own(value.program.const(0, value.shape, value.type))
        dealt = {
            masks: d.deal(select(self._product(masks), signed, zero))
            for masks in self.group.monomials
        }
        left = tuple(a - b - b for a, b in zip(whole, under, strict=True))  # (1 - 2q) value
        return tuple(
            u + self._sum(rest, {masks: parts[i] for masks, parts in dealt.items()})
            for i, (u, rest) in enumerate(zip(under, left, strict=True))
        )

    def to_words(self, d: Provider, bits: int) -> Parts:
        """Parts of the bit in Z_2^bits.  Offline; a value for q, and one a monomial."""
        one = self.q.program.const(1, self.q.shape, words(bits))
        zero = self.q.program.const(0, self.q.shape, words(bits))
        public = d.each([one, *(zero for _ in d.members[1:])])
        return self.times(d, d.own(one), public)

    def _product(self, masks: Term) -> Value:
        return reduce(and_, (self.masks[factor] for factor in sorted(masks)))

    def _sum(self, whole: Value, dealt: Mapping[Term, Value]) -> Value:
        """A member's part of the sum of products, times (1 - 2q) the value that `whole` is of."""
        opened = OpenedProducts(self.opened)
        zero = whole.program.const(0, whole.shape, whole.type)
        found = [select(opened.whole(term), whole, zero) for term in self.group.generating]
        for masks, part in dealt.items():
            sign = reduce(xor, (self.opened[factor] for factor in sorted(masks)))
            signed = select(sign, -part, part)
            for term in self.group.generating:
                if masks <= term:
                    rest = opened[term - masks]
                    found.append(signed if rest is None else select(rest, signed, zero))
        return reduce(lambda a, b: a + b, found)


def tabled(d: Provider, group: Group, factors: Mapping[Factor, Parts], own: Parts) -> Bit:
    """`own` XOR the sum of a group's generating terms.  1 round; a bit a factor, and one more."""
    mask = d.random(own[0].shape, planes(len(factors) + 1))
    rows = [*factors.values(), own]
    opened = d.opened_under([stack([row[i] for row in rows]) for i in range(len(own))], mask.parts)
    public = {factor: opened.plane(j, 1) for j, factor in enumerate(factors)}
    masks = {factor: mask.value.plane(j, 1) for j, factor in enumerate(factors)}
    last = len(factors)
    table = Table(group, mask.value.plane(last, 1), masks, public)
    return Bit(opened.plane(last, 1), table)
