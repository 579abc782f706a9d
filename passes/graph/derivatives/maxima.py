"""Maxima over windows and axes as trees of maxima of two, whose comparisons have derivatives.

The trees are those of the suites' own protocols (targets/blocks/maxima.py): one axis after the
other, neighbours first, so that the first of equal numbers wins. In place of padding, which never
wins, elements of the same window stand again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import attributes
from veilgraph.passes.graph.derivatives.algebra import reshaped
from veilgraph.passes.graph.derivatives.moves import part_along


def max_pool(op: ir.OpView) -> ir.Value:
    """Over columns, then over rows."""
    named: dict[str, Any] = attributes(op)
    x = op.operation.operands[0]
    for axis in (1, 0):
        windows = shape_of(op.operation.results[0])[2 + axis]
        dilation, stride = named["dilations"][axis], named["strides"][axis]
        pads = named["pads_low"][axis], named["pads_high"][axis]
        x = _repeated(x, 2 + axis, *pads, dilation)
        starts = range(0, named["kernel"][axis] * dilation, dilation)
        x = _tree([part_along(x, 2 + axis, start, windows, stride) for start in starts])
    return x


def _repeated(x: ir.Value, axis: int, low: int, high: int, dilation: int) -> ir.Value:
    """x with elements near its edges again, which each window that reaches so far holds.

    Those are whole dilations further in.
    """
    size = shape_of(x)[axis]
    before = [min(-j % dilation, size - 1) for j in range(low, 0, -1)]
    behind = [max(size - 1 - (-j % dilation), 0) for j in range(1, high + 1)]
    if not before and not behind:
        return x
    edges = [[part_along(x, axis, i, 1) for i in places] for places in (before, behind)]
    return ops.concat([*edges[0], x, *edges[1]], axis)


def _tree(values: list[ir.Value]) -> ir.Value:
    while len(values) > 1:
        pairs = zip(values[::2], values[1::2], strict=False)
        values = [*(ops.Maximum.build(*pair) for pair in pairs), *values[len(values) & ~1 :]]
    return values[0]


def reduce_max(op: ir.OpView) -> ir.Value:
    """Along one axis after the other: neighbours, then what won, until one element is left."""
    named: dict[str, Any] = attributes(op)
    x = op.operation.operands[0]
    for axis in sorted(named["axes"], reverse=True):
        while (size := shape_of(x)[axis]) > 1:
            sides = [part_along(x, axis, first, size // 2, 2) for first in (0, 1)]
            above = ops.Maximum.build(*sides)
            odd = [part_along(x, axis, size - 1, 1)] if size % 2 else []
            x = ops.concat([above, *odd], axis) if odd else above
    return reshaped(x, shape_of(op.operation.results[0]))


TREES: Mapping[type[ir.OpView], Callable[[ir.OpView], ir.Value]] = {
    ops.MaxPool: max_pool,
    ops.ReduceMax: reduce_max,
}
