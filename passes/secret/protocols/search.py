"""One option for each op of a graph: the least price, where rounds in parallel count once.

The price of a choice is that of a round times the rounds of the longest path, and what each option
costs besides. Parties do not have their parts of a value at the same time: of two that open to each
other one may be a round ahead all along. So a path runs from party to party, and an option says how
long each waits for each: rounds add up as matrices multiply, with a maximum for the sum.

Where all choices are few enough, all are tried. Else ops are chosen one by one at several prices of
a round, from nothing to the whole, and each of these choices is improved, op by op and kind by
kind, as long as that helps. Off the longest path ops become cheap, on it fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt

Choice = tuple[int, ...]  # the number of an option, for each op
Waits = tuple[tuple[int, ...], ...]
NEVER = -(1 << 20)  # rounds that a party waits for what it does not need
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
SHARES = (0.0, 1 / 8, 1 / 4, 1 / 3, 1 / 2, 2 / 3, 1.0)  # of a round's price, where searches begin
FEW = 1 << 16  # choices that are all tried
STORE_STEPS = 40  # halvings of the price of a stored byte


@dataclass(frozen=True)
class Option:
    """A way to compute an op.

    Attributes:
        waits: rounds from what party i has of its operands to what party j has of its result, row i
            and column j; `NEVER` where nothing of the one is needed for the other.
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
        """Until the last party has its part, of operands that all have at once."""
        return max(0, *(max(row) for row in self.waits))

    @property
    def own_price(self) -> float:
        """Of a program of this op alone, its rounds apart."""
        return self.price + sum(map(max, self.loads))


@dataclass(frozen=True)
class Problem:
    """Ops in an order in which each comes after those it reads.

    Attributes:
        before: of each op, the ops that it reads.
        options: of each op, one or more.
        round_price: of one round.
        kinds: ops that are alike, and may be changed together.
        most_store: bytes that options may take in a store; None: any.
    """

    before: Sequence[Sequence[int]]
    options: Sequence[Sequence[Option]]
    round_price: float
    kinds: Sequence[Sequence[int]] = ()
    most_store: int | None = None
    prices: Sequence[Floats] = field(init=False)
    stores: Sequence[Integers] = field(init=False)
    loads: Sequence[Floats] = field(init=False)
    waits: Sequence[Integers | None] = field(init=False)

    def __post_init__(self) -> None:
        for name, what, kind in (
            ("prices", "price", np.float64),
            ("stores", "store_bytes", np.int64),
        ):
            made = [np.array([getattr(o, what) for o in each], kind) for each in self.options]
            object.__setattr__(self, name, made)
        loads = [np.array([sum(o.loads, ()) for o in each], np.float64) for each in self.options]
        object.__setattr__(self, "loads", loads)
        object.__setattr__(self, "waits", [_waits(each) for each in self.options])

    def rounds(self, choices: Integers) -> Integers:
        """Of the longest path, for each row of choices."""
        parties = len(self.options[0][0].waits) if self.options else 1
        start = np.zeros((len(choices), parties), np.int64)
        done: list[Integers] = []
        longest = start.copy()
        for before, waits, numbers in zip(self.before, self.waits, choices.T, strict=True):
            own = reduce(np.maximum, [done[i] for i in before], start)
            if waits is not None:
                own = np.maximum((own[:, :, None] + waits[numbers]).max(axis=1), 0)
            done.append(own)
            np.maximum(longest, own, out=longest)
        return np.asarray(longest.max(axis=1))

    def price(self, choices: Integers) -> Floats:
        """Of each row of choices; infinite where a store has no room."""
        own = sum(p[numbers] for p, numbers in zip(self.prices, choices.T, strict=True))
        price = self.round_price * self.rounds(choices) + own + self._loaded(choices)
        if self.most_store is not None:
            price = np.where(self.stored(choices) <= self.most_store, price, np.inf)
        return np.asarray(price, np.float64)

    def _loaded(self, choices: Integers) -> Floats:
        """The largest load of each group, for each row of choices."""
        groups = self.options[0][0].loads if self.options else ()
        if not groups:
            return np.zeros(len(choices))
        found = (each[numbers] for each, numbers in zip(self.loads, choices.T, strict=True))
        starts = np.cumsum([0, *map(len, groups[:-1])])
        largest = np.maximum.reduceat(sum(found), starts, axis=1)
        return np.asarray(largest.sum(axis=1))

    def stored(self, choices: Integers) -> Integers:
        """Bytes, for each row of choices."""
        found = (s[numbers] for s, numbers in zip(self.stores, choices.T, strict=True))
        return np.asarray(sum(found, np.zeros(len(choices), np.int64)))

    @property
    def least_store(self) -> int:
        """Bytes that no choice is below."""
        return sum(int(stores.min()) for stores in self.stores)

    def storing_at(self, byte_price: float) -> Problem:
        """The same without a limit, where a stored byte has a price."""
        options = [
            [replace(o, price=o.price + byte_price * o.store_bytes) for o in each]
            for each in self.options
        ]
        return replace(self, options=options, most_store=None)


def search(problem: Problem) -> Choice:
    """The best choice found that a store has room for.

    Raises:
        ValueError: none has room: see `Problem.least_store`.
    """
    if problem.most_store is not None and problem.least_store > problem.most_store:
        raise ValueError("no choice has room")
    if prod(map(len, problem.options)) <= FEW:
        return _best_of(problem, [*product(*(range(len(o)) for o in problem.options))])
    free = replace(problem, most_store=None)
    best = _searched(free)
    if problem.price(_rows([best]))[0] < np.inf:
        return best
    return _fitting(problem)


def _waits(options: Sequence[Option]) -> Integers | None:
    """Of each option; None of an op at which nobody waits for another."""
    found = np.array([option.waits for option in options], np.int64)
    own = np.eye(found.shape[1], dtype=bool)
    return None if (found[:, own] <= 0).all() and (found[:, ~own] < 0).all() else found


def _rows(choices: Sequence[Choice]) -> Integers:
    return np.array(choices, np.int64).reshape(len(choices), -1)


def _best_of(problem: Problem, choices: Sequence[Choice]) -> Choice:
    """The first of those that cost least."""
    return choices[int(np.argmin(problem.price(_rows(choices))))]


def _searched(problem: Problem) -> Choice:
    """The best end of the searches from each share of a round's price, without a limit."""
    starts = {
        tuple(
            int(np.argmin([o.own_price + share * problem.round_price * o.rounds for o in options]))
            for options in problem.options
        )
        for share in SHARES
    }
    return _best_of(problem, [_improved(problem, start) for start in sorted(starts)])


def _improved(problem: Problem, choice: Choice) -> Choice:
    """A choice that no change of one op, or of one kind, makes better."""
    price = problem.price(_rows([choice]))[0]
    while others := list(_changed(problem, choice)):
        other = _best_of(problem, others)
        found = problem.price(_rows([other]))[0]
        if not found < price - 1e-12 * abs(price):
            break
        choice, price = other, found
    return choice


def _changed(problem: Problem, choice: Choice) -> Iterator[Choice]:
    """Every choice in which one kind of ops, or one op, takes another option."""
    alone = ([i] for i, options in enumerate(problem.options) if len(options) > 1)
    for ops in (*(kind for kind in problem.kinds if len(kind) > 1), *alone):
        for number in range(len(problem.options[ops[0]])):
            other = list(choice)
            for i in ops:
                other[i] = number
            if tuple(other) != choice:
                yield tuple(other)


def _fitting(problem: Problem) -> Choice:
    """The best of those choices that have room, by a price of a stored byte that makes room."""
    assert problem.most_store is not None
    low, high = 0.0, 1e-12
    found: list[Choice] = [tuple(int(np.argmin(stores)) for stores in problem.stores)]
    while problem.stored(_rows([_searched(problem.storing_at(high))]))[0] > problem.most_store:
        low, high = high, high * 16
    for _ in range(STORE_STEPS):
        middle = (low + high) / 2
        choice = _searched(problem.storing_at(middle))
        has_room = problem.stored(_rows([choice]))[0] <= problem.most_store
        low, high = (low, middle) if has_room else (middle, high)
        found += [choice] if has_room else []
    return _best_of(problem, [_improved(problem, each) for each in dict.fromkeys(found)])
