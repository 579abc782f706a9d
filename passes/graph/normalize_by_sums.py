"""Normalisations from sums of integers: nothing is truncated before the variance's root is taken.

With n numbers x, a power of two c near 1 / n, and t = sum x:

    v = c^2 (n sum x^2 - t^2) + (n c)^2 e     (n c)^2 times the variance, and its epsilon
    (x - mean) / sqrt(variance + e) = c (n x - t) v^(-1/2)

n is a small integer times a power of two, so x^2 and t^2 are the only products, and v is exact in a
ring with room for n^2 x^2. The usual way truncates the mean, then the variance. Weights that the
result is multiplied by are multiplied with before the root is there, for no round of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2, prod
from typing import Any

from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, attributes, defining
from veilgraph.passes.graph.public_factors import constant, number_of, small_factor, times

MOST = 2048  # numbers that are normalised together: n^2 takes room for 22 bits


@dataclass(frozen=True)
class NormalizeBySums:
    """Rewrites layer normalisations and their like; no options.

    Before::

        func.func @main(%x: tensor<2x4xf32> {graph.name = "x", graph.role = "input"})
            -> (tensor<2x4xf32> {graph.name = "y"}) {
          %0 = "graph.reduce_mean"(%x) {axes = array<i64: 1>, keepdims = true}
              : (tensor<2x4xf32>) -> tensor<2x1xf32>
          %1 = "graph.sub"(%x, %0) : (tensor<2x4xf32>, tensor<2x1xf32>) -> tensor<2x4xf32>
          %2 = "graph.mul"(%1, %1) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
          %3 = "graph.reduce_mean"(%2) {axes = array<i64: 1>, keepdims = true}
              : (tensor<2x4xf32>) -> tensor<2x1xf32>
          %4 = "graph.constant"() {value = dense<0.5> : tensor<1x1xf32>} : () -> tensor<1x1xf32>
          %5 = "graph.add"(%3, %4) : (tensor<2x1xf32>, tensor<1x1xf32>) -> tensor<2x1xf32>
          %6 = "graph.rsqrt"(%5) : (tensor<2x1xf32>) -> tensor<2x1xf32>
          %7 = "graph.mul"(%1, %6) : (tensor<2x4xf32>, tensor<2x1xf32>) -> tensor<2x4xf32>
          return %7 : tensor<2x4xf32>
        }

    After::

        func.func @main(%x: tensor<2x4xf32> {graph.name = "x", graph.role = "input"})
            -> (tensor<2x4xf32> {graph.name = "y"}) {
          %0 = "graph.reduce_sum"(%x) {axes = array<i64: 1>, keepdims = true}
              : (tensor<2x4xf32>) -> tensor<2x1xf32>
          %1 = "graph.mul"(%x, %x) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
          %2 = "graph.reduce_sum"(%1) {axes = array<i64: 1>, keepdims = true}
              : (tensor<2x4xf32>) -> tensor<2x1xf32>
          %3 = "graph.constant"() {value = dense<4.0> : tensor<1x1xf32>} : () -> tensor<1x1xf32>
          %4 = "graph.mul"(%2, %3) : (tensor<2x1xf32>, tensor<1x1xf32>) -> tensor<2x1xf32>
          %5 = "graph.mul"(%0, %0) : (tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<2x1xf32>
          %6 = "graph.sub"(%4, %5) : (tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<2x1xf32>
          %7 = "graph.constant"() {value = dense<0.0625> : tensor<1x1xf32>} : () -> tensor<1x1xf32>
          %8 = "graph.mul"(%6, %7) : (tensor<2x1xf32>, tensor<1x1xf32>) -> tensor<2x1xf32>
          %9 = "graph.constant"() {value = dense<0.5> : tensor<1x1xf32>} : () -> tensor<1x1xf32>
          %10 = "graph.add"(%8, %9) : (tensor<2x1xf32>, tensor<1x1xf32>) -> tensor<2x1xf32>
          %11 = "graph.rsqrt"(%10) : (tensor<2x1xf32>) -> tensor<2x1xf32>
          %12 = "graph.constant"() {value = dense<4.0> : tensor<1x1xf32>} : () -> tensor<1x1xf32>
          %13 = "graph.mul"(%x, %12) : (tensor<2x4xf32>, tensor<1x1xf32>) -> tensor<2x4xf32>
          %14 = "graph.sub"(%13, %0) : (tensor<2x4xf32>, tensor<2x1xf32>) -> tensor<2x4xf32>
          %15 = "graph.constant"() {value = dense<0.25> : tensor<1x1xf32>} : () -> tensor<1x1xf32>
          %16 = "graph.mul"(%14, %15) : (tensor<2x4xf32>, tensor<1x1xf32>) -> tensor<2x4xf32>
          %17 = "graph.mul"(%16, %11) : (tensor<2x4xf32>, tensor<2x1xf32>) -> tensor<2x4xf32>
          return %17 : tensor<2x4xf32>
        }
    """

    def run(self, graph: Graph) -> Graph:
        """`graph` itself, changed in place."""
        for op in graph.operations:
            found = _Normalization.at(op)
            if found is not None:
                last, weights = _scaled_by_weights(graph, op)
                with graph.before(last):
                    graph.replace(last, found.by_sums(weights))
        graph.tidy()
        return graph


def _scaled_by_weights(graph: Graph, op: ir.OpView) -> tuple[ir.OpView, ir.Value | None]:
    """The product with weights that alone reads `op`, and these; else `op` and none."""
    result = op.operation.results[0]
    readers = [use.owner for use in result.uses]
    if len(readers) != 1 or not isinstance(readers[0], ops.Mul):
        return op, None
    known = graph.known()
    weights = [value for value in readers[0].operands if value != result and value in known]
    return (readers[0], weights[0]) if weights else (op, None)


@dataclass(frozen=True)
class _Normalization:
    """(x - mean x) (mean (x - mean x)^2 + e)^(-1/2), over some axes."""

    x: ir.Value
    epsilon: float
    axes: tuple[int, ...]

    @staticmethod
    def at(op: ir.OpView) -> _Normalization | None:
        """The normalisation that `op` is the last product of."""
        if not isinstance(op, ops.Mul):
            return None
        for centred, root in _pairs(list(op.operation.operands)):
            found = _normalization(centred, root)
            if found is not None and found.is_exact:
                return found
        return None

    @property
    def count(self) -> int:
        return prod(shape_of(self.x)[axis] for axis in self.axes)

    @property
    def scale(self) -> float:
        """c."""
        return float(2.0 ** -round(log2(self.count)))

    @property
    def is_exact(self) -> bool:
        """Whether n is small, and an integer of few bits times a power of two."""
        return self.count <= MOST and small_factor(float(self.count)) is not None

    def by_sums(self, weights: ir.Value | None) -> ir.Value:
        """The same from sums, times the weights if there are any."""
        x, n, c = self.x, self.count, self.scale
        axes: dict[str, Any] = {"axes": self.axes, "keepdims": True}
        total = ops.ReduceSum.build(x, **axes)
        squares = ops.ReduceSum.build(ops.Mul.build(x, x), **axes)
        spread = ops.Sub.build(times(squares, n), ops.Mul.build(total, total))
        variance = times(spread, c * c)
        if self.epsilon:
            number = constant(self.epsilon * (n * c) ** 2, variance)
            variance = ops.Add.build(variance, number)
        root = ops.Rsqrt.build(variance)
        centred = times(ops.Sub.build(times(x, n), total), c)
        if weights is not None:
            centred = ops.Mul.build(centred, weights)
        return ops.Mul.build(centred, root)


def _normalization(centred: ir.Value, root: ir.Value) -> _Normalization | None:
    """Of x - mean x and a root, if that is of the variance of x."""
    taken = _operands(centred, ops.Sub)
    x, mean = taken if taken else (None, None)
    averaged = _operands(mean, ops.ReduceMean)
    inside = _under_root(root)
    if averaged is None or averaged[0] != x or inside is None:
        return None
    variance, epsilon = _without_number(inside)
    squared = _operands(variance, ops.ReduceMean)
    if squared is None or _operands(squared[0], ops.Mul) != [centred, centred]:
        return None
    first, second = (attributes(defining(value)) for value in (mean, variance))
    if first != second or not first["keepdims"]:
        return None
    return _Normalization(x, epsilon, first["axes"])


def _operands(value: ir.Value | None, kind: type[ir.OpView]) -> list[ir.Value] | None:
    """Of what computes a value, if it is of this kind."""
    op = None if value is None else defining(value)
    return list(op.operation.operands) if isinstance(op, kind) else None


def _under_root(value: ir.Value) -> ir.Value | None:
    """z where the value is z^(-1/2), or 1 over the root of z."""
    taken = _operands(value, ops.Rsqrt)
    if taken is None and (inverted := _operands(value, ops.Reciprocal)) is not None:
        taken = _operands(inverted[0], ops.Sqrt)
    return taken[0] if taken else None


def _without_number(value: ir.Value) -> tuple[ir.Value, float]:
    """A sum of something and a public number; 0 where there is none."""
    for x, other in _pairs(_operands(value, ops.Add)):
        number = number_of(other)
        if number is not None:
            return x, number
    return value, 0.0


def _pairs(operands: list[ir.Value] | None) -> list[tuple[ir.Value, ir.Value]]:
    return [(operands[0], operands[1]), (operands[1], operands[0])] if operands else []
