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

from dataclasses import dataclass

from veilgraph.ir.party import Node, Program
from veilgraph.ir.plan import Phase

Position = tuple[Phase, int]  # a phase, and the number of its rounds that are over
EARLY = frozenset(("matmul", "conv2d", "pool_sum", "reduce_sum", "output", "send", "input"))


@dataclass(frozen=True)
class Schedule:
    """Where nodes run.

    Attributes:
        program: the program.
        live: ids of nodes that an output needs, in order.
        users: for each node, the live nodes that take it as an operand.
        at: for each node, when its party computes it; for a send, when its receiver has it.
        rounds: number of rounds of each phase.
    """

    program: Program
    live: tuple[int, ...]
    users: tuple[tuple[int, ...], ...]
    at: tuple[Position, ...]
    rounds: dict[Phase, int]

    def round_of(self, send: Node) -> int:
        return self.at[send.id][1] - 1


def batch_rounds(program: Program) -> Schedule:
    """The schedule of a program, dead nodes left out."""
    live, users = _live(program)
    earliest = _earliest(program, live)
    rounds = dict.fromkeys(Phase, 0)
    for i in live:
        node = program.nodes[i]
        if node.op == "send":
            rounds[node.phase] = max(rounds[node.phase], earliest[i][1])
    at = _latest(program, live, users, earliest)
    return Schedule(program, tuple(live), tuple(map(tuple, users)), tuple(at), rounds)


def _live(program: Program) -> tuple[list[int], list[list[int]]]:
    users: list[list[int]] = [[] for _ in program.nodes]
    keep = [node.op == "output" for node in program.nodes]
    for node in reversed(program.nodes):
        if keep[node.id]:
            for arg in dict.fromkeys(node.args):
                keep[arg] = True
                users[arg].append(node.id)
    return [i for i, kept in enumerate(keep) if kept], users


def _earliest(program: Program, live: list[int]) -> list[Position]:
    earliest: list[Position] = [(Phase.SETUP, 0)] * len(program.nodes)
    for i in live:
        node = program.nodes[i]
        level = max((earliest[a][1] for a in node.args if earliest[a][0] == node.phase), default=0)
        earliest[i] = (node.phase, level + (node.op == "send"))
    return earliest


def _latest(
    program: Program, live: list[int], users: list[list[int]], earliest: list[Position]
) -> list[Position]:
    at, nodes = list(earliest), program.nodes
    for i in reversed(live):
        node = nodes[i]
        if node.op in EARLY or node.phase == Phase.SETUP:
            continue
        at[i] = min([_needed(nodes[u].op, at[u]) for u in users[i]])
        assert at[i] >= earliest[i]
    return at


def _needed(op: str, at: Position) -> Position:
    """When an operand is needed by a user that runs at a position: a send's is sent before."""
    return (at[0], at[1] - 1) if op == "send" else at
