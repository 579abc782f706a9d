"""Resize and Upsample: a product with a public matrix along each axis that changes.

Output place y of an axis lies at x in the input; a kernel says how much each neighbour of x counts
(Keys, 1981, for the cubic one). With antialiasing the kernel is stretched by how much the axis
shrinks. Nothing of it depends on data, so it is local to the parties.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto

from veilgraph.frontend.lowering.operands import Unsupported
from veilgraph.frontend.onnx.nodes import Steps

Floats = NDArray[np.float64]
NEAREST: dict[str, Callable[[Floats], Floats]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@dataclass(frozen=True)
class Axis:
    """One axis that is resized.

    Attributes:
        extent, new: its elements before and after.
        scale: new elements an old one, not rounded.
        start, end: what part of it is taken, where a region of interest says so.
    """

    extent: int
    new: int
    scale: float
    start: float
    end: float


def resize(s: Steps) -> list[NodeProto]:
    """Resize(x, roi, scales, sizes) and Upsample(x, scales)."""
    x, y, shape = s.operand(0), s.operand(0), s.shape(0)
    axes = _axes(s)
    for number, axis in axes.items():
        matrix = resize_matrix(s, axis)
        if not np.array_equal(matrix, np.eye(axis.extent)):
            y = _along(s, y, number, len(shape), matrix)
    outside = _outside(s, axes, len(shape))
    if outside.any():
        y = s("Add", y, s.numbers(outside))
    return s.finish(y if y != x else s("Identity", x))


def _along(s: Steps, x: str, axis: int, rank: int, matrix: Floats) -> str:
    """The product of each vector along an axis with a matrix [extent, new extent]."""
    if axis == rank - 1:
        return s("MatMul", x, s.numbers(matrix))
    order = [i for i in range(rank) if i != axis] + [axis]
    y = s("MatMul", s("Transpose", x, perm=order), s.numbers(matrix))
    return s("Transpose", y, perm=[int(i) for i in np.argsort(order)])


def _axes(s: Steps) -> dict[int, Axis]:
    """The axes that the node names, by number."""
    shape, result = s.shape(0), s.result_shape()
    upsamples = s.node.op_type == "Upsample"
    named = s.attribute("axes", list(range(len(shape))))
    numbers = [axis % len(shape) for axis in named]
    given = s.operand(1 if upsamples else 2)
    scales = [float(v) for v in s.public(1 if upsamples else 2, "scales")] if given else []
    if not scales:
        scales = _scales_of_sizes(s, numbers)
    region = [] if upsamples or not s.operand(1) else [float(v) for v in s.public(1, "regions")]
    if s.attribute("coordinate_transformation_mode", "") != "tf_crop_and_resize" or not region:
        region = [0.0] * len(numbers) + [1.0] * len(numbers)
    return {
        number: Axis(shape[number], result[number], scale, region[i], region[len(numbers) + i])
        for i, (number, scale) in enumerate(zip(numbers, scales, strict=True))
    }


def _scales_of_sizes(s: Steps, numbers: list[int]) -> list[float]:
    """Scales that follow from sizes, one for all axes where the aspect ratio is kept."""
    sizes = [int(v) for v in s.public(3, "sizes")]
    scales = [size / s.shape(0)[n] for size, n in zip(sizes, numbers, strict=True)]
    policy = s.attribute("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return scales
    return [(min if policy == "not_larger" else max)(scales)] * len(scales)


def resize_matrix(s: Steps, axis: Axis) -> Floats:
    """[extent, new]: what each old element counts in each new one."""
    matrix = np.zeros((axis.extent, axis.new))
    places = _places(s, axis)
    if s.attribute("mode", "nearest") == "nearest":
        chosen = NEAREST[s.attribute("nearest_mode", _usual_rounding(s))](places)
        matrix[chosen.clip(0, axis.extent - 1).astype(int), np.arange(axis.new)] = 1
    else:
        for y, x in enumerate(places):
            _spread(matrix[:, y], float(x), s, axis)
    if s.attribute("coordinate_transformation_mode", "") == "tf_crop_and_resize":
        matrix[:, _beyond(places, axis)] = 0
    return matrix


def _usual_rounding(s: Steps) -> str:
    return "floor" if s.node.op_type == "Upsample" else "round_prefer_floor"


def _spread(column: Floats, x: float, s: Steps, axis: Axis) -> None:
    """Fills a column with what the neighbours of x count; those outside count for the edge."""
    cubic = s.attribute("mode", "nearest") == "cubic"
    width = min(axis.scale, 1.0) if s.attribute("antialias", 0) else 1.0
    reach = (2 if cubic else 1) / width
    neighbours = np.arange(math.floor(x - reach), math.ceil(x + reach) + 1)
    distance = np.abs(neighbours - x) * width
    counts = cubic_kernel(distance, s.attribute("cubic_coeff_a", -0.75)) if cubic else 1 - distance
    counts = np.where(distance < (2 if cubic else 1), counts, 0)
    if s.attribute("exclude_outside", 0):
        counts = np.where((neighbours >= 0) & (neighbours < axis.extent), counts, 0)
    np.add.at(column, neighbours.clip(0, axis.extent - 1), counts / counts.sum())


def cubic_kernel(t: Floats, a: float) -> Floats:
    """Keys' kernel for distances t >= 0, with slope a at 1."""
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return np.where(t <= 1, near, far)


def _places(s: Steps, axis: Axis) -> Floats:
    """Where each new element lies in the old axis."""
    y = np.arange(axis.new, dtype=np.float64)
    length, last = axis.scale * axis.extent, axis.extent - 1
    usual = "asymmetric" if s.node.op_type == "Upsample" else "half_pixel"
    mode = s.attribute("coordinate_transformation_mode", usual)
    if mode == "asymmetric":
        return y / axis.scale
    if mode == "align_corners":
        return y * (last / (length - 1)) if length != 1 else y * 0
    if mode == "tf_crop_and_resize":
        if length == 1:
            return y * 0 + (axis.start + axis.end) * last / 2
        return axis.start * last + y * ((axis.end - axis.start) * last / (length - 1))
    half = (y + 0.5) / axis.scale - 0.5
    if mode == "half_pixel_symmetric":
        return half + axis.extent / 2 * (1 - axis.new / length)
    if mode == "pytorch_half_pixel" and length == 1:
        return y * 0 - 0.5
    if mode in ("half_pixel", "pytorch_half_pixel"):
        return half
    raise Unsupported(f"Its coordinates are {mode}, which no version of ONNX has.")


def _beyond(places: Floats, axis: Axis) -> NDArray[np.bool_]:
    return (places < 0) | (places > axis.extent - 1)


def _outside(s: Steps, axes: dict[int, Axis], rank: int) -> Floats:
    """What stands for numbers outside the image, where a region reaches beyond it; else zeros."""
    value = s.attribute("extrapolation_value", 0.0)
    found = np.zeros((1,) * rank, bool)
    if value and s.attribute("coordinate_transformation_mode", "") == "tf_crop_and_resize":
        for number, axis in axes.items():
            column = [-1 if i == number else 1 for i in range(rank)]
            found = found | _beyond(_places(s, axis), axis).reshape(column)
    return np.where(found, value, 0.0)
