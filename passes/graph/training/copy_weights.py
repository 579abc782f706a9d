"""copy_weights: a state that many more elements are computed of is multiplied as a coarser copy.

A step moves a weight by a millionth of its size, so it has 25 fraction bits, and a convolution
needs 12. In the rings of its products the others are missing to what it multiplies. A copy is
truncated once a step, for bits that grow with the weight alone. It is a product with 1, whose scale
is its own.
"""

from __future__ import annotations

from torch_mlir import ir

from veilgraph.ir.attributes import element_count, shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.dialect import GraphOp
from veilgraph.ir.graph.program import Graph, users
from veilgraph.passes.graph.public_factors import constant

FEWER = 4  # times as many elements are computed of a weight as it has, or more


class CopyWeights:
    """Lets products read a copy of a state; no options.

    Before::

        func.func @main(%x: tensor<64x2xf32> {graph.name = "x", graph.role = "input"},
            %w: tensor<2x2xf32> {graph.name = "w", graph.role = "state"})
            -> (tensor<64x2xf32> {graph.name = "y"}) {
          %0 = "graph.matmul"(%x, %w) : (tensor<64x2xf32>, tensor<2x2xf32>) -> tensor<64x2xf32>
          return %0 : tensor<64x2xf32>
        }

    After::

        func.func @main(%x: tensor<64x2xf32> {graph.name = "x", graph.role = "input"},
            %w: tensor<2x2xf32> {graph.name = "w", graph.role = "state"})
            -> (tensor<64x2xf32> {graph.name = "y"}) {
          %0 = "graph.constant"() {value = dense<1.0> : tensor<1x1xf32>} : () -> tensor<1x1xf32>
          %1 = "graph.mul"(%w, %0) : (tensor<2x2xf32>, tensor<1x1xf32>) -> tensor<2x2xf32>
          %2 = "graph.matmul"(%x, %1) : (tensor<64x2xf32>, tensor<2x2xf32>) -> tensor<64x2xf32>
          return %2 : tensor<64x2xf32>
        }
    """

    def run(self, graph: Graph) -> Graph:
        """`graph`, changed in place."""
        for name in graph.states:
            weight = graph.inputs[name]
            readers = [op for op in users(weight) if _products(op)]
            computed = sum(element_count(shape_of(y)) for op in readers for y in _products(op))
            if readers and computed >= FEWER * element_count(shape_of(weight)):
                with graph.before(min(readers, key=graph.operations.index)):
                    copy = ops.Mul.build(weight, constant(1.0, weight))
                for op in readers:
                    for number, operand in enumerate(op.operation.operands):
                        if operand == weight:
                            op.operation.operands[number] = copy
        graph.tidy()
        return graph


def _products(op: ir.OpView) -> list[ir.Value]:
    """What a convolution or a matrix product makes of an operand, moved or not."""
    if isinstance(op, ops.Conv | ops.Matmul):
        return [op.operation.results[0]]
    if isinstance(op, GraphOp) and ops.facts_of(op).moves:
        return [y for reader in users(op.operation.results[0]) for y in _products(reader)]
    return []
