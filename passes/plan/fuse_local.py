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
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from veilgraph.ir.party import ops
from veilgraph.ir.party.columns import NUMBERS, Columns, Flags, Int32s, Int64s
from veilgraph.ir.party.node import Node
from veilgraph.ir.party.node import base_of as base_among
from veilgraph.ir.party.ops import Runs
from veilgraph.ir.party.program import Program
from veilgraph.ir.plan.tables import BufferKind
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


class Lists(NamedTuple):
    """Lists of nodes, one behind another: list i is rows[first[i] : first[i + 1]]."""

    first: Int64s
    rows: Int32s

    def take(self, chosen: Int64s) -> Lists:
        """Some of them, in this order."""
        counts = np.diff(self.first)[chosen]
        first = np.concatenate([[0], np.cumsum(counts)])
        at = np.repeat(self.first[chosen] - first[:-1], counts) + np.arange(first[-1])
        return Lists(first, self.rows[at])

    def tuples(self) -> list[tuple[int, ...]]:
        every, ends = self.rows.tolist(), self.first.tolist()
        return [tuple(every[a:b]) for a, b in pairwise(ends)]


@dataclass(frozen=True)
class Actions:
    """Actions as columns, by party and position, those of a segment in order.

    Attributes:
        party: who runs each.
        place: where, as `Schedule.places`.
        fused, nodes, reads: as `Action` has them.
    """

    party: Int32s
    place: Int64s
    fused: Flags
    nodes: Lists
    reads: Lists

    def take(self, chosen: Int64s) -> Actions:
        """Some of them, in this order."""
        nodes, reads = self.nodes.take(chosen), self.reads.take(chosen)
        return Actions(self.party[chosen], self.place[chosen], self.fused[chosen], nodes, reads)

    @cached_property
    def leads(self) -> Int32s:
        """The first node of each."""
        return self.nodes.rows[self.nodes.first[:-1]]

    def __len__(self) -> int:
        return len(self.party)


@dataclass(frozen=True)
class LocalSteps:
    """What every party does between rounds.

    `is_stored` marks the nodes whose values must be in memory; `is_unpacked` those of them that are
    received, and that something needs as words.
    """

    schedule: Schedule
    actions: Actions
    is_stored: Flags
    is_unpacked: Flags

    @cached_property
    def of_parties(self) -> tuple[Actions, ...]:
        """The actions of each party."""
        parties = range(len(self.schedule.program.parties))
        return tuple(self.actions.take(np.flatnonzero(self.actions.party == i)) for i in parties)

    @property
    def segments(self) -> tuple[tuple[Segment, ...], ...]:
        """Every party's segments in order, for people to look at."""
        return tuple(tuple(_segments(own)) for own in self.of_parties)


def _segments(own: Actions) -> Iterator[Segment]:
    found: dict[Position, list[Action]] = {}
    columns = own.place.tolist(), own.nodes.tuples(), own.fused.tolist(), own.reads.tuples()
    for place, nodes, fused, reads in zip(*columns, strict=True):
        found.setdefault(position(place), []).append(Action(nodes, bool(fused), reads))
    return (Segment(place, tuple(actions)) for place, actions in found.items())


def base_of(program: Program, node: int) -> Node:
    """The node whose memory `node` lies in."""
    return base_among(program.nodes, node)


def fuse_local(schedule: Schedule) -> LocalSteps:
    """Joins element-wise nodes into programs; see the module's docstring."""
    columns = schedule.columns
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
    unpacked = _unpacked(columns, as_words)
    remade = columns.rows_of(*(op for op in ops.ALL if op.runs is Runs.REMADE))
    made = np.union1d(np.intersect1d(stored, remade), unpacked)
    before = _materialised(schedule, made[::-1])  # all else of their segments
    whole = Actions(
        np.concatenate([before.party, party]),
        np.concatenate([before.place, at]),
        np.concatenate([before.fused, fused]),
        _behind(before.nodes, Lists(first, nodes)),
        _behind(before.reads, Lists(begin, reads)),
    )
    order = np.lexsort((whole.place, whole.party))  # stable
    marked = (_marked(columns, rows) for rows in (stored, unpacked))
    return LocalSteps(schedule, whole.take(order), *marked)


def _marked(columns: Columns, rows: npt.NDArray[Any]) -> Flags:
    found = np.zeros(len(columns), np.uint8)
    found[rows] = 1
    return found


def _behind(one: Lists, other: Lists) -> Lists:
    first = np.concatenate([one.first, one.first[-1] + other.first[1:]])
    return Lists(first, np.concatenate([one.rows, other.rows]))


def _unpacked(columns: Columns, as_words: Int32s) -> Int32s:
    """Those of some nodes that are messages of packed words."""
    packed = [type.message_buffer is BufferKind.PACKED for _, type in columns.tensors]
    is_send = columns.op[as_words] == NUMBERS[ops.SEND]
    found: Int32s = as_words[is_send & np.array(packed, bool)[columns.tensor[as_words]]]
    return found


def _materialised(schedule: Schedule, nodes: Int64s) -> Actions:
    """What puts draws, constants and messages' words into memory, an action each."""
    columns, count = schedule.columns, len(nodes)
    op = columns.op[nodes]
    is_read = op == NUMBERS[ops.SEND]
    rows = nodes.astype(np.int32)
    return Actions(
        columns.party[nodes],
        schedule.places[nodes],
        (op != NUMBERS[ops.CONST]).astype(np.uint8),
        Lists(np.arange(count + 1), rows),
        Lists(np.concatenate([[0], np.cumsum(is_read)]), rows[is_read]),
    )
