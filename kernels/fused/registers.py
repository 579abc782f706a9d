"""The registers of a fused program while it is printed: what value each holds at that point.

A printed program has no registers: each instruction makes a new constant, and the compiler does
the rest. A word register is the name of a constant. A bit register is a lane of one: a `Planes`
holds up to 32 of them (kernels/fused/planes.cuh), lane j a plane each, and operands need not lie as
they are wanted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

LANES = 32


@dataclass(frozen=True)
class Plane:
    """One bit register: a lane of a `Planes` constant. A uniform one is the same in all lanes."""

    name: str
    lane: int
    uniform: bool = False


@dataclass(frozen=True)
class Move:
    """Lane l of what is wanted is lane step l + start of `name`, for the lanes in `lanes`."""

    name: str
    step: int
    start: int
    lanes: tuple[int, ...]

    @property
    def mask(self) -> int:
        return sum(1 << lane for lane in self.lanes)

    @property
    def stays(self) -> bool:
        return self.step == 1 and self.start == 0


def pieces(planes: Sequence[Plane]) -> Iterator[tuple[int, Sequence[Plane]]]:
    """Index of the first and the planes of each run that lies in different lanes of one name.

    A uniform plane lies wherever it is wanted: it ends no run of 32 by being repeated.
    """
    start = 0
    while start < len(planes):
        taken: set[int] = set()
        end = start
        while end < len(planes) and end - start < LANES:
            plane = planes[end]
            if plane.name != planes[start].name or (not plane.uniform and plane.lane in taken):
                break
            taken.add(plane.lane)
            end += 1
        yield start, planes[start:end]
        start = end


def lanes_of(planes: Sequence[Plane]) -> tuple[int, ...]:
    """Where the planes of a piece lie; of a uniform one, from lane 0 up."""
    if planes[0].uniform:
        return tuple(range(len(planes)))
    return tuple(p.lane for p in planes)


def moves(planes: Sequence[Plane], wanted: Sequence[int]) -> list[Move]:
    """How to bring each plane to the lane where it is wanted; lanes that no one wants are free."""
    out: list[Move] = []
    pairs = sorted(zip(planes, wanted, strict=True), key=lambda pair: pair[0].name)
    for name, group in groupby(pairs, key=lambda pair: pair[0].name):
        members = list(group)
        if members[0][0].uniform:
            out.append(Move(name, 1, 0, tuple(lane for _, lane in members)))
        else:
            out.extend(_affine(name, sorted((lane, p.lane) for p, lane in members)))
    return out


def _affine(name: str, places: Sequence[tuple[int, int]]) -> Iterator[Move]:
    """Moves for (lane, lane it comes from), as few as a greedy walk over the lanes finds."""
    rest = list(places)
    while rest:
        (lane, origin), *others = rest
        step = _step(rest)
        start = (origin - step * lane) % LANES
        follows = [p for p in rest if (step * p[0] + start) % LANES == p[1]]
        yield Move(name, step, start, tuple(p[0] for p in follows))
        rest = [p for p in others if p not in follows]


def _step(places: Sequence[tuple[int, int]]) -> int:
    """The step between the first two places: whole, or 1 where there is none."""
    if len(places) < 2:
        return 1
    (lane, origin), (next_lane, next_origin) = places[:2]
    step, rest = divmod(next_origin - origin, next_lane - lane)
    return step if rest == 0 else 1
