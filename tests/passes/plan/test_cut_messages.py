"""Pieces are the message, in one order at both ends, and there when they say."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import RandomProgram

from veilgraph.ir.party import ops
from veilgraph.ir.party.program import Program
from veilgraph.ir.types import planes, words
from veilgraph.kernels import PART_ELEMENTS
from veilgraph.passes.party.batch_rounds import batch_rounds, position
from veilgraph.passes.plan.assign_buffers import Memory, assign_buffers
from veilgraph.passes.plan.cut_messages import ROUND, cut_messages
from veilgraph.passes.plan.fuse_local import LocalSteps, fuse_local

W = words(64)


class Piece(NamedTuple):
    """A row of the pieces of a party."""

    place: int
    peer: int
    is_send: bool
    offset: int
    bytes: int
    action: int
    elements: int
    early: bool


def cut(
    p: Program, large_bytes: int = 1, piece_bytes: int = 1
) -> tuple[LocalSteps, tuple[Memory, ...], list[list[Piece]]]:
    steps = fuse_local(batch_rounds(p))
    memories = assign_buffers(steps, large_bytes)
    pieces = cut_messages(steps, memories, piece_bytes)
    return steps, memories, [[Piece(*row) for row in own.tolist()] for own in pieces]


def two_streams(elements: int) -> Program:
    """alice sends bob x + 1 in 40 bits and two bits of it, all made by one step."""
    p = Program(("alice", "bob"))
    x = p.source("input", "x", 0, (elements,), W)
    y = x + 1
    word, bits = p.send(y.mod(40), 0, 1), p.send(y.bits(0, 2), 0, 1)
    p.output(word.only(1), 1, "y", 0)
    p.output(bits.to_words(8).only(1), 1, "z", 0)
    return p


def test_a_step_is_cut_where_its_words_are() -> None:
    n = 2 * PART_ELEMENTS + 100
    _, _, (sent, received) = cut(two_streams(n))
    word_bytes = PART_ELEMENTS * 5
    plane_bytes = 2 * -(-n // 64) * 8
    assert [(piece.bytes, piece.elements) for piece in sent] == [
        (word_bytes, PART_ELEMENTS),
        (word_bytes, 2 * PART_ELEMENTS),
        (-(-n * 5 // 8) * 8 - 2 * word_bytes + plane_bytes, 0),
    ]
    assert [piece.bytes for piece in received] == [piece.bytes for piece in sent]
    assert all(piece.early and piece.action == ROUND for piece in received)


def test_planes_of_a_step_wait_for_all_of_it() -> None:
    p = Program(("alice", "bob"))
    x = p.source("input", "x", 0, (3 * PART_ELEMENTS,), planes(3))
    p.output(p.send(~x, 0, 1).only(1), 1, "y", 0)
    _, _, (sent, _) = cut(p)
    assert [(piece.action, piece.elements) for piece in sent] == [(0, 0)]


def test_small_messages_stay_whole() -> None:
    _, memories, pieces = cut(two_streams(3 * PART_ELEMENTS), large_bytes=1 << 20)
    for memory, own in zip(memories, pieces, strict=True):
        assert [piece.bytes for piece in own] == [m.bytes for m in memory.messages]
        assert all(piece.action == ROUND and not piece.early for piece in own)


@settings(max_examples=60, deadline=None)
@given(
    st.randoms(use_true_random=False),
    st.integers(1, 40),
    st.sampled_from((1, 24)),
    st.sampled_from((1, 64)),
)
def test_any_program(
    choices: random.Random, operations: int, large_bytes: int, piece_bytes: int
) -> None:
    program = RandomProgram(choices).grow(operations).program
    steps, memories, pieces = cut(program, large_bytes, piece_bytes)
    wires: dict[tuple[object, ...], list[int]] = {}
    for party, (memory, own) in enumerate(zip(memories, pieces, strict=True)):
        for m in memory.messages:
            of = [
                p
                for p in own
                if (position(p.place), p.peer, p.is_send) == (m.position, m.peer, m.is_send)
            ]
            covers(m.offset, m.bytes, of)
            ordered(of)
            ends = (party, m.peer) if m.is_send else (m.peer, party)
            wire = [p.offset - m.offset for p in of] + [p.bytes for p in of]
            assert wires.setdefault((*ends, m.position), wire) == wire
            segments = {s.position: s.actions for s in steps.segments[party]}
            for piece in of:
                made_there(steps, memory, segments.get(m.position, ()), piece)


def covers(offset: int, size: int, pieces: list[Piece]) -> None:
    ends = sorted((p.offset, p.offset + p.bytes) for p in pieces)
    assert (ends[0][0], ends[-1][1]) == (offset, offset + size)
    assert all(a[1] == b[0] for a, b in pairwise(ends))


def ordered(pieces: list[Piece]) -> None:
    """No piece waits for one that comes later."""
    moments = [(p.action, p.elements or 1 << 60) for p in pieces]
    assert moments == sorted(moments)


def made_there(steps: LocalSteps, memory: Memory, actions: object, piece: Piece) -> None:
    """The piece's bytes are of sends that its action packs."""
    if piece.action == ROUND:
        return
    assert isinstance(actions, tuple)
    nodes = steps.schedule.program.nodes
    packed = [
        memory.messages_of[i]
        for i in actions[piece.action].nodes
        if nodes[i].op is ops.SEND and i in memory.messages_of and nodes[i].party == piece.peer
    ]
    starts = {place.offset for place in packed}
    assert any(start <= piece.offset for start in starts)
