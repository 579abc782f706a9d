"""[c < r] of a c that members know and an r that their provider knows: thermometers, then merges.

A digit of r is dealt as a thermometer, [r > j] for every j but the largest. A member finds its part
of G = [r > a] and P = [r = a] there, at the public digit a of c: no message, whatever the digit's
size. G says that the digit generates a borrow, P that it passes one on. Digits are merged in groups
(`digits.py`): each factor of a group's terms is opened under a mask bit of its own, and the
products of these masks are dealt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from operator import and_, xor

from veilgraph.ir.party.program import Value, stack
from veilgraph.ir.types import planes
from veilgraph.targets.blocks.digits import (
    TASTES,
    Factor,
    Group,
    Split,
    Taste,
    Term,
    cheapest,
)
from veilgraph.targets.blocks.opened_products import OpenedProducts
from veilgraph.targets.blocks.table import tabled
from veilgraph.targets.blocks.window import Bit, Compare, Parts, opened_bit
from veilgraph.targets.parties import Provider

TOGETHER = 8  # planes


@dataclass(frozen=True)
class Digit:
    """A digit's two bits, in parts; P is None where nothing needs it."""

    G: Parts
    P: Parts | None


def compare_by(taste: Taste) -> Compare:
    """The comparison whose digits and merges are cut to a taste."""

    def compare(
        d: Provider, c: Value, r: Value, low: int, count: int, flip: Value | None = None
    ) -> Bit:
        """[c < r] on `count` bits from `low` up, XOR `flip`.  1 + L rounds."""
        return borrow(d, c, r, low, cheapest(count, taste), flip)

    return compare


# The first is taken where nothing is chosen.
COMPARISONS: Mapping[str, Compare] = {name: compare_by(taste) for name, taste in TASTES.items()}


def borrow(d: Provider, c: Value, r: Value, low: int, split: Split, flip: Value | None) -> Bit:
    """[c < r] on as many bits from `low` up as the split has, XOR a bit that the provider knows."""
    digits = first_level(d, c, r, low, split)
    for groups in split.merges:
        rest = iter(digits)
        digits = [merged(d, group, [next(rest) for _ in range(group.size)]) for group in groups]
    own = digits[-1].G
    if flip is not None:
        own = tuple(map(xor, own, d.deal(flip)))
    if split.table is None:
        return opened_bit(d, own)
    return tabled(d, split.table, _factors(split.table, digits), own)


def first_level(d: Provider, c: Value, r: Value, low: int, split: Split) -> list[Digit]:
    """Every digit's two bits.  0 rounds; digits of one size side by side, as planes."""
    digits: list[Digit] = []
    bits = [x.bits(low, sum(split.sizes)) for x in (r, c)]
    for start, size, count in split.runs:
        own, public = ([x.plane(start + j, count, size) for j in range(size)] for x in bits)
        parts = dealt_rows(d, thermometer(own), count)
        G = [_picked(found, public) for found in parts]
        E = [_at_least(found, public, i == 0) for i, found in enumerate(parts)]
        P = [reached ^ above for reached, above in zip(E, G, strict=True)]
        for digit in range(count):
            is_lowest = not digits
            passes = None if is_lowest else tuple(part.plane(digit, 1) for part in P)
            digits.append(Digit(tuple(part.plane(digit, 1) for part in G), passes))
    return digits


def dealt_rows(d: Provider, rows: Iterator[tuple[int, Value]], count: int) -> list[list[Value]]:
    """Each member's parts of rows of `count` planes, in the order of their numbers.

    They are dealt a few at a time: of a wide digit no processor has registers for all.
    """
    found: list[dict[int, Value]] = [{} for _ in d.members]
    while group := dict(islice(rows, max(1, TOGETHER // count))):
        dealt = d.deal(stack([*group.values()]))
        for own, part in zip(found, dealt, strict=True):
            own.update({j: part.plane(i * count, count) for i, j in enumerate(group)})
    return [[own[j] for j in range(len(own))] for own in found]


def thermometer(bits: Sequence[Value]) -> Iterator[tuple[int, Value]]:
    """(j, [digit > j]) for 0 <= j < 2^b - 1, of a digit's b bits, the lowest first.

    Each row is done with before others begin, so few values are alive at once.
    """
    for known, top in enumerate(bits):
        yield from _rows_of(bits, top, (1 << known) - 1, known + 1)


def _rows_of(bits: Sequence[Value], row: Value, j: int, known: int) -> Iterator[tuple[int, Value]]:
    """The rows that come of [digit > j] on `known` low bits."""
    if known == len(bits):
        yield j, row
        return
    top = bits[known]
    both = top & row
    yield from _rows_of(bits, top ^ row ^ both, j, known + 1)
    yield from _rows_of(bits, both, j + (1 << known), known + 1)


def _picked(rows: Sequence[Value], digit: Sequence[Value]) -> Value:
    """[r > a]: the row of a public digit a, where the last one, [r > 2^b - 1], is 0."""
    found = _at([*rows, None], digit)
    assert found is not None
    return found


def _at(rows: Sequence[Value | None], digit: Sequence[Value]) -> Value | None:
    """The row that a public digit names; None is 0.  One half after the other: few are alive."""
    if len(rows) == 1:
        return rows[0]
    *lower, top = digit
    half = len(rows) // 2
    return _of_two(top, _at(rows[:half], lower), _at(rows[half:], lower))


def _at_least(rows: Sequence[Value], digit: Sequence[Value], is_first: bool) -> Value:
    """[r > a - 1]: the row before, where the first one, [r > -1], is 1: the first member's part."""
    found = _at([None, *rows], digit)
    assert found is not None
    return found ^ ~reduce(_either, digit) if is_first else found


def _either(x: Value, y: Value) -> Value:
    return x ^ y ^ (x & y)


def _of_two(bit: Value, zero: Value | None, one: Value | None) -> Value | None:
    """`one` where the bit is set, else `zero`; None is 0."""
    if zero is None:
        return None if one is None else bit & one
    return zero & ~bit if one is None else zero ^ (bit & (zero ^ one))


def merged(d: Provider, group: Group, digits: Sequence[Digit]) -> Digit:
    """The digits of a group as one.  1 round; a bit a factor of each member."""
    if group.size == 1:
        return digits[0]
    parts = _factors(group, digits)
    mask = d.random(digits[0].G[0].shape, planes(len(parts)))
    masked = [stack([part[i] for part in parts.values()]) ^ m for i, m in enumerate(mask.parts)]
    opened = d.opened(masked)
    public = {factor: opened.plane(j, 1) for j, factor in enumerate(parts)}
    hidden = _products_of_masks(d, group, mask.value, mask.parts)
    own = digits[-1].G
    G = _sum(d, group.generating, public, hidden)
    P = _sum(d, group.passing, public, hidden) if group.passing else None
    return Digit(tuple(map(xor, own, G)), P)


def _factors(group: Group, digits: Sequence[Digit]) -> dict[Factor, Parts]:
    """The bits of digits that a group's merge opens."""
    return {factor: _bit(digits[factor[1]], factor[0]) for factor in group.factors}


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
    opened = OpenedProducts(public)
    found: list[Value | None] = [None] * len(d.members)
    for masks, parts in hidden.items():
        rests = [opened[term - masks] for term in terms if masks <= term]
        for i, part in enumerate(parts):
            for rest in rests:
                own = part if rest is None else rest & part
                found[i] = own if (before := found[i]) is None else before ^ own
    first, *others = (part for part in found if part is not None)
    return d.plus_public((first, *others), reduce(xor, [opened.whole(term) for term in terms]))
