"""Sets of sources, and the orders that they allow, against plain Python."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilgraph.passes._native import Dependencies, batch_rounds, reached

Lists = list[list[int]]
WORDS = 1 << 16  # of 64 sources each


def flat(lists: Lists) -> tuple[np.ndarray, np.ndarray]:
    """Where each list begins, and all of them one behind another."""
    ends = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return ends, np.array([each for one in lists for each in one], np.int32)


def of_sets(sets: Lists, size: int) -> tuple[Dependencies, list[int]]:
    """Nodes with these sets of sources, behind a node for each source."""
    source = np.full(size + len(sets), -1, np.int32)
    source[:size] = np.arange(size)
    every = Dependencies(source, size, *flat([[] for _ in range(size)] + sets), WORDS)
    return every, list(range(size, size + len(sets)))


def has_order(sets: Lists, witnesses: Lists) -> bool:
    """Whether one after another can go whose witness is in no other that is left."""
    left = list(range(len(sets)))
    while left:
        going = [i for i in left if is_alone(i, left, sets, witnesses)]
        if not going:
            return False
        left.remove(going[0])
    return True


def is_alone(i: int, left: list[int], sets: Lists, witnesses: Lists) -> bool:
    others = [sets[j] for j in left if j != i]
    return any(w in sets[i] and all(w not in other for other in others) for w in witnesses[i])


@settings(max_examples=200, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 12), st.sampled_from([3, 8, 70, 200]))
def test_orders(choices: random.Random, claims: int, size: int) -> None:
    """Most random claims have an order where sources are many, and none where they are few."""
    sets = [choices.sample(range(size), choices.randint(0, min(size, 4))) for _ in range(claims)]
    witnesses = [choices.sample(own, choices.randint(0, len(own))) for own in sets]
    every, nodes = of_sets(sets, size)
    found = every.have_order(np.array(nodes, np.int32), *flat(witnesses))
    assert found == has_order(sets, witnesses)


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 40), st.sampled_from([1, 64, 65, 300]))
def test_sets(choices: random.Random, nodes: int, size: int) -> None:
    source = [choices.randrange(-1, size) for _ in range(nodes)]
    args = [choices.choices(range(i), k=choices.randint(0, 3)) if i else [] for i in range(nodes)]
    every = Dependencies(np.array(source, np.int32), size, *flat(args), WORDS)
    sets: list[set[int]] = []
    for own, operands in zip(source, args, strict=True):
        sets.append({own}.difference({-1}).union(*(sets[arg] for arg in operands)))
    for i, expected in enumerate(sets):
        bits = np.unpackbits(every.words(i).view(np.uint8), bitorder="little")
        assert set(np.flatnonzero(bits).tolist()) == expected
        assert {j for j in range(size) if every.has(i, j)} == expected
        assert every.is_empty(i) == (not expected)
    start = np.array([choices.random() < 0.2 for _ in range(nodes)], np.uint8)
    closed = np.array([choices.random() < 0.2 for _ in range(nodes)], np.uint8)
    marked: list[bool] = []
    for i, operands in enumerate(args):
        marked.append(not closed[i] and bool(start[i] or any(marked[arg] for arg in operands)))
    assert reached(start, closed, *flat(args)).tolist() == marked


@pytest.mark.parametrize(("claims", "is_found"), [(60, True), (90, False)])
def test_an_order_that_takes_long_is_not_looked_for(claims: int, is_found: bool) -> None:
    """All wait for the first, which has all their witnesses; it goes last, its own is alone."""
    sets = [[*range(claims)], *([i] for i in range(1, claims))]
    every, nodes = of_sets(sets, claims)
    witnesses = [[0], *sets[1:]]
    assert has_order(sets, witnesses)
    assert every.have_order(np.array(nodes, np.int32), *flat(witnesses)) == is_found


def test_a_witness_is_one_of_its_own_sources() -> None:
    """Source 1 is in no claim: it hides nothing."""
    every, nodes = of_sets([[0], [0]], 2)
    assert not every.have_order(np.array(nodes, np.int32), *flat([[1], [1]]))


def test_sets_take_no_more_words_than_are_given() -> None:
    """Nodes that go on with one set share it; those that unite two have one of their own."""
    alike = [[0, 127], *([128 + n] for n in range(1000))]
    assert Dependencies(*_arguments(alike, 128), 2).has(1128, 127)
    unlike = [[n, 127] for n in range(100)]
    with pytest.raises(ValueError, match="more words"):
        Dependencies(*_arguments(unlike, 128), 100)


def _arguments(sets: Lists, size: int) -> tuple[np.ndarray, int, np.ndarray, np.ndarray]:
    source = np.full(size + len(sets), -1, np.int32)
    source[:size] = range(size)
    return source, size, *flat([[] for _ in range(size)] + sets)


def test_columns_of_no_program_are_refused() -> None:
    first, args = flat([[], [0]])
    with pytest.raises(ValueError, match="no such source"):
        Dependencies(np.array([2, -1], np.int32), 2, first, args, WORDS)
    every = Dependencies(np.array([0, -1], np.int32), 1, first, args, WORDS)
    with pytest.raises(IndexError):
        every.has(2, 0)
    with pytest.raises(ValueError, match="of no rows"):
        every.have_order(np.array([0], np.int32), *flat([[5]]))
    with pytest.raises(ValueError, match="other lengths"):
        reached(np.zeros(2, np.uint8), np.zeros(1, np.uint8), first, args)
    facts, wanted, slow = np.zeros(2, np.uint32), np.zeros(2, np.int64), np.zeros(2, np.uint8)
    fine, wrong = np.zeros(2, np.int32), np.array([0, -1], np.int32)
    with pytest.raises(ValueError, match="no such stage"):
        batch_rounds(facts, fine, wrong, wanted, slow, first, args)
    with pytest.raises(ValueError, match="no such party"):
        batch_rounds(facts, wrong, fine, wanted, slow, first, args)


def test_a_node_of_many_operands_takes_no_more_words_either() -> None:
    """Each operand's set is united with those before it."""
    with pytest.raises(ValueError, match="more words"):
        Dependencies(*_arguments([[*range(1 << 12)]], 1 << 12), 1000)
