"""Which planes of randomness a printed program draws together.

A plane of a tile is one AES block, and a warp encrypts 32 of them in the time of one. So the planes
of all DRAW_BITS of a program are dealt to lanes in turn, whatever draw and key they are of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from veilgraph.kernels.fused.instructions import Op
from veilgraph.kernels.fused.registers import LANES


@dataclass(frozen=True)
class Segment:
    """Planes start, start + step, ... of one draw, from one lane of a batch up."""

    batch: int
    from_lane: int
    count: int
    key: int
    draw: int
    start: int
    step: int


def segments(table: Iterable[Mapping[str, int]]) -> dict[int, list[Segment]]:
    """What each DRAW_BITS draws, by the number of its instruction, in the order of its planes."""
    out: dict[int, list[Segment]] = {}
    dealt = 0
    for number, ins in enumerate(table):
        if ins["op"] != Op.DRAW_BITS:
            continue
        out[number] = []
        done = 0
        while done < ins["count"]:
            batch, lane = divmod(dealt, LANES)
            count = min(ins["count"] - done, LANES - lane)
            start = ins["b"] + done * ins["a_step"]
            what = ins["a"], ins["immediate"], start, ins["a_step"]
            out[number].append(Segment(batch, lane, count, *what))
            done, dealt = done + count, dealt + count
    return out
