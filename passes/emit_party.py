"""emit_party: each party's flat tables, from its segments and its memory.

before:  fused {draw, sub, pack -> alice}   conv2d %7 %8   round 3
after:   STEP rows (kernel, buffers, parameters), BUFFER rows, MESSAGE rows
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
import numpy.typing as npt

from veilgraph.ir.party import Node, Shape
from veilgraph.ir.plan import (
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
from veilgraph.passes.assign_buffers import Location, Memory
from veilgraph.passes.batch_rounds import Position
from veilgraph.passes.cut_messages import ROUND as OF_ROUND
from veilgraph.passes.cut_messages import Piece
from veilgraph.passes.fuse_local import Action, LocalSteps, base_of
from veilgraph.passes.fused_code import FusedCode, Stream

Strides = tuple[int, ...]


@dataclass(frozen=True)
class View:
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
    """Rows under construction."""

    steps: list[tuple[int, ...]] = field(default_factory=list)
    buffers: list[tuple[object, ...]] = field(default_factory=list)
    params: list[npt.NDArray[np.int64]] = field(default_factory=list)
    param_count: int = 0

    def step(
        self,
        kernel: str,
        position: Position,
        layer: int,
        buffers: Sequence[tuple[object, ...]],
        params: npt.NDArray[np.int64],
    ) -> None:
        first = len(self.buffers), self.param_count
        number = KERNELS.index(kernel)
        row = (number, position[0], 0, layer, first[0], len(buffers), first[1], len(params))
        self.steps.append((*row, position[1]))
        self.buffers.extend(buffers)
        self.params.append(params)
        self.param_count += len(params)

    def round(self, position: Position) -> None:
        row = (ROUND, position[0], 0, 0, len(self.buffers), 0, self.param_count, 0)
        self.steps.append((*row, position[1]))


def emit_party(
    steps: LocalSteps,
    memory: Memory,
    pieces: Sequence[Piece],
    party: int,
    constants: Sequence[int],
    owned: Sequence[Tensor],
) -> PartyPlan:
    """The tables of one party.

    Args:
        pieces: of its messages, in the order of the wire.
        constants: byte offset of each public tensor in the plan's constants.
        owned: inputs and weights, then outputs, one of which may have an input's name; their
            offsets are still zero.
    """
    named = {t.name: t for t in reversed(owned)}, {t.name: t for t in owned}
    return _Emission(steps, memory, pieces, party, constants).run(*named)


def _placed(node: Node, tensor: Tensor, offset: int) -> Tensor:
    """What a source or an output is called, and where it is."""
    placed = replace(tensor, offset=offset)
    if node.op != "share":
        return placed
    return Share(**vars(placed), part=node["part"], parts=node["of"])


class _Emission:
    def __init__(
        self,
        steps: LocalSteps,
        memory: Memory,
        pieces: Sequence[Piece],
        party: int,
        constants: Sequence[int],
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
        holders = {d.holders for d in self.program.draws if party in d.holders}
        self.keys = {h: k for k, h in enumerate(sorted(holders, key=sorted))}
        self.fused = FusedCode(steps, party, self.keys)

    def run(self, given: dict[str, Tensor], outputs: dict[str, Tensor]) -> PartyPlan:
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
            steps=np.array(self.tables.steps, dtype=STEP),
            buffers=np.array(self.tables.buffers, dtype=BUFFER),
            messages=np.array(self._messages(), dtype=MESSAGE),
            params=np.concatenate([np.zeros(0, np.int64), *self.tables.params]),
            kept=np.array(
                [(p, (0,) * 7, o, n) for p, o, n in sorted(self.memory.kept)], dtype=KEPT
            ),
            arena_bytes=self.memory.arena_bytes,
            keys=tuple(tuple(names[i] for i in sorted(h)) for h in self.keys),
            inputs=tuple(t for op, t in sources if op == "input"),
            weights=tuple(t for op, t in sources if op == "weight"),
            shares=tuple(t for _, t in sources if isinstance(t, Share)),
            outputs=tuple(t for op, t in sources if op == "output"),
        )

    def _messages(self) -> list[tuple[int, ...]]:
        return [self._message(piece) for piece in self.pieces]

    def _message(self, piece: Piece) -> tuple[int, ...]:
        direction = Direction.SEND if piece.is_send else Direction.RECEIVE
        received_early = piece.early and not piece.is_send
        step = (
            self.first_step[piece.position]
            if received_early
            else self.step_of[piece.position, piece.action]
        )
        phase, number = piece.position
        place = (piece.offset, piece.bytes)
        return (phase, direction, piece.peer, number, *place, step, 0, piece.elements)

    def _sources(
        self, given: dict[str, Tensor], outputs: dict[str, Tensor]
    ) -> list[tuple[str, Tensor]]:
        found = []
        for i in self.steps.schedule.live:
            node = self.program.nodes[i]
            if node.party == self.party and node.op in ("input", "weight", "share", "output"):
                if node.id not in self.steps.stored and node.op != "output":
                    continue  # only the name of something that nobody needs
                value = node.args[0] if node.op == "output" else i
                place = self.memory.values[base_of(self.program, value).id]
                offset = place.offset + self._view(value).start * node.type.word_bits // 8
                tensor = (outputs if node.op == "output" else given)[node["name"]]
                found.append((node.op, _placed(node, tensor, offset)))
        return found

    # Views

    def _view(self, i: int, shape: Shape | None = None) -> View:
        """The memory of node `i`, contiguous in `shape` (its own unless given)."""
        node = self.program.nodes[i]
        shape = node.shape if shape is None else shape
        start = 0
        base = node
        while base.op in ("reshape", "chunk"):
            start += base["start"] if base.op == "chunk" else 0
            base = self.program.nodes[base.args[0]]
        if base.op == "constant":
            kind = BufferKind.WORDS32 if base.type.word_bits == 32 else BufferKind.WORDS64
            offset = self.constants[base["number"]]
            location = Location(offset, kind, base.type.bits, base.elements)
            return View(location, Region.CONSTANTS, start, shape, contiguous(shape))
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
        node = self.program.nodes[action.nodes[0]]
        if action.fused:
            code = self.fused.compile(action, position)
            rows = [self._stream(stream) for stream in code.streams]
            layer = self.program.nodes[action.nodes[-1]].layer
            self.tables.step("fused", position, layer, rows, code.params)
        else:
            getattr(self, "_emit_" + node.op)(node, position)

    def _stream(self, stream: Stream) -> tuple[object, ...]:
        if stream.message:
            location = self.memory.messages_of[stream.node]
            elements = (location.elements,)
            return self._row(View(location, Region.ARENA, 0, elements, (1,)))
        view = self._view(stream.node)
        elements = (prod(view.shape),)
        return self._row(View(view.location, view.region, view.start, elements, (1,)))

    def _call(
        self, kernel: str, node: Node, position: Position, views: Sequence[View], *params: int
    ) -> None:
        rows = [self._row(view) for view in views]
        self.tables.step(kernel, position, node.layer, rows, np.array(params, np.int64))

    def _emit_matmul(self, node: Node, position: Position) -> None:
        operands = [self._view(i) for i in node.args]
        self._call("matmul", node, position, [self._view(node.id), *operands], node.type.bits)

    def _emit_conv2d(self, node: Node, position: Position) -> None:
        views = [self._view(node.id), *(self._view(i) for i in node.args)]
        geometry = (*node["strides"], *node["pads_low"], *node["dilations"], node["groups"])
        self._call("conv2d", node, position, views, node.type.bits, *geometry)

    def _emit_pool_sum(self, node: Node, position: Position) -> None:
        views = [self._view(node.id), self._view(node.args[0])]
        geometry = (*node["kernel"], *node["strides"], *node["pads_low"])
        self._call("pool_sum", node, position, views, *geometry)

    def _emit_reduce_sum(self, node: Node, position: Position) -> None:
        self._call("reduce_sum", node, position, [self._view(node.id), self._view(node.args[0])])

    def _emit_const(self, node: Node, position: Position) -> None:
        value = int(node["value"])
        signed = value - (1 << 64) if value >> 63 else value
        self._call("fill", node, position, [self._view(node.id)], signed)

    def _emit_output(self, node: Node, position: Position) -> None:
        """Nothing, but for a public constant: outputs are read from the arena."""
        base = base_of(self.program, node.args[0])
        if base.op == "constant":
            place = self.memory.values[base.id]
            to = View(place, Region.ARENA, 0, base.shape, contiguous(base.shape))
            self._copy(base, position, to, self._view(base.id))

    def _copy(self, node: Node, position: Position, to: View, source: View) -> None:
        self._call("copy", node, position, [to, source])

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
        self._call("fill", node, position, [whole], 0)
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
            elements = self.program.nodes[arg].elements
            base = base_of(self.program, arg)
            if base.id not in self.memory.placed or not self._is_in(whole, at, base):
                source = self._view(arg, (elements,))
                self._copy(node, position, self._part(whole, (at,), (elements,)), source)
            at += elements

    def _is_in(self, whole: View, at: int, base: Node) -> bool:
        """Whether `base` was made at element `at` of `whole`."""
        expected = whole.location.offset + (whole.start + at) * base.type.word_bits // 8
        return self.memory.values[base.id].offset == expected
