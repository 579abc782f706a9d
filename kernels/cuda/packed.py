"""Places of what is packed: laid out once a session, read by launches at each inference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from veilgraph.kernels.cuda.launch import PACKED, Argument, Launch, Packed, Pointer

ALIGNMENT = 256  # of places, as of the driver's allocations


@dataclass(frozen=True)
class Placed:
    """Launches whose arguments are all bound to regions.

    Attributes:
        steps: the launches of each step.
        fills: what writes the region PACKED, in any order.
        bytes: of that region.
    """

    steps: tuple[tuple[Launch, ...], ...]
    fills: tuple[Launch, ...]
    bytes: int

    @property
    def scratch_bytes(self) -> int:
        """What the step that needs most leaves between its launches."""
        return max((each.scratch_bytes for step in self.steps for each in step), default=0)

    @property
    def beside_bytes(self) -> int:
        """Of the kernels' own: scratch memory, and what is packed."""
        return self.scratch_bytes + self.bytes


def placed(steps: Iterable[Sequence[Launch]]) -> Placed:
    """Gives each distinct Packed that launches of steps ask for a place of its own."""
    known = [tuple(step) for step in steps]
    places: dict[Packed, int] = {}
    end = 0
    for step in known:
        for packed in (a for launch in step for a in launch.arguments if isinstance(a, Packed)):
            if packed not in places:
                places[packed] = end
                end += -(-packed.bytes // ALIGNMENT) * ALIGNMENT
    fills = (
        _moved(launch, start) for packed, start in places.items() for launch in packed.launches
    )
    found = tuple(tuple(_bound(launch, places) for launch in step) for step in known)
    return Placed(found, tuple(fills), end)


def _bound(launch: Launch, places: dict[Packed, int]) -> Launch:
    def place(argument: Argument) -> Argument:
        return Pointer(PACKED, places[argument]) if isinstance(argument, Packed) else argument

    return replace(launch, arguments=tuple(map(place, launch.arguments)))


def _moved(launch: Launch, start: int) -> Launch:
    def move(argument: Argument) -> Argument:
        if isinstance(argument, Pointer) and argument.region == PACKED:
            return Pointer(PACKED, argument.offset + start)
        return argument

    return replace(launch, arguments=tuple(map(move, launch.arguments)))
