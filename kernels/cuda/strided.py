"""Walks over strided arrays of one shape, as kernels/cuda/strided.cuh takes them.

Dimensions are ordered by the output's strides and merged, so that neighbouring threads write
neighbouring words and an index needs as few divisions as the strides allow.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from veilgraph.kernels.cuda.buffers import Buffer

MAX_RANK = 6  # of a plan's buffers; kernels/cuda/strided.cuh has it too


@dataclass(frozen=True)
class Dimension:
    """An extent, and the strides in elements of output and input along it."""

    extent: int
    out: int
    x: int


@dataclass(frozen=True)
class Walk:
    """Dimensions from the outermost in; none has extent 1."""

    dimensions: tuple[Dimension, ...]

    @property
    def count(self) -> int:
        return prod(d.extent for d in self.dimensions)

    @property
    def is_run(self) -> bool:
        """Whether both sides are words one after another."""
        return not self.dimensions or self.dimensions == (Dimension(self.count, 1, 1),)

    def arguments(self) -> tuple[int, ...]:
        """The struct Walk: rank, extents, output's strides, input's strides, from the innermost."""

        def column(values: Iterable[int]) -> tuple[int, ...]:
            inner_first = tuple(values)[::-1]
            return inner_first + (MAX_RANK - len(inner_first)) * (0,)

        return (
            len(self.dimensions),
            *column(d.extent for d in self.dimensions),
            *column(d.out for d in self.dimensions),
            *column(d.x for d in self.dimensions),
        )


def walk(out: Buffer, x: Buffer) -> Walk:
    """Over the shape of both."""
    steps = zip(out.shape, out.strides, x.strides, strict=True)
    return merged(tuple(Dimension(*step) for step in steps))


def merged(dimensions: tuple[Dimension, ...]) -> Walk:
    """Dimensions in the order of the output's memory; those that follow each other made one."""
    ordered = sorted(
        (d for d in dimensions if d.extent != 1), key=lambda d: (abs(d.out), abs(d.x)), reverse=True
    )
    kept: list[Dimension] = []
    for d in ordered:
        outer = kept[-1] if kept else None
        if outer and (outer.out, outer.x) == (d.out * d.extent, d.x * d.extent):
            kept[-1] = Dimension(outer.extent * d.extent, d.out, d.x)
        else:
            kept.append(d)
    return Walk(tuple(kept))
