"""Nodes of the party level, each on one party, and how the phases of entries follow each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, Final

from veilgraph.ir.party.ops import PartyOp, Runs
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.types import Type

Shape = tuple[int, ...]


# A frozen dataclass takes seven times as long to make, and a program has 100,000 nodes.
@dataclass(slots=True, eq=False)
class Node:
    """One operation at one party: `args` are node ids, `attrs` (name, value) pairs by name.

    `entry` is the number of the entry that it belongs to; what setup makes is everybody's, and has
    entry 0.
    """

    id: Final[int]
    op: Final[PartyOp]
    party: Final[int]
    args: Final[tuple[int, ...]]
    attrs: Final[tuple[tuple[str, Any], ...]]
    shape: Final[Shape]
    type: Final[Type]
    phase: Final[Phase]
    layer: Final[int]
    entry: Final[int] = 0

    @property
    def stage(self) -> int:
        """Its phase, counted through setup and each entry's offline and online phases in turn."""
        return stage_of(self.phase, self.entry)

    def __getitem__(self, name: str) -> Any:
        for key, value in self.attrs:
            if key == name:
                return value
        raise KeyError(name)

    @property
    def elements(self) -> int:
        return prod(self.shape)


def stage_of(phase: Phase, entry: int) -> int:
    """0 for setup, 1 and 2 for the first entry's offline and online phases, 3 and 4, ..."""
    return phase + 2 * entry if phase else 0


@cache
def phase_of(stage: int) -> tuple[Phase, int]:
    """Phase and entry of a stage; what `stage_of` was given."""
    return (Phase((stage - 1) % 2 + 1), (stage - 1) // 2) if stage else (Phase.SETUP, 0)


@dataclass(frozen=True, slots=True)
class Draw:
    """Uniform randomness that `holders` make alone, from the key they share; nobody else can."""

    number: int
    holders: frozenset[int]
    phase: Phase


def holders_of(draws: Sequence[Draw]) -> tuple[list[frozenset[int]], list[int]]:
    """The sets of parties that hold draws, each once, and of each draw the number of its own."""
    numbers: dict[frozenset[int], int] = {}
    which = [numbers.setdefault(draw.holders, len(numbers)) for draw in draws]
    return [*numbers], which


def base_of(nodes: Sequence[Node], number: int) -> Node:
    """The node whose memory node `number` lies in."""
    found, view = nodes[number], Runs.VIEW
    while found.op.runs is view:
        found = nodes[found.args[0]]
    return found


def broadcast_pattern(source: Shape, target: Shape) -> tuple[int, int] | None:
    """(inner, period) with element i of `target` at (i // inner) % period of `source`.

    None where there is no such pair: `source` is not one block of the target's dimensions.
    """
    size, total = prod(source), prod(target)
    padded = (1,) * (len(target) - len(source)) + tuple(source)
    full = [i for i, extent in enumerate(padded) if extent != 1]
    if not full or size == total:
        return max(total // max(size, 1), 1), max(size, 1)
    first, last = full[0], full[-1]
    if padded[first : last + 1] != tuple(target[first : last + 1]):
        return None
    return prod(target[last + 1 :]), size
