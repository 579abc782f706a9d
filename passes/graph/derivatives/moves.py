"""Derivatives of what moves, copies, joins and adds up elements: the same backwards."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch_mlir import ir

from veilgraph.ir.attributes import Shape, shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import attributes
from veilgraph.passes.graph.derivatives.algebra import (
    Rules,
    Values,
    expanded,
    filled,
    fitted,
    number_in,
    reshaped,
    scaled,
    transposed,
)


def with_extent(shape: Shape, axis: int, extent: int) -> Shape:
    """`shape` with another extent along one axis."""
    return (*shape[:axis], extent, *shape[axis + 1 :])


def part_along(x: ir.Value, axis: int, start: int, count: int, step: int = 1) -> ir.Value:
    """Elements start, start + step, ... along one axis of x."""
    shape = shape_of(x)
    step = 1 if count == 1 else step
    if (start, count, step) == (0, shape[axis], 1):
        return x
    return ops.Slice.build(
        x,
        shape=with_extent(shape, axis, count),
        starts=with_extent((0,) * len(shape), axis, start),
        steps=with_extent((1,) * len(shape), axis, step),
    )


def padded_along(x: ir.Value, axis: int, low: int, high: int) -> ir.Value:
    """x with zeros before and after it along one axis; a negative number takes away as many."""
    extent = shape_of(x)[axis]
    kept = extent + min(low, 0) + min(high, 0)
    if kept <= 0:
        return filled(0.0, with_extent(shape_of(x), axis, extent + low + high))
    x = part_along(x, axis, max(-low, 0), kept)
    if low <= 0 and high <= 0:
        return x
    none = (0,) * len(shape_of(x))
    before, after = (with_extent(none, axis, max(side, 0)) for side in (low, high))
    return ops.Pad.build(x, low=before, high=after, value=0.0)


def placed(x: ir.Value, axis: int, first: int, step: int, extent: int) -> ir.Value:
    """Element i at first + i * step of `extent` places along one axis, zeros between; `step` > 0.

    Elements whose place lies outside are left out.
    """
    count = shape_of(x)[axis]
    start = max(0, -(first // step))
    end = min(count, (extent - 1 - first) // step + 1)
    if end <= start:
        return filled(0.0, with_extent(shape_of(x), axis, extent))
    apart = spread(part_along(x, axis, start, end - start), axis, step)
    before = first + start * step
    return padded_along(apart, axis, before, extent - before - shape_of(apart)[axis])


def spread(x: ir.Value, axis: int, step: int) -> ir.Value:
    """x with step - 1 zeros between neighbours along one axis."""
    shape = shape_of(x)
    count = shape[axis]
    if step == 1 or count == 1:
        return x
    wide = padded_along(rows_of(x, axis), 1, 0, step - 1)
    whole = reshaped(wide, with_extent(shape, axis, count * step))
    return part_along(whole, axis, 0, (count - 1) * step + 1)


def rows_of(x: ir.Value, axis: int) -> ir.Value:
    """[places up to `axis`, 1, places behind it]: what stands in the middle stands between places.

    Of three axes whatever x has: plans hold no tensor of more than six.
    """
    shape = shape_of(x)
    return reshaped(x, (math.prod(shape[: axis + 1]), 1, math.prod(shape[axis + 1 :])))


def slice_(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    """Each element to its place, zeros elsewhere."""
    named: dict[str, Any] = attributes(op)
    for axis, extent in enumerate(shape_of(x[0])):
        first, step, count = named["starts"][axis], named["steps"][axis], shape_of(y)[axis]
        if count == 0:
            return [filled(0.0, shape_of(x[0]))]
        if step < 0:
            d = part_along(d, axis, count - 1, count, -1)
            first, step = first + (count - 1) * step, -step
        d = placed(d, axis, first, step, extent)
    return [d]


def pad(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    named: dict[str, Any] = attributes(op)
    for axis, extent in enumerate(shape_of(x[0])):
        d = part_along(d, axis, named["low"][axis], extent)
    return [d]


def concat(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    named: dict[str, Any] = attributes(op)
    extents = [shape_of(part)[named["axis"]] for part in x]
    starts = np.cumsum([0, *extents]).tolist()
    return [part_along(d, named["axis"], s, n) for s, n in zip(starts, extents, strict=False)]


def reshape(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    return [reshaped(d, shape_of(x[0]))]


def transpose(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    if (number := number_in(d)) is not None:
        return [filled(number, shape_of(x[0]))]
    named: dict[str, Any] = attributes(op)
    return [transposed(d, np.argsort(named["permutation"]).tolist())]


def expand(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    return [fitted(d, shape_of(x[0]))]


def reduce_sum(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    """The same for each element."""
    named: dict[str, Any] = attributes(op)
    shape = shape_of(x[0])
    kept = tuple(1 if axis in named["axes"] else extent for axis, extent in enumerate(shape))
    return [expanded(reshaped(d, kept), shape)]


def reduce_mean(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    share = math.prod(shape_of(y)) / math.prod(shape_of(x[0]))
    return reduce_sum(op, x, y, scaled(d, share))


RULES: Rules = {
    ops.ReduceSum: reduce_sum,
    ops.ReduceMean: reduce_mean,
    ops.Reshape: reshape,
    ops.Transpose: transpose,
    ops.Slice: slice_,
    ops.Pad: pad,
    ops.Expand: expand,
    ops.Concat: concat,
}
