"""What steps read and write, held against what they do to memory full of noise."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pytest
from small_interpreters import words
from small_plans import large_plan, small_plan
from training_cases import SUITES, trained

from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import ROUND
from veilgraph.runtime.devices.choose import ready
from veilgraph.runtime.devices.dataflow import (
    Segments,
    accesses,
    is_solid,
    place_of,
    replacing,
)
from veilgraph.runtime.devices.interface import MemoryRange

PLANS = {
    "32 bits": lambda: small_plan(32),
    "40 bits": lambda: small_plan(40),
    "planes": lambda: large_plan(900),
}


def mask(places: Iterable[MemoryRange], size: int) -> npt.NDArray[np.bool_]:
    found = np.zeros(size, np.bool_)
    for offset, count in places:
        found[offset : offset + count] = True
    return found


@pytest.mark.parametrize("party", ["alice", "bob", "carol"])
@pytest.mark.parametrize("name", PLANS)
def test_steps_read_and_write_what_is_said(name: str, party: str) -> None:
    """Nothing else changes, and what is written depends on nothing else."""
    plan: Plan = PLANS[name]()
    program = plan.party(party)
    size = program.arena_bytes
    device = ready("cpu", plan, party).open(bytes(16 * len(program.keys)))

    def after(step: int, content: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        device.copy_in(0, content)
        device.run(step, step + 1, 1)
        return device.copy_out((0, size))

    for step, access in enumerate(accesses(program)):
        if program.steps["kernel"][step] == ROUND:
            continue
        noise = np.random.default_rng(step).integers(0, 256, size).astype(np.uint8)
        written, read = mask(access.writes, size), mask(access.reads, size)
        found = after(step, noise)
        assert not ((found != noise) & ~written).any()
        other = np.where(read, noise, ~noise)
        assert (after(step, other)[written] == found[written]).all()


def test_rounds_read_what_they_send() -> None:
    program = small_plan().party("bob")
    moved = [0, 0]
    for row, access in zip(program.steps, accesses(program), strict=True):
        if row["kernel"] == ROUND:
            moved[0] += sum(count for _, count in access.reads)
            moved[1] += sum(count for _, count in access.writes)
    by_direction = [program.messages["direction"] == direction for direction in (0, 1)]
    assert sorted(moved) == sorted(int(program.messages["bytes"][d].sum()) for d in by_direction)


@pytest.mark.parametrize(
    ("fields", "place", "solid"),
    [
        ({"rank": 1, "shape": (4,), "strides": (1,)}, (64, 32), True),
        ({"rank": 1, "shape": (4,), "strides": (-1,)}, (40, 32), True),
        ({"rank": 2, "shape": (2, 3), "strides": (1, 2)}, (64, 48), True),
        ({"rank": 2, "shape": (2, 3), "strides": (4, 1)}, (64, 56), False),
        ({"rank": 2, "shape": (3, 3), "strides": (2, 2)}, (64, 72), False),
        ({"rank": 2, "shape": (5, 3), "strides": (0, 1)}, (64, 24), False),
        ({"rank": 2, "shape": (0, 3), "strides": (3, 1)}, None, True),
        ({"region": 1}, None, True),
    ],
)
def test_where_a_buffer_is(
    fields: dict[str, object], place: MemoryRange | None, solid: bool
) -> None:
    buffer = words(64, **fields)
    assert place_of(buffer) == place
    assert place is None or is_solid(buffer) == solid


def test_segments_are_cut_where_places_end() -> None:
    program = small_plan().party("alice")
    found = accesses(program)
    segments = Segments(program, found)
    for access in found:
        for place in (*access.reads, *access.writes):
            if place[1]:
                assert segments.inside(place) == segments.touching(place)
                where = segments.touching(place)
                assert segments.places(np.arange(where.start, where.stop)) == [place]
    everything = np.arange(len(segments))
    assert segments.places(everything) == [(0, program.arena_bytes)]
    assert segments.touching((1, 0)) == slice(0, 0)
    inner = segments.inside((1, program.arena_bytes - 2))
    assert (inner.start, inner.stop) == (1, len(segments) - 1)


@pytest.mark.parametrize("suite", SUITES)
def test_entries_that_replace_states(suite: str) -> None:
    plan, _ = trained("logistic", suite)
    assert {plan.manifest.entries[number] for number in replacing(plan)} == {"start", "step"}
