"""Placements: the least of all, and never worse than one device alone."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilgraph.runtime.devices.partition import GPU, HOST, Value, Work, cost, partition_of

STEPS = 6
SECONDS = st.integers(0, 20).map(float)


@st.composite
def values(draw: st.DrawFn) -> Value:
    maker = draw(st.none() | st.integers(0, STEPS - 2))
    first = 0 if maker is None else maker + 1
    readers = draw(st.sets(st.integers(first, STEPS - 1), max_size=3))
    return Value(maker, tuple(sorted(readers)), draw(SECONDS))


WORK = st.lists(st.builds(Work, SECONDS, SECONDS, st.booleans()), min_size=STEPS, max_size=STEPS)


@given(WORK, st.lists(values(), max_size=8))
def test_of_all_partitions_it_is_the_least(work: list[Work], found: list[Value]) -> None:
    choices = [(HOST,) if each.fixed else (HOST, GPU) for each in work]
    partitioned = partition_of(work, found)
    assert all(side in allowed for side, allowed in zip(partitioned, choices, strict=True))
    least = min(cost(work, found, sides) for sides in product(*choices))
    assert cost(work, found, partitioned) == pytest.approx(least)


@pytest.mark.parametrize(("copies", "sides"), [(0.5, [HOST, GPU, HOST]), (3.0, [HOST, HOST, HOST])])
def test_copies_count(copies: float, sides: list[int]) -> None:
    """The second step is four seconds faster on the GPU, there and back."""
    work = [Work(1, 9), Work(5, 1), Work(1, 9)]
    found = [Value(0, (1,), copies), Value(1, (2,), copies)]
    assert partition_of(work, found) == sides


def test_a_value_that_many_read_is_copied_once() -> None:
    work = [Work(0, 9), Work(2, 0), Work(2, 0), Work(2, 0)]
    found = [Value(0, (1, 2, 3), 5.0)]
    assert partition_of(work, found) == [HOST, GPU, GPU, GPU]
    assert cost(work, found, [HOST, GPU, GPU, GPU]) == 5.0
    assert cost(work, found, [HOST, GPU, GPU, HOST]) == 7.0


def test_what_crosses_the_network_is_the_hosts() -> None:
    """A GPU that is a little faster does not pay where all it makes has to be sent."""
    work = [Work(2, 1), Work(0, 0, fixed=True), Work(2, 1), Work(0, 0, fixed=True)]
    found = [Value(0, (1,), 2.0), Value(1, (2,), 2.0), Value(2, (3,), 2.0)]
    assert partition_of(work, found) == [HOST] * 4


def test_thousands_of_steps() -> None:
    work = [Work(1 + step % 3, 2) for step in range(3000)]
    found = [Value(step, (step + 1,), 0.1) for step in range(2999)]
    partitioned = partition_of(work, found)
    assert partitioned == [GPU if step % 3 == 2 else partitioned[step] for step in range(3000)]
    assert cost(work, found, partitioned) < min(
        cost(work, found, [side] * 3000) for side in (HOST, GPU)
    )
