"""batch_rounds: which round each message goes in, and where each local node runs.

Messages that need no message go in round 0 of their phase, those that need one from round 0 in
round 1, and so on: the number of rounds is the length of the longest chain of messages, and
independent branches share rounds. Local nodes run between two rounds: products as early as they
can, so that they overlap with waiting; everything cheap as late as it can, so that little is
stored.

    before:  %3 = send %1        %5 = send %4(%3)      %9 = send %8      (%8 needs no message)
    after:   round 0: %3, %9     round 1: %5
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from veilgraph.ir.party import ops
from veilgraph.ir.party.node import Node
from veilgraph.ir.party.ops import PartyOp, Runs
from veilgraph.ir.party.program import Program
from veilgraph.ir.plan.tables import Phase

Position = tuple[int, int]  # a stage (`Node.stage`), and the number of its rounds that are over


@dataclass(frozen=True)
class Schedule:
    """Where nodes run.

    Attributes:
        program: the program.
        live: ids of nodes that an output or a state needs, in order.
        users: for each node, the live nodes that take it as an operand.
        at: for each node, when its party computes it; for a send, when its receiver has it.
        rounds: number of rounds of each stage.
    """

    program: Program
    live: tuple[int, ...]
    users: tuple[tuple[int, ...], ...]
    at: tuple[Position, ...]
    rounds: dict[int, int]

    def round_of(self, send: Node) -> int:
        return self.at[send.id][1] - 1

    def nodes_of(self, op: PartyOp) -> Sequence[Node]:
        """Live nodes of an operation, in order."""
        return self._by_op.get(op, ())

    def nodes_where(self, holds: Callable[[PartyOp], bool]) -> list[Node]:
        """Live nodes of the operations of which this holds, in order."""
        found = [node for op, nodes in self._by_op.items() if holds(op) for node in nodes]
        return sorted(found, key=lambda node: node.id)

    @cached_property
    def _by_op(self) -> dict[PartyOp, list[Node]]:
        nodes, found = self.program.nodes, dict[PartyOp, list[Node]]()
        for i in self.live:
            found.setdefault(nodes[i].op, []).append(nodes[i])
        return found


def batch_rounds(program: Program) -> Schedule:
    """The schedule of a program, dead nodes left out."""
    live, users = _live(program)
    earliest = _earliest(program, live)
    rounds = dict.fromkeys(_stages(program, live), 0)
    for i in live:
        if program.nodes[i].op is ops.SEND:
            stage, number = earliest[i]
            rounds[stage] = max(rounds[stage], number)
    at = _latest(program, live, users, earliest, rounds)
    return Schedule(program, tuple(live), tuple(map(tuple, users)), tuple(at), rounds)


def _stages(program: Program, live: list[int]) -> range:
    """Setup, and the phases of each entry."""
    entries = 1 + max((program.nodes[i].entry for i in live), default=0)
    return range(1 + 2 * entries)


def _live(program: Program) -> tuple[list[int], list[list[int]]]:
    users: list[list[int]] = [[] for _ in program.nodes]
    keep = [node.op.is_root for node in program.nodes]
    for node in reversed(program.nodes):
        i = node.id
        if keep[i]:
            for arg in node.args:
                keep[arg] = True
                if not users[arg] or users[arg][-1] != i:  # an operand twice is one user
                    users[arg].append(i)
    return [i for i, kept in enumerate(keep) if kept], users


def _earliest(program: Program, live: list[int]) -> list[Position]:
    earliest: list[Position] = [(Phase.SETUP, 0)] * len(program.nodes)
    for i in live:
        node = program.nodes[i]
        stage, level = node.stage, 0
        for arg in node.args:
            made, number = earliest[arg]
            if number > level and made == stage:
                level = number
        earliest[i] = (stage, level + 1 if node.op is ops.SEND else level)
    return earliest


def _latest(
    program: Program,
    live: list[int],
    users: list[list[int]],
    earliest: list[Position],
    rounds: dict[int, int],
) -> list[Position]:
    at, nodes, setup = list(earliest), program.nodes, Phase.SETUP
    for i in reversed(live):
        op = nodes[i].op
        if op.runs is Runs.KEPT:  # behind all that reads what was kept before
            stage = nodes[i].stage
            at[i] = (stage, rounds[stage])
            continue
        if op.early or nodes[i].phase == setup:
            continue
        at[i] = min([_needed(nodes[u].op, at[u]) for u in users[i]])
        assert at[i] >= earliest[i]
    return at


def _needed(op: PartyOp, at: Position) -> Position:
    """When an operand is needed by a user that runs at a position: a send's is sent before."""
    return (at[0], at[1] - 1) if op is ops.SEND else at
