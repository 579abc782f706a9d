"""No two values that are needed at once share memory; what can share does."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import RandomProgram

from veilgraph.ir.party import ops
from veilgraph.ir.party.node import Node
from veilgraph.ir.party.ops import PartyOp
from veilgraph.ir.party.program import Program, apply, join
from veilgraph.ir.plan.tables import BufferKind, Phase
from veilgraph.ir.types import Type, blocks, planes, words
from veilgraph.passes._native import allocate
from veilgraph.passes.party.batch_rounds import Position, batch_rounds
from veilgraph.passes.plan.assign_buffers import ALIGNMENT, Memory, assign_buffers
from veilgraph.passes.plan.fuse_local import Action, LocalSteps, base_of, fuse_local

W = words(32)


def assigned(p: Program, party: int = 0) -> tuple[LocalSteps, Memory]:
    steps = fuse_local(batch_rounds(p))
    return steps, assign_buffers(steps)[party]


@pytest.mark.parametrize(
    ("type", "elements", "expected"),
    [
        (words(32), 1, 8),
        (words(32), 2, 8),
        (words(32), 3, 16),
        (words(64), 3, 24),
        (words(5), 12, 8),
        (words(5), 13, 16),
        (words(40), 8, 40),
        (blocks(), 3, 48),
        (planes(1), 64, 8),
        (planes(1), 65, 16),
        (planes(7), 65, 7 * 16),
        (planes(7), 0, 0),
        (words(40), 0, 0),
    ],
)
def test_bytes_on_the_wire(type: Type, elements: int, expected: int) -> None:
    """Exact bits, padded once to 8 bytes; planes each."""
    assert type.message_bytes(elements) == expected


def test_docstring_example() -> None:
    """A chunk lies in its base, what is joined is made inside the join."""
    p = Program(("alice", "bob"))
    x = p.source("input", "x", 0, (3072,), W)
    chunk = x.chunk(512, 1536)
    first, second = chunk * 3, chunk + 1
    whole = join([first, second], (3072,))
    p.output(whole, 0, "y", 0)
    _, memory = assigned(p)
    start = memory.values[whole.at[0]].offset
    assert memory.values[first.at[0]].offset == start
    assert memory.values[second.at[0]].offset == start + 4 * 1536
    assert memory.placed == {first.at[0], second.at[0]}
    assert chunk.at[0] not in memory.values


def test_a_chain_reuses_memory() -> None:
    p = Program(("alice",))
    x = p.source("input", "x", 0, (1000, 4), W)
    for _ in range(10):
        x = apply(ops.TRANSPOSE, (x,), x.shape[::-1], W, permutation=(1, 0))
    p.output(x, 0, "y", 0)
    _, memory = assigned(p)
    assert memory.arena_bytes <= 3 * 16_000 + 3 * ALIGNMENT


@pytest.mark.parametrize(("op", "stays"), [("matmul", True), ("transpose", False)])
def test_addends_stay_while_products_read_their_sum(op: str, stays: bool) -> None:
    """A device may add while it multiplies then; other readers have the sum itself."""
    p = Program(("alice",))
    left, one, other = (p.source("input", name, 0, (1, 8, 8), W) for name in "xyz")
    total = one + other
    if op == "matmul":
        made = apply(ops.MATMUL, (left, total), (1, 8, 8), W)
    else:
        made = apply(ops.TRANSPOSE, (total,), (1, 8, 8), W, permutation=(0, 2, 1))
    made = apply(ops.TRANSPOSE, (made,), (1, 8, 8), W, permutation=(0, 2, 1))
    p.output(made, 0, "w", 0)
    p.output(left, 0, "v", 0)
    _, memory = assigned(p)
    first = p.nodes[p.nodes[made.at[0]].args[0]].id
    addends = {memory.values[i].offset for value in (one, other) for i in value.at.values()}
    assert (memory.values[first].offset not in addends) == stays


def test_messages_of_a_round_lie_side_by_side() -> None:
    p = Program(("alice", "bob"))
    x = p.source("input", "x", 0, (5,), W)
    sent = [p.send(value, 0, 1) for value in (x + 1, x.bits(0, 2), x.mod(7))]
    for number, value in enumerate(sent):
        value = value if value.type.bits > 2 else value.to_words(8)
        p.output(value.only(1), 1, f"y{number}", 0)
    _, memory = assigned(p)
    (message,) = memory.messages
    offsets = [memory.messages_of[value.at[1]].offset - message.offset for value in sent]
    assert offsets == [0, 24, 40]
    assert message.bytes == 48


def test_an_odd_number_of_words_is_packed_when_sent() -> None:
    """Only then the padding is written: with zeros."""
    p = Program(("alice", "bob"))
    x = p.source("input", "x", 0, (2, 3), W)
    odd, even = p.send(x.chunk(0, 3) + 1, 0, 1), p.send(x + 1, 0, 1)
    for number, value in enumerate((odd, even)):
        p.output(value.only(1), 1, f"y{number}", 0)
    _, alice = assigned(p, 0)
    _, bob = assigned(p, 1)
    assert alice.messages_of[odd.at[1]].kind == BufferKind.PACKED
    assert alice.messages_of[even.at[1]].kind == BufferKind.WORDS32
    assert bob.values[odd.at[1]].kind == BufferKind.WORDS32


def test_public_constants_take_no_memory_unless_they_are_an_output() -> None:
    p = Program(("alice",))
    x = p.source("input", "x", 0, (512,), W)
    used, shown = (p.constant(number, (512,), W) for number in range(2))
    p.output(x * used, 0, "y", 0)
    p.output(shown, 0, "z", 0)
    _, memory = assigned(p)
    assert used.at[0] not in memory.values
    assert shown.at[0] in memory.values


def test_what_setup_leaves_is_kept() -> None:
    p = Program(("alice",))
    w = p.source("weight", "w", 0, (64,), W)
    x = p.source("input", "x", 0, (64,), W)
    squares = apply(ops.REDUCE_SUM, (w * w,), (1,), W, axes=(0,))
    p.output(x * squares + x, 0, "y", 0)
    _, memory = assigned(p)
    assert [(kept.phase, kept.bytes) for kept in memory.kept] == [(Phase.SETUP, 4)]


def test_a_message_of_the_setup_is_kept_only_where_an_inference_reads_it() -> None:
    """bob sums what he receives before any inference: the sum's 4 bytes stay, the 256 do not."""
    for is_read, kept_bytes in ((False, 4), (True, 4 + 64 * 4)):
        p = Program(("alice", "bob"))
        sent = p.send(p.source("weight", "w", 0, (64,), W), 0, 1)
        with p.in_phase(Phase.SETUP):
            total = apply(ops.REDUCE_SUM, (sent,), (1,), W, axes=(0,))
        x = p.source("input", "x", 1, (64,), W)
        p.output(x * total + sent if is_read else x * total, 1, "y", 0)
        _, memory = assigned(p, party=1)
        kept = [each.bytes for each in memory.kept if each.phase == Phase.SETUP]
        assert sum(kept) == kept_bytes


def test_what_setup_leaves_shares_no_block_with_an_inference() -> None:
    """A store keeps setup's memory once: a mask of an inference may not lie there."""
    p = Program(("alice",))
    with p.in_phase(Phase.SETUP):
        fixed = apply(ops.REDUCE_SUM, (p.draw((0,), (8,), W),), (1,), W, axes=(0,))
    fresh = p.draw((0,), (16,), W)
    x = p.source("input", "x", 0, (17,), W)
    p.output(x + join([fixed, fresh], (17,)), 0, "y", 0)
    _, memory = assigned(p)
    assert memory.placed  # in the join
    assert all(p.nodes[i].phase > Phase.SETUP for i in memory.placed)
    assert [(kept.phase, kept.bytes) for kept in memory.kept if kept.phase == Phase.SETUP] == [
        (Phase.SETUP, 4)
    ]


# Any program


@settings(max_examples=80, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 40), st.sampled_from((1, 24, 1 << 20)))
def test_random_programs(choices: random.Random, operations: int, large_bytes: int) -> None:
    steps = fuse_local(batch_rounds(RandomProgram(choices).grow(operations).program))
    for party, memory in enumerate(assign_buffers(steps, large_bytes)):
        check_memory(steps, party, memory)


def check_memory(steps: LocalSteps, party: int, memory: Memory) -> None:
    """Runs the actions, marking every word with its owner: what is read is still the owner's."""
    marks = Marks(steps, party, memory)
    marks.sources(ops.WEIGHT)
    rounds = {m.position for m in memory.messages} | {(Phase.ONLINE, 0)}
    early = {m.position for m in memory.messages if m.early and not m.is_send}
    segments = {s.position: s.actions for s in steps.segments[party]}
    for position in sorted(rounds | segments.keys()):
        if position == (Phase.ONLINE, 0):
            marks.sources(ops.INPUT)
        if position in early:
            marks.comes_in(position)
        for action in segments.get(position, ()):
            marks.act(action)
        marks.goes_out(position)
        if position not in early:
            marks.comes_in(position)
    marks.check_outputs()


def bases_of(steps: LocalSteps, node: Node) -> list[int]:
    return [base_of(steps.schedule.program, arg).id for arg in node.args]


class Marks:
    """Of each four bytes of an arena, whose they are: a node's, or (negative) a message's."""

    def __init__(self, steps: LocalSteps, party: int, memory: Memory) -> None:
        self.steps, self.party, self.memory = steps, party, memory
        self.nodes = steps.schedule.program.nodes
        self.owner: dict[int, int] = {}
        self.joins = {n.id: bases_of(steps, n) for n in self.nodes if n.op is ops.JOIN}

    def span(self, i: int, as_message: bool) -> range:
        place = (self.memory.messages_of if as_message else self.memory.values)[i]
        node = self.nodes[i]
        packed = place.kind in (BufferKind.PACKED, BufferKind.PLANES)
        size_of = node.type.message_bytes if packed else node.type.stored_bytes
        size = size_of(node.elements)
        assert place.offset % 4 == 0
        assert place.offset + size <= self.memory.arena_bytes
        return range(place.offset, place.offset + size, 4)

    def write(self, i: int, as_message: bool = False) -> None:
        self.owner.update(dict.fromkeys(self.span(i, as_message), -1 - i if as_message else i))

    def check(self, i: int, as_message: bool = False) -> None:
        same = {-1 - i} if as_message else {i}
        if i in self.memory.placed:
            same |= {k for k, bases in self.joins.items() if i in bases}  # it stays as it is
        assert all(self.owner.get(at) in same for at in self.span(i, as_message)), i

    def sources(self, op: PartyOp) -> None:
        for i in np.flatnonzero(self.steps.is_stored).tolist():
            if self.nodes[i].party == self.party and self.nodes[i].op is op:
                self.write(i)

    def act(self, action: Action) -> None:
        for i in action.reads:
            unpacks = self.nodes[i].op is ops.SEND and action.nodes == (i,)
            if self.nodes[i].op is not ops.CONSTANT:
                self.check(i, as_message=unpacks)
        for i in action.nodes:
            if self.nodes[i].op is ops.SEND and self.nodes[i].party != self.party:
                self.write(i, as_message=True)
            elif self.steps.is_stored[i]:
                self.write(i)

    def _sends(self, position: Position) -> list[Node]:
        schedule = self.steps.schedule
        sends = (self.nodes[i] for i in schedule.live if self.nodes[i].op is ops.SEND)
        return [n for n in sends if (n.phase, schedule.round_of(n)) == position]

    def goes_out(self, position: Position) -> None:
        """What is sent in a round is whole."""
        for node in self._sends(position):
            if self.nodes[node.args[0]].party == self.party:
                self.check(node.id, as_message=True)

    def comes_in(self, position: Position) -> None:
        """What is received in a round is there."""
        for node in self._sends(position):
            if node.party == self.party:
                self.write(node.id, as_message=bool(self.steps.is_unpacked[node.id]))

    def check_outputs(self) -> None:
        for i in self.steps.schedule.live:
            if self.nodes[i].op is ops.OUTPUT and self.nodes[i].party == self.party:
                base = base_of(self.steps.schedule.program, self.nodes[i].args[0])
                if base.op is not ops.CONSTANT:
                    self.check(base.id)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 40)] * 3), max_size=60))
def test_an_arena_never_gives_the_same_twice(blocks: list[tuple[int, int, int]]) -> None:
    """Blocks (first time, how long, size) that are there at once share nothing."""
    first, length, size = np.array(sorted(blocks), np.int64).reshape(-1, 3).T.copy()
    offsets, end = allocate(first, first + length, size)
    for i in range(len(blocks)):
        assert 0 <= offsets[i] <= offsets[i] + size[i] <= end
        for j in range(i):
            apart = offsets[i] + size[i] <= offsets[j] or offsets[j] + size[j] <= offsets[i]
            assert first[j] + length[j] < first[i] or apart or not size[i] or not size[j]


@pytest.mark.parametrize(
    ("sizes", "offset", "end"),
    [
        ([3, 1, 2, 1, 4], 7, 11),  # none is large enough
        ([3, 1, 2, 1, 2], 4, 7),  # the smallest that is
        ([3, 1, 3, 1, 3], 0, 8),  # the first of two
        ([3, 1, 2, 1, 1], 4, 7),
    ],
)
def test_the_smallest_free_range_that_fits_is_taken(
    sizes: list[int], offset: int, end: int
) -> None:
    """Blocks 0 and 2 are free when the last one comes, with one behind each that is not."""
    first, last = np.array([0, 0, 0, 0, 1], np.int64), np.array([0, 9, 0, 9, 9], np.int64)
    offsets, found = allocate(first, last, np.array(sizes, np.int64))
    assert (int(offsets[-1]), found) == (offset, end)


def test_free_ranges_side_by_side_are_one() -> None:
    first, last = np.array([0, 0, 0, 1], np.int64), np.array([0, 0, 5, 5], np.int64)
    offsets, end = allocate(first, last, np.array([4, 4, 1, 8], np.int64))
    assert (offsets.tolist(), end) == ([0, 4, 8, 0], 9)
    with pytest.raises(ValueError, match="so large"):
        allocate(first[::-1].copy(), last, np.array([4, 4, 1, 8], np.int64))
    with pytest.raises(ValueError, match="so large"):
        allocate(first, last, np.full(4, 1 << 61))
