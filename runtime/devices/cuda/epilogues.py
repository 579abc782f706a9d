"""Products whose sums go into the program that follows, without being stored in between.

The last launch of some products does nothing but put sums together and store them (`Launch.sums`).
Where a fused step reads all of them before the next round, and nobody reads them later, it makes
them itself: one launch less, and the sums are neither written nor read. Where the only launch of a
product could take a program (`Launch.ending`), and the step is one of words, it takes that: then
blocks read factors while others store results, in the step's place and not the product's, so
nothing up to there may write factors. Both steps have to be on the GPU, one after the other, so a
device has each of them by itself too, and takes the two together in ranges of steps that hold both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from veilgraph.ir.plan.tables import ROUND, PartyPlan
from veilgraph.kernels import KERNELS
from veilgraph.kernels.cuda import DeviceShape, Ending, Launch, Sums, buffers_of
from veilgraph.kernels.fused.cuda import ended, is_elementwise, with_sums
from veilgraph.kernels.fused.declaration import header_of, instructions_of
from veilgraph.kernels.fused.instructions import Op
from veilgraph.runtime.devices.cuda.lifetimes import lives_on, meet
from veilgraph.runtime.devices.dataflow import Access, place_of, streams_of
from veilgraph.runtime.devices.interface import MemoryRange

_FUSED = KERNELS.index("fused")


@dataclass(frozen=True)
class Epilogue:
    """A product's step, the fused step that takes its sums, and what both do at last."""

    product: int
    follower: int
    launch: Launch


def epilogues(
    program: PartyPlan,
    found: Sequence[Access],
    steps: Sequence[tuple[Launch, ...]],
    shape: DeviceShape,
) -> tuple[Epilogue, ...]:
    """Of a program that was checked, with the accesses and the launches of each step."""
    taken: dict[int, Epilogue] = {}
    for each in candidates(program, found, steps, shape):
        between = steps[each.product + 1 : each.follower]
        scratch = any(launch.scratch_bytes for step in between for launch in step)
        if not scratch and each.follower not in taken:
            taken[each.follower] = each
    return tuple(taken.values())


def candidates(
    program: PartyPlan,
    found: Sequence[Access],
    steps: Sequence[tuple[Launch, ...]],
    shape: DeviceShape,
) -> tuple[Epilogue, ...]:
    """The same where scratch memory kept all that is left in it, and a step could take several
    products' sums: every epilogue that the program has on any GPU where no more products leave
    some."""
    last = {step: made[-1] for step, made in enumerate(steps) if made}
    every = (_epilogue(program, found, step, each, shape) for step, each in last.items())
    return tuple(each for each in every if each is not None)


def _epilogue(
    program: PartyPlan, found: Sequence[Access], product: int, last: Launch, shape: DeviceShape
) -> Epilogue | None:
    """Of a product with this last launch."""
    made = last.sums or last.ending
    place = None if made is None else _follower(program, found, product, made)
    if place is None:
        return None
    follower, stream = place
    row = program.steps[follower]
    params: list[int] = program.params_of(row).tolist()
    buffers = buffers_of(program.buffers_of(row))
    if last.sums is not None:
        (launch,) = with_sums(buffers, params, shape, {stream: last.sums})
        return Epilogue(product, follower, launch)
    written = [place for step in found[product + 1 : follower + 1] for place in step.writes]
    if meet(written, found[product].reads) or not is_elementwise(buffers, params):
        return None
    return Epilogue(product, follower, ended(buffers, params, last, stream))


def _follower(
    program: PartyPlan, found: Sequence[Access], product: int, sums: Sums | Ending
) -> tuple[int, int] | None:
    """The step that alone reads a product's sums, before the next round, and its stream of them."""
    place = sums.place.offset, sums.elements * sums.word_bits // 8
    for step in range(product + 1, len(found)):
        if program.steps[step]["kernel"] == ROUND:
            return None
        if meet([place], found[step].reads):
            stream = _stream(program, step, place, sums)
            is_last = stream is not None and not lives_on(program, found, product, step, place)
            return (step, stream) if stream is not None and is_last else None
        if meet([place], found[step].writes):
            return None
    return None


def _stream(program: PartyPlan, step: int, place: MemoryRange, sums: Sums | Ending) -> int | None:
    """Which stream of a step is loaded element for element from a place, if nothing else that it
    reads or writes in part touches that."""
    row = program.steps[step]
    if row["kernel"] != _FUSED:
        return None
    buffers, params = program.buffers_of(row), program.params_of(row)
    touching = {
        number
        for number, buffer in enumerate(buffers)
        if (at := place_of(buffer)) is not None and meet([place], [at])
    }
    read, written, whole = streams_of(params, buffers)
    used = touching & (read | written - whole)
    if len(used) != 1 or header_of(params).elements != sums.elements:
        return None
    (stream,) = used
    loads = [ins for ins in instructions_of(params) if _reads(ins, stream)]
    is_plain = len(loads) == 1 and loads[0]["op"] == Op.LOAD and loads[0]["c"] == 0
    fits = is_plain and int(loads[0]["word"]) == sums.word_bits and stream not in written
    return stream if fits and place_of(buffers[stream]) == place else None


def _reads(ins: np.void, stream: int) -> bool:
    return Op(int(ins["op"])).reads_stream and int(ins["a"]) == stream
