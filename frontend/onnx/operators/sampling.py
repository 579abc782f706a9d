"""GridSample on a known grid: a product with a matrix for each image or volume.

    y = sum over the places near x of what each counts     two along an axis, four for cubic, or one

A grid names a place in [-1, 1] along each axis, the last axis first. Places outside count as zero,
as the nearest at the border, or as their mirror image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto

from veilgraph.frontend.lowering.layout import MOST_MATRIX_ELEMENTS
from veilgraph.frontend.lowering.operands import Unsupported
from veilgraph.frontend.onnx.nodes import Steps
from veilgraph.frontend.onnx.operators.resizing import Floats, cubic_kernel

LINEAR, CUBIC = ("linear", "bilinear"), ("cubic", "bicubic")  # before opset 20 they were for images
SLOPE = -0.75  # of the cubic kernel at 1


@dataclass(frozen=True)
class Axis:
    """One axis that is sampled.

    Attributes:
        extent: its elements.
        low, high: between which its mirrors stand.
    """

    extent: int
    low: float
    high: float

    def mirrored(self, x: Floats) -> Floats:
        """Where mirrors at both ends show x."""
        span = self.high - self.low
        if span == 0:
            return np.zeros_like(x)
        ahead = np.abs(x - self.low) % (2 * span)
        return self.low + np.minimum(ahead, 2 * span - ahead)

    def inside(self, x: Floats, padding: str) -> Floats:
        """The place that counts for x, where places outside count for one inside."""
        if padding == "zeros":
            return x
        return np.clip(self.mirrored(x) if padding == "reflection" else x, 0, self.extent - 1)


def sampled(s: Steps) -> list[NodeProto]:
    """GridSample(x [N, C, ...], grid [N, ..., n]); where the grid is the owner's, so are matrices.

    Raises:
        Unsupported: the grid is computed from data, holds no finite numbers, or asks for matrices
            that are too large.
    """
    grid, shape, result = s.known(1), s.shape(0), s.result_shape()
    owned = grid is None
    if grid is None:
        grid = s.facts.weights.get(s.operand(1))
    if grid is None:
        raise Unsupported("Its grid is computed from data.", "Make it a constant.")
    if not np.isfinite(grid).all():
        raise Unsupported("Its grid holds an infinity or a NaN.")
    count, new = prod(shape[2:]), prod(result[2:])
    if count * new * shape[0] > MOST_MATRIX_ELEMENTS:
        raise Unsupported(f"It would take a matrix of {count * new * shape[0]} elements.")
    given = (
        s.attribute("mode", "linear"),
        s.attribute("padding_mode", "zeros"),
        bool(s.attribute("align_corners", 0)),
    )
    # In float32, as everybody computes places: of two equally near ones all take the same.
    places = np.asarray(grid, np.float32).reshape(shape[0], new, len(shape) - 2)
    matrices = np.stack([_matrix(one, shape[2:], *given) for one in places]).astype(np.float32)
    rows = s.reshape(s.operand(0), (*shape[:2], count))
    y = s("MatMul", rows, s.weight(matrices) if owned else s.numbers(matrices))
    return s.finish(s.reshape(y, result))


def _matrix(
    grid: NDArray[np.float32],
    extents: Sequence[int],
    mode: str,
    padding: str,
    aligned: bool,
) -> Floats:
    """[elements, places]: what each element counts at each place of a grid [places, n]."""
    matrix = np.zeros((prod(extents), len(grid)))
    near = []
    for i, extent in enumerate(extents):
        ends = (0.0, extent - 1.0) if aligned else (-0.5, extent - 0.5)
        axis = Axis(extent, *ends)
        g = grid[:, len(extents) - 1 - i]
        x = (g + 1) / 2 * (extent - 1) if aligned else ((g + 1) * extent - 1) / 2
        near.append(_neighbours(x.astype(np.float64), axis, mode, padding))
    for chosen in product(*near):
        index = np.ravel_multi_index([index for index, _ in chosen], tuple(extents))
        counts = np.prod([counts for _, counts in chosen], axis=0)
        np.add.at(matrix, (index, np.arange(len(grid))), counts)
    return matrix


def _neighbours(
    x: Floats, axis: Axis, mode: str, padding: str
) -> list[tuple[NDArray[np.intp], Floats]]:
    """The elements near each place x of an axis: which they are, and what each counts."""
    if mode not in CUBIC:
        x = axis.inside(x, padding)
    if mode == "nearest":
        found = [(np.rint(x), np.ones_like(x))]
    elif mode in LINEAR:
        first = np.floor(x)
        found = [(first, 1 - (x - first)), (first + 1, x - first)]
    elif mode in CUBIC:
        first = np.floor(x)
        around = [first + offset for offset in (-1, 0, 1, 2)]
        found = [(place, cubic_kernel(np.abs(x - place), SLOPE)) for place in around]
    else:
        raise Unsupported(f"Its mode is {mode}, which no version of ONNX has.")
    return [_within(axis.inside(place, padding), counts, axis) for place, counts in found]


def _within(place: Floats, counts: Floats, axis: Axis) -> tuple[NDArray[np.intp], Floats]:
    """Elements by number; those that aren't there count nothing."""
    there = (place >= 0) & (place < axis.extent)
    return np.where(there, place, 0).astype(np.intp), np.where(there, counts, 0.0)
