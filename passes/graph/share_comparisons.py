"""share_comparisons: what compares a number that a `step` compares too takes the step's bit.

A comparison costs many times what a product with its result does. In a program that trains, the
backward pass reads the bit of each comparison of the forward pass: so there is one of the two.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph

Compared = tuple[ir.Value, ...]


@dataclass(frozen=True)
class ShareComparisons:
    """Makes products of ReLUs and maxima whose bit is there.

    Before::

        func.func @main(%x: tensor<4xf32> {graph.name = "x", graph.role = "input"})
            -> (tensor<4xf32> {graph.name = "y"}, tensor<4xf32> {graph.name = "bit"}) {
          %0 = "graph.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
          %1 = "graph.step"(%x) : (tensor<4xf32>) -> tensor<4xf32>
          return %0, %1 : tensor<4xf32>, tensor<4xf32>
        }

    After::

        func.func @main(%x: tensor<4xf32> {graph.name = "x", graph.role = "input"})
            -> (tensor<4xf32> {graph.name = "y"}, tensor<4xf32> {graph.name = "bit"}) {
          %0 = "graph.step"(%x) : (tensor<4xf32>) -> tensor<4xf32>
          %1 = "graph.mul"(%x, %0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
          return %1, %0 : tensor<4xf32>, tensor<4xf32>
        }
    """

    def run(self, graph: Graph) -> Graph:
        """`graph`, changed in place."""
        steps: dict[Compared, list[ir.OpView]] = {}
        for op in graph.operations:
            if isinstance(op, ops.Step):
                steps.setdefault(_difference(op.operation.operands[0]), []).append(op)
        for op in graph.operations:
            if isinstance(op, ops.Relu | ops.Maximum):
                compared = tuple(op.operation.operands)
                if alike := steps.get(compared):
                    _share(graph, op, alike)
        graph.tidy()
        return graph


def _difference(value: ir.Value) -> Compared:
    """Of what a step takes: both operands, where it is a difference of alike shapes."""
    if not isinstance(value, ir.BlockArgument) and isinstance(value.owner.opview, ops.Sub):
        x, y = value.owner.operands
        if shape_of(x) == shape_of(y):
            return x, y
    return (value,)


def _share(graph: Graph, op: ir.OpView, steps: list[ir.OpView]) -> None:
    """Lets one new step, ahead of all that read a bit, be all of these; `op` is a product then."""
    found = {each.operation for each in (op, *steps)}
    first = next(each for each in graph.operations if each.operation in found)
    with graph.before(first):
        x, *others = op.operation.operands
        compared = ops.Sub.build(x, others[0]) if others else x
        bit = ops.Step.build(compared)
        value = ops.Mul.build(compared, bit)
        if others:
            value = ops.Add.build(others[0], value)
    for step in steps:
        step.operation.results[0].replace_all_uses_with(bit)
        step.operation.erase()
    steps.clear()
    graph.replace(op, value)
