"""assign_buffers: an offset in one arena for everything a party has in memory.

Values live from the step that makes them to the last that reads them; setup's values that a later
phase reads live as long as the session, and so do states, whose place is the same before a run and
after it. Entries lie one after another on the line of time: they share all other memory.
Views lie in their base's memory, chunks that are joined are made in place, messages of one round to
one peer lie side by side so that they are sent as they are; what comes in a round of large messages
has its place from the segment before it on. All of it is static, so a plan states its peak memory.

    before:  %5 = add (12 KiB)   %6 = chunk %5   %9 = join %7 %8
    after:   %5 at 4096, %6 at 4096 + 2048, %9 at 16384, %7 at 16384, %8 at 16384 + 6144
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from veilgraph.ir.party import ops
from veilgraph.ir.party.columns import NUMBERS, Columns, Flags, Int32s, Int64s
from veilgraph.ir.party.node import phase_of
from veilgraph.ir.party.ops import Runs
from veilgraph.ir.party.program import Program
from veilgraph.ir.plan.tables import LARGE_MESSAGE_BYTES, BufferKind, Phase
from veilgraph.passes import _native as native
from veilgraph.passes.party.batch_rounds import LEVEL_BITS, Position, position
from veilgraph.passes.plan.fuse_local import Lists, LocalSteps, base_of
from veilgraph.passes.plan.lifetimes import FOREVER, NEVER, Lifetimes

ALIGNMENT = 64
NOWHERE = -1
Marks = npt.NDArray[np.bool_]
_KINDS = {int(kind): kind for kind in BufferKind}


class Location(NamedTuple):
    """Where a value lies: bytes from the start of the arena, and how its elements are laid out."""

    offset: int
    kind: BufferKind
    bits: int
    elements: int


class Message(NamedTuple):
    """All that one party sends another in one round: `sends` side by side from `offset`.

    It may go before the segment has run, if `early`: what is large is sent so, and in the same
    round all that is received has its place.
    """

    position: Position
    peer: int
    is_send: bool
    offset: int
    bytes: int
    early: bool = False


class Kept(NamedTuple):
    """A range that a phase leaves for those after it; for setup and states, of any entry."""

    phase: Phase
    offset: int
    bytes: int
    entry: int = 0


class Places:
    """Where nodes lie.

    Attributes:
        offset: of each node, NOWHERE for most.
        kind: of each node, a BufferKind.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self.offset = np.full(len(columns), NOWHERE, np.int64)
        self.kind = np.zeros(len(columns), np.uint8)
        self._known: dict[int, tuple[int, int]] = {}

    def put(self, rows: Int64s, offset: Int64s, kind: Flags) -> None:
        self.offset[rows], self.kind[rows] = offset, kind

    def __contains__(self, node: int) -> bool:
        return bool(self.offset[node] != NOWHERE)

    def __getitem__(self, node: int) -> Location:
        offset = self.offset.item(node)
        assert offset != NOWHERE, f"%{node} has no place"
        bits, elements = self._stored(self._columns.tensor.item(node))
        return Location(offset, _KINDS[self.kind.item(node)], bits, elements)

    def _stored(self, tensor: int) -> tuple[int, int]:
        """Bits of an element of a tensor in memory, and how many there are."""
        found = self._known.get(tensor)
        if found is None:
            shape, type = self._columns.tensors[tensor]
            found = self._known[tensor] = type.stored.bits, prod(shape) * type.per_element
        return found


@dataclass
class Memory:
    """One party's arena."""

    values: Places
    messages_of: Places  # sends, as on the wire
    arena_bytes: int = 0
    messages: list[Message] = field(default_factory=list)
    placed: frozenset[int] = frozenset()  # nodes made inside the join that takes them
    kept: list[Kept] = field(default_factory=list)


class Blocks(NamedTuple):
    """Allocations: their sizes, first and last times."""

    bytes: Int64s
    first: Int64s
    last: Int64s


class Content(NamedTuple):
    """What lies in blocks: nodes, their blocks, and how many bytes from these blocks' starts."""

    nodes: Int64s
    block: Int64s
    within: Int64s


def assign_buffers(steps: LocalSteps, large_bytes: int = LARGE_MESSAGE_BYTES) -> tuple[Memory, ...]:
    """The arena of each party.

    Args:
        large_bytes: of messages that go while steps still run.
    """
    parties = range(len(steps.schedule.program.parties))
    return tuple(_Assignment(steps, party, large_bytes).run() for party in parties)


class _Assignment:
    """Offsets of one party's values: blocks of values, of states and of messages, in this order."""

    def __init__(self, steps: LocalSteps, party: int, large_bytes: int) -> None:
        self.steps = steps
        self.large_bytes = large_bytes
        self.schedule = steps.schedule
        self.program: Program = steps.schedule.program
        self.columns = steps.schedule.columns
        self.party = party
        self.lives = Lifetimes(steps, party)
        self.memory = Memory(Places(self.columns), Places(self.columns))
        self._messages: tuple[npt.NDArray[Any], ...] = ()  # columns of `Message`, but for offsets

    def run(self) -> Memory:
        values, in_values = self._value_blocks()
        states, in_states = self._state_blocks()
        messages, in_messages = self._message_blocks()
        blocks = Blocks(*map(np.concatenate, zip(values, states, messages, strict=True)))
        is_state = np.zeros(len(blocks.bytes), bool)
        before = len(values.bytes)
        is_state[before : before + len(states.bytes)] = True
        offsets = self._allocate(blocks, is_state)
        self._put_values(in_values, offsets)
        self._put_values(in_states, offsets[before:])
        self._put_messages(in_messages, offsets[before + len(states.bytes) :])
        return self.memory

    # Values

    @cached_property
    def _own(self) -> Int64s:
        """Nodes of this party with memory of their own, not that of a message or the constants."""
        columns = self.columns
        rows = np.flatnonzero((self.steps.is_stored != 0) & (columns.party == self.party))
        is_output = np.zeros(len(columns), bool)
        outputs = (n for n in self.schedule.nodes_of(ops.OUTPUT) if n.party == self.party)
        is_output[[base_of(self.program, node.args[0]).id for node in outputs]] = True
        op = columns.op[rows]
        elsewhere = op == NUMBERS[ops.STATE]
        elsewhere |= (op == NUMBERS[ops.SEND]) & (self.steps.is_unpacked[rows] == 0)
        elsewhere |= (op == NUMBERS[ops.CONSTANT]) & ~is_output[rows]
        found: Int64s = rows[~elsewhere]
        return found

    def _placed_in_joins(self) -> Content:
        """Operands of joins that can be made in place, with their joins and byte offsets.

        What setup leaves is kept once a session, and what comes after it once an inference: no
        block is of both.
        """
        columns = self.columns
        joins = self._own[columns.op[self._own] == NUMBERS[ops.JOIN]]
        operands = Lists(columns.first, columns.args).take(joins)
        counts = np.diff(operands.first)
        sizes, join = columns.stored_bytes[operands.rows], np.repeat(joins, counts)
        ends = np.concatenate([[0], np.cumsum(sizes)])
        within = ends[:-1] - np.repeat(ends[operands.first[:-1]], counts)
        base, _ = columns.behind_views(operands.rows)
        in_place = _MADE_IN_PLACE[columns.op[base]] & (self.lives.first[base] != NEVER)
        in_place &= (columns.phase[base] > Phase.SETUP) == (columns.phase[join] > Phase.SETUP)
        in_place &= columns.elements[base] == columns.elements[operands.rows]
        chosen = np.flatnonzero(in_place)
        _, once = np.unique(base[chosen], return_index=True)
        chosen = chosen[np.sort(once)]
        return Content(base[chosen], join[chosen], within[chosen])

    def _value_blocks(self) -> tuple[Blocks, Content]:
        placed = self._placed_in_joins()
        self.memory.placed = frozenset(placed.nodes.tolist())
        rows = self._own[~np.isin(self._own, placed.nodes)]
        first, last = self.lives.of(rows)
        block = np.searchsorted(rows, placed.block)
        inner = self.lives.of(placed.nodes)
        np.minimum.at(first, block, inner[0])
        np.maximum.at(last, block, inner[1])
        content = Content(
            np.concatenate([rows, placed.nodes]),
            np.concatenate([np.arange(len(rows)), block]),
            np.concatenate([np.zeros(len(rows), np.int64), placed.within]),
        )
        return Blocks(self.columns.stored_bytes[rows], first, last), content

    def _state_blocks(self) -> tuple[Blocks, Content]:
        """A block for each part of a state: where runs find it, and where they leave the next."""
        blocks: dict[tuple[str, int], int] = {}
        nodes = self.schedule.nodes_where(lambda op: op.listed == "states")
        own = [node for node in nodes if node.party == self.party]
        block = [blocks.setdefault((n["name"], n["part"]), len(blocks)) for n in own]
        rows = np.array([node.id for node in own], np.int64)
        _, first_met = np.unique(np.array(block, np.int64), return_index=True)
        sizes = self.columns.stored_bytes[rows[first_met]]
        content = Content(rows, np.array(block, np.int64), np.zeros(len(rows), np.int64))
        return Blocks(sizes, np.zeros_like(sizes), np.full_like(sizes, FOREVER)), content

    # Messages

    def _message_blocks(self) -> tuple[Blocks, Content]:
        """A block for all that goes one way between two parties in one round."""
        rows, place, peer, is_send = self._crossings()
        order = np.lexsort([is_send, peer, place])  # stable
        rows, place, peer, is_send = rows[order], place[order], peer[order], is_send[order]
        keys = np.stack([place, peer, is_send])
        is_new = np.ones(len(rows), bool)
        is_new[1:] = (keys[:, 1:] != keys[:, :-1]).any(0)
        begins = np.flatnonzero(is_new)
        block = np.cumsum(is_new) - 1
        sizes = self.columns.message_bytes[rows]
        ends = np.concatenate([[0], np.cumsum(sizes)])
        total = np.add.reduceat(sizes, begins) if len(begins) else sizes
        place, peer, is_send = place[begins], peer[begins], is_send[begins]
        large = total >= self.large_bytes
        early = large | (~is_send & np.isin(place, place[large]))
        first, last = self._times(rows, block, place, is_send, early)
        self._messages = place, peer, is_send, total, early
        content = Content(rows, block, ends[:-1] - ends[begins][block])
        return Blocks(total, first, last), content

    def _crossings(self) -> tuple[Int64s, Int64s, Int32s, Marks]:
        """Messages of this party: nodes, places of their rounds, peers, and whether it sends."""
        columns = self.columns
        rows = self.schedule.rows_of(ops.SEND)
        sender, receiver = columns.party[columns.args[columns.first[rows]]], columns.party[rows]
        own = (sender == self.party) | (receiver == self.party)
        rows, sender, receiver = rows[own], sender[own], receiver[own]
        is_send = sender == self.party
        peer = np.where(is_send, receiver, sender)
        return rows, self.schedule.places[rows] - 1, peer, is_send

    def _times(
        self, rows: Int64s, block: Int64s, place: Int64s, is_send: Marks, early: Marks
    ) -> tuple[Int64s, Int64s]:
        """First and last times of messages: from what makes it first to what reads it last."""
        lives = self.lives
        at_round = lives.round_time(place)
        first = np.where(early & ~is_send, lives.segment_time(place), at_round)
        last = at_round.copy()
        made, read = lives.first[rows], lives.last[rows]
        own = np.flatnonzero(is_send[block] & (made != NEVER))
        np.minimum.at(first, block[own], made[own])
        other = np.flatnonzero(~is_send[block])
        np.maximum.at(last, block[other], read[other])
        stays = ~is_send & (place >> LEVEL_BITS == Phase.SETUP) & (last >= lives.setup_until)
        return first, np.where(stays, FOREVER, last)

    # Offsets

    def _allocate(self, blocks: Blocks, is_state: Marks) -> Int64s:
        order = np.lexsort([-blocks.bytes, blocks.first])  # stable
        sizes = -(-blocks.bytes // ALIGNMENT) * ALIGNMENT
        found, end = native.allocate(blocks.first[order], blocks.last[order], sizes[order])
        self.memory.arena_bytes = end
        offsets = np.empty_like(found)
        offsets[order] = found
        self._note_kept(blocks, offsets, is_state)
        return offsets

    def _note_kept(self, blocks: Blocks, offsets: Int64s, is_state: Marks) -> None:
        """Notes what a later phase reads of an earlier one: all there is to store between them."""
        stays, begins = blocks.last == FOREVER, self.lives.begins
        chosen = [(Phase.ONLINE, 0, stays & is_state), (Phase.SETUP, 0, stays & ~is_state)]
        for stage, begin in begins.items():
            phase, entry = phase_of(stage)
            if phase == Phase.ONLINE:
                crosses = ~stays & (blocks.first < begin) & (begin <= blocks.last)
                crosses &= begins[stage - 1] <= blocks.first
                chosen.append((Phase.OFFLINE, entry, crosses))
        for phase, entry, which in chosen:
            for offset, size in zip(
                offsets[which].tolist(), blocks.bytes[which].tolist(), strict=True
            ):
                self.memory.kept.append(Kept(phase, offset, size, entry))

    def _put_values(self, content: Content, offsets: Int64s) -> None:
        kinds = np.array([type.buffer for _, type in self.columns.tensors], np.uint8)
        rows = content.nodes
        place = offsets[content.block] + content.within
        self.memory.values.put(rows, place, kinds[self.columns.tensor[rows]])

    def _put_messages(self, content: Content, offsets: Int64s) -> None:
        columns, memory = self.columns, self.memory
        place, *ends, total, early = (each.tolist() for each in self._messages)
        each = map(position, place), *ends, offsets.tolist(), total, early
        memory.messages = [*map(Message, *each)]
        rows, place = content.nodes, offsets[content.block] + content.within
        kinds = np.array([type.message_buffer for _, type in columns.tensors], np.uint8)
        kind, is_sent = kinds[columns.tensor[rows]], columns.party[rows] != self.party
        # An odd word is padded with zeros: what lay there before must not be sent.
        is_odd = (kind == BufferKind.WORDS32) & (columns.steps[rows] % 2 != 0)
        kind[is_sent & is_odd] = BufferKind.PACKED
        on_wire = is_sent | (self.steps.is_unpacked[rows] != 0)
        memory.messages_of.put(rows[on_wire], place[on_wire], kind[on_wire])
        memory.values.put(rows[~on_wire], place[~on_wire], kind[~on_wire])


_MADE_IN_PLACE = np.array(
    [op.runs not in (Runs.LOADED, Runs.SENT) and op not in (ops.CONST, ops.JOIN) for op in ops.ALL]
)
