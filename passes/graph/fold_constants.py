"""Constant folding at the model owner's: what depends on weights alone becomes a weight."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch_mlir import ir

from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, defining, users
from veilgraph.ir.meaning.graph import apply

Array = NDArray[np.float32]


@dataclass(frozen=True)
class FoldConstants:
    """Evaluates every operation whose operands are all known.

    Known are weights, constants and what is computed from them. The result of weights is a new
    weight, named after the weight that gave it the most elements (the first of equals); the
    result of constants is a constant. A division by a known tensor becomes a multiplication by
    its reciprocal. Weights that nothing uses any more are dropped.

    Before::

        func.func @main(%x: tensor<1x3xf32> {graph.name = "x", graph.role = "input"},
            %w: tensor<2x3xf32> {graph.name = "fc.weight", graph.role = "weight"},
            %s: tensor<2xf32> {graph.name = "scale", graph.role = "weight"})
            -> (tensor<1x2xf32> {graph.name = "y"}) {
          %0 = "graph.transpose"(%w) {permutation = array<i64: 1, 0>}
              : (tensor<2x3xf32>) -> tensor<3x2xf32>
          %1 = "graph.matmul"(%x, %0) : (tensor<1x3xf32>, tensor<3x2xf32>) -> tensor<1x2xf32>
          %2 = "graph.div"(%1, %s) : (tensor<1x2xf32>, tensor<2xf32>) -> tensor<1x2xf32>
          return %2 : tensor<1x2xf32>
        }

    After::

        func.func @main(%x: tensor<1x3xf32> {graph.name = "x", graph.role = "input"},
            %w: tensor<3x2xf32> {graph.name = "fc.weight", graph.role = "weight"},
            %s: tensor<2xf32> {graph.name = "scale", graph.role = "weight"})
            -> (tensor<1x2xf32> {graph.name = "y"}) {
          %0 = "graph.matmul"(%x, %w) : (tensor<1x3xf32>, tensor<3x2xf32>) -> tensor<1x2xf32>
          %1 = "graph.mul"(%0, %s) : (tensor<1x2xf32>, tensor<2xf32>) -> tensor<1x2xf32>
          return %1 : tensor<1x2xf32>
        }
    """

    def run(self, graph: Graph) -> Graph:
        """`graph` itself, changed in place."""
        folding = _Folding(graph)
        for op in graph.operations:
            folding.visit(op)
        folding.finish()
        return graph


@dataclass
class _Known:
    """What a known value is: its elements, and the weight it is named after ("" for constants)."""

    array: Array
    source: str


class _Folding:
    """The known values of a program, while it is walked."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.known = {v: _Known(graph.weights[n], n) for n, v in graph.parameters.items()}

    def visit(self, op: ir.OpView) -> None:
        """Evaluates the operation, or makes it cheaper, where operands are known."""
        operands = list(op.operation.operands)
        if all(operand in self.known for operand in operands):
            self._evaluate(op)
        elif isinstance(op, ops.Div) and operands[1] in self.known:
            with self.graph.before(op):
                inverse = ops.Reciprocal.build(operands[1])
                self._evaluate(inverse.owner.opview)
                self.graph.replace(op, ops.Mul.build(operands[0], inverse))

    def _evaluate(self, op: ir.OpView) -> None:
        operands = [self.known[operand] for operand in op.operation.operands]
        largest = max((k.array.size for k in operands if k.source), default=0)
        sources = [k.source for k in operands if k.source and k.array.size == largest]
        array = apply(op, [k.array for k in operands])
        self.known[op.operation.results[0]] = _Known(array, sources[0] if sources else "")

    def finish(self) -> None:
        """Puts weights and constants where the rest of the program reads known values."""
        read = [value for value in self.known if self._is_read(value)]
        taken = {self.known[v].source for v in read if defining(v) is None}
        new: list[tuple[ir.Value, str]] = []
        for value in read:
            op, known = defining(value), self.known[value]
            if op is None or isinstance(op, ops.Constant):
                continue
            if known.source:
                new.append((value, _fresh(known.source, taken)))
                taken.add(new[-1][1])
            else:
                with self.graph.before(op):
                    value.replace_all_uses_with(ops.Constant.build(value=known.array))
        # The old weights still have their names: the new ones get theirs when these are gone.
        names = {f"folded {index}": name for index, (_, name) in enumerate(new)}
        arrays = [np.array(self.known[value].array, order="C") for value, _ in new]
        added = self.graph.add_weights(dict(zip(names, arrays, strict=True)))
        for (value, _), weight in zip(new, added.values(), strict=True):
            value.replace_all_uses_with(weight)
        self.graph.tidy()
        self.graph.rename_weights(names)

    def _is_read(self, value: ir.Value) -> bool:
        """Whether an operation that stays reads the value."""
        return any(
            op.operation.name == "func.return" or op.operation.results[0] not in self.known
            for op in users(value)
        )


def _fresh(source: str, taken: set[str]) -> str:
    """`source`, or the first of source.2, source.3, ... that isn't taken."""
    candidates = (f"{source}.{count}" if count > 1 else source for count in itertools.count(1))
    return next(name for name in candidates if name not in taken)
