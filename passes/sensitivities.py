"""How much noise on a value becomes noise on the outputs: ENCODING.md's a and b, without gradients.

Rounding errors are taken as independent, weights and activations as if they were too: noise of
variance v on x becomes v mean(w^2) n on a sum of n products with w. One walk from the outputs back.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch_mlir import ir

from veilgraph.ir.attributes import element_count, shape_of
from veilgraph.ir.graph import Graph, attributes, kind_of
from veilgraph.passes.ranges import Statistics
from veilgraph.passes.scale_structure import PRODUCTS, inner_products

UNKNOWN_MEAN_SQUARE = 1.0


def noise_gains(
    graph: Graph, statistics: Mapping[ir.Value, Statistics]
) -> dict[ir.Value, float]:
    """For each value: the outputs' noise if each of its elements had noise of variance 1.

    Noise is counted relative to the outputs' mean squares, and averaged over the outputs.
    """
    gains: dict[ir.Value, float] = {}
    outputs = list(graph.outputs.values())
    for value in outputs:
        share = 1 / (_mean_square(value, statistics) * len(outputs))
        gains[value] = gains.get(value, 0.0) + share
    for op in reversed(graph.operations):
        reached = gains.get(op.operation.results[0], 0.0)
        for number, operand in enumerate(op.operation.operands):
            gain = _gain(op, number, statistics)
            gains[operand] = gains.get(operand, 0.0) + reached * gain
    return gains


def _gain(op: ir.OpView, number: int, statistics: Mapping[ir.Value, Statistics]) -> float:
    """Variance of the result's noise for noise of variance 1 on one operand."""
    kind, operands = kind_of(op), list(op.operation.operands)
    if kind in PRODUCTS and number < 2:
        other = operands[1 - number]
        # The two noises of a square are one and the same: amplitudes add, not variances.
        coherent = 2 if operands[0] == operands[1] else 1
        return coherent * inner_products(op) * _mean_square(other, statistics)
    if kind == "relu":
        after = _mean_square(op.operation.results[0], statistics)
        return min(1.0, after / _mean_square(operands[0], statistics))
    if kind == "sum_pool":
        return float(element_count(attributes(op)["kernel"]))
    if kind == "reduce_sum":
        summed = element_count(shape_of(operands[0]))
        return summed / element_count(shape_of(op.operation.results[0]))
    if kind == "concat":
        joined = element_count(shape_of(op.operation.results[0]))
        return element_count(shape_of(operands[number])) / joined
    return 1.0


def _mean_square(value: ir.Value, statistics: Mapping[ir.Value, Statistics]) -> float:
    known = statistics.get(value)
    return known.mean_square if known and known.mean_square else UNKNOWN_MEAN_SQUARE
