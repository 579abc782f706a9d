"""Rows of the aten table that are one-hot rows: integers compared with 0, 1, 2, ... along an axis.

    x[..., None] == arange(n)                                     one_hot(x)
    x[..., None] == arange(n)  or  x[..., None] == arange(n) - n  one_hot(x), which wraps

So exporters, `one_hot` and what looks up rows of a table write an index that is data. A protocol
for the whole row costs far less than its comparisons.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch_mlir import ir

from veilgraph.frontend.lowering.operands import Aten, number_of
from veilgraph.ir.attributes import Shape, shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import attributes, defining

Row = Callable[[Aten], ir.Value | tuple[ir.Value, ...]]
LEAST = 2  # places of a row: of one a comparison says as much


def equality(row: Row) -> Row:
    """A comparison of two tensors, where it makes no one-hot rows."""

    def compared(a: Aten) -> ir.Value | tuple[ir.Value, ...]:
        made = _rows(a, 0, 1) or _rows(a, 1, 0)
        return row(a) if made is None else made

    return compared


def from_both_ends(row: Row) -> Row:
    """An alternative of two, where it is none of the same index from both ends of a row."""

    def alternative(a: Aten) -> ir.Value | tuple[ir.Value, ...]:
        made = _wrapping(a.tensor(0), a.tensor(1))
        return row(a) if made is None else made

    return alternative


def _rows(a: Aten, index: int, places: int) -> ir.Value | None:
    """Rows of one operand at the places that the other one counts; None where it counts none."""
    counted = a.known(places)
    if counted is None or a.known(index) is not None or not a.is_whole(index):
        return None
    rank = len(a.shape)
    numbers = counted.reshape((1,) * (rank - counted.ndim) + counted.shape)
    axes = [i for i, extent in enumerate(numbers.shape) if extent != 1]
    if len(axes) != 1 or numbers.size < LEAST:
        return None
    (axis,), depth, x = axes, numbers.size, a.tensor(index)
    shape = (1,) * (rank - len(shape_of(x))) + shape_of(x)
    rest = (*shape[:axis], *shape[axis + 1 :])
    if shape[axis] != 1 or rest != (*a.shape[:axis], *a.shape[axis + 1 :]):
        return None
    first = numbers.reshape(-1)[0]
    if first not in (0, -depth) or (numbers.reshape(-1) != first + np.arange(depth)).any():
        return None
    flat = ops.Reshape.build(x, shape=rest)
    if first:
        flat = ops.Add.build(flat, ops.constant(float(depth)))
    return _turned(ops.OneHot.build(flat, depth=depth, wraps=False), axis)


def _turned(rows: ir.Value, axis: int) -> ir.Value:
    """Rows along `axis` in place of the last one."""
    last = len(shape_of(rows)) - 1
    if axis == last:
        return rows
    order: Shape = (*range(axis), last, *range(axis, last))
    return ops.Transpose.build(rows, permutation=order)


def _wrapping(front: ir.Value, back: ir.Value) -> ir.Value | None:
    """Rows of an index, or of the index and the depth; None where these are anything else."""
    first, second = defining(front), defining(back)
    order = None
    if isinstance(first, ops.Transpose) and isinstance(second, ops.Transpose):
        order = attributes(first)["permutation"]
        if attributes(second)["permutation"] != order:
            return None
        first, second = (defining(end.operation.operands[0]) for end in (first, second))
    if not isinstance(first, ops.OneHot) or not isinstance(second, ops.OneHot):
        return None
    depth, (x,) = attributes(first)["depth"], first.operation.operands
    moved = defining(second.operation.operands[0])
    if attributes(second)["depth"] != depth or not isinstance(moved, ops.Add):
        return None
    whole, added = moved.operation.operands
    if number_of(added) != depth or _source(whole) != _source(x):
        return None
    rows = ops.OneHot.build(x, depth=depth, wraps=True)
    return rows if order is None else ops.Transpose.build(rows, permutation=order)


def _source(value: ir.Value) -> tuple[ir.Value, Shape]:
    """What a value reshapes, and its shape."""
    op, shape = defining(value), shape_of(value)
    return (op.operation.operands[0] if isinstance(op, ops.Reshape) else value), shape
