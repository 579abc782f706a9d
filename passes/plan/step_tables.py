"""A party's STEP, BUFFER and MESSAGE rows, in order, from steps that were emitted one by one, fused
steps, and rounds.

    before:  action 0: conv2d, 3 buffers    action 1: fused    round at place (2, 1)
    after:   STEP rows conv2d, fused, ROUND; a BUFFER row for each buffer; MESSAGE rows with the
             steps that make them
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from veilgraph.ir.party.columns import Int64s
from veilgraph.ir.plan.tables import BUFFER, MESSAGE, ROUND, STEP, Direction
from veilgraph.kernels import KERNELS
from veilgraph.passes.party.batch_rounds import LEVEL_BITS
from veilgraph.passes.plan.cut_messages import ROUND as OF_ROUND
from veilgraph.passes.plan.cut_messages import Pieces
from veilgraph.passes.plan.fuse_local import Actions
from veilgraph.passes.plan.fused_templates import FusedPrograms

_NUMBERS = {kernel: number for number, kernel in enumerate(KERNELS)}
_FUSED = _NUMBERS["fused"]


class Step(NamedTuple):
    """A step that was emitted: the number of its action, its kernel, layer, and how many buffers
    and parameters it has."""

    action: int
    kernel: int
    layer: int
    buffers: int
    params: int


@dataclass
class Emitted:
    """Steps that are not fused, action by action, with their rows."""

    steps: list[Step] = field(default_factory=list)
    buffers: list[tuple[object, ...]] = field(default_factory=list)
    params: list[npt.NDArray[np.int64]] = field(default_factory=list)

    def step(
        self,
        kernel: str,
        action: int,
        layer: int,
        buffers: Sequence[tuple[object, ...]],
        params: npt.NDArray[np.int64],
    ) -> None:
        self.steps.append(Step(action, _NUMBERS[kernel], layer, len(buffers), len(params)))
        self.buffers.extend(buffers)
        self.params.append(params)

    def rows(self) -> EmittedRows:
        return EmittedRows(
            np.array(self.steps, np.int64).reshape(-1, len(Step._fields)),
            np.array(self.buffers, BUFFER),
            np.concatenate([np.zeros(0, np.int64), *self.params]),
        )


class EmittedRows(NamedTuple):
    """As `Emitted`; a row a step, as `Step` has them."""

    steps: Int64s
    buffers: npt.NDArray[np.void]
    params: Int64s


class _Rows(NamedTuple):
    """Steps as columns; `moment` orders them, those of one action being as they were emitted."""

    moment: Int64s
    place: Int64s
    kernel: Int64s
    layer: Int64s
    buffers: Int64s
    params: Int64s


@dataclass(frozen=True)
class StepTables:
    """One party's.

    Attributes:
        own: its actions.
        emitted: the steps of those that are not fused.
        fused: the programs of the others.
        layers: of all nodes.
        pieces: of its messages.
    """

    own: Actions
    emitted: EmittedRows
    fused: FusedPrograms
    layers: npt.NDArray[np.int32]
    pieces: Pieces

    def tables(self, streams: npt.NDArray[np.void]) -> dict[str, npt.NDArray[Any]]:
        """By name; `streams` are the buffers of all fused steps."""
        steps, is_fused = self.steps(), self._rows.kernel == _FUSED
        return {
            "steps": steps,
            "buffers": _mixed(is_fused, self._rows.buffers, streams, self.emitted.buffers),
            "params": _mixed(is_fused, self._rows.params, self.fused.params, self.emitted.params),
            "messages": self.messages(),
        }

    def steps(self) -> npt.NDArray[np.void]:
        rows, found = self._rows, np.zeros(len(self._rows.place), STEP)
        found["phase"], found["entry"] = _phases(rows.place)
        found["round"] = rows.place & ((1 << LEVEL_BITS) - 1)
        found["kernel"], found["layer"] = rows.kernel, rows.layer
        found["buffer_count"], found["param_count"] = rows.buffers, rows.params
        found["first_buffer"] = np.cumsum(rows.buffers) - rows.buffers
        found["first_param"] = np.cumsum(rows.params) - rows.params
        return found

    def messages(self) -> npt.NDArray[np.void]:
        pieces, found = self.pieces, np.zeros(len(self.pieces), MESSAGE)
        place = pieces["place"]
        found["phase"], found["entry"] = _phases(place)
        found["round"] = place & ((1 << LEVEL_BITS) - 1)
        found["direction"] = np.where(pieces["is_send"], Direction.SEND, Direction.RECEIVE)
        for name in ("peer", "offset", "bytes", "elements"):
            found[name] = pieces[name]
        begin, end = (np.searchsorted(self.own.place, place, side) for side in ("left", "right"))
        action = np.where(pieces["action"] == OF_ROUND, end, begin + pieces["action"])
        action = np.where(pieces["early"] & ~pieces["is_send"], begin, action)
        found["step"] = np.searchsorted(self._rows.moment, self._moment(place, action))
        return found

    @cached_property
    def _places(self) -> Int64s:
        return np.unique(np.concatenate([self.own.place, self.pieces["place"]]))

    def _moment(self, place: Int64s, action: Int64s) -> Int64s:
        """When actions run, each one unit of time, as a round is behind the last of its place."""
        return action + np.searchsorted(self._places, place)

    @cached_property
    def _rows(self) -> _Rows:
        """All steps, in order."""
        own, rounds = self.own, np.unique(self.pieces["place"])
        emitted = self.emitted.steps.T
        fused = np.flatnonzero(own.fused)
        last = own.nodes.rows[own.nodes.first[fused + 1] - 1]
        programs = fused, np.full(len(fused), _FUSED), self.layers[last], *self.fused.counts.T
        behind = np.searchsorted(own.place, rounds, "right")
        between = behind, np.full(len(rounds), ROUND), *np.zeros((3, len(rounds)), np.int64)
        steps = np.hstack([emitted, np.stack(programs), np.stack(between)])
        acting = np.concatenate([emitted[0], fused])
        place = np.concatenate([own.place[acting], rounds])
        moment = self._moment(place, steps[0])
        order = np.argsort(moment, kind="stable")
        return _Rows(moment[order], place[order], *steps[1:, order])


def _phases(places: Int64s) -> tuple[Int64s, Int64s]:
    """Phases and entries, as `phase_of` has them of a stage."""
    stage = places >> LEVEL_BITS
    return np.where(stage > 0, (stage - 1) % 2 + 1, 0), np.maximum(stage - 1, 0) // 2


def _mixed(
    is_fused: npt.NDArray[np.bool_],
    counts: Int64s,
    fused: npt.NDArray[Any],
    other: npt.NDArray[Any],
) -> npt.NDArray[Any]:
    """Rows of fused steps and of others, so many a step, where their steps are."""
    own = np.repeat(is_fused, counts)
    found = np.zeros(len(own), fused.dtype)
    found[own], found[~own] = fused, other
    return found
