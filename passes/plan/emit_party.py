"""emit_party: each party's flat tables, from its segments and its memory.

before:  fused {draw, sub, pack -> alice}   conv2d %7 %8   round 3
after:   STEP rows (kernel, buffers, parameters), BUFFER rows, MESSAGE rows
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from veilgraph.ir.party import ops
from veilgraph.ir.party.columns import NUMBERS
from veilgraph.ir.party.node import Node, Shape, phase_of
from veilgraph.ir.party.ops import PartyOp, Runs
from veilgraph.ir.plan.tables import (
    BUFFER,
    KEPT,
    MAX_RANK,
    MESSAGE,
    ROUND,
    STEP,
    BufferKind,
    Direction,
    PartyPlan,
    Region,
    Share,
    Tensor,
)
from veilgraph.kernels import KERNELS
from veilgraph.kernels.declared import DECLARED
from veilgraph.kernels.fill import declaration as fill
from veilgraph.kernels.kernel import Kernel, NoParams, Params
from veilgraph.passes.party.batch_rounds import Position
from veilgraph.passes.plan.assign_buffers import Location, Memory
from veilgraph.passes.plan.cut_messages import ROUND as OF_ROUND
from veilgraph.passes.plan.cut_messages import Piece
from veilgraph.passes.plan.fuse_local import Action, LocalSteps, base_of
from veilgraph.passes.plan.fused_code import keys_of
from veilgraph.passes.plan.fused_templates import FusedPrograms

Strides = tuple[int, ...]
Named = dict[tuple[int, str], Tensor]  # by entry and name; weights and states are entry 0's


class View(NamedTuple):
    """Words in memory: where the first element is, and how far apart the others are."""

    location: Location
    region: Region
    start: int  # elements from the location's first
    shape: Shape
    strides: Strides


def contiguous(shape: Shape) -> Strides:
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


@dataclass
class Tables:
    """Rows under construction. Those of fused steps are only counted: they are made all at once."""

    steps: list[tuple[int, ...]] = field(default_factory=list)
    buffers: list[tuple[object, ...]] = field(default_factory=list)
    params: list[npt.NDArray[np.int64]] = field(default_factory=list)
    buffer_count: int = 0
    param_count: int = 0

    def step(
        self,
        kernel: str,
        position: Position,
        layer: int,
        buffers: Sequence[tuple[object, ...]],
        params: npt.NDArray[np.int64],
    ) -> None:
        self._count(kernel, position, layer, (len(buffers), len(params)))
        self.buffers.extend(buffers)
        self.params.append(params)

    def fused(self, position: Position, layer: int, counts: tuple[int, int]) -> None:
        """A fused step of so many streams and parameters."""
        self._count("fused", position, layer, counts)

    def _count(self, kernel: str, position: Position, layer: int, counts: tuple[int, int]) -> None:
        first = self.buffer_count, counts[0], self.param_count, counts[1]
        phase, entry = phase_of(position[0])
        self.steps.append((_NUMBERS[kernel], phase, entry, layer, *first, position[1]))
        self.buffer_count += counts[0]
        self.param_count += counts[1]

    def round(self, position: Position) -> None:
        phase, entry = phase_of(position[0])
        row = (ROUND, phase, entry, 0, self.buffer_count, 0, self.param_count, 0)
        self.steps.append((*row, position[1]))

    def whole(
        self, rows: npt.NDArray[np.void], params: npt.NDArray[np.int64]
    ) -> dict[str, npt.NDArray[Any]]:
        """The tables, with the buffers and parameters of fused steps where they were counted."""
        steps = np.array(self.steps, STEP)
        is_fused = steps["kernel"] == _NUMBERS["fused"]
        buffers = np.zeros(self.buffer_count, BUFFER)
        own = np.repeat(is_fused, steps["buffer_count"])
        buffers[own], buffers[~own] = rows, np.array(self.buffers, BUFFER)
        numbers = np.zeros(self.param_count, np.int64)
        own = np.repeat(is_fused, steps["param_count"])
        numbers[own] = params
        numbers[~own] = np.concatenate([np.zeros(0, np.int64), *self.params])
        return {"steps": steps, "buffers": buffers, "params": numbers}


_NUMBERS = {kernel: number for number, kernel in enumerate(KERNELS)}


def emit_party(
    steps: LocalSteps,
    memory: Memory,
    pieces: Sequence[Piece],
    party: int,
    constants: Sequence[int],
    owned: Sequence[Tensor],
    fused: FusedPrograms,
) -> PartyPlan:
    """The tables of one party.

    Args:
        pieces: of its messages, in the order of the wire.
        constants: byte offset of each public tensor in the plan's constants.
        owned: inputs, weights and states, then outputs, one of which may have an input's name;
            their offsets are still zero.
        fused: the programs of its fused steps.
    """
    named = {(t.entry, t.name): t for t in reversed(owned)}, {(t.entry, t.name): t for t in owned}
    return _Emission(steps, memory, pieces, party, constants, fused).run(*named)


def _placed(node: Node, tensor: Tensor, offset: int) -> Tensor:
    """What a source or an output is called, and where it is."""
    if node.op is ops.SHARE:
        return _part_of(node, tensor, offset)
    return replace(tensor, offset=offset)


def _part_of(node: Node, tensor: Tensor, offset: int) -> Share:
    placed = replace(tensor, offset=offset)
    return Share(**vars(placed), part=node["part"], parts=node["of"])


class _Emission:
    def __init__(
        self,
        steps: LocalSteps,
        memory: Memory,
        pieces: Sequence[Piece],
        party: int,
        constants: Sequence[int],
        fused: FusedPrograms,
    ) -> None:
        self.steps = steps
        self.program = steps.schedule.program
        self.memory = memory
        self.pieces = pieces
        self.party = party
        self.constants = constants
        self.tables = Tables()
        self.step_of: dict[tuple[Position, int], int] = {}  # of a segment's actions, and its round
        self.first_step: dict[Position, int] = {}
        self.fused = fused
        self.layers = steps.schedule.columns.layer.data
        self.counts = iter(fused.counts)

    def run(self, given: Named, outputs: Named) -> PartyPlan:
        rounds = {m.position for m in self.memory.messages}
        segments = {s.position: s.actions for s in self.steps.segments[self.party]}
        for position in sorted(rounds | segments.keys()):
            self.first_step[position] = len(self.tables.steps)
            for number, action in enumerate(segments.get(position, ())):
                self.step_of[position, number] = len(self.tables.steps)
                self._action(action, position)
            if position in rounds:
                self.step_of[position, OF_ROUND] = len(self.tables.steps)
                self.tables.round(position)
        names = self.program.parties
        sources = self._sources(given, outputs)
        return PartyPlan(
            party=names[self.party],
            **self.tables.whole(self._streams(), self.fused.params),
            messages=np.array(self._messages(), dtype=MESSAGE),
            kept=np.array(
                [(k.phase, k.entry, (0,) * 6, k.offset, k.bytes) for k in sorted(self.memory.kept)],
                dtype=KEPT,
            ),
            arena_bytes=self.memory.arena_bytes,
            keys=tuple(
                tuple(names[i] for i in sorted(h)) for h in keys_of(self.program, self.party)
            ),
            inputs=tuple(t for op, t in sources if op is ops.INPUT),
            weights=tuple(t for op, t in sources if op is ops.WEIGHT),
            shares=tuple(t for _, t in sources if isinstance(t, Share)),
            outputs=tuple(t for op, t in sources if op is ops.OUTPUT),
            states=tuple(self._states(given)),
        )

    def _messages(self) -> list[tuple[int, ...]]:
        first_step, step_of, rows = self.first_step, self.step_of, list[tuple[int, ...]]()
        for at, peer, is_send, offset, size, action, elements, early in self.pieces:
            received_early = early and not is_send
            step = first_step[at] if received_early else step_of[at, action]
            phase, entry = phase_of(at[0])
            direction = Direction.SEND if is_send else Direction.RECEIVE
            rows.append((phase, direction, peer, at[1], offset, size, step, entry, elements))
        return rows

    def _sources(self, given: Named, outputs: Named) -> list[tuple[PartyOp, Tensor]]:
        found = []
        for node in self.steps.schedule.nodes_where(lambda op: op.listed not in ("", "states")):
            if node.party == self.party:
                if node.id not in self.steps.stored and node.op is not ops.OUTPUT:
                    continue  # only the name of something that nobody needs
                value = node.args[0] if node.op is ops.OUTPUT else node.id
                place = self.memory.values[base_of(self.program, value).id]
                offset = place.offset + self._view(value).start * node.type.word_bits // 8
                named = outputs if node.op is ops.OUTPUT else given
                tensor = named[node.entry, node["name"]]
                found.append((node.op, _placed(node, tensor, offset)))
        return found

    def _states(self, given: Named) -> Iterator[Share]:
        """This party's parts of states, each once: all entries find them at one place."""
        done: set[tuple[str, int]] = set()
        nodes = self.steps.schedule.nodes_where(lambda op: op.listed == "states")
        for node in (n for n in nodes if n.party == self.party):
            name, part = node["name"], node["part"]
            if (name, part) not in done:
                done.add((name, part))
                yield _part_of(node, given[0, name], self.memory.values[node.id].offset)

    # Views

    def _view(self, i: int, shape: Shape | None = None) -> View:
        """The memory of node `i`, contiguous in `shape` (its own unless given)."""
        node = self.program.nodes[i]
        shape = node.type.stored_shape(node.shape) if shape is None else shape
        start = 0
        base = node
        while base.op.runs is Runs.VIEW:
            start += base["start"] * base.type.per_element if base.op is ops.CHUNK else 0
            base = self.program.nodes[base.args[0]]
        if base.op is ops.CONSTANT:
            return View(self._constant(base), Region.CONSTANTS, start, shape, contiguous(shape))
        return View(self.memory.values[base.id], Region.ARENA, start, shape, contiguous(shape))

    def _row(self, view: View) -> tuple[object, ...]:
        location = view.location
        if location.kind in (BufferKind.PACKED, BufferKind.PLANES):
            assert view.start == 0, "a view of packed bits"
            shape: Shape = (location.elements,)
            strides: Strides = (1,)
            offset = location.offset
        else:
            size = 4 if location.kind == BufferKind.WORDS32 else 8
            shape, strides = view.shape, view.strides
            offset = location.offset + view.start * size
        padding = (0,) * (MAX_RANK - len(shape))
        return (
            offset,
            view.region,
            location.kind,
            location.bits,
            len(shape),
            (*shape, *padding),
            (*strides, *padding),
            0,
        )

    # Actions

    def _action(self, action: Action, position: Position) -> None:
        if action.fused:
            self.tables.fused(position, self.layers[action.nodes[-1]], next(self.counts))
            return
        node = self.program.nodes[action.nodes[0]]
        if node.op in EMIT:
            EMIT[node.op](self, node, position)
        else:
            self._emit_kernel(DECLARED[node.op.kernel], node, position)

    def _streams(self) -> npt.NDArray[np.void]:
        """The buffers of all fused steps: vectors in memory, or in messages, or constants."""
        columns, is_message = self.steps.schedule.columns, self.fused.messages != 0
        base, start = columns.behind_views(self.fused.streams)
        is_constant = (columns.op[base] == NUMBERS[ops.CONSTANT]) & ~is_message
        found = zip(
            *(self.fused.streams.tolist(), base.tolist()),
            *(is_message.tolist(), is_constant.tolist()),
            strict=True,
        )
        places = np.array([self._location(*each) for each in found], np.int64).reshape(-1, 4)
        offset, kind, bits, elements = places.T
        is_whole = is_message | np.isin(kind, (BufferKind.PACKED, BufferKind.PLANES))
        start[is_message] = 0
        assert not start[is_whole].any(), "a view of packed bits"
        size = np.where(kind == BufferKind.WORDS32, 4, 8)
        rows = np.zeros(len(places), BUFFER)
        rows["offset"] = offset + start * size
        rows["region"] = np.where(is_constant, Region.CONSTANTS, Region.ARENA)
        rows["kind"], rows["bits"], rows["rank"] = kind, bits, 1
        rows["shape"][:, 0] = np.where(is_whole, elements, columns.steps[self.fused.streams])
        rows["strides"][:, 0] = 1
        return rows

    def _location(self, stream: int, base: int, is_message: bool, is_constant: bool) -> Location:
        """Where a stream lies, whose node is a view of `base` or that itself."""
        if is_message:
            return self.memory.messages_of[stream]
        return self._constant(self.program.nodes[base]) if is_constant else self.memory.values[base]

    def _constant(self, node: Node) -> Location:
        offset = self.constants[node["number"]]
        return Location(offset, node.type.buffer, node.type.bits, node.elements)

    def _call(
        self, kernel: str, node: Node, position: Position, views: Sequence[View], params: Params
    ) -> None:
        rows = [self._row(view) for view in views]
        self.tables.step(kernel, position, node.layer, rows, np.array(params.values(), np.int64))

    def _emit_kernel(self, kernel: Kernel, node: Node, position: Position) -> None:
        """An op that is a kernel: its result, its operands, its attributes as parameters."""
        views = [self._view(i) for i in (node.id, *node.args)]
        params = kernel.params.of_op(node.type.bits, dict(node.attrs))
        self._call(kernel.name, node, position, views, params)

    def _emit_const(self, node: Node, position: Position) -> None:
        params = fill.Params(int(node["value"]))
        self._call("fill", node, position, [self._view(node.id)], params)

    def _emit_output(self, node: Node, position: Position) -> None:
        """Nothing, but for a public constant: outputs are read from the arena."""
        base = base_of(self.program, node.args[0])
        if base.op is ops.CONSTANT:
            place = self.memory.values[base.id]
            to = View(place, Region.ARENA, 0, base.shape, contiguous(base.shape))
            self._copy(base, position, to, self._view(base.id))

    def _emit_keep(self, node: Node, position: Position) -> None:
        self._copy(node, position, self._view(node.id), self._view(node.args[0]))

    def _copy(self, node: Node, position: Position, to: View, source: View) -> None:
        self._call("copy", node, position, [to, source], NoParams())

    def _emit_transpose(self, node: Node, position: Position) -> None:
        source = self._view(node.args[0])
        strides = tuple(source.strides[axis] for axis in node["permutation"])
        view = View(source.location, source.region, source.start, node.shape, strides)
        self._copy(node, position, self._view(node.id), view)

    def _emit_slice(self, node: Node, position: Position) -> None:
        source = self._view(node.args[0])
        start = sum(s * t for s, t in zip(node["starts"], source.strides, strict=True))
        strides = tuple(s * t for s, t in zip(node["steps"], source.strides, strict=True))
        view = View(source.location, source.region, source.start + start, node.shape, strides)
        self._copy(node, position, self._view(node.id), view)

    def _emit_broadcast(self, node: Node, position: Position) -> None:
        source = self._view(node.args[0])
        lead = len(node.shape) - len(source.shape)
        strides = tuple(
            0 if i < lead or source.shape[i - lead] != size else source.strides[i - lead]
            for i, size in enumerate(node.shape)
        )
        view = View(source.location, source.region, source.start, node.shape, strides)
        self._copy(node, position, self._view(node.id), view)

    def _part(self, whole: View, starts: Sequence[int], shape: Shape) -> View:
        """The block of `whole` of this shape at these starts."""
        start = sum(s * t for s, t in zip(starts, whole.strides, strict=True))
        return View(whole.location, whole.region, whole.start + start, shape, whole.strides)

    def _emit_pad(self, node: Node, position: Position) -> None:
        whole, source = self._view(node.id), self._view(node.args[0])
        self._call("fill", node, position, [whole], fill.Params(0))
        self._copy(node, position, self._part(whole, node["low"], source.shape), source)

    def _emit_concat(self, node: Node, position: Position) -> None:
        whole, at = self._view(node.id), 0
        for arg in node.args:
            source = self._view(arg)
            starts = [at if i == node["axis"] else 0 for i in range(len(whole.shape))]
            self._copy(node, position, self._part(whole, starts, source.shape), source)
            at += source.shape[node["axis"]]

    def _emit_join(self, node: Node, position: Position) -> None:
        whole, at = self._view(node.id), 0
        for arg in node.args:
            operand = self.program.nodes[arg]
            elements = operand.elements * operand.type.per_element
            base = base_of(self.program, arg)
            if base.id not in self.memory.placed or not self._is_in(whole, at, base):
                source = self._view(arg, (elements,))
                self._copy(node, position, self._part(whole, (at,), (elements,)), source)
            at += elements

    def _is_in(self, whole: View, at: int, base: Node) -> bool:
        """Whether `base` was made at element `at` of `whole`."""
        expected = whole.location.offset + (whole.start + at) * base.type.word_bits // 8
        return self.memory.values[base.id].offset == expected


# The steps of each operation that is not fused, and of a constant that lies in memory.
EMIT: Mapping[PartyOp, Callable[[_Emission, Node, Position], None]] = {
    ops.CONST: _Emission._emit_const,
    ops.JOIN: _Emission._emit_join,
    ops.CONCAT: _Emission._emit_concat,
    ops.TRANSPOSE: _Emission._emit_transpose,
    ops.SLICE: _Emission._emit_slice,
    ops.PAD: _Emission._emit_pad,
    ops.BROADCAST: _Emission._emit_broadcast,
    ops.OUTPUT: _Emission._emit_output,
    ops.KEEP: _Emission._emit_keep,
}
