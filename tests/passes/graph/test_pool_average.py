"""Max pools as average pools."""

from __future__ import annotations

import numpy as np
from graph_examples import example

from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, attributes, kind_of, name_of
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.mlir import context
from veilgraph.passes.graph.pool_average import PoolAverage


def pooled(dilations: tuple[int, int]) -> Graph:
    graph = Graph.create(context(), {"x": (1, 2, 6, 6)}, {})
    with graph.end("pool"):
        y = ops.MaxPool.build(
            graph.inputs["x"],
            kernel=(2, 2),
            strides=(2, 2),
            pads_low=(0, 0),
            pads_high=(0, 0),
            dilations=dilations,
        )
    graph.finish({"y": y})
    return graph


def test_docstring_example() -> None:
    before, after = example(PoolAverage.__doc__, context())
    changed = PoolAverage().run(before)
    changed.verify()
    assert changed.text(names=False) == after.text(names=False)


def test_padding_does_not_count() -> None:
    before, _ = example(PoolAverage.__doc__, context())
    x = {"x": np.ones((1, 2, 4, 4), dtype=np.float32)}
    np.testing.assert_array_equal(evaluate(PoolAverage().run(before), x)["y"], 1)


def test_windows_become_means_under_the_same_name() -> None:
    graph = PoolAverage().run(pooled((1, 1)))
    x = np.arange(72, dtype=np.float32).reshape(1, 2, 6, 6)
    expected = x.reshape(1, 2, 3, 2, 3, 2).mean(axis=(3, 5))
    np.testing.assert_allclose(evaluate(graph, {"x": x})["y"], expected)
    assert [name_of(op) for op in graph.operations] == ["pool"]
    assert attributes(graph.operations[0])["count_include_pad"] is True


def test_dilated_pool_stays() -> None:
    graph = PoolAverage().run(pooled((2, 2)))
    assert [kind_of(op) for op in graph.operations] == ["max_pool"]
