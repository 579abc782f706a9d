"""Derivatives of matrix products and of batch normalisation: products of d with each operand."""

from __future__ import annotations

import math
from typing import Any

from torch_mlir import ir

from veilgraph.ir.attributes import Shape, shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import attributes
from veilgraph.passes.graph.derivatives.algebra import (
    Rules,
    Values,
    fitted,
    product,
    reshaped,
    scaled,
    summed,
    transposed,
)
from veilgraph.passes.graph.public_factors import constant


def matmul(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    """d b^T and a^T d; a vector is a matrix of one row or one column."""
    a, b = x
    rows = reshaped(a, (1, *shape_of(a))) if len(shape_of(a)) == 1 else a
    columns = reshaped(b, (*shape_of(b), 1)) if len(shape_of(b)) == 1 else b
    batch = shape_of(y)[: max(len(shape_of(rows)), len(shape_of(columns))) - 2]
    full = reshaped(d, (*batch, shape_of(rows)[-2], shape_of(columns)[-1]))
    to_a = _product(full, _turned(columns), shape_of(rows))
    to_b = _to_second(rows, full, shape_of(columns))
    return [reshaped(to_a, shape_of(a)), reshaped(to_b, shape_of(b))]


def _to_second(a: ir.Value, d: ir.Value, shape: Shape) -> ir.Value:
    """a^T d; where the second operand is one matrix for a whole batch, the batch is more rows."""
    if len(shape) == 2:
        a, d = (reshaped(v, (math.prod(shape_of(v)[:-1]), shape_of(v)[-1])) for v in (a, d))
    return _product(_turned(a), d, shape)


def _product(a: ir.Value, b: ir.Value, shape: Shape) -> ir.Value:
    return fitted(ops.Matmul.build(a, b), shape)


def _turned(x: ir.Value) -> ir.Value:
    rank = len(shape_of(x))
    return transposed(x, (*range(rank - 2), rank - 1, rank - 2))


def batch_norm(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    """By x [N, C, ...], gamma, beta, mean and variance [C]; r = 1 / sqrt(variance + epsilon)."""
    image, gamma, beta, mean, variance = x
    named: dict[str, Any] = attributes(op)
    shape = shape_of(image)
    channels = (shape[1], *(1,) * (len(shape) - 2))
    rest = tuple(axis for axis in range(len(shape)) if axis != 1)
    r = ops.Rsqrt.build(ops.Add.build(variance, constant(named["epsilon"], variance)))
    scale = ops.Mul.build(gamma, r)
    centered = ops.Sub.build(image, reshaped(mean, channels))
    each = reshaped(summed(d, rest), shape_of(beta))
    moment = reshaped(summed(product(d, centered), rest), shape_of(gamma))
    to_gamma = ops.Mul.build(moment, r)
    falling = ops.Mul.build(ops.Mul.build(scale, r), scaled(to_gamma, -0.5))
    return [
        product(d, reshaped(scale, channels)),
        to_gamma,
        each,
        scaled(product(each, scale), -1.0),
        falling,
    ]


RULES: Rules = {
    ops.Matmul: matmul,
    ops.BatchNorm: batch_norm,
}
