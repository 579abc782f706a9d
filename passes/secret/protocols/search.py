"""One option for each op of a graph: the least price, where rounds in parallel count once.

Where all choices are few enough, all are tried. Else ops are chosen one by one at several prices of
a round, from nothing to the whole, and each of these choices is improved, op by op and kind by
kind, as long as that helps. Off the longest path ops become cheap, on it fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np

from veilgraph.passes.secret.protocols.problem import Changes, Choice, Integers, Problem

SHARES = (0.0, 1 / 8, 1 / 4, 1 / 3, 1 / 2, 2 / 3, 1.0)  # of a round's price, where searches begin
FEW = 1 << 16  # choices that are all tried
STORE_STEPS = 40  # halvings of the price of a stored byte


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


def _rows(choices: Sequence[Choice]) -> Integers:
    return np.array(choices, np.int64).reshape(len(choices), -1)


def _best_of(problem: Problem, choices: Sequence[Choice]) -> Choice:
    """The first of those that cost least."""
    return choices[int(np.argmin(problem.price(_rows(choices))))]


def _searched(problem: Problem) -> Choice:
    """The best end of the searches from each share of a round's price, without a limit."""
    each = [[(o.own_price, o.rounds) for o in options] for options in problem.options]
    starts = {
        tuple(
            int(np.argmin([own + share * problem.round_price * rounds for own, rounds in options]))
            if len(options) > 1
            else 0
            for options in each
        )
        for share in SHARES
    }
    changes = _changes(problem)
    return _best_of(problem, [_improved(problem, start, changes) for start in sorted(starts)])


def _improved(problem: Problem, choice: Choice, changes: Changes) -> Choice:
    """A choice that no change of one op, or of one kind, makes better."""
    row = np.array(choice, np.int64)
    price = problem.price(row[None])[0]
    while True:
        others, prices = problem.cheapest(row, changes)
        if not prices.min(initial=np.inf) < price - 1e-12 * abs(price):
            return tuple(row.tolist())
        least = int(np.argmin(prices))
        row, price = others[least], prices[least]


def _changes(problem: Problem) -> Changes:
    """All in which one kind of ops, or one op, takes one option."""
    alone = [[op] for op in problem.free.tolist()]
    groups = [*(sorted(kind) for kind in problem.kinds if len(kind) > 1), *alone]
    return Changes.of(
        (ops, number) for ops in groups for number in range(len(problem.options[ops[0]]))
    )


def _fitting(problem: Problem) -> Choice:
    """The best of those choices that have room, by a price of a stored byte that makes room."""
    assert problem.most_store is not None
    low, high = 0.0, 1e-12
    stores = [[option.store_bytes for option in each] for each in problem.options]
    found: list[Choice] = [tuple(int(np.argmin(each)) for each in stores)]
    while problem.stored(_rows([_searched(problem.storing_at(high))]))[0] > problem.most_store:
        low, high = high, high * 16
    for _ in range(STORE_STEPS):
        middle = (low + high) / 2
        choice = _searched(problem.storing_at(middle))
        has_room = problem.stored(_rows([choice]))[0] <= problem.most_store
        low, high = (low, middle) if has_room else (middle, high)
        found += [choice] if has_room else []
    changes = _changes(problem)
    ends = [_improved(problem, each, changes) for each in dict.fromkeys(found)]
    return _best_of(problem, ends)
