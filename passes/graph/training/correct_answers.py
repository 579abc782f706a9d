"""How many answers of a model are their labels', of rows that count.

An answer of `cross_entropy` is the place of the largest number of a row, of equal ones the first,
as of torch.argmax; one of `binary_cross_entropy` is 1 where a number is 0 or above, else 0. Labels
are one-hot rows, and 0 or 1. All is exact: what is compared are the integers of the model's output.

    cross_entropy          sum_i m_i sum_c y_ic [c = argmax z_i]
    binary_cross_entropy   sum_i m_i sum_c (1 - s_ic - y_ic + 2 s_ic y_ic)      s = [z >= 0]

m is 1 for a row that counts, and 0 for one that fills a batch; it is public.
"""

from __future__ import annotations

from math import prod

from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.ranking import Ranked
from veilgraph.passes.graph.derivatives.algebra import filled, reshaped, scaled, summed


def correct_answers(
    z: ir.Value, labels: ir.Value, counted: ir.Value, *, by_class: bool
) -> ir.Value:
    """One number, of shape (1,).

    Args:
        z: the model's output, B rows.
        labels: of the same shape.
        counted: m, of shape (B,).
        by_class: whether a row has one answer, and not one for each of its numbers.
    """
    rows, *others = shape_of(z)
    correct = _of_classes(z, labels) if by_class else _of_numbers(z, labels)
    correct = reshaped(correct, (rows, prod(others)))
    counts = ops.Mul.build(correct, reshaped(counted, (rows, 1)))
    return reshaped(summed(counts, (0, 1)), (1,))


def _of_classes(z: ir.Value, labels: ir.Value) -> ir.Value:
    """y where z is largest, [B, classes]."""
    return ops.Mul.build(reshaped(Ranked.of(z, 1).hot, shape_of(z)), labels)


def _of_numbers(z: ir.Value, labels: ir.Value) -> ir.Value:
    """1 where y is [z >= 0], else 0."""
    ones = ops.Step.build(z)
    both = scaled(ops.Mul.build(ones, labels), 2.0)
    differing = ops.Sub.build(ops.Add.build(ones, labels), both)
    return ops.Sub.build(filled(1.0, (1,) * len(shape_of(z))), differing)
