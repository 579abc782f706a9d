"""fuse_local: local steps of each party, element-wise chains joined into one program each.

Between two rounds, element-wise nodes of one length that feed each other become one fused program:
what they share is loaded once, what only they use never reaches memory, draws are made where they
are used (again, rather than stored), and messages are packed by the program that makes them.

    before:  %4 = draw   %5 = sub %3 %4   %6 = shr %5   send %6     (%5 used by a later round)
    after:   fused {draw, sub, shr, pack}, %5 stored
"""

from __future__ import annotations

from dataclasses import dataclass

from veilgraph.ir.party import ops
from veilgraph.ir.party.node import Node, of_one_length
from veilgraph.ir.party.node import base_of as base_among
from veilgraph.ir.party.ops import Runs
from veilgraph.ir.party.program import Program
from veilgraph.ir.plan.tables import BufferKind, Phase
from veilgraph.passes.party.batch_rounds import Position, Schedule

LAST = 1 << 60  # the depth of what writes over a state that others may read


@dataclass(frozen=True)
class Action:
    """One kernel call: a fused program over `nodes`, or the one node of another kernel.

    In a fused program a send stands for packing its operand into the message, at its sender, or for
    unpacking the message into words, at its receiver. `reads` are nodes whose memory it reads.
    """

    nodes: tuple[int, ...]
    fused: bool
    reads: tuple[int, ...] = ()


@dataclass(frozen=True)
class Segment:
    """What a party does between two rounds."""

    position: Position
    actions: tuple[Action, ...]


@dataclass(frozen=True)
class LocalSteps:
    """Every party's segments in order.

    `stored` are the nodes whose values must be in memory; `unpacked` those of them that are
    received, and that something needs as words.
    """

    schedule: Schedule
    segments: tuple[tuple[Segment, ...], ...]
    stored: frozenset[int]
    unpacked: frozenset[int]


def through_reshapes(program: Program, node: int) -> Node:
    """The node whose elements, in the same order, `node` has."""
    nodes, reshape = program.nodes, ops.RESHAPE
    found = nodes[node]
    while found.op is reshape:
        found = nodes[found.args[0]]
    return found


def base_of(program: Program, node: int) -> Node:
    """The node whose memory `node` lies in."""
    return base_among(program.nodes, node)


def is_inline(near: Node, user: Node, position: Position) -> bool:
    """Whether `user` makes the constant or draw `near` itself, rather than read it from memory.

    A draw of the setup phase has the session's counter: later phases can't make it again.
    """
    if not user.op.fusible:
        return False
    if near.op is ops.CONST:
        return True
    if near.op is not ops.DRAW or not of_one_length(near, user):
        return False
    return (near.phase == Phase.SETUP) == (position[0] == Phase.SETUP)


def fuse_local(schedule: Schedule) -> LocalSteps:
    """Joins element-wise nodes into programs; see the module's docstring."""
    placed = _place(schedule)
    stored: set[int] = set()
    as_words: set[int] = set()
    segments: dict[tuple[int, Position], tuple[Action, ...]] = {}
    for (party, position), items in placed.items():
        fusion = _Fusion(schedule, position, items)
        segments[party, position] = fusion.actions()
        stored |= fusion.stored
        as_words |= fusion.as_words
    nodes = schedule.program.nodes
    unpacked = {
        i
        for i in as_words
        if nodes[i].op is ops.SEND and nodes[i].type.message_buffer is BufferKind.PACKED
    }
    for i in sorted(stored):
        if nodes[i].op.runs is Runs.REMADE or i in unpacked:
            place = (nodes[i].party, schedule.at[i])
            segments[place] = (_materialise(nodes[i]), *segments.get(place, ()))
    ordered = tuple(
        tuple(Segment(at, actions) for (who, at), actions in sorted(segments.items()) if who == i)
        for i in range(len(schedule.program.parties))
    )
    return LocalSteps(schedule, ordered, frozenset(stored), frozenset(unpacked))


def _materialise(node: Node) -> Action:
    """What puts a draw, a constant or a message's words into memory."""
    reads = (node.id,) if node.op is ops.SEND else ()
    return Action((node.id,), fused=node.op is not ops.CONST, reads=reads)


def _place(schedule: Schedule) -> dict[tuple[int, Position], list[int]]:
    """Nodes to run by party and position; a send is placed at its sender, where it is packed."""
    placed: dict[tuple[int, Position], list[int]] = {}
    nodes = schedule.program.nodes
    for i in schedule.live:
        node = nodes[i]
        runs = node.op.runs
        if runs is Runs.VIEW or runs is Runs.LOADED:
            continue
        if node.op is ops.SEND:
            place = (nodes[node.args[0]].party, (node.stage, schedule.round_of(node)))
        else:
            place = (node.party, schedule.at[i])
        placed.setdefault(place, []).append(i)
    return placed


class _Fusion:
    """Groups one segment's nodes. `depth` counts the memory barriers before a node."""

    def __init__(self, schedule: Schedule, position: Position, items: list[int]) -> None:
        self.program = schedule.program
        self.position = position
        self.items = items
        self.depth: dict[int, int] = {}
        self.group: dict[int, int] = {}
        self.stored: set[int] = set()
        self.as_words: set[int] = set()
        here = set(items)
        for i in items:
            self._visit(self.program.nodes[i], here)

    def _visit(self, node: Node, here: set[int]) -> None:
        runs, fusible = node.op.runs, node.op.fusible
        if runs is Runs.REMADE:
            self.depth[node.id] = 0
            return
        if runs is Runs.KEPT:
            self.depth[node.id] = LAST
            return
        depth, joined = 0, []
        for arg in node.args:
            near = through_reshapes(self.program, arg)
            if fusible and is_inline(near, node, self.position):
                continue
            base = base_of(self.program, near.id)
            if base.id not in here or base.op is ops.SEND:
                continue
            direct = fusible and near.op.elementwise and of_one_length(near, node)
            behind = self.depth[base.id] + (not direct)
            if behind > depth:
                depth = behind
            if direct:
                joined.append(near.id)
        self.depth[node.id] = depth
        if fusible:
            self.group[node.id] = node.id
            for other in joined:
                if other in self.group and self.depth[other] == depth:
                    self._join(other, node.id)

    def _root(self, i: int) -> int:
        while self.group[i] != i:
            self.group[i] = self.group[self.group[i]]
            i = self.group[i]
        return i

    def _join(self, a: int, b: int) -> None:
        a, b = self._root(a), self._root(b)
        self.group[max(a, b)] = min(a, b)

    def actions(self) -> tuple[Action, ...]:
        groups: dict[int, list[int]] = {}
        order: list[tuple[int, int, bool, tuple[int, ...]]] = []
        for i in self.items:
            if i in self.group:
                groups.setdefault(self._root(i), []).append(i)
            elif self.program.nodes[i].op.runs is not Runs.REMADE:
                order.append((self.depth[i], i, False, (i,)))
        for root, members in groups.items():
            order.append((self.depth[root], root, True, tuple(members)))
        return tuple(
            Action(nodes, fused, self._reads(nodes, fused)) for _, _, fused, nodes in sorted(order)
        )

    def _reads(self, nodes: tuple[int, ...], fused: bool) -> tuple[int, ...]:
        """Nodes whose memory an action reads, each once."""
        inside = set(nodes) if fused else set()
        reads: dict[int, None] = {}
        for i in nodes:
            node = self.program.nodes[i]
            for arg in node.args:
                near = through_reshapes(self.program, arg)
                if near.id in inside and near.op is not ops.SEND:
                    continue
                if is_inline(near, node, self.position):
                    continue
                base = base_of(self.program, near.id)
                reads[base.id] = None
                if not fused or near.id != base.id or not of_one_length(near, node):
                    self.as_words.add(base.id)
        self.stored.update(reads)
        return tuple(reads)
