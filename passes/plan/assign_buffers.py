"""assign_buffers: an offset in one arena for everything a party has in memory.

Values live from the step that makes them to the last that reads them; setup's values that a later
phase reads live as long as the session, and so do states, whose place is the same before a run and
after it. Entries lie one after another on the line of time: they share all other memory.
Views lie in their base's memory, chunks that are joined
are made in place, messages of one round to one peer lie side by side so that they are sent as they
are; what comes in a round of large messages has its place from the segment before it on. What a sum
adds that a kernel reads lives as long as the sum, if the kernel takes sums (kernels/kernel.py). All
of it is static, so a plan states its peak memory.

    before:  %5 = add (12 KiB)   %6 = chunk %5   %9 = join %7 %8
    after:   %5 at 4096, %6 at 4096 + 2048, %9 at 16384, %7 at 16384, %8 at 16384 + 6144
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np

from veilgraph.ir.party import ops
from veilgraph.ir.party.columns import NUMBERS
from veilgraph.ir.party.node import Node, phase_of, stage_of
from veilgraph.ir.party.ops import Runs
from veilgraph.ir.party.program import Program
from veilgraph.ir.plan.tables import LARGE_MESSAGE_BYTES, BufferKind, Phase
from veilgraph.kernels.declared import DECLARED
from veilgraph.passes.party.batch_rounds import Position
from veilgraph.passes.plan.fuse_local import Action, LocalSteps, Segment, base_of

ALIGNMENT = 64
FOREVER = 1 << 60


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


@dataclass(frozen=True, order=True)
class Kept:
    """A range that a phase leaves for those after it; for setup and states, of any entry."""

    phase: Phase
    offset: int
    bytes: int
    entry: int = 0


@dataclass
class Memory:
    """One party's arena."""

    arena_bytes: int = 0
    values: dict[int, Location] = field(default_factory=dict)
    messages_of: dict[int, Location] = field(default_factory=dict)  # sends, as on the wire
    messages: list[Message] = field(default_factory=list)
    placed: frozenset[int] = frozenset()  # nodes made inside the join that takes them
    kept: list[Kept] = field(default_factory=list)


@dataclass
class Block:
    """An allocation under way: its size, first and last time, and what lies in it where."""

    bytes: int
    first: int
    last: int
    is_state: bool = False
    contents: list[tuple[str, int, int]] = field(default_factory=list)


def assign_buffers(steps: LocalSteps, large_bytes: int = LARGE_MESSAGE_BYTES) -> tuple[Memory, ...]:
    """The arena of each party.

    Args:
        large_bytes: of messages that go while steps still run.
    """
    parties = range(len(steps.segments))
    return tuple(_Assignment(steps, party, large_bytes).run() for party in parties)


class _Assignment:
    """Lifetimes and offsets of one party's values. Time counts actions, and rounds between them."""

    def __init__(self, steps: LocalSteps, party: int, large_bytes: int) -> None:
        self.steps = steps
        self.large_bytes = large_bytes
        self.schedule = steps.schedule
        self.program: Program = steps.schedule.program
        self.columns = steps.schedule.columns
        self.party = party
        self.memory = Memory()
        self.time = 0
        self.segment_time: dict[Position, int] = {}
        self.round_time: dict[Position, int] = {}
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self.begins: dict[int, int] = {}  # by stage
        self.ends: dict[int, int] = {}

    def run(self) -> Memory:
        self._number_times()
        placed = dict(self._placed_in_joins())
        self.memory.placed = frozenset(placed)
        blocks = [*self._value_blocks(placed), *self._state_blocks(), *self._message_blocks()]
        self._allocate(blocks)
        return self.memory

    # Time

    def _number_times(self) -> None:
        for position, segment in self._positions():
            self.begins.setdefault(position[0], self.time)
            self.segment_time[position] = self.time
            actions = segment.actions if segment else ()
            for action in actions:
                self._visit(action)
                self.time += 1
            self._hold_addends(actions)
            self.round_time[position] = self.time
            self.time += 1
            self.ends[position[0]] = self.time
        for node in self._outputs():
            last = stage_of(Phase.ONLINE, node.entry)
            end = self.ends[last] if node.stage else self.time
            self.last[base_of(self.program, node.args[0]).id] = end

    def _positions(self) -> Iterator[tuple[Position, Segment | None]]:
        segments = {s.position: s for s in self.steps.segments[self.party]}
        for stage, rounds in self.schedule.rounds.items():
            for level in range(rounds + 1):
                yield (stage, level), segments.get((stage, level))

    def _visit(self, action: Action) -> None:
        for i in action.nodes:
            self.first.setdefault(i, self.time)
        for i in action.reads:
            self.last[i] = self.time

    def _hold_addends(self, actions: Sequence[Action]) -> None:
        """Addends of sums that products of the same segment read stay until these are done."""
        op = self.columns.op
        products = [action for action in actions if _TAKES_SUMS[op[action.nodes[0]]]]
        read = {i for action in products for i in action.reads}
        for action in actions if read else ():
            (first, *others) = action.nodes
            if op[first] == NUMBERS[ops.ADD] and not others and first in read:
                for i in action.reads:
                    self.last[i] = max(self.last[i], self.last[first])

    def _outputs(self) -> Iterator[Node]:
        return (n for n in self.schedule.nodes_of(ops.OUTPUT) if n.party == self.party)

    # Blocks

    @cached_property
    def _own(self) -> list[int]:
        """Nodes of this party with memory of their own, not that of a message or the constants."""
        columns = self.columns
        rows = np.array(sorted(self.steps.stored), np.int64)
        rows = rows[columns.party[rows] == self.party]
        outputs = {base_of(self.program, node.args[0]).id for node in self._outputs()}
        elsewhere = columns.op[rows] == NUMBERS[ops.STATE]
        for op, own in ((ops.SEND, self.steps.unpacked), (ops.CONSTANT, outputs)):
            elsewhere |= (columns.op[rows] == NUMBERS[op]) & ~np.isin(rows, list(own))
        found: list[int] = rows[~elsewhere].tolist()
        return found

    def _placed_in_joins(self) -> Iterator[tuple[int, tuple[int, int]]]:
        """(node, (join, byte offset)) for operands of joins that can be made in place.

        What setup leaves is kept once a session, and what comes after it once an inference: no
        block is of both.
        """
        seen: set[int] = set()
        joins = {node.id: node for node in self.schedule.nodes_of(ops.JOIN)}
        for node in (joins[i] for i in self._own if i in joins):
            offset = 0
            for arg in node.args:
                base = base_of(self.program, arg)
                in_place = base.op.runs not in (Runs.LOADED, Runs.SENT)
                in_place = in_place and base.op not in (ops.CONST, ops.JOIN)
                in_place = in_place and (base.phase > Phase.SETUP) == (node.phase > Phase.SETUP)
                whole = base.elements == self.program.nodes[arg].elements
                if in_place and whole and base.id not in seen and base.id in self.first:
                    seen.add(base.id)
                    yield base.id, (node.id, offset)
                offset += self.columns.stored_bytes[arg]

    def _value_blocks(self, placed: dict[int, tuple[int, int]]) -> Iterator[Block]:
        blocks: dict[int, Block] = {}
        sizes = self.columns.stored_bytes
        for i in self._own:
            if i not in placed:
                blocks[i] = Block(sizes[i], *self._lifetime(i))
                blocks[i].contents.append(("value", i, 0))
        for i, (join, offset) in placed.items():
            block = blocks[join]
            first, last = self._lifetime(i)
            block.first, block.last = min(block.first, first), max(block.last, last)
            block.contents.append(("value", i, offset))
        yield from blocks.values()

    def _state_blocks(self) -> Iterator[Block]:
        """A block for each part of a state: where runs find it, and where they leave the next."""
        blocks: dict[tuple[str, int], Block] = {}
        nodes = self.schedule.nodes_where(lambda op: op.listed == "states")
        for node in (n for n in nodes if n.party == self.party):
            new = Block(self.columns.stored_bytes[node.id], 0, FOREVER, is_state=True)
            block = blocks.setdefault((node["name"], node["part"]), new)
            block.contents.append(("value", node.id, 0))
        yield from blocks.values()

    def _lifetime(self, i: int) -> tuple[int, int]:
        op = ops.ALL[self.columns.op[i]]
        if op is ops.INPUT:
            first = self.begins[int(self.columns.stage[i])]
        elif op.runs is Runs.LOADED:
            first = 0
        else:
            first = self.first[i]
        last = self.last.get(i, first)
        if first < self.ends[Phase.SETUP] <= last:
            last = FOREVER
        return first, last

    def _message_blocks(self) -> Iterator[Block]:
        groups: dict[tuple[Position, int, bool], list[int]] = {}
        for i, sender, receiver in self._crossings():
            stage, level = self.schedule.position_of(i)
            is_send = sender == self.party
            peer = receiver if is_send else sender
            groups.setdefault(((stage, level - 1), peer, is_send), []).append(i)
        all = self.columns.message_bytes
        sizes = {key: [all[i] for i in sends] for key, sends in groups.items()}
        large = {key for key, each in sizes.items() if sum(each) >= self.large_bytes}
        rounds = {key[0] for key in large}
        early = large | {key for key in sizes if not key[2] and key[0] in rounds}
        for key, sends in sorted(groups.items()):
            yield self._message_block(*key, sends, sizes[key], early=key in early)

    def _crossings(self) -> Iterator[tuple[int, int, int]]:
        """Messages of this party: the node, its sender and its receiver."""
        columns = self.columns
        rows = columns.rows_of(ops.SEND)
        rows = rows[self.schedule.is_live[rows] != 0]
        ends = np.stack([columns.party[columns.args[columns.first[rows]]], columns.party[rows]])
        own = (ends == self.party).any(0)
        return zip(rows[own].tolist(), *ends[:, own].tolist(), strict=True)

    def _message_block(
        self,
        position: Position,
        peer: int,
        is_send: bool,
        sends: list[int],
        sizes: list[int],
        early: bool,
    ) -> Block:
        at_round = self.round_time[position]
        first = self.segment_time[position] if early and not is_send else at_round
        block = Block(sum(sizes), first, at_round)
        start = 0
        for i, size in zip(sends, sizes, strict=True):
            block.contents.append(("out" if is_send else "in", i, start))
            start += size
            if is_send:
                block.first = min(block.first, self.first.get(i, at_round))
            else:
                block.last = max(block.last, self.last.get(i, at_round))
        setup_until = self.ends[Phase.SETUP]
        if not is_send and position[0] == Phase.SETUP and block.last >= setup_until:
            block.last = FOREVER
        block.contents.append(("message", len(self.memory.messages), 0))
        self.memory.messages.append(Message(position, peer, is_send, 0, block.bytes, early))
        return block

    # Offsets

    def _allocate(self, blocks: list[Block]) -> None:
        arena = Arena()
        ends: list[tuple[int, int, int]] = []
        for block in sorted(blocks, key=lambda b: (b.first, -b.bytes)):
            while ends and ends[0][0] < block.first:
                _, offset, size = ends.pop(0)
                arena.free(offset, size)
            size = -(-block.bytes // ALIGNMENT) * ALIGNMENT
            offset = arena.take(size)
            bisect.insort(ends, (block.last, offset, size))
            self._settle(block, offset)
            self._note_kept(block, offset)
        self.memory.arena_bytes = arena.end

    def _note_kept(self, block: Block, offset: int) -> None:
        """Notes what a later phase reads of an earlier one: all there is to store between them."""
        if block.last == FOREVER:
            phase = Phase.ONLINE if block.is_state else Phase.SETUP
            self.memory.kept.append(Kept(phase, offset, block.bytes))
            return
        for stage, begin in self.begins.items():
            if not block.first < begin <= block.last:
                continue
            phase, entry = phase_of(stage)
            if phase == Phase.ONLINE and self.begins[stage - 1] <= block.first:
                self.memory.kept.append(Kept(Phase.OFFLINE, offset, block.bytes, entry))

    def _settle(self, block: Block, offset: int) -> None:
        for what, number, within in block.contents:
            if what == "message":
                message = self.memory.messages[number]
                self.memory.messages[number] = message._replace(offset=offset)
                continue
            stored, sent = self._kinds[self.columns.tensor[number]]
            kind = stored.kind if what == "value" else sent
            if what == "out" and kind == BufferKind.WORDS32 and stored.elements % 2:
                kind = BufferKind.PACKED  # pads with zeros: what lay there before must not be sent
            place = Location(offset + within, kind, stored.bits, stored.elements)
            as_message = what == "out" or (what == "in" and number in self.steps.unpacked)
            (self.memory.messages_of if as_message else self.memory.values)[number] = place

    @cached_property
    def _kinds(self) -> list[tuple[Location, BufferKind]]:
        """Of each tensor of the program what it is in memory, at offset 0, and in messages."""
        return [
            (
                Location(0, type.buffer, type.stored.bits, prod(shape) * type.per_element),
                type.message_buffer,
            )
            for shape, type in self.columns.tensors
        ]


_TAKES_SUMS = [op.kernel in DECLARED and DECLARED[op.kernel].takes_sums for op in ops.ALL]


class Arena:
    """Free ranges of one address space, by offset; the best fit is taken."""

    def __init__(self) -> None:
        self.end = 0
        self.ranges: list[tuple[int, int]] = []  # (offset, bytes), sorted, never adjacent

    def take(self, size: int) -> int:
        fits = [(bytes_, offset) for offset, bytes_ in self.ranges if bytes_ >= size]
        if not fits:
            offset = self.end
            if self.ranges and sum(self.ranges[-1]) == self.end:
                offset, _ = self.ranges.pop()
            self.end = offset + size
            return offset
        found, offset = min(fits)
        place = bisect.bisect_left(self.ranges, (offset, found))
        if found == size:
            del self.ranges[place]
        else:
            self.ranges[place] = (offset + size, found - size)
        return offset

    def free(self, offset: int, size: int) -> None:
        if size == 0:
            return
        place = bisect.bisect_left(self.ranges, (offset, size))
        if place < len(self.ranges) and offset + size == self.ranges[place][0]:
            size += self.ranges.pop(place)[1]
        if place and sum(self.ranges[place - 1]) == offset:
            before, bytes_ = self.ranges[place - 1]
            self.ranges[place - 1] = (before, bytes_ + size)
        else:
            self.ranges.insert(place, (offset, size))
