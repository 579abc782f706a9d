"""Sums of shares that products make themselves while they load them, without a step before.

A factor [y_i + y_{i+1} ; y_i] holds a sum of what an inference makes, which is a step of its own.
Where products alone read it, before the next round, and nobody reads it later, they take both
addends: one launch less, and the sum is neither written nor read. Addends are still there, as
`kernels.kernel.Kernel.takes_sums` says. All of these steps have to be on the GPU, one after the
other, so a device has each of them by itself too, and takes them together in ranges of steps that
hold them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np

from veilgraph.ir.plan.tables import ROUND, PartyPlan
from veilgraph.kernels import KERNELS
from veilgraph.kernels.cuda import Buffer, DeviceShape, Kind, Launch, Pointer, buffers_of
from veilgraph.kernels.fused.declaration import header_of, instructions_of
from veilgraph.kernels.fused.instructions import Op
from veilgraph.kernels.matmul import cuda as matmul
from veilgraph.runtime.devices.cuda.lifetimes import lives_on, meet
from veilgraph.runtime.devices.dataflow import Access, place_of
from veilgraph.runtime.devices.interface import MemoryRange

_FUSED, _MATMUL = KERNELS.index("fused"), KERNELS.index("matmul")
_PLAIN_SUM = [Op.LOAD, Op.LOAD, Op.ADD, Op.STORE]
# The buffers of a step, as kernels see them.
Buffers = Callable[[np.void], Sequence[Buffer]]


@dataclass(frozen=True)
class Prologue:
    """Steps that are left out, and what the products that read their results run instead."""

    sums: tuple[int, ...]
    products: Mapping[int, tuple[Launch, ...]]

    @property
    def first(self) -> int:
        return min(self.sums)

    @property
    def last(self) -> int:
        return max(self.products)


@dataclass(frozen=True)
class _Sum:
    """A step that does nothing but add two ranges of the arena, and the products that read it.

    `addends` are where they begin; all three are `place[1]` bytes long, in words of `word_bits`.
    """

    step: int
    place: MemoryRange
    addends: tuple[int, int]
    word_bits: int
    products: tuple[int, ...] = ()

    @property
    def sources(self) -> list[MemoryRange]:
        return [(start, self.place[1]) for start in self.addends]


def prologues(
    program: PartyPlan,
    found: Sequence[Access],
    steps: Sequence[tuple[Launch, ...]],
    buffers: Buffers,
    shape: DeviceShape,
) -> tuple[Prologue, ...]:
    """Of a program that was checked, with the accesses and the launches of each step.

    Args:
        buffers: of a step, those marked that are the same at each inference.
    """
    read = (_read_by_products(program, found, each) for each in _sums(program))
    join = partial(_joined, program, steps, buffers, shape)
    groups = _groups([each for each in read if each.products])
    return tuple(chain.from_iterable(_taken(group, join) for group in groups))


def _sums(program: PartyPlan) -> Iterator[_Sum]:
    for step in np.flatnonzero(program.steps["kernel"] == _FUSED).tolist():
        made = _plain_sum(program, step)
        if made is not None:
            yield made


def _plain_sum(program: PartyPlan, step: int) -> _Sum | None:
    """A step as a sum, if it stores the sum of two streams in the arena, element for element, and
    nothing else, where none of both is."""
    row = program.steps[step]
    params = program.params_of(row)
    table = instructions_of(params)
    if [int(op) for op in table["op"]] != _PLAIN_SUM or any(table["c"][:2]):
        return None
    left, right, total, store = table
    words = {int(word) for word in table["word"]}
    added = {int(left["dst"]), int(right["dst"])}
    is_sum = added == {int(total["a"]), int(total["b"])} and store["b"] == total["dst"]
    if not is_sum or len(added) != 2 or len(words) != 1:
        return None
    used = [int(ins["a"]) for ins in (left, right, store)]
    streams = buffers_of(program.buffers_of(row)[used])
    if any(b.region or b.kind not in (Kind.WORDS32, Kind.WORDS64) for b in streams):
        return None
    (word_bits,) = words
    size = header_of(params).elements * word_bits // 8
    one, other, out = (each.offset for each in streams)
    if meet([(out, size)], [(one, size), (other, size)]):
        return None
    return _Sum(step, (out, size), (one, other), word_bits)


def _read_by_products(program: PartyPlan, found: Sequence[Access], each: _Sum) -> _Sum:
    """With the products that read the sum, if nobody else does; without any otherwise."""
    readers: list[int] = []
    for step in range(each.step + 1, len(found)):
        row = program.steps[step]
        if row["kernel"] == ROUND or row["phase"] != program.steps[each.step]["phase"]:
            break
        if meet([each.place], found[step].reads):
            if not _reads_as_factors(program, step, each):
                return each
            readers.append(step)
        if meet([each.place, *each.sources], found[step].writes):
            break
    if not readers or lives_on(program, found, each.step, readers[-1], each.place):
        return each
    return replace(each, products=tuple(readers))


def _reads_as_factors(program: PartyPlan, step: int, each: _Sum) -> bool:
    """Whether all that a step has of a sum are factors of its products, of its words."""
    row = program.steps[step]
    if row["kernel"] != _MATMUL:
        return False
    buffers = program.buffers_of(row)
    places = [place_of(buffer) for buffer in buffers]
    touching = [place for place in places if place is not None and meet([each.place], [place])]
    kind = Kind.WORDS64 if each.word_bits == 64 else Kind.WORDS32
    is_alike = bool(buffers[0]["kind"] == kind)  # factors are as the output is
    return is_alike and places[0] not in touching and all(_holds(each.place, p) for p in touching)


def _holds(place: MemoryRange, other: MemoryRange) -> bool:
    return place[0] <= other[0] and sum(other) <= sum(place)


def _groups(sums: Sequence[_Sum]) -> list[list[_Sum]]:
    """Sums that have products in common, directly or not."""
    groups: list[list[_Sum]] = []
    for each in sums:
        mine = set(each.products)
        near = [group for group in groups if any(mine & set(other.products) for other in group)]
        groups = [group for group in groups if group not in near]
        groups.append([*(other for group in near for other in group), each])
    return groups


def _taken(
    group: Sequence[_Sum], join: Callable[[Sequence[_Sum]], Prologue | None]
) -> Iterator[Prologue]:
    """All sums of a group together, or else those that products can make alone, one of a
    product's."""
    whole = join(group)
    if whole is not None:
        yield whole
        return
    products: set[int] = set()
    for each in group if len(group) > 1 else ():
        alone = join([each]) if products.isdisjoint(each.products) else None
        if alone is not None:
            products.update(each.products)
            yield alone


def _joined(
    program: PartyPlan,
    steps: Sequence[tuple[Launch, ...]],
    buffers: Buffers,
    shape: DeviceShape,
    group: Sequence[_Sum],
) -> Prologue | None:
    """What products of a group run, if each of them can make its sums."""
    made: dict[int, tuple[Launch, ...]] = {}
    for step in sorted({product for each in group for product in each.products}):
        mine = [each for each in group if step in each.products]
        row = program.steps[step]
        operands = [_with_addend(buffer, mine) for buffer in buffers(row)]
        params: list[int] = program.params_of(row).tolist()
        launches = matmul.launches_of_sums(operands, params, shape)
        if not launches or not _may_store(program, row, launches, mine):
            return None
        if launches[-1].sums != steps[step][-1].sums:
            return None  # an epilogue takes the one for the other
        made[step] = launches
    return Prologue(tuple(each.step for each in group), made)


def _with_addend(buffer: Buffer, sums: Sequence[_Sum]) -> Buffer:
    """A factor that lies in a sum, as the sum of the addends."""
    for each in sums:
        if buffer.region == 0 and _holds(each.place, (buffer.offset, 1)):
            one, other = (start + buffer.offset - each.place[0] for start in each.addends)
            return replace(buffer, offset=one, addend=Pointer(0, other))
    return buffer


def _may_store(
    program: PartyPlan, row: np.void, launches: Sequence[Launch], sums: Sequence[_Sum]
) -> bool:
    """Whether a product stores nothing where it still reads: its last launch reads scratch memory
    alone, or its sums' addends lie elsewhere."""
    out = place_of(program.buffers_of(row)[0])
    sources = [place for each in sums for place in each.sources]
    return launches[-1].sums is not None or out is None or not meet([out], sources)
