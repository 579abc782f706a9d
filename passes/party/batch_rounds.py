"""batch_rounds: which round each message goes in, and where each local node runs.

Messages that need no message go in round 0 of their phase, those that need one from round 0 in
round 1, and so on: the number of rounds is the length of the longest chain of messages, and
independent branches share rounds. Where a round's time is told, messages that are alike may wait
for each other, for which there may be more rounds; so do those made of slow products
(align_messages.py). Local nodes run between two rounds: products as early as they can, so that they
overlap with waiting, or behind what their party sends meanwhile; everything cheap as late as
it can, so that little is stored.

    before:  %3 = send %1        %5 = send %4(%3)      %9 = send %8      (%8 needs no message)
    after:   round 0: %3, %9     round 1: %5
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from veilgraph.ir.party.columns import Columns, columns_of
from veilgraph.ir.party.node import Node
from veilgraph.ir.party.ops import ALL, PartyOp
from veilgraph.ir.party.program import Program
from veilgraph.ir.plan.tables import Pace
from veilgraph.passes import _native as native
from veilgraph.passes.facts import facts_of
from veilgraph.passes.party.align_messages import align_messages

Position = tuple[int, int]  # a stage (`Node.stage`), and the number of its rounds that are over
FREE = Pace()
LEVEL_BITS = 32  # of a position in one number: what comes behind its stage
_LEVEL = (1 << LEVEL_BITS) - 1


@dataclass(frozen=True)
class Schedule:
    """Where nodes run.

    Attributes:
        program: the program.
        columns: its nodes.
        is_live: of each node, whether an output or a state needs it.
        places: for each node, when its party computes it, for a send when its receiver has it: a
            stage times 2^32, and the number of its rounds that are over.
        rounds: number of rounds of each stage.
    """

    program: Program
    columns: Columns
    is_live: npt.NDArray[np.uint8]
    places: npt.NDArray[np.int64]
    rounds: dict[int, int]

    @cached_property
    def live(self) -> tuple[int, ...]:
        """Ids of the nodes that an output or a state needs, in order."""
        return tuple(np.flatnonzero(self.is_live).tolist())

    def position_of(self, node: int) -> Position:
        """Of `places`, by the node's id."""
        return position(self._numbers[node])

    def round_of(self, send: Node) -> int:
        return (self._numbers[send.id] & _LEVEL) - 1

    @property
    def levels(self) -> npt.NDArray[np.int64]:
        """Of `places`, the number of a stage's rounds that are over."""
        levels: npt.NDArray[np.int64] = self.places & _LEVEL
        return levels

    @cached_property
    def _numbers(self) -> memoryview:
        return self.places.data  # a list of them takes five times as much

    def nodes_of(self, op: PartyOp) -> Sequence[Node]:
        """Live nodes of an operation, in order."""
        return self._nodes_of((op,))

    def nodes_where(self, holds: Callable[[PartyOp], bool]) -> Sequence[Node]:
        """Live nodes of the operations of which this holds, in order."""
        return self._nodes_of(tuple(op for op in ALL if holds(op)))

    @cached_property
    def _known(self) -> dict[tuple[PartyOp, ...], list[Node]]:
        return {}

    def _nodes_of(self, kinds: tuple[PartyOp, ...]) -> list[Node]:
        found = self._known.get(kinds)
        if found is None:
            rows = self.rows_of(*kinds).tolist()
            found = self._known[kinds] = [self.program.nodes[i] for i in rows]
        return found

    def rows_of(self, *kinds: PartyOp) -> npt.NDArray[np.int64]:
        """Ids of the live nodes of some operations, in order."""
        rows = self.columns.rows_of(*kinds)
        live: npt.NDArray[np.int64] = rows[self.is_live[rows] != 0]
        return live


def position(place: int) -> Position:
    return place >> LEVEL_BITS, place & _LEVEL


def place_of(position: Position) -> int:
    stage, level = position
    return (stage << LEVEL_BITS) + level


def batch_rounds(program: Program, pace: Pace = FREE) -> Schedule:
    """The schedule of a program, dead nodes left out.

    Args:
        pace: what the time of a round is worth, by which messages are aligned; of nothing rounds
            are as few as can be.
    """
    columns = columns_of(program.nodes)
    return scheduled(program, columns, *align_messages(columns, pace))


def scheduled(
    program: Program,
    columns: Columns,
    wanted: npt.NDArray[np.int64],
    before: npt.NDArray[np.uint8],
) -> Schedule:
    """As `batch_rounds`, with messages and products as `align_messages` says."""
    live, places, rounds = native.batch_rounds(
        facts_of(columns),
        columns.party,
        columns.stage,
        wanted,
        before,
        columns.first,
        columns.args,
    )
    # Setup, and the phases of each entry that has any.
    stages = 3 + 2 * int(columns.entry[live != 0].max(initial=0))
    each = np.zeros(stages, np.int64)
    each[: len(rounds)] = rounds
    return Schedule(program, columns, live, places, dict(enumerate(each.tolist())))
