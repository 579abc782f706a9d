"""fuse_local: local steps of each party, element-wise chains joined into one program each.

Between two rounds, element-wise nodes of one length that feed each other become one fused program:
what they share is loaded once, what only they use never reaches memory, draws are made where they
are used (again, rather than stored), and messages are packed by the program that makes them.

    before:  %4 = draw   %5 = sub %3 %4   %6 = shr %5   send %6     (%5 used by a later round)
    after:   fused {draw, sub, shr, pack}, %5 stored
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from veilgraph.ir.party import ops
from veilgraph.ir.party.columns import NUMBERS, Columns, Flags, Int32s, Int64s
from veilgraph.ir.party.node import Node, of_one_length
from veilgraph.ir.party.node import base_of as base_among
from veilgraph.ir.party.ops import Runs
from veilgraph.ir.party.program import Program
from veilgraph.ir.plan.tables import BufferKind, Phase
from veilgraph.passes import _native as native
from veilgraph.passes.facts import facts_of
from veilgraph.passes.party.batch_rounds import Position, Schedule, position


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
    columns, program = schedule.columns, schedule.program
    party, at, fused, first, nodes, begin, reads, stored, as_words = native.fuse_local(
        facts_of(columns),
        columns.party,
        columns.stage,
        columns.elements,
        schedule.is_live,
        schedule.places,
        columns.first,
        columns.args,
    )
    segments: dict[tuple[int, Position], list[Action]] = {}
    for who, where, action in _actions(party, at, fused, first, nodes, begin, reads):
        segments.setdefault((who, where), []).append(action)
    unpacked = _unpacked(columns, as_words)
    remade = columns.rows_of(*(op for op in ops.ALL if op.runs is Runs.REMADE))
    for i in np.union1d(np.intersect1d(stored, remade), unpacked).tolist():
        node = program.nodes[i]
        segments.setdefault((node.party, schedule.position_of(i)), []).insert(0, _materialise(node))
    ordered = tuple(
        tuple(
            Segment(place, tuple(all)) for (who, place), all in sorted(segments.items()) if who == i
        )
        for i in range(len(program.parties))
    )
    return LocalSteps(schedule, ordered, frozenset(stored.tolist()), frozenset(unpacked.tolist()))


def _actions(
    party: Int32s,
    at: Int64s,
    fused: Flags,
    first: Int64s,
    nodes: Int32s,
    begin: Int64s,
    reads: Int32s,
) -> Iterator[tuple[int, Position, Action]]:
    """Each action with its party and position."""
    inner, outer = _lists(first, nodes), _lists(begin, reads)
    places = {place: position(place) for place in np.unique(at).tolist()}
    rows = zip(party.tolist(), at.tolist(), fused.tolist(), inner, outer, strict=True)
    for who, place, is_fused, within, read in rows:
        yield who, places[place], Action(within, bool(is_fused), read)


def _lists(first: Int64s, rows: Int32s) -> Iterator[tuple[int, ...]]:
    """List i is rows[first[i] : first[i + 1]]."""
    every, ends = rows.tolist(), first.tolist()
    return (tuple(every[a:b]) for a, b in pairwise(ends))


def _unpacked(columns: Columns, as_words: Int32s) -> Int32s:
    """Those of some nodes that are messages of packed words."""
    packed = [type.message_buffer is BufferKind.PACKED for _, type in columns.tensors]
    is_send = columns.op[as_words] == NUMBERS[ops.SEND]
    found: Int32s = as_words[is_send & np.array(packed, bool)[columns.tensor[as_words]]]
    return found


def _materialise(node: Node) -> Action:
    """What puts a draw, a constant or a message's words into memory."""
    reads = (node.id,) if node.op is ops.SEND else ()
    return Action((node.id,), fused=node.op is not ops.CONST, reads=reads)
