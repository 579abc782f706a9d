"""Which ranges of a party's memory each of its steps reads and writes.

For whoever moves steps between memories. Tables are those of a program that was checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import (
    ROUND,
    BufferKind,
    Direction,
    PartyPlan,
    Phase,
    Region,
    Tensor,
    rows_of,
)
from veilgraph.kernels import KERNELS
from veilgraph.kernels.fused.declaration import header_of, instructions_of
from veilgraph.kernels.fused.instructions import Op
from veilgraph.runtime.devices.interface import MemoryRange


@dataclass(frozen=True)
class Access:
    """Places in the arena. What is not overwritten whole counts as read too."""

    reads: tuple[MemoryRange, ...] = ()
    writes: tuple[MemoryRange, ...] = ()


def accesses(program: PartyPlan) -> list[Access]:
    """Of each step in order; a round reads what it sends and writes what it receives."""
    return [
        _of_round(program, row) if row["kernel"] == ROUND else _of_kernel(program, row)
        for row in program.steps
    ]


def replacing(plan: Plan) -> set[int]:
    """Numbers of the entries whose online phases write on a state, at some party."""
    found = set()
    for program in plan.programs.values():
        places = [tensor_place(state) for state in program.states]
        ends = [(start, start + size) for start, size in places]
        for row, access in zip(program.steps, accesses(program) if ends else (), strict=False):
            written = ((start, start + size) for start, size in access.writes)
            if row["phase"] == Phase.ONLINE and any(
                first < end and begin < last for first, last in written for begin, end in ends
            ):
                found.add(int(row["entry"]))
    return found


def _of_round(program: PartyPlan, row: np.void) -> Access:
    messages = rows_of(program.messages, int(row["phase"]), int(row["entry"]))
    mine = messages[messages["round"] == row["round"]]

    def places(direction: Direction) -> tuple[MemoryRange, ...]:
        pieces = mine[mine["direction"] == direction]
        return tuple((int(piece["offset"]), int(piece["bytes"])) for piece in pieces)

    return Access(places(Direction.SEND), places(Direction.RECEIVE))


def _of_kernel(program: PartyPlan, row: np.void) -> Access:
    buffers = program.buffers_of(row)
    if KERNELS[int(row["kernel"])] == "fused":
        read, written, whole = streams_of(program.params_of(row), buffers)
    else:
        read, written, whole = set(range(1, len(buffers))), {0}, {0}
    reads, writes = [], []
    for number, buffer in enumerate(buffers):
        place = place_of(buffer)
        if place is None:
            continue
        if number in written:
            writes.append(place)
        if number in read or (number in written and not (number in whole and is_solid(buffer))):
            reads.append(place)
    return Access(tuple(reads), tuple(writes))


def streams_of(
    params: npt.NDArray[np.int64], buffers: npt.NDArray[np.void]
) -> tuple[set[int], set[int], set[int]]:
    """The streams that a fused program reads, those that it writes, and those it writes whole."""
    elements = header_of(params).elements
    read: set[int] = set()
    planes: dict[int, set[int]] = {}
    whole: set[int] = set()
    for ins in instructions_of(params):
        op, stream, count = Op(int(ins["op"])), int(ins["a"]), int(ins["count"])
        if op.reads_stream:
            read.add(stream)
        elif op == Op.STORE:
            planes.setdefault(stream, set())
            if int(buffers[stream]["shape"][0]) == elements:
                whole.add(stream)
        elif op == Op.STORE_BITS:
            first, step = int(ins["immediate"]), int(ins["a_step"])
            planes.setdefault(stream, set()).update(first + j * step for j in range(count))
    for stream, stored in planes.items():
        buffer = buffers[stream]
        if stored == set(range(int(buffer["bits"]))) and int(buffer["shape"][0]) == elements:
            whole.add(stream)
    return read, set(planes), whole


def place_of(buffer: np.void) -> MemoryRange | None:
    """The range of the arena that a buffer is in; None for one of constants, or of nothing."""
    kind, offset = BufferKind(int(buffer["kind"])), int(buffer["offset"])
    rank, bits = int(buffer["rank"]), int(buffer["bits"])
    shape = [int(extent) for extent in buffer["shape"][:rank]]
    if int(buffer["region"]) != Region.ARENA or 0 in shape:
        return None
    if kind is BufferKind.PACKED:
        return offset, -(-shape[0] * bits // 64) * 8
    if kind is BufferKind.PLANES:
        return offset, -(-shape[0] // 64) * 8 * bits
    word = 8 if kind is BufferKind.WORDS64 else 4
    strides = [int(stride) for stride in buffer["strides"][:rank]]
    ends = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    low, high = sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends)
    return offset + low * word, (high - low + 1) * word


def tensor_place(tensor: Tensor) -> MemoryRange:
    """Where an input, a weight or an output is."""
    return tensor.offset, tensor.elements * (8 if tensor.ring_bits > 32 else 4)


def is_solid(buffer: np.void) -> bool:
    """Whether a buffer's elements fill its place, in whatever order."""
    if BufferKind(int(buffer["kind"])) in (BufferKind.PACKED, BufferKind.PLANES):
        return True
    rank = int(buffer["rank"])
    sizes = zip(buffer["strides"][:rank].tolist(), buffer["shape"][:rank].tolist(), strict=True)
    expected = 1
    for stride, extent in sorted((abs(stride), extent) for stride, extent in sizes if extent != 1):
        if stride != expected:
            return False
        expected *= extent
    return True


class Segments:
    """The arena cut wherever a place begins or ends, so that places are runs of segments."""

    def __init__(self, program: PartyPlan, found: Sequence[Access]) -> None:
        ends = {0, program.arena_bytes}
        for offset, count in _all_places(program, found):
            ends |= {offset, offset + count}
        self._bounds = np.array(sorted(ends), np.int64)

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def inside(self, place: MemoryRange) -> slice:
        """The segments that lie in a place with all of their bytes."""
        offset, count = place
        first, last = np.searchsorted(self._bounds, (offset, offset + count), "left")
        if self._bounds[last] > offset + count:
            last -= 1
        return slice(int(first), max(int(first), int(last)))

    def touching(self, place: MemoryRange) -> slice:
        """The segments that have any byte of a place."""
        offset, count = place
        if count == 0:
            return slice(0, 0)
        first = int(np.searchsorted(self._bounds, offset, "right")) - 1
        return slice(first, int(np.searchsorted(self._bounds, offset + count, "left")))

    def places(self, numbers: npt.NDArray[np.int64]) -> list[MemoryRange]:
        """Where segments are, in order; those that follow each other are one place."""
        if not len(numbers):
            return []
        cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
        runs = pairwise([0, *cuts.tolist(), len(numbers)])
        found = ((int(numbers[a]), int(numbers[b - 1]) + 1) for a, b in runs)
        return [(int(self._bounds[a]), int(self._bounds[b] - self._bounds[a])) for a, b in found]


def _all_places(program: PartyPlan, found: Sequence[Access]) -> Iterator[MemoryRange]:
    for each in found:
        yield from each.reads
        yield from each.writes
    for tensor in program.tensors:
        yield tensor_place(tensor)
    for row in program.kept:
        yield int(row["offset"]), int(row["bytes"])
