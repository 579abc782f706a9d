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
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from veilgraph.ir.party import ops
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


@dataclass(frozen=True)
class Message:
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
        nodes = self.program.nodes
        kernels = [(DECLARED.get(nodes[action.nodes[0]].op.kernel), action) for action in actions]
        products = [action for kernel, action in kernels if kernel and kernel.takes_sums]
        read = {i for action in products for i in action.reads}
        for action in actions:
            (first, *others) = action.nodes
            if nodes[first].op is ops.ADD and not others and first in read:
                for i in action.reads:
                    self.last[i] = max(self.last[i], self.last[first])

    def _outputs(self) -> Iterator[Node]:
        return (n for n in self.schedule.nodes_of(ops.OUTPUT) if n.party == self.party)

    # Blocks

    def _own(self) -> Iterator[Node]:
        """Nodes of this party with memory of their own, not that of a message or the constants."""
        outputs = {base_of(self.program, node.args[0]).id for node in self._outputs()}
        for i in sorted(self.steps.stored):
            node = self.program.nodes[i]
            as_received = node.op is ops.SEND and i not in self.steps.unpacked
            elsewhere = as_received or (node.op is ops.CONSTANT and i not in outputs)
            if node.party == self.party and not elsewhere and node.op is not ops.STATE:
                yield node

    def _placed_in_joins(self) -> Iterator[tuple[int, tuple[int, int]]]:
        """(node, (join, byte offset)) for operands of joins that can be made in place.

        What setup leaves is kept once a session, and what comes after it once an inference: no
        block is of both.
        """
        seen: set[int] = set()
        for node in self._own():
            if node.op is not ops.JOIN:
                continue
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
                offset += _stored_bytes(self.program.nodes[arg])

    def _value_blocks(self, placed: dict[int, tuple[int, int]]) -> Iterator[Block]:
        blocks: dict[int, Block] = {}
        for node in self._own():
            if node.id not in placed:
                block = Block(_stored_bytes(node), *self._lifetime(node))
                block.contents.append(("value", node.id, 0))
                blocks[node.id] = block
        for i, (join, offset) in placed.items():
            block = blocks[join]
            first, last = self._lifetime(self.program.nodes[i])
            block.first, block.last = min(block.first, first), max(block.last, last)
            block.contents.append(("value", i, offset))
        yield from blocks.values()

    def _state_blocks(self) -> Iterator[Block]:
        """A block for each part of a state: where runs find it, and where they leave the next."""
        blocks: dict[tuple[str, int], Block] = {}
        nodes = self.schedule.nodes_where(lambda op: op.listed == "states")
        for node in (n for n in nodes if n.party == self.party):
            new = Block(_stored_bytes(node), 0, FOREVER, is_state=True)
            block = blocks.setdefault((node["name"], node["part"]), new)
            block.contents.append(("value", node.id, 0))
        yield from blocks.values()

    def _lifetime(self, node: Node) -> tuple[int, int]:
        if node.op is ops.INPUT:
            first = self.begins[node.stage]
        elif node.op.runs is Runs.LOADED:
            first = 0
        else:
            first = self.first[node.id]
        last = self.last.get(node.id, first)
        if first < self.ends[Phase.SETUP] <= last:
            last = FOREVER
        return first, last

    def _message_blocks(self) -> Iterator[Block]:
        groups: dict[tuple[Position, int, bool], list[Node]] = {}
        nodes = self.program.nodes
        for node in self.schedule.nodes_of(ops.SEND):
            sender = nodes[node.args[0]].party
            position = (node.stage, self.schedule.round_of(node))
            if sender == self.party:
                groups.setdefault((position, node.party, True), []).append(node)
            elif node.party == self.party:
                groups.setdefault((position, sender, False), []).append(node)
        sizes = {
            key: [node.type.message_bytes(node.elements) for node in sends]
            for key, sends in groups.items()
        }
        large = {key for key, each in sizes.items() if sum(each) >= self.large_bytes}
        early = large | {key for key in sizes if not key[2] and any(key[0] == k[0] for k in large)}
        for key, sends in sorted(groups.items()):
            yield self._message_block(*key, sends, sizes[key], early=key in early)

    def _message_block(
        self,
        position: Position,
        peer: int,
        is_send: bool,
        sends: list[Node],
        sizes: list[int],
        early: bool,
    ) -> Block:
        at_round = self.round_time[position]
        first = self.segment_time[position] if early and not is_send else at_round
        block = Block(sum(sizes), first, at_round)
        for k, node in enumerate(sends):
            block.contents.append(("out" if is_send else "in", node.id, sum(sizes[:k])))
            if is_send:
                block.first = min(block.first, self.first.get(node.id, at_round))
            else:
                block.last = max(block.last, self.last.get(node.id, at_round))
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
                self.memory.messages[number] = replace(message, offset=offset)
                continue
            node = self.program.nodes[number]
            kind = node.type.buffer if what == "value" else node.type.message_buffer
            if what == "out" and kind == BufferKind.WORDS32 and node.elements % 2:
                kind = BufferKind.PACKED  # pads with zeros: what lay there before must not be sent
            elements = node.elements * node.type.per_element
            place = Location(offset + within, kind, node.type.stored.bits, elements)
            as_message = what == "out" or (what == "in" and number in self.steps.unpacked)
            (self.memory.messages_of if as_message else self.memory.values)[number] = place


def _stored_bytes(node: Node) -> int:
    return node.type.stored_bytes(node.elements)


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
