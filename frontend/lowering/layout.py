"""Rows of the aten table that move elements by what is known: reversals, picks, running sums."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray
from torch_mlir import ir

from veilgraph.frontend.lowering.operands import Aten, Unsupported
from veilgraph.ir.attributes import shape_of
from veilgraph.ir.graph import ops

MOST_SLICES = 16  # more are one product with a matrix of zeros and ones
MOST_MATRIX_ELEMENTS = 1 << 24


def flip(a: Aten) -> ir.Value:
    """aten.flip(x, axes)."""
    return reversed_along(a.tensor(0), [axis % len(a.shape) for axis in a.integers(1)])


def reversed_along(x: ir.Value, axes: Sequence[int]) -> ir.Value:
    """x with its elements in reverse along `axes`."""
    shape = shape_of(x)
    starts = tuple(extent - 1 if i in axes else 0 for i, extent in enumerate(shape))
    steps = tuple(-1 if i in axes else 1 for i in range(len(shape)))
    return ops.Slice.build(x, shape=shape, starts=starts, steps=steps)


def running_sum(a: Aten) -> ir.Value:
    """aten.cumsum(x, axis, type): a product with the triangle of ones."""
    axis = a.axis(1, len(a.shape))
    return along_axis(a.tensor(0), axis, np.triu(np.ones((a.shape[axis],) * 2)))


def along_axis(x: ir.Value, axis: int, matrix: NDArray[np.float64]) -> ir.Value:
    """The product of each vector along `axis` with a public matrix [extent, new extent]."""
    _require_room(matrix.size)
    rank = len(shape_of(x))
    order = (*(i for i in range(rank) if i != axis), axis)
    public = ops.Constant.build(value=matrix.astype(np.float32))
    if axis == rank - 1:
        return ops.Matmul.build(x, public)
    y = ops.Matmul.build(ops.Transpose.build(x, permutation=order), public)
    return ops.Transpose.build(y, permutation=tuple(int(i) for i in np.argsort(order)))


def index_select(a: Aten) -> ir.Value:
    """aten.index_select(x, axis, indices) of known indices."""
    x, axis = a.tensor(0), a.axis(1, len(a.shape))
    extent = shape_of(x)[axis]
    indices = list(a.indices(2, extent))
    runs = list(progressions(indices))
    if len(runs) > MOST_SLICES:
        return along_axis(x, axis, np.eye(extent)[:, indices])
    parts = [part_along(x, axis, *run) for run in runs]
    return parts[0] if len(parts) == 1 else ops.concat(parts, axis)


def progressions(indices: Sequence[int]) -> list[tuple[int, int, int]]:
    """(start, step, count) of runs of equal steps, of step 1 where one is alone; no step 0."""
    runs: list[tuple[int, int, int]] = []
    rest = list(indices)
    while rest:
        step = rest[1] - rest[0] if len(rest) > 1 and rest[1] != rest[0] else 1
        count = 1
        for before, after in pairwise(rest):
            if after - before != step:
                break
            count += 1
        runs.append((rest[0], step, count))
        rest = rest[count:]
    return runs


def part_along(x: ir.Value, axis: int, start: int, step: int, count: int) -> ir.Value:
    """`count` elements along `axis`, from `start` in steps of `step`."""
    shape = shape_of(x)
    return ops.Slice.build(
        x,
        shape=tuple(count if i == axis else extent for i, extent in enumerate(shape)),
        starts=tuple(start if i == axis else 0 for i in range(len(shape))),
        steps=tuple(step if i == axis else 1 for i in range(len(shape))),
    )


def gather(a: Aten) -> ir.Value:
    """aten.gather(x, axis, indices) of known indices, one an element of the result."""
    x, axis = a.tensor(0), a.axis(1, len(a.shape))
    shape = shape_of(x)
    places = list(np.indices(a.shape))
    places[axis] = np.array(a.indices(2, shape[axis])).reshape(a.shape)
    return picked(x, np.ravel_multi_index(tuple(places), shape))


def picked(x: ir.Value, places: NDArray[np.integer]) -> ir.Value:
    """Elements of x at these places in row-major order: a product with zeros and ones."""
    count = prod(shape_of(x))
    _require_room(count * places.size)
    matrix = np.zeros((count, places.size))
    matrix[places.reshape(-1), np.arange(places.size)] = 1
    flat = ops.Reshape.build(x, shape=(1, count))
    return ops.Reshape.build(along_axis(flat, 1, matrix), shape=places.shape)


def _require_room(elements: int) -> None:
    if elements > MOST_MATRIX_ELEMENTS:
        raise Unsupported(
            f"It would take a public matrix of {elements} elements.", "Slice instead."
        )
