"""Element-wise chains become one program; whatever is read is made before, and nothing twice."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import RandomProgram

from veilgraph.ir.party import ops
from veilgraph.ir.party.ops import Runs
from veilgraph.ir.party.program import Program, apply
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.types import words
from veilgraph.passes import _native
from veilgraph.passes.party.batch_rounds import batch_rounds
from veilgraph.passes.plan.fuse_local import LocalSteps, base_of, fuse_local

W = words(32)


def actions(steps: LocalSteps, party: int) -> list[tuple[str, ...]]:
    """The operations of each kernel call of a party, in order."""
    nodes = steps.schedule.program.nodes
    segments = steps.segments[party]
    return [tuple(nodes[i].op.name for i in a.nodes) for s in segments for a in s.actions]


def test_docstring_example() -> None:
    """draw, sub, shr and the message are one program; what a later round uses is stored."""
    p = Program(("alice", "bob"))
    x = p.source("input", "x", 0, (4,), W)
    r = p.draw((0,), (4,), W)
    difference = x - r
    sent = p.send(difference >> 3, 0, 1)
    back = p.send(sent.only(1) * 5, 1, 0)
    p.output(back.only(0) + difference, 0, "y", 0)
    steps = fuse_local(batch_rounds(p))
    assert actions(steps, 0) == [("sub", "shr", "send"), ("add",), ("output",)]
    assert steps.is_stored[difference.at[0]]
    assert not steps.is_stored[[r.at[0], (difference >> 3).at[0]]].any()


def test_a_draw_is_made_again_rather_than_stored() -> None:
    p = Program(("alice", "bob"))
    r = p.draw((0,), (4,), W)
    sent = p.send(r + 1, 0, 1)
    back = p.send(sent.only(1), 1, 0)
    p.output(back.only(0) - r, 0, "y", 0)
    assert not fuse_local(batch_rounds(p)).is_stored[r.at[0]]


def test_a_draw_of_the_setup_is_stored_for_what_comes_later() -> None:
    """Its counter is the session's: an inference could not make it again."""
    p = Program(("alice", "bob"))
    with p.in_phase(Phase.SETUP):
        r = p.draw((0, 1), (4,), W)
    x = p.source("input", "x", 0, (4,), W)
    p.output(x + r.only(0), 0, "y", 0)
    steps = fuse_local(batch_rounds(p))
    assert steps.is_stored[r.at[0]]
    assert actions(steps, 0)[0] == ("draw",)


def test_other_kernels_stand_between_programs() -> None:
    p = Program(("alice",))
    x = p.source("input", "x", 0, (4, 4), W)
    total = apply(ops.REDUCE_SUM, (x * x + 1,), (1, 4), W, axes=(0,))
    p.output(total * total, 0, "y", 0)
    found = actions(fuse_local(batch_rounds(p)), 0)
    assert found == [("mul", "add"), ("reduce_sum",), ("mul",), ("output",)]


@settings(max_examples=80, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 40))
def test_random_programs(choices: random.Random, operations: int) -> None:
    steps = fuse_local(batch_rounds(RandomProgram(choices).grow(operations).program))
    for party in range(len(steps.segments)):
        check_each_once(steps, party)
        check_reads(steps, party)


def check_each_once(steps: LocalSteps, party: int) -> None:
    """Whatever is live and no source or view is in one action, a send at both of its ends."""
    nodes = steps.schedule.program.nodes
    segments = steps.segments[party]
    done = [i for s in segments for a in s.actions for i in a.nodes]
    assert len(done) == len(set(done))
    free = (Runs.VIEW, Runs.LOADED, Runs.REMADE)
    for i in steps.schedule.live:
        if nodes[i].op is ops.SEND:
            sender = nodes[nodes[i].args[0]].party
            expected = party == sender or (party == nodes[i].party and steps.is_unpacked[i])
            assert (i in done) == expected
        elif nodes[i].party == party and nodes[i].op.runs not in free:
            assert i in done


def check_reads(steps: LocalSteps, party: int) -> None:
    """What an action reads from memory is stored, and made by an action before or a message."""
    nodes = steps.schedule.program.nodes
    made: set[int] = set()
    for segment in steps.segments[party]:
        for action in segment.actions:
            for i in action.reads:
                assert base_of(steps.schedule.program, i).id == i
                assert steps.is_stored[i]
                if nodes[i].op is ops.SEND:
                    assert steps.schedule.position_of(i) <= segment.position
                elif nodes[i].op not in (ops.INPUT, ops.WEIGHT, ops.CONSTANT):
                    assert i in made
            made.update(action.nodes)


@pytest.mark.parametrize("party", [1, 63, 64, 2**31 - 1])
def test_actions_are_in_the_order_of_any_parties(party: int) -> None:
    """Of few they are counted, of more sorted; no number is an index by itself."""
    count = 3
    found = _native.fuse_local(
        np.full(count, 2, np.uint32),
        np.array([party, 0, party], np.int32),
        np.zeros(count, np.int32),
        np.ones(count, np.int64),
        np.ones(count, np.uint8),
        np.array([5, 7, 2], np.int64),
        np.zeros(count + 1, np.int64),
        np.zeros(0, np.int32),
    )
    order = [*zip(found[0].tolist(), found[1].tolist(), strict=True)]
    assert order == [(0, 7), (party, 2), (party, 5)]
