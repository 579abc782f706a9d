"""Max pools as average pools: cheaper by all their comparisons, and no longer the same model."""

from __future__ import annotations

from dataclasses import dataclass

from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, attributes


@dataclass(frozen=True)
class PoolAverage:
    """Turns every max pool into an average over the same windows; run on request only.

    Averages don't count padding. A dilated max pool stays as it is. What this does to accuracy is
    for `veilgraph check` to show, and for training to mend.

    Before::

        func.func @main(%x: tensor<1x2x4x4xf32> {graph.name = "x", graph.role = "input"})
            -> (tensor<1x2x2x2xf32> {graph.name = "y"}) {
          %0 = "graph.max_pool"(%x) {kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>,
              pads_low = array<i64: 1, 1>, pads_high = array<i64: 0, 0>,
              dilations = array<i64: 1, 1>} : (tensor<1x2x4x4xf32>) -> tensor<1x2x2x2xf32>
          return %0 : tensor<1x2x2x2xf32>
        }

    After::

        func.func @main(%x: tensor<1x2x4x4xf32> {graph.name = "x", graph.role = "input"})
            -> (tensor<1x2x2x2xf32> {graph.name = "y"}) {
          %0 = "graph.avg_pool"(%x) {kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>,
              pads_low = array<i64: 1, 1>, pads_high = array<i64: 0, 0>,
              count_include_pad = false} : (tensor<1x2x4x4xf32>) -> tensor<1x2x2x2xf32>
          return %0 : tensor<1x2x2x2xf32>
        }
    """

    def run(self, graph: Graph) -> Graph:
        """`graph` itself, changed in place."""
        for op in graph.operations:
            if not isinstance(op, ops.MaxPool):
                continue
            given = attributes(op)
            if given.pop("dilations") != (1, 1):
                continue
            include = not any((*given["pads_low"], *given["pads_high"]))
            with graph.before(op):
                x = op.operation.operands[0]
                graph.replace(op, ops.AvgPool.build(x, count_include_pad=include, **given))
        graph.tidy()
        return graph
