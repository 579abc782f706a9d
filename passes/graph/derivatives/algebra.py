"""Products, sums and copies of derivatives; what is known to be one number costs no operation.

The derivative of a loss by itself is 1 and that of a sum by its parts is the same number for each:
such derivatives are a constant, `Expand`ed to their shape, and stay one through these functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from torch_mlir import ir

from veilgraph.ir import shapes
from veilgraph.ir.attributes import Shape, shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import defining
from veilgraph.passes.graph.public_factors import number_of

Values: TypeAlias = Sequence[ir.Value]
Rule: TypeAlias = Callable[[ir.OpView, Values, ir.Value, ir.Value], Values]
Rules: TypeAlias = Mapping[type[ir.OpView], Rule]


def filled(number: float, shape: Shape) -> ir.Value:
    """A public number in each place of `shape`."""
    one = (1,) * len(shape)
    value = ops.Constant.build(value=np.full(one, number, np.float32))
    return value if shape == one else ops.Expand.build(value, shape=shape)


def number_in(value: ir.Value) -> float | None:
    """The one number that is in each place of a public value; None for anything else."""
    op = defining(value)
    return number_of(op.operation.operands[0] if isinstance(op, ops.Expand) else value)


def product(a: ir.Value, b: ir.Value) -> ir.Value:
    """a b, with NumPy's broadcasting."""
    for known, other in ((a, b), (b, a)):
        if (number := number_in(known)) is not None:
            shape = shapes.broadcast(shape_of(a), shape_of(b))
            return scaled(expanded(other, shape), number)
    return ops.Mul.build(a, b)


def scaled(x: ir.Value, number: float) -> ir.Value:
    """x times a public number."""
    known = 0.0 if number == 0 else number_in(x)
    if known is not None:
        return filled(known * number, shape_of(x))
    if number in (1.0, -1.0):
        return x if number == 1.0 else ops.Neg.build(x)
    return ops.Mul.build(x, filled(number, (1,) * len(shape_of(x))))


def expanded(x: ir.Value, shape: Shape) -> ir.Value:
    """x broadcast to `shape`."""
    if shape_of(x) == shape:
        return x
    if (number := number_in(x)) is not None:
        return filled(number, shape)
    return ops.Expand.build(x, shape=shape)


def reshaped(x: ir.Value, shape: Shape) -> ir.Value:
    """The elements of x in `shape`."""
    if shape_of(x) == shape:
        return x
    if (number := number_in(x)) is not None:
        return filled(number, shape)
    return ops.Reshape.build(x, shape=shape)


def transposed(x: ir.Value, permutation: Sequence[int]) -> ir.Value:
    """Axis i of the result is axis permutation[i] of x."""
    if tuple(permutation) == tuple(range(len(permutation))):
        return x
    return ops.Transpose.build(x, permutation=tuple(permutation))


def summed(x: ir.Value, axes: Sequence[int]) -> ir.Value:
    """The sum along `axes`, which stay with extent 1."""
    shape = shape_of(x)
    left = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    if left == shape:
        return x
    if (number := number_in(x)) is not None:
        return filled(number * math.prod(shape[axis] for axis in axes), left)
    return ops.ReduceSum.build(x, axes=tuple(axes), keepdims=True)


def fitted(d: ir.Value, shape: Shape) -> ir.Value:
    """Summed over the axes along which an operand of `shape` was broadcast."""
    extra = len(shape_of(d)) - len(shape)
    wide = zip(shape, shape_of(d)[extra:], strict=True)
    copied = [extra + axis for axis, (own, all_) in enumerate(wide) if own != all_]
    return reshaped(summed(d, (*range(extra), *copied)), shape)


def total(values: Sequence[ir.Value]) -> ir.Value:
    """The sum of one value or more, of one shape."""
    found = values[0]
    for value in values[1:]:
        found = ops.Add.build(found, value)
    return found
