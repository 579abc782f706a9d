"""What a device may leave out: places whose bytes nobody reads before they are written again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from veilgraph.ir.plan.tables import PartyPlan, Phase
from veilgraph.runtime.devices.dataflow import Access, tensor_place
from veilgraph.runtime.devices.interface import MemoryRange


def lives_on(
    program: PartyPlan, found: Sequence[Access], product: int, follower: int, place: MemoryRange
) -> bool:
    """Whether anything of a place is read after a step and before it is written again, be it in the
    next inference, or outlives its phase.

    Args:
        program: whose steps make these accesses.
        found: of each step.
        product: the step that writes to the place.
        follower: the step that reads it.
        place: in the arena.
    """
    left = without([place], found[follower].writes)
    setup = int((program.steps["phase"] == Phase.SETUP).sum())
    for step in range(follower + 1, len(found)):
        if meet(left, found[step].reads):
            return True
        left = without(left, found[step].writes)
    kept = program.kept[program.kept["phase"] >= program.steps[product]["phase"]]
    lasting = [(int(row["offset"]), int(row["bytes"])) for row in kept]
    if meet([place], lasting) or meet(left, map(tensor_place, program.outputs)):
        return True
    for step in range(setup, product):
        if meet(left, found[step].reads):
            return True
        left = without(left, found[step].writes)
    return False


def meet(places: Iterable[MemoryRange], others: Iterable[MemoryRange]) -> bool:
    """Whether any bytes are in both."""
    known = list(others)
    return any(a < b + n and b < a + m for a, m in places for b, n in known)


def without(places: Sequence[MemoryRange], others: Iterable[MemoryRange]) -> list[MemoryRange]:
    """What of places lies in none of others."""
    left = list(places)
    for start, count in others:
        end = start + count
        cut = (((a, min(a + m, start)), (max(a, end), a + m)) for a, m in left)
        left = [(low, high - low) for ends in cut for low, high in ends if low < high]
    return left
