"""Operands that are the same at each inference, laid out once a session for the kernels that read
them: weights as residues, or split into limbs.

The device finds them itself, by the tables that it has proven: how they are laid out depends on the
GPU and on what was measured there, so a plan could only mark them, and a mark from a plan would
have to be proven by the same test. Whatever writes to their places makes their layouts old, and the
next step of an inference has them made again: so a session from a store, or one whose setup ran on
another device, needs no word about it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from veilgraph.ir.plan.tables import ROUND, PartyPlan, Phase, Region
from veilgraph.kernels import KERNELS
from veilgraph.runtime.devices.cuda.staging import merged
from veilgraph.runtime.devices.dataflow import accesses, place_of
from veilgraph.runtime.devices.interface import MemoryRange

PRODUCTS = frozenset({"matmul", "conv2d"})


class Places:
    """Stretches of memory, to ask whether others touch them, or lie inside of one."""

    def __init__(self, places: Iterable[MemoryRange]) -> None:
        self._runs = merged(places, 0)
        self._starts = [start for start, _ in self._runs]

    def touch(self, place: MemoryRange) -> bool:
        offset, count = place
        before = bisect_right(self._starts, offset + count - 1)
        return count > 0 and before > 0 and sum(self._runs[before - 1]) > offset

    def hold(self, place: MemoryRange) -> bool:
        offset, count = place
        before = bisect_right(self._starts, offset)
        return before > 0 and sum(self._runs[before - 1]) >= offset + count


def fixed_buffers(program: PartyPlan) -> dict[int, MemoryRange | None]:
    """The rows of the buffer table that are factors of products in an inference and the same in
    each: public constants (None), or what setup keeps and nothing writes later (where it is)."""
    kept = program.kept[program.kept["phase"] == Phase.SETUP]
    made = Places((int(row["offset"]), int(row["bytes"])) for row in kept)
    inferring = program.steps["phase"] != Phase.SETUP
    steps = zip(accesses(program), inferring.tolist(), strict=True)
    written = Places(place for access, infers in steps if infers for place in access.writes)
    found: dict[int, MemoryRange | None] = {}
    for number in _factors(program):
        buffer = program.buffers[number]
        place = place_of(buffer)
        if place is None and int(buffer["region"]) != Region.ARENA:
            found[number] = None
        elif place is not None and made.hold(place) and not written.touch(place):
            found[number] = place
    return found


def _factors(program: PartyPlan) -> Iterable[int]:
    """The rows of the buffer table that products of offline and online steps read."""
    for row in program.steps:
        if row["phase"] == Phase.SETUP or row["kernel"] == ROUND:
            continue
        if KERNELS[int(row["kernel"])] in PRODUCTS:
            first, count = int(row["first_buffer"]), int(row["buffer_count"])
            yield from range(first + 1, first + count)


class Freshness:
    """Whether what is packed was made of what is now in memory.

    Args:
        program: whose steps are run.
        sources: where what is packed lies in the arena.
    """

    def __init__(self, program: PartyPlan, sources: Iterable[MemoryRange]) -> None:
        self._sources = Places(sources)
        self._is_setup = (program.steps["phase"] == Phase.SETUP).tolist()
        self._is_old = True

    def wrote(self, place: MemoryRange) -> None:
        """Notes what was written to the arena, but for the steps of an inference."""
        self._is_old = self._is_old or self._sources.touch(place)

    def is_due(self, first: int, last: int) -> bool:
        """Whether it has to be packed before steps [first, last), and counts as done then."""
        if any(self._is_setup[first:last]):
            self._is_old = True
            return False
        was_old, self._is_old = self._is_old, False
        return was_old
