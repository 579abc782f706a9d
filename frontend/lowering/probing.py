"""Operators that move elements, or sum them with known factors, found out by trying.

What such an operator does follows from its other operands, which are public. ONNX's reference runs
it once on numbers that tell which element went where:

    moves      on the places 1, 2, 3, ... of its elements: the result says where each came from
    linear     on a batch of unit vectors: the result is the matrix of the map
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, helper
from onnx.reference import ReferenceEvaluator

from veilgraph.frontend.lowering.layout import MOST_MATRIX_ELEMENTS
from veilgraph.frontend.lowering.operands import Unsupported
from veilgraph.frontend.onnx.nodes import Array, Shape, Steps

MOST_MOVED = 1 << 22
# Which operands are data; the others are public.
MOVES: Mapping[str, tuple[int, ...]] = {
    "CenterCropPad": (0,),
    "MaxUnpool": (0,),
    "ReverseSequence": (0,),
    "Scatter": (0, 2),
    "ScatterElements": (0, 2),
    "ScatterND": (0, 2),
    "TensorScatter": (0, 1),
}
LINEAR = frozenset(("AffineGrid", "Col2Im"))  # each batch by itself


def moves(s: Steps) -> list[NodeProto]:
    """An operator whose result's elements are elements of its data, or zeros."""
    if s.attribute("reduction", "none") != "none":
        return _scattered(s)
    places, data = _probed(s), MOVES[s.node.op_type]
    flat = [s.reshape(s.operand(index), (-1,)) for index in data]
    if not places.all():
        flat = [s.numbers([0.0]), *flat]
    else:
        places = places - 1
    joined = s("Concat", *flat, axis=0) if len(flat) > 1 else flat[0]
    taken = s("Gather", joined, s.integers(*(int(p) for p in places.reshape(-1))), axis=0)
    return s.finish(s.reshape(taken, places.shape))


def _probed(s: Steps) -> NDArray[np.int64]:
    """For each element of the result, the place of its source, counted from 1 on; 0 for none."""
    feeds: dict[int, Array] = {}
    first = 1
    for index in MOVES[s.node.op_type]:
        shape = s.shape(index)
        feeds[index] = np.arange(first, first + prod(shape), dtype=np.float64).reshape(shape)
        first += prod(shape)
    if first > MOST_MOVED:
        raise Unsupported(f"It moves {first - 1} elements, each by itself.", "Slice instead.")
    return np.asarray(reference(s, feeds)).astype(np.int64)


def reference(s: Steps, feeds: dict[int, Array]) -> Array:
    """The first output that ONNX's reference computes, of these operands and the public ones.

    Raises:
        Unsupported: operands that are not public, or that don't fit together.
    """
    for index, name in enumerate(s.node.input):
        if name and index not in feeds:
            feeds[index] = s.public(index, "places")
    node = NodeProto()
    node.CopyFrom(s.node)
    node.input[:] = [f"x{index}" if name else "" for index, name in enumerate(s.node.input)]
    inputs = [
        helper.make_tensor_value_info(
            f"x{index}", helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for index, array in feeds.items()
    ]
    output = helper.make_empty_tensor_value_info(s.node.output[0])
    graph = helper.make_graph([node], "probe", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", s.facts.opset)])
    named = {f"x{index}": array for index, array in feeds.items()}
    try:
        return np.asarray(ReferenceEvaluator(model).run(None, named)[0])
    except (ArithmeticError, IndexError, ValueError, TypeError, RuntimeError) as error:
        told = " ".join(str(error).split())
        raise Unsupported(f"ONNX's reference computes none of it: {told}.") from error


REDUCTIONS = {"add": "Add", "max": "Max", "min": "Min", "mul": "Mul"}


def _scattered(s: Steps) -> list[NodeProto]:
    """Updates that are added to what is there, or multiplied, or the larger or less of the two.

    Those of one place come one after another: the first of each place, then the second...
    """
    reduction = s.attribute("reduction", "none")
    targets, shape = _targets(s), s.shape(0)
    order = np.argsort(targets, kind="stable")
    ranks = np.zeros_like(targets)
    ranks[order] = np.arange(len(order)) - np.searchsorted(targets[order], targets[order])
    y, updates = s.reshape(s.operand(0), (-1,)), s.reshape(s.operand(2), (-1,))
    for rank in range(int(ranks.max()) + 1):
        neutral = y if reduction in ("max", "min") else s.numbers([float(reduction == "mul")])
        own = np.arange(prod(shape)) if neutral == y else np.zeros(prod(shape), np.int64)
        chosen = np.flatnonzero(ranks == rank)
        own[targets[chosen]] = chosen + (prod(shape) if neutral == y else 1)
        joined = s("Concat", neutral, updates, axis=0)
        given = s("Gather", joined, s.integers(*map(int, own)), axis=0)
        y = s(REDUCTIONS[reduction], y, given)
    return s.finish(s.reshape(y, shape))


def _targets(s: Steps) -> NDArray[np.int64]:
    """The place that each update goes to."""
    shape, indices = s.shape(0), s.public(1, "places").astype(np.int64)
    places = np.arange(prod(shape)).reshape(shape)
    if s.node.op_type == "ScatterND":
        taken = places[tuple(np.moveaxis(indices, -1, 0))]
    else:
        axis = s.attribute("axis", 0)
        taken = np.take_along_axis(places, indices % shape[axis], axis)
    return np.asarray(taken, np.int64).reshape(-1)


def linear(s: Steps) -> list[NodeProto]:
    """A linear map of each element of the batch, the first axis, by its matrix."""
    shape, result = s.shape(0), s.result_shape()
    channels = shape[1] // prod(s.public(2, "extents")) if s.node.op_type == "Col2Im" else 1
    each = _per_channel(shape, channels)
    count, new = prod(each), prod(result[1:]) // channels
    if count * new > MOST_MATRIX_ELEMENTS:
        raise Unsupported(f"It would take a public matrix of {count * new} elements.")
    units = np.eye(count).reshape(count, *each)
    matrix = reference(s, {0: units}).reshape(count, new)
    rows = s.reshape(s.operand(0), (shape[0] * channels, count))
    return s.finish(s.reshape(s("MatMul", rows, s.numbers(matrix)), result))


def _per_channel(shape: Shape, channels: int) -> Shape:
    """What one channel of one element of the batch has."""
    return (shape[1] // channels, *shape[2:])
