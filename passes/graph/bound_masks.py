"""What is masked before a softmax lies as far below its row as the samples' scores ask for.

    scores of a row less than 500 apart on the samples   ->  -1024
    1,200 apart                                          ->  -4096

A masked number's exponential is nothing as long as it is 24 nats below the largest of its row that
isn't masked. How far apart scores are is seen with nothing masked, and may be a margin more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch_mlir import ir

from veilgraph.ir.graph import ops
from veilgraph.ir.graph.masks import FAR, MASKED
from veilgraph.ir.graph.program import Graph, attributes, defining, name_of, users
from veilgraph.ir.meaning.graph import evaluate

Array = NDArray[np.float32]
MARGIN = 2.0  # times as far apart as on the samples
NOTHING = 24.0  # nats: e^-24 is less than 1e-10


@dataclass(frozen=True)
class BoundMasks:
    """Gives masked numbers a size that a ring holds.

    Before::

        func.func @main(%s: tensor<1x2xf32> {graph.name = "s", graph.role = "input"})
            -> (tensor<1x2xf32> {graph.name = "y"}) {
          %0 = "graph.constant"() {value = dense<[[0.0, -7.9228162514264338E+28]]>
              : tensor<1x2xf32>} : () -> tensor<1x2xf32>
          %1 = "graph.add"(%s, %0) : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x2xf32>
          %2 = "graph.softmax"(%1) {axis = 1 : i64} : (tensor<1x2xf32>) -> tensor<1x2xf32>
          return %2 : tensor<1x2xf32>
        }

    After::

        func.func @main(%s: tensor<1x2xf32> {graph.name = "s", graph.role = "input"})
            -> (tensor<1x2xf32> {graph.name = "y"}) {
          %0 = "graph.constant"() {value = dense<[[0.0, -1024.0]]>
              : tensor<1x2xf32>} : () -> tensor<1x2xf32>
          %1 = "graph.add"(%s, %0) : (tensor<1x2xf32>, tensor<1x2xf32>) -> tensor<1x2xf32>
          %2 = "graph.softmax"(%1) {axis = 1 : i64} : (tensor<1x2xf32>) -> tensor<1x2xf32>
          return %2 : tensor<1x2xf32>
        }

    Attributes:
        samples: inputs by name, samples on a new first axis; None leaves scores unknown.
    """

    samples: Mapping[str, Array] | None = None

    def run(self, graph: Graph) -> Graph:
        """`graph` itself, changed in place."""
        masks = list(_masks(graph))
        if not masks:
            return graph
        holders = [mask.put(graph, 0.0) for mask in masks]
        apart = self._apart(graph)
        for mask, holder in zip(masks, holders, strict=True):
            reached = [apart.get(name, 0.0) for name in _scores_behind(holder)]
            enough = MARGIN * max(reached, default=0.0) + NOTHING
            far = max(FAR, 2.0 ** math.ceil(math.log2(enough)))
            _Mask(holder, mask.signs, mask.others).put(graph, far)
        graph.tidy()
        return graph

    def _apart(self, graph: Graph) -> dict[str, float]:
        """How far apart the numbers of a row are at most, by the name of what a softmax takes."""
        axes: dict[str, int] = {}
        for op in graph.operations:
            if isinstance(op, ops.Softmax) and (scores := defining(op.operation.operands[0])):
                axes[name_of(scores)] = int(attributes(op)["axis"])
        found = dict.fromkeys(axes, 0.0)

        def observe(name: str, value: Array) -> None:
            if name in axes and value.size:
                found[name] = max(found[name], float(np.ptp(value, axis=axes[name]).max()))

        count = min((len(array) for array in (self.samples or {}).values()), default=0)
        for number in range(count):
            evaluate(graph, {n: x[number] for n, x in (self.samples or {}).items()}, observe)
        return found


@dataclass(frozen=True)
class _Mask:
    """A weight or a constant some of whose elements mean "masked".

    Attributes:
        holder: its value in the program.
        signs: 0 for elements that mean something else.
        others: the elements, 0 for what is masked.
    """

    holder: ir.Value
    signs: Array
    others: Array

    def put(self, graph: Graph, far: float) -> ir.Value:
        """Lets what is masked be so far from zero; the value that holds it now."""
        array = np.asarray(self.others + np.float32(far) * self.signs, np.float32)
        op = defining(self.holder)
        if op is None:
            name = next(n for n, value in graph.parameters.items() if value == self.holder)
            graph.weights[name] = array
            return self.holder
        with graph.before(op):
            made = ops.Constant.build(value=array)
        graph.replace(op, made)
        return made


def _masks(graph: Graph) -> Iterator[_Mask]:
    held = [(value, graph.weights[name]) for name, value in graph.parameters.items()]
    held += [
        (op.operation.results[0], np.asarray(attributes(op)["value"], np.float32))
        for op in graph.operations
        if isinstance(op, ops.Constant)
    ]
    for value, array in held:
        masked = np.abs(array) == MASKED
        if masked.any():
            signs = np.where(masked, np.sign(array), 0).astype(np.float32)
            yield _Mask(value, signs, np.where(masked, 0, array).astype(np.float32))


def _scores_behind(value: ir.Value) -> set[str]:
    """The names of what softmaxes take that follows from a value."""
    found: set[str] = set()
    for op in users(value):
        if isinstance(op, ops.Softmax):
            scores = defining(value)
            found |= {name_of(scores)} if scores is not None else set()
        elif op.operation.name != "func.return":
            found |= _scores_behind(op.operation.results[0])
    return found
