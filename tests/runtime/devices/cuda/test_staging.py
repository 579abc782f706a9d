"""How the messages of a round lie in pinned memory, and in how many copies they cross."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from copying_plans import BYTES, RECEIVE, SEND, copying_plan, rounds
from hypothesis import given
from hypothesis import strategies as st

from veilgraph.runtime.devices.cuda.drivers.emulator import EmulatorDriver
from veilgraph.runtime.devices.cuda.staging import (
    CHUNK_BYTES,
    GAP_BYTES,
    Staging,
    merged,
    staging_bytes,
)


@pytest.fixture
def staging(emulator_folder: Path) -> Staging:
    driver = EmulatorDriver(emulator_folder)
    arena = driver.allocate(64 << 20)
    return Staging(driver, driver.stream(), arena, 20 << 20, nullcontext, lambda place: None)


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 40)), max_size=8), st.integers(0, 30))
def test_places_are_merged(places: list[tuple[int, int]], gap: int) -> None:
    found = merged(places, gap)
    for (first, count), (second, _) in pairwise(found):
        assert first + count + gap < second
    covered = {i for first, count in found for i in range(first, first + count)}
    wanted = {i for offset, count in places for i in range(offset, offset + count)}
    assert wanted <= covered
    assert len(covered - wanted) <= gap * len(places)


def test_small_messages_are_one_copy(staging: Staging) -> None:
    made = staging.round({1: [(0, 64)], 2: [(128, 8)]}, {1: [(256, 64)], 2: [(320, 8)]})
    assert [(copy.offset, copy.count) for copy in made.outward] == [(0, 136)]
    assert [(copy.offset, copy.count) for copy in made.inward] == [(256, 72)]
    assert {peer: len(view) for peer, view in made.sends.items()} == {1: 64, 2: 8}
    assert {peer: len(view) for peer, view in made.receives.items()} == {1: 64, 2: 8}


def test_what_lies_between_received_messages_is_not_written(staging: Staging) -> None:
    made = staging.round({}, {1: [(0, 64)], 2: [(72, 8)]})
    assert [(copy.offset, copy.count) for copy in made.inward] == [(0, 64), (72, 8)]


def test_messages_that_lie_far_apart_are_copies_of_their_own(staging: Staging) -> None:
    made = staging.round({1: [(0, 64)], 2: [(65 + GAP_BYTES, 8)]}, {})
    assert len(made.outward) == 2


def test_long_messages_go_in_chunks(staging: Staging) -> None:
    size = 2 * CHUNK_BYTES + 8
    made = staging.round({1: [(64, size)]}, {})
    assert [copy.count for copy in made.outward] == [CHUNK_BYTES, CHUNK_BYTES, 8]
    assert [copy.offset for copy in made.outward] == [64, 64 + CHUNK_BYTES, size + 56]


def test_one_message_for_two(staging: Staging) -> None:
    made = staging.round({1: [(8, 16)], 2: [(8, 16)]}, {})
    assert np.shares_memory(made.sends[1], made.sends[2])
    assert len(made.outward) == 1


def test_messages_lie_apart(staging: Staging) -> None:
    made = staging.round({1: [(0, 64)], 2: [(9000, 64)]}, {1: [(64, 64)], 2: [(20000, 64)]})
    views = [*made.sends.values(), *made.receives.values()]
    for number, view in enumerate(views, start=1):
        view[:] = number
    assert [set(view.tolist()) for view in views] == [{1}, {2}, {3}, {4}]


def test_a_program_says_how_much_is_needed() -> None:
    messages = [(SEND, 1, 0, 0, BYTES), (RECEIVE, 1, 0, BYTES, BYTES), (SEND, 2, 1, 0, BYTES)]
    program = copying_plan(rounds(2), messages).party("alice")
    assert staging_bytes(program) == 2 * (BYTES + GAP_BYTES)
    assert staging_bytes(copying_plan([]).party("alice")) == 0


def test_a_message_in_pieces_is_put_together(staging: Staging) -> None:
    """In the order of the wire, which is not that of memory; and taken apart again."""
    made = staging.round({1: [(128, 8), (0, 16)]}, {2: [(512, 8), (256, 8)]})
    assert [(copy.offset, copy.count) for copy in made.outward] == [(128, 8), (0, 16)]
    assert [(copy.offset, copy.count) for copy in made.inward] == [(512, 8), (256, 8)]
    starts = [copy.pinned for copy in (*made.outward, *made.inward)]
    assert starts == [0, 8, 24, 32]
    assert (len(made.sends[1]), len(made.receives[2])) == (24, 16)
