"""emit_party: each party's flat tables, from its segments and its memory.

before:  fused {draw, sub, pack -> alice}   conv2d %7 %8   round 3
after:   STEP rows (kernel, buffers, parameters), BUFFER rows, MESSAGE rows
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from veilgraph.ir.party import ops
from veilgraph.ir.party.columns import NUMBERS, Int32s, Int64s, Pairs
from veilgraph.ir.party.node import Node, Shape
from veilgraph.ir.party.ops import PartyOp, Runs
from veilgraph.ir.plan.tables import (
    BUFFER,
    KEPT,
    MAX_RANK,
    BufferKind,
    PartyPlan,
    Region,
    Share,
    Tensor,
)
from veilgraph.kernels.declared import DECLARED
from veilgraph.kernels.fill import declaration as fill
from veilgraph.kernels.kernel import Kernel
from veilgraph.passes.plan.assign_buffers import Location, Memory
from veilgraph.passes.plan.cut_messages import Pieces
from veilgraph.passes.plan.fuse_local import Lists, LocalSteps, base_of
from veilgraph.passes.plan.fused_templates import FusedPrograms
from veilgraph.passes.plan.step_tables import Emitted, EmittedRows, StepTables

Strides = tuple[int, ...]
Named = dict[tuple[int, str], Tensor]  # by entry and name; weights and states are entry 0's


class View(NamedTuple):
    """Words in memory: where the first element is, and how far apart the others are."""

    location: Location
    region: Region
    start: int  # elements from the location's first
    shape: Shape
    strides: Strides


@lru_cache(1 << 12)
def contiguous(shape: Shape) -> Strides:
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


@lru_cache(1 << 12)
def _params(kernel: str, bits: int, attributes: Pairs) -> Int64s:
    """Those of an operation that is a kernel; many steps have the same."""
    made = DECLARED[kernel].params.of_op(bits, dict(attributes))
    return np.array(made.values(), np.int64)


def _filling(value: int) -> Int64s:
    return np.array(fill.Params(value).values(), np.int64)


def emit_party(steps: LocalSteps, memory: Memory, party: int, constants: Sequence[int]) -> Emission:
    """The steps of one party but the fused ones; `Emission.plan` makes its tables.

    Args:
        constants: byte offset of each public tensor in the plan's constants.
    """
    found = Emission(steps, memory, party, constants)
    found.run()
    return found


def _placed(node: Node, tensor: Tensor, offset: int) -> Tensor:
    """What a source or an output is called, and where it is."""
    if node.op is ops.SHARE:
        return _part_of(node, tensor, offset)
    return replace(tensor, offset=offset)


def _part_of(node: Node, tensor: Tensor, offset: int) -> Share:
    placed = replace(tensor, offset=offset)
    return Share(**vars(placed), part=node["part"], parts=node["of"])


class Emission:
    """One party's steps, as they are emitted."""

    def __init__(
        self, steps: LocalSteps, memory: Memory, party: int, constants: Sequence[int]
    ) -> None:
        self.steps = steps
        self.program = steps.schedule.program
        self.memory = memory
        self.party = party
        self.constants = constants
        self.own = steps.of_parties[party]
        self.action = 0  # whose steps are emitted
        self._emitted = Emitted()

    def run(self) -> None:
        """Emits the steps of all actions that are not fused."""
        rows = np.flatnonzero(self.own.fused == 0)
        for number in rows[~self._joined_in_place(self.own.leads[rows])].tolist():
            self.action = number
            node = self.program.nodes[self.own.leads[number]]
            if node.op in EMIT:
                EMIT[node.op](self, node)
            else:
                self._emit_kernel(DECLARED[node.op.kernel], node)

    @cached_property
    def emitted(self) -> EmittedRows:
        return self._emitted.rows()

    def plan(self, pieces: Pieces, fused: FusedPrograms, owned: Sequence[Tensor]) -> PartyPlan:
        """The party's tables.

        Args:
            pieces: of its messages, in the order of the wire.
            fused: the programs of its fused steps.
            owned: inputs, weights and states, then outputs, one of which may have an input's name;
                their offsets are still zero.
        """
        given: Named = {(t.entry, t.name): t for t in reversed(owned)}
        outputs: Named = {(t.entry, t.name): t for t in owned}
        layers = self.steps.schedule.columns.layer
        tables = StepTables(self.own, self.emitted, fused, layers, pieces)
        names = self.program.parties
        sources = self._sources(given, outputs)
        return PartyPlan(
            party=names[self.party],
            **tables.tables(self._streams(fused)),
            kept=np.array(
                [(k.phase, k.entry, (0,) * 6, k.offset, k.bytes) for k in sorted(self.memory.kept)],
                dtype=KEPT,
            ),
            arena_bytes=self.memory.arena_bytes,
            keys=tuple(tuple(names[i] for i in sorted(h)) for h in fused.keys),
            inputs=tuple(t for op, t in sources if op is ops.INPUT),
            weights=tuple(t for op, t in sources if op is ops.WEIGHT),
            shares=tuple(t for _, t in sources if isinstance(t, Share)),
            outputs=tuple(t for op, t in sources if op is ops.OUTPUT),
            states=tuple(self._states(given)),
        )

    def _sources(self, given: Named, outputs: Named) -> list[tuple[PartyOp, Tensor]]:
        found = []
        for node in self.steps.schedule.nodes_where(lambda op: op.listed not in ("", "states")):
            if node.party == self.party:
                if not self.steps.is_stored[node.id] and node.op is not ops.OUTPUT:
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

    def _joined_in_place(self, rows: Int32s) -> npt.NDArray[np.bool_]:
        """Which of these nodes are joins whose operands all are made where they are joined, as
        most are: `_emit_join` has nothing to copy."""
        columns, offsets = self.steps.schedule.columns, self.memory.values.offset
        found: npt.NDArray[np.bool_] = columns.op[rows] == NUMBERS[ops.JOIN]
        joins = rows[found].astype(np.int64)
        operands = Lists(columns.first, columns.args).take(joins)
        counts = np.diff(operands.first)
        words = np.concatenate([[0], np.cumsum(columns.steps[operands.rows])])
        at = words[:-1] - np.repeat(words[operands.first[:-1]], counts)
        base, _ = columns.behind_views(operands.rows)
        size = np.array([type.word_bits // 8 for _, type in columns.tensors], np.int64)
        there = np.repeat(offsets[joins], counts) + at * size[columns.tensor[base]]
        is_copied = ~np.isin(base, list(self.memory.placed)) | (offsets[base] != there)
        found[np.flatnonzero(found)[np.repeat(np.arange(len(joins)), counts)[is_copied]]] = False
        return found

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

    def _streams(self, fused: FusedPrograms) -> npt.NDArray[np.void]:
        """The buffers of all fused steps: vectors in memory, or in messages, or constants."""
        columns, is_message = self.steps.schedule.columns, fused.messages != 0
        base, start = columns.behind_views(fused.streams)
        is_constant = (columns.op[base] == NUMBERS[ops.CONSTANT]) & ~is_message
        node = np.where(is_message, fused.streams, base)
        messages, values = self.memory.messages_of, self.memory.values
        offset = np.where(is_message, messages.offset[node], values.offset[node])
        offset[is_constant] = [
            self.constants[i] for i in columns.number[node[is_constant]].tolist()
        ]
        kind = np.where(is_message, messages.kind[node], values.kind[node])
        types = [type for _, type in columns.tensors]
        tensor = columns.tensor[node]
        kind[is_constant] = np.array([type.buffer for type in types], np.uint8)[tensor[is_constant]]
        is_whole = is_message | np.isin(kind, (BufferKind.PACKED, BufferKind.PLANES))
        start[is_message] = 0
        assert not start[is_whole].any(), "a view of packed bits"
        size = np.where(kind == BufferKind.WORDS32, 4, 8)
        rows = np.zeros(len(node), BUFFER)
        rows["offset"] = offset + start * size
        rows["region"] = np.where(is_constant, Region.CONSTANTS, Region.ARENA)
        rows["kind"], rows["rank"] = kind, 1
        rows["bits"] = np.array([type.stored.bits for type in types], np.int64)[tensor]
        elements = columns.steps
        rows["shape"][:, 0] = np.where(is_whole, elements[node], elements[fused.streams])
        rows["strides"][:, 0] = 1
        return rows

    def _constant(self, node: Node) -> Location:
        offset = self.constants[node["number"]]
        return Location(offset, node.type.buffer, node.type.bits, node.elements)

    def _call(self, kernel: str, node: Node, views: Sequence[View], params: Int64s) -> None:
        rows = [self._row(view) for view in views]
        self._emitted.step(kernel, self.action, node.layer, rows, params)

    def _emit_kernel(self, kernel: Kernel, node: Node) -> None:
        """An op that is a kernel: its result, its operands, its attributes as parameters."""
        views = [self._view(i) for i in (node.id, *node.args)]
        self._call(kernel.name, node, views, _params(kernel.name, node.type.bits, node.attrs))

    def _emit_const(self, node: Node) -> None:
        self._call("fill", node, [self._view(node.id)], _filling(int(node["value"])))

    def _emit_output(self, node: Node) -> None:
        """Nothing, but for a public constant: outputs are read from the arena."""
        base = base_of(self.program, node.args[0])
        if base.op is ops.CONSTANT:
            place = self.memory.values[base.id]
            to = View(place, Region.ARENA, 0, base.shape, contiguous(base.shape))
            self._copy(base, to, self._view(base.id))

    def _emit_keep(self, node: Node) -> None:
        self._copy(node, self._view(node.id), self._view(node.args[0]))

    def _copy(self, node: Node, to: View, source: View) -> None:
        self._call("copy", node, [to, source], np.zeros(0, np.int64))

    def _emit_transpose(self, node: Node) -> None:
        source = self._view(node.args[0])
        strides = tuple(source.strides[axis] for axis in node["permutation"])
        view = View(source.location, source.region, source.start, node.shape, strides)
        self._copy(node, self._view(node.id), view)

    def _emit_slice(self, node: Node) -> None:
        source = self._view(node.args[0])
        start = sum(s * t for s, t in zip(node["starts"], source.strides, strict=True))
        strides = tuple(s * t for s, t in zip(node["steps"], source.strides, strict=True))
        view = View(source.location, source.region, source.start + start, node.shape, strides)
        self._copy(node, self._view(node.id), view)

    def _emit_broadcast(self, node: Node) -> None:
        source = self._view(node.args[0])
        lead = len(node.shape) - len(source.shape)
        strides = tuple(
            0 if i < lead or source.shape[i - lead] != size else source.strides[i - lead]
            for i, size in enumerate(node.shape)
        )
        view = View(source.location, source.region, source.start, node.shape, strides)
        self._copy(node, self._view(node.id), view)

    def _part(self, whole: View, starts: Sequence[int], shape: Shape) -> View:
        """The block of `whole` of this shape at these starts."""
        start = sum(s * t for s, t in zip(starts, whole.strides, strict=True))
        return View(whole.location, whole.region, whole.start + start, shape, whole.strides)

    def _emit_pad(self, node: Node) -> None:
        whole, source = self._view(node.id), self._view(node.args[0])
        self._call("fill", node, [whole], _filling(0))
        self._copy(node, self._part(whole, node["low"], source.shape), source)

    def _emit_concat(self, node: Node) -> None:
        whole, at = self._view(node.id), 0
        for arg in node.args:
            source = self._view(arg)
            starts = [at if i == node["axis"] else 0 for i in range(len(whole.shape))]
            self._copy(node, self._part(whole, starts, source.shape), source)
            at += source.shape[node["axis"]]

    def _emit_join(self, node: Node) -> None:
        """Copies of operands that were not made where they are joined."""
        values, at = self.memory.values, 0
        start = int(values.offset[node.id])
        for arg in node.args:
            operand = self.program.nodes[arg]
            elements = operand.elements * operand.type.per_element
            base = base_of(self.program, arg)
            there = start + at * base.type.word_bits // 8
            if base.id not in self.memory.placed or values.offset[base.id] != there:
                to = self._part(self._view(node.id), (at,), (elements,))
                self._copy(node, to, self._view(arg, (elements,)))
            at += elements


# The steps of each operation that is not fused, and of a constant that lies in memory.
EMIT: Mapping[PartyOp, Callable[[Emission, Node], None]] = {
    ops.CONST: Emission._emit_const,
    ops.JOIN: Emission._emit_join,
    ops.CONCAT: Emission._emit_concat,
    ops.TRANSPOSE: Emission._emit_transpose,
    ops.SLICE: Emission._emit_slice,
    ops.PAD: Emission._emit_pad,
    ops.BROADCAST: Emission._emit_broadcast,
    ops.OUTPUT: Emission._emit_output,
    ops.KEEP: Emission._emit_keep,
}
