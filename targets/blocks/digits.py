"""How the bits of a comparison are cut into digits, and digits merged: rounds for dealt bits.

    16 bits       digits of 8 bits, a table                510 dealt, 2 opened, no round
                  digits of 4 bits, one merge of four      60 + 15 dealt, 6 opened, 1 round
                  digits of 2 bits, merged by twos         24 + 11 dealt, 18 opened, 3 rounds

A digit of b bits costs its provider a thermometer of 2^b - 1 dealt bits, and nothing online. A
merge of F digits takes one round, in which each digit's two bits are opened under masks, and the
products of these masks are dealt: their number doubles with F. A table needs no round for the last
merge, for it is done with the opening of the result; its monomials are dealt as words (table.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations

Factor = tuple[str, int]  # ("G", i) or ("P", i): a bit of digit i of a group
Term = frozenset[Factor]  # a product of factors

WIDEST_DIGIT = 8  # bits: 255 dealt ones
MOST_MERGED = 6  # digits, in one round
MOST_TABLED = 4  # digits: 21 monomials


@dataclass(frozen=True)
class Taste:
    """What digits and merges are cut for.

    Attributes:
        round_bits: an element, that a round less may cost.
        has_table: whether a table makes the last merge.
        word_bits: what a table's monomial is counted as; what multiplies it decides.
    """

    round_bits: int
    has_table: bool = False
    word_bits: int = 100


TASTES = {
    "merges": Taste(100),  # merges of four or five digits pay
    "least-bits": Taste(0),
    "table": Taste(4000, has_table=True),
}


@dataclass(frozen=True)
class Group:
    """Digits that one merge makes one of: (G, P) of all, from (G, P) of each, lowest first.

    G = G_F-1 + P_F-1 G_F-2 + P_F-1 P_F-2 G_F-3 + ..., a sum of which at most one term is 1, and
    P = P_F-1 ... P_0, which the lowest group of all does without.
    """

    size: int
    is_lowest: bool

    @cached_property
    def generating(self) -> tuple[Term, ...]:
        """G but for its first term, which is a digit's own."""
        above = (range(i + 1, self.size) for i in range(self.size - 1))
        return tuple(
            frozenset({("G", i), *(("P", j) for j in over)}) for i, over in enumerate(above)
        )

    @cached_property
    def passing(self) -> tuple[Term, ...]:
        """P; nothing for the lowest group."""
        if self.is_lowest:
            return ()
        return (frozenset(("P", i) for i in range(self.size)),)

    @cached_property
    def factors(self) -> tuple[Factor, ...]:
        """What is opened, each under a mask bit of its own."""
        return tuple(sorted(set().union(*self.generating, *self.passing)))

    @cached_property
    def products(self) -> tuple[Term, ...]:
        """Of which masks the products are dealt: of two or more factors of one term."""
        found = {s for term in (*self.generating, *self.passing) for s in _subsets(term, 2)}
        return tuple(sorted(found, key=lambda product: (len(product), sorted(product))))

    @property
    def monomials(self) -> tuple[Term, ...]:
        """Of which masks a table has the products, those of one mask first."""
        return (*(frozenset({factor}) for factor in self.factors), *self.products)


@cache
def _group(size: int, is_lowest: bool) -> Group:
    """One of a few, whose products are found once for all splits."""
    return Group(size, is_lowest)


def _subsets(term: Term, least: int) -> Iterator[Term]:
    for count in range(least, len(term) + 1):
        yield from map(frozenset, combinations(sorted(term), count))


@dataclass(frozen=True)
class Split:
    """Digits, lowest first, and how many a merge takes.

    Attributes:
        sizes: bits of each digit; at most two sizes, the larger ones lowest.
        fan_in: digits that a merge makes one of.
        has_table: the last merge is a table.
    """

    sizes: tuple[int, ...]
    fan_in: int
    has_table: bool = False

    @cached_property
    def levels(self) -> tuple[tuple[Group, ...], ...]:
        """The groups of each round; a group of one digit stays as it is."""
        found: list[tuple[Group, ...]] = []
        left = len(self.sizes)
        while left > 1:
            starts = range(0, left, self.fan_in)
            found.append(tuple(_group(min(self.fan_in, left - i), i == 0) for i in starts))
            left = len(starts)
        return tuple(found)

    @property
    def merges(self) -> tuple[tuple[Group, ...], ...]:
        """The levels that are rounds of their own: all, but for a table's."""
        return self.levels[:-1] if self.table else self.levels

    @property
    def table(self) -> Group | None:
        """The digits that are left for a table; None without one."""
        return self.levels[-1][0] if self.has_table and self.levels else None

    @property
    def rounds(self) -> int:
        """Of all merges."""
        return len(self.merges)

    @property
    def opened_bits(self) -> int:
        """Of each party, by all merges, and for a table."""
        return sum(len(g.factors) for level in self.levels for g in level if g.size > 1)

    @property
    def thermometer_bits(self) -> int:
        """Dealt."""
        return sum((1 << size) - 1 for size in self.sizes)

    @property
    def product_bits(self) -> int:
        """Dealt, of all merges."""
        return sum(len(g.products) for level in self.merges for g in level if g.size > 1)

    @property
    def monomials(self) -> int:
        """Of the table, each dealt as a word of whatever the result multiplies."""
        return len(self.table.monomials) if self.table else 0

    @property
    def sent_bits(self) -> int:
        """Of two parties and their provider, an element."""
        return self.thermometer_bits + self.product_bits + 2 * self.opened_bits

    @property
    def runs(self) -> list[tuple[int, int, int]]:
        """Neighbouring digits of one size: (first bit, size, how many)."""
        found: list[tuple[int, int, int]] = []
        low = 0
        for size in self.sizes:
            if found and found[-1][1] == size:
                found[-1] = (found[-1][0], size, found[-1][2] + 1)
            else:
                found.append((low, size, 1))
            low += size
        return found


@cache
def cheapest(count: int, taste: Taste) -> Split:
    """The split of `count` bits that is most to a taste."""
    fans = range(2, MOST_MERGED + 1)
    found = (Split(sizes, fan, taste.has_table) for sizes in _even(count) for fan in fans)

    def cost(split: Split) -> int:
        rounds = taste.round_bits * split.rounds
        return split.sent_bits + rounds + taste.word_bits * split.monomials

    return min((s for s in found if not s.table or s.table.size <= MOST_TABLED), key=cost)


def _even(count: int) -> Iterator[tuple[int, ...]]:
    """Digits as even as can be, of every number of them."""
    for digits in range(-(-count // WIDEST_DIGIT), count + 1):
        yield tuple(count // digits + (i < count % digits) for i in range(digits))
