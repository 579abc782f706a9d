"""The search for an option of each op, against all choices, and with too little room."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from veilgraph.passes._native import Paths
from veilgraph.passes.secret.protocols import search as searching
from veilgraph.passes.secret.protocols.problem import NEVER, Changes, Option, Problem
from veilgraph.passes.secret.protocols.search import search

# Rounds and bits of all parties an element, of four ways to compute a ReLU.
WAYS = ((5, 484), (4, 396), (3, 1060), (2, 6732))
NETWORKS = ((1e-4, 6e10), (2e-2, 6e8))  # seconds one way, bits a second of all links


def random_problem(seed: int, ops: int, density: float, network: tuple[float, float]) -> Problem:
    """Ops of 100 to a million elements, each of which reads some of those before it."""
    rng = np.random.default_rng(seed)
    before = [[u for u in range(v) if rng.random() < density] for v in range(ops)]
    sizes = np.exp(rng.uniform(np.log(100), np.log(1e6), ops))
    one_way, rate = network
    options = [
        [Option(((rounds,),), size * bits / rate, int(size * bits / 16)) for rounds, bits in WAYS]
        for size in sizes
    ]
    return Problem(before, options, one_way)


def longest(problem: Problem, choice: tuple[int, ...]) -> int:
    done: list[int] = []
    for op, number in enumerate(choice):
        before = max((done[u] for u in problem.before[op]), default=0)
        done.append(before + problem.options[op][number].rounds)
    return max(done)


def price(problem: Problem, choice: tuple[int, ...]) -> float:
    own = sum(problem.options[op][number].price for op, number in enumerate(choice))
    return problem.round_price * longest(problem, choice) + own


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("density", [0.0, 0.2, 0.5, 1.0])
def test_a_search_finds_the_best_of_all_choices(
    density: float, network: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its steps alone: nothing is tried because there is little of it."""
    monkeypatch.setattr(searching, "FEW", 0)
    for seed in range(8):
        problem = random_problem(seed, 6, density, network)
        best = min(price(problem, c) for c in product(range(len(WAYS)), repeat=6))
        assert price(problem, search(problem)) == pytest.approx(best)


@pytest.mark.parametrize("network", NETWORKS)
def test_few_choices_are_all_tried(network: tuple[float, float]) -> None:
    for seed in range(3):
        problem = random_problem(seed, 8, 0.3, network)
        rows = np.array([*product(range(len(WAYS)), repeat=8)])
        best = float(problem.price(rows).min())
        assert price(problem, search(problem)) == pytest.approx(best)


def test_ops_beside_a_longer_path_become_cheap() -> None:
    """Two of a kind side by side: either alone on the path makes the other's rounds free."""
    fast, cheap = Option(((1,),), 3.0), Option(((5,),), 1.0)
    aside = Problem([[], []], [[Option(((5,),), 0.0)], [fast, cheap]], 1.0)
    assert search(aside) == (0, 1)
    in_a_row = Problem([[], [0]], [[Option(((5,),), 0.0)], [fast, cheap]], 1.0)
    assert search(in_a_row) == (0, 0)


def test_what_a_link_carries_adds_up_before_the_busiest_counts() -> None:
    """Two ops that each load one link: the second takes the link that the first leaves free."""
    left, right = (Option(((0,),), 0.0, 0, ((a, b), (1.0,))) for a, b in ((3.0, 0.0), (0.5, 3.0)))
    problem = Problem([[], []], [[left], [left, right]], 1.0)
    np.testing.assert_allclose(problem.price(np.array([[0, 0], [0, 1]])), [6 + 2, 3.5 + 2])
    assert (left.own_price, right.own_price) == (4.0, 4.0)
    assert search(problem) == (0, 1)


def test_kinds_change_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of parallel ops no single change shortens the path; all of them do."""
    monkeypatch.setattr(searching, "FEW", 0)
    monkeypatch.setattr(searching, "SHARES", (0.0,))
    options = [[Option(((5,),), 1.0), Option(((1,),), 2.0)] for _ in range(4)]
    apart = Problem([[]] * 4, options, 2.0)
    together = Problem([[]] * 4, options, 2.0, kinds=[range(4)])
    assert search(apart) == (0, 0, 0, 0)
    assert search(together) == (1, 1, 1, 1)


def test_a_path_runs_from_party_to_party() -> None:
    """Against every path by itself: which parties it visits, op by op."""
    rng = np.random.default_rng(4)
    for _ in range(20):
        waits = rng.choice([NEVER, 0, 1, 2, 3], (5, 3, 3)).tolist()
        before = [[], [0], [0, 1], [2], [1, 3]]
        options = [[Option(tuple(map(tuple, each)), 0.0)] for each in waits]
        found = Problem(before, options, 1.0).rounds(np.zeros((1, 5), np.int64))[0]

        def since(op: int, party: int, waits: Any = waits, before: Any = before) -> int:
            at = [max([0, *(since(b, i) for b in before[op])]) for i in range(3)]
            return max(0, *(at[i] + waits[op][i][party] for i in range(3)))

        assert found == max(since(op, party) for op in range(5) for party in range(3))


@pytest.mark.parametrize("most_store", [None, 40])
def test_a_change_costs_what_the_choice_after_it_does(most_store: int | None) -> None:
    """Of one op and of some, between parties, with loads, and beyond a store's room."""
    rng = np.random.default_rng(6)
    for _ in range(20):
        before = [[u for u in range(v) if rng.random() < 0.3] for v in range(9)]
        options = [
            [
                Option(
                    tuple(map(tuple, rng.choice([NEVER, 0, 1, 2], (2, 2)).tolist())),
                    float(rng.random()),
                    int(rng.integers(10)),
                    ((float(rng.random()), float(rng.random())), (float(rng.random()),)),
                )
                for _ in range(rng.integers(1, 4))
            ]
            for _ in range(9)
        ]
        problem = Problem(before, options, 0.5, (), most_store)
        choice = tuple(int(rng.integers(len(each))) for each in options)
        ops = [sorted(rng.choice(9, size, replace=False).tolist()) for size in (1, 1, 2, 5, 9)]
        changes = Changes.of((each, 0) for each in ops)
        after = changes.made(np.array(choice), range(len(ops)))
        np.testing.assert_allclose(problem.changed(choice, changes), problem.price(after))


def test_paths_refuse_what_is_no_graph() -> None:
    longs, ints = (lambda *x: np.array(x, np.int64)), (lambda *x: np.array(x, np.int32))
    first, before = longs(0, 0, 1), ints(0)
    with pytest.raises(ValueError, match="made after"):
        Paths(first, ints(1), 1, longs(0, 1, 2), longs(1, 1))
    for options, waits in ((longs(0, 2, 2), longs(1, 1)), (longs(0, 1, 2), longs(1, 1, 1))):
        with pytest.raises(ValueError, match="other ops"):
            Paths(first, before, 1, options, waits)
    for wrong, parties in ((longs(), 1), (first, 0), (first, 1 << 32)):
        with pytest.raises(ValueError, match="other"):
            Paths(wrong, ints(), parties, wrong, longs())
    paths = Paths(first, before, 1, longs(0, 1, 3), longs(1, 1, 2))
    assert paths.rounds(longs(0, 0, 0, 1)).tolist() == [2, 3]
    with pytest.raises(ValueError, match="no such option"):
        paths.rounds(longs(0, 2))
    with pytest.raises(ValueError, match="of other ops"):
        paths.rounds(longs(0))
    twice = longs(0, 2), ints(1, 1), longs(0, 1)
    for changes in (
        (longs(0, 0), ints(), longs()),
        (longs(0, 2), ints(1, 0), longs(0, 0)),
        twice,
    ):
        with pytest.raises(ValueError, match="ops in order"):
            paths.changed(longs(0, 0), *changes)


@pytest.mark.parametrize("few", [0, 1 << 16])
def test_a_store_has_room_for_what_is_chosen(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "FEW", few)
    for seed in range(4):
        free = random_problem(seed, 6, 0.3, NETWORKS[1])
        wanted = int(free.stored(np.array([search(free)]))[0])
        room = (free.least_store + wanted) // 2
        problem = Problem(free.before, free.options, free.round_price, (), room)
        rows = np.array([*product(range(len(WAYS)), repeat=6)])
        best = float(problem.price(rows).min())
        found = np.array([search(problem)])
        assert problem.stored(found)[0] <= room
        assert problem.price(found)[0] <= 1.02 * best


def test_a_store_without_room_for_any_choice() -> None:
    free = random_problem(1, 3, 0.3, NETWORKS[0])
    problem = Problem(free.before, free.options, free.round_price, (), free.least_store - 1)
    with pytest.raises(ValueError, match="room"):
        search(problem)


def test_a_program_without_ops() -> None:
    assert search(Problem([], [], 1.0)) == ()
