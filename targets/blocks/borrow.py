"""[c < r] of a c that members know and an r that their provider knows: thermometers, then merges.

A digit of r is dealt as a thermometer, [r > j] for every j but the largest. A member finds its part
of G = [r > a] and P = [r = a] there, at the public digit a of c: no message, whatever the digit's
size. G says that the digit generates a borrow, P that it passes one on. Digits are merged in groups
(`digits.py`): each factor of a group's terms is opened under a mask bit of its own, and the
products of these masks are dealt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, xor

from veilgraph.ir.party.program import Value, stack
from veilgraph.ir.types import planes
from veilgraph.targets.blocks.digits import Factor, Group, Split, Term, cheapest
from veilgraph.targets.blocks.window import Compare, Parts
from veilgraph.targets.suite import Provider

ROUND_BITS = 100  # an element, that a round less may cost; merges of four or five digits pay


@dataclass(frozen=True)
class Digit:
    """A digit's two bits, in parts; P is None where nothing needs it."""

    G: Parts
    P: Parts | None


def compare_with(round_bits: int) -> Compare:
    """The comparison that sends least, where a round is worth so many bits an element."""

    def compare(d: Provider, c: Value, r: Value, low: int, count: int) -> Parts:
        """[c < r] on `count` bits from `low` up.  A round for each level of merges."""
        return borrow(d, c, r, low, cheapest(count, round_bits))

    return compare


def borrow(d: Provider, c: Value, r: Value, low: int, split: Split) -> Parts:
    """Parts, by XOR, of [c < r] on as many bits from `low` up as the split has."""
    digits = first_level(d, c, r, low, split)
    for groups in split.levels:
        rest = iter(digits)
        digits = [merged(d, group, [next(rest) for _ in range(group.size)]) for group in groups]
    return digits[0].G


def first_level(d: Provider, c: Value, r: Value, low: int, split: Split) -> list[Digit]:
    """Every digit's two bits.  0 rounds; digits of one size side by side, as planes."""
    digits: list[Digit] = []
    bits = [x.bits(low, sum(split.sizes)) for x in (r, c)]
    for start, size, count in split.runs:
        own, public = ([x.plane(start + j, count, size) for j in range(size)] for x in bits)
        rows = thermometer(own)
        dealt = d.deal(stack(rows))
        parts = [[part.plane(j * count, count) for j in range(len(rows))] for part in dealt]
        G = [_picked(found, public) for found in parts]
        E = [_at_least(found, public, i == 0) for i, found in enumerate(parts)]
        P = [reached ^ above for reached, above in zip(E, G, strict=True)]
        for digit in range(count):
            is_lowest = not digits
            passes = None if is_lowest else tuple(part.plane(digit, 1) for part in P)
            digits.append(Digit(tuple(part.plane(digit, 1) for part in G), passes))
    return digits


def thermometer(bits: Sequence[Value]) -> list[Value]:
    """[digit > j] for 0 <= j < 2^b - 1, of a digit's b bits, the lowest first."""
    *lower, top = bits
    if not lower:
        return [top]
    below = thermometer(lower)
    both = [top & row for row in below]
    return [*(top ^ row ^ same for row, same in zip(below, both, strict=True)), top, *both]


def _picked(rows: Sequence[Value], digit: Sequence[Value]) -> Value:
    """[r > a]: the row of a public digit a, where the last one, [r > 2^b - 1], is 0."""
    found: list[Value | None] = [*rows, None]
    for bit in digit:
        found = [_of_two(bit, *pair) for pair in zip(found[::2], found[1::2], strict=True)]
    assert found[0] is not None
    return found[0]


def _at_least(rows: Sequence[Value], digit: Sequence[Value], is_first: bool) -> Value:
    """[r > a - 1]: the row before, where the first one, [r > -1], is 1: the first member's part."""
    bit, *others = digit
    lowest = (bit & rows[0]) ^ ~bit if is_first else bit & rows[0]
    pairs = zip(rows[1::2], rows[2::2], strict=True)
    found = [lowest, *(_of_two(bit, *pair) for pair in pairs)]
    for bit in others:
        found = [_of_two(bit, *pair) for pair in zip(found[::2], found[1::2], strict=True)]
    return found[0]


def _of_two(bit: Value, zero: Value | None, one: Value | None) -> Value:
    """`one` where the bit is set, else `zero`; no value is 0."""
    assert zero is not None
    return zero & ~bit if one is None else zero ^ (bit & (zero ^ one))


def merged(d: Provider, group: Group, digits: Sequence[Digit]) -> Digit:
    """The digits of a group as one.  1 round; a bit a factor of each member."""
    if group.size == 1:
        return digits[0]
    parts = {factor: _bit(digits[factor[1]], factor[0]) for factor in group.factors}
    mask = d.random(digits[0].G[0].shape, planes(len(parts)))
    masked = [stack([part[i] for part in parts.values()]) ^ m for i, m in enumerate(mask.parts)]
    opened = d.opened(masked)
    public = {factor: opened.plane(j, 1) for j, factor in enumerate(parts)}
    hidden = _products_of_masks(d, group, mask.value, mask.parts)
    own = digits[-1].G
    G = _sum(d, group.generating, public, hidden)
    P = _sum(d, group.passing, public, hidden) if group.passing else None
    return Digit(tuple(map(xor, own, G)), P)


def _bit(digit: Digit, name: str) -> Parts:
    found = digit.G if name == "G" else digit.P
    assert found is not None
    return found


def _products_of_masks(d: Provider, group: Group, mask: Value, parts: Parts) -> dict[Term, Parts]:
    """Parts of each mask, and of each product of masks, which is dealt."""
    single = {f: mask.plane(j, 1) for j, f in enumerate(group.factors)}
    found = {
        frozenset({f}): tuple(part.plane(j, 1) for part in parts)
        for j, f in enumerate(group.factors)
    }
    if not group.products:
        return found
    known = [reduce(and_, (single[f] for f in sorted(product))) for product in group.products]
    dealt = d.deal(stack(known))
    for j, product in enumerate(group.products):
        found[product] = tuple(part.plane(j, 1) for part in dealt)
    return found


def _sum(
    d: Provider,
    terms: Sequence[Term],
    public: Mapping[Factor, Value],
    hidden: Mapping[Term, Parts],
) -> Parts:
    """Parts of the XOR of terms, each factor the XOR of what is public and what is hidden of it."""
    opened = _Products(public)
    found: list[Value | None] = [None] * len(d.members)
    for masks, parts in hidden.items():
        rests = [opened[term - masks] for term in terms if masks <= term]
        for i, part in enumerate(parts):
            for rest in rests:
                own = part if rest is None else rest & part
                found[i] = own if (before := found[i]) is None else before ^ own
    first, *others = (part for part in found if part is not None)
    return d.plus_public((first, *others), reduce(xor, [opened.whole(term) for term in terms]))


class _Products(dict[Term, Value | None]):
    """Products of opened bits, each made once of a smaller one; of none: None, which is 1."""

    def __init__(self, public: Mapping[Factor, Value]) -> None:
        super().__init__({frozenset(): None})
        self._public = public

    def whole(self, term: Term) -> Value:
        """Of all factors of a term."""
        found = self[term]
        assert found is not None, "a term has factors"
        return found

    def __missing__(self, term: Term) -> Value:
        *fewer, last = sorted(term)
        rest = self[frozenset(fewer)]
        made = self._public[last] if rest is None else rest & self._public[last]
        self[term] = made
        return made
