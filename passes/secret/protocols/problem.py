"""What a search chooses from: options of ops, and what a choice of them costs.

The price of a choice is that of a round times the rounds of the longest path, and what each option
costs besides. Parties do not have their parts of a value at the same time: of two that open to each
other one may be a round ahead all along. So a path runs from party to party, and an option says how
long each waits for each: rounds add up as matrices multiply, with a maximum for the sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from veilgraph.passes._native import Paths

Choice = tuple[int, ...]  # the number of an option, for each op
Waits = tuple[tuple[int, ...], ...]
FIRST = 64  # changes whose paths are followed before others
NEAR = 1e-9  # of a price: what rounding makes of one sum
NEVER = -(1 << 40)  # how long a party waits for what it does not need
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Option:
    """A way to compute an op.

    Attributes:
        waits: rounds, or parts of one, from what party i has of its operands to what party j has of
            its result, row i and column j; `NEVER` where the one needs nothing of the other.
        price: of all else, in the unit of a round's price.
        store_bytes: what of it lies in a store of prepared inferences.
        loads: more prices, in groups, as one of what each link carries: of a group's sums over all
            ops the largest counts.
    """

    waits: Waits
    price: float
    store_bytes: int = 0
    loads: tuple[tuple[float, ...], ...] = ()

    @property
    def rounds(self) -> int:
        """As `waits` count: until the last has its part, of operands that all have at once."""
        return max(0, *(max(row) for row in self.waits))

    @property
    def own_price(self) -> float:
        """Of a program of this op alone, its rounds apart."""
        return self.price + sum(map(max, self.loads))


class Changes(NamedTuple):
    """Of a choice, each of some ops.

    Attributes:
        first: where each one's ops begin, and the number of all.
        ops: of one change behind those of another, each one's in ascending order.
        numbers: of the options that they take.
    """

    first: Integers
    ops: npt.NDArray[np.int32]
    numbers: Integers

    @classmethod
    def of(cls, changes: Iterable[tuple[Sequence[int], int]]) -> Changes:
        """In each of which these ops, in ascending order, take the option of that number."""
        every = list(changes)
        ops, lengths = [ops for ops, _ in every], [len(ops) for ops, _ in every]
        return cls(
            np.array([*accumulate(lengths, initial=0)], np.int64),
            np.array([*chain.from_iterable(ops)], np.int32),
            np.repeat(np.array([number for _, number in every], np.int64), lengths),
        )

    def some(self, taken: npt.NDArray[np.bool_]) -> Changes:
        """Those that are taken."""
        lengths = np.diff(self.first)
        own = np.repeat(taken, lengths)
        first = np.concatenate(([0], np.cumsum(lengths[taken])))
        return Changes(first.astype(np.int64), self.ops[own], self.numbers[own])

    def made(self, choice: Integers, each: Sequence[int]) -> Integers:
        """A choice after each of these changes, a row a change."""
        others = np.tile(choice, (len(each), 1))
        for other, i in zip(others, each, strict=True):
            own = slice(self.first[i], self.first[i + 1])
            other[self.ops[own]] = self.numbers[own]
        return others


@dataclass(frozen=True)
class Problem:
    """Ops in an order in which each comes after those it reads.

    Attributes:
        before: of each op, the ops that it reads.
        options: of each op, one or more.
        round_price: of one round, or of the part of one in which waits are given.
        kinds: ops that are alike, and may be changed together.
        most_store: bytes that options may take in a store; None: any.
    """

    before: Sequence[Sequence[int]]
    options: Sequence[Sequence[Option]]
    round_price: float
    kinds: Sequence[Sequence[int]] = ()
    most_store: int | None = None
    # Of all options, one op's behind another's: price, bytes in a store, then loads.
    costs: Floats = field(init=False)
    first: Integers = field(init=False)  # where each op's options begin, and the number of all
    free: Integers = field(init=False)  # the ops that have a choice
    fixed: Floats = field(init=False)  # what all others cost
    waits: Integers = field(init=False)  # of each option, row behind row
    paths: Paths = field(init=False)

    def __post_init__(self) -> None:
        options = list(chain.from_iterable(self.options))
        rows = [(o.price, o.store_bytes, *chain.from_iterable(o.loads)) for o in options]
        costs = np.array(rows, np.float64).reshape(len(rows), -1 if rows else 2)
        first = np.array([*accumulate(map(len, self.options), initial=0)], np.int64)
        begins = np.array([*accumulate(map(len, self.before), initial=0)], np.int64)
        before = np.array([*chain.from_iterable(self.before)], np.int32)
        alike = {id(each): each for each in self.options}  # ops of one kind have one list
        own = {key: _waits(each).ravel() for key, each in alike.items()}
        waits = np.concatenate([own[id(each)] for each in self.options] or [first[:0]])
        parties = len(options[0].waits) if options else 1
        is_free = np.diff(first) > 1
        for name, made in (
            ("costs", costs),
            ("first", first),
            ("free", np.flatnonzero(is_free)),
            ("fixed", costs[first[:-1][~is_free]].sum(axis=0)),
            ("waits", waits.reshape(len(costs), -1) if options else waits),
            ("paths", Paths(begins, before, parties, first, waits)),
        ):
            object.__setattr__(self, name, made)

    def rounds(self, choices: Integers) -> Integers:
        """Of the longest path, as `waits` count, for each row of choices."""
        if not self.options:
            return np.zeros(len(choices), np.int64)
        return self.paths.rounds(np.ascontiguousarray(choices).ravel())

    def price(self, choices: Integers) -> Floats:
        """Of each row of choices; infinite where a store has no room."""
        return self._price(self._summed(choices), self.rounds(choices))

    def changed(self, choice: Sequence[int] | Integers, changes: Changes) -> Floats:
        """The price after each change of a choice, to some 1e-12 of it."""
        row = np.asarray(choice, np.int64)
        if not len(changes.ops):
            return np.zeros(0)
        return self._price(self._changed_sums(row, changes), self.paths.changed(row, *changes))

    def cheapest(self, choice: Integers, changes: Changes) -> tuple[Integers, Floats]:
        """What comes of the changes that cost least, as far as sums that are rounded tell: choices,
        and their prices.

        Paths are followed for those alone that may be: what each may cost at least is known without
        its paths, and the first that are followed say what the others have to cost less than.
        """
        if not len(changes.ops):
            return choice[None][:0], np.zeros(0)
        sums = self._changed_sums(choice, changes)
        bounds = self._price(sums, self._fewest_rounds(choice, changes))
        rounds, prices = np.zeros(len(bounds), np.int64), np.full(len(bounds), np.inf)
        is_near, is_followed = np.zeros((2, len(bounds)), bool)
        is_near[np.argpartition(bounds, min(FIRST, len(bounds) - 1))[:FIRST]] = True
        for _ in range(2):
            new = is_near & ~is_followed
            rounds[new] = self.paths.changed(choice, *changes.some(new))
            prices[new] = self._price(sums[new], rounds[new])
            least, is_followed = float(prices.min()), is_followed | new
            is_near = bounds <= least + 10 * NEAR * abs(least)
        near = np.flatnonzero((prices <= least + NEAR * abs(least)) & (prices < np.inf))
        others = changes.made(choice, near.tolist())
        return others, self._price(self._summed(others), rounds[near])

    def _fewest_rounds(self, choice: Integers, changes: Changes) -> Integers:
        """What the rounds after each change are no less than: a path passes an op once at most, and
        loses no more there than the longest wait becomes shorter.
        """
        at = self.first[changes.ops]
        before, after = self.waits[at + choice[changes.ops]], self.waits[at + changes.numbers]
        lost = np.add.reduceat(np.maximum((before - after).max(axis=1), 0), changes.first[:-1])
        fewest: Integers = np.maximum(self.rounds(choice[None]) - lost, 0)
        return fewest

    def _changed_sums(self, choice: Integers, changes: Changes) -> Floats:
        """As `_summed`, after each change."""
        at = self.first[changes.ops]
        more = self.costs[at + changes.numbers] - self.costs[at + choice[changes.ops]]
        sums: Floats = self._summed(choice[None]) + np.add.reduceat(more, changes.first[:-1])
        return sums

    def _summed(self, choices: Integers) -> Floats:
        """Of the costs of options, for each row of choices."""
        own = self.costs[self.first[self.free] + choices[:, self.free]]
        fixed = np.broadcast_to(self.fixed, (len(choices), 1, len(self.fixed)))
        # One op after another, not in pairs: a choice has one price, whichever it is asked with.
        total: Floats = np.add.reduce(np.concatenate((fixed, own), axis=1), axis=1)
        return total

    def _price(self, sums: Floats, rounds: Integers) -> Floats:
        price = self.round_price * rounds + sums[:, 0]
        groups = [len(group) for group in self.options[0][0].loads] if self.options else []
        if groups:
            starts = np.cumsum([0, *groups[:-1]])
            price += np.maximum.reduceat(sums[:, 2:], starts, axis=1).sum(axis=1)
        if self.most_store is not None:
            price[sums[:, 1] > self.most_store] = np.inf
        return np.asarray(price)

    def stored(self, choices: Integers) -> Integers:
        """Bytes, for each row of choices."""
        return self._summed(choices)[:, 1].astype(np.int64)

    @property
    def least_store(self) -> int:
        """Bytes that no choice is below."""
        return sum(min(o.store_bytes for o in each) for each in self.options)

    def storing_at(self, byte_price: float) -> Problem:
        """The same without a limit, where a stored byte has a price."""
        options = [
            [replace(o, price=o.price + byte_price * o.store_bytes) for o in each]
            for each in self.options
        ]
        return replace(self, options=options, most_store=None)


def _waits(options: Sequence[Option]) -> Integers:
    """Of each option; none at all of an op at which nobody waits for another."""
    found = np.array([option.waits for option in options], np.int64)
    own = np.eye(found.shape[1], dtype=bool)
    if (found[:, own] <= 0).all() and (found[:, ~own] < 0).all():
        return np.broadcast_to(np.where(own, 0, NEVER), found.shape)
    return found
