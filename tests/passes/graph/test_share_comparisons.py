"""One comparison serves the forward and the backward pass."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from graph_examples import example

from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, kind_of
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.mlir import context
from veilgraph.passes.graph.share_comparisons import ShareComparisons

X = {
    "x": np.array([[-1.5, 0.0, 2.0], [0.25, -0.5, 3.0]]),
    "y": np.array([[-2.0, 0.0, 4.0], [0.5, -1.0, 3.0]]),
}


def program(kind: str, *, bits_first: bool = False) -> Graph:
    """An op that compares, its bit twice, and what nothing else compares."""
    graph = Graph.create(context(), {name: array.shape for name, array in X.items()}, {})
    x, y = graph.inputs.values()
    made = {}
    with graph.end("op"):
        for part in ("bits", "value") if bits_first else ("value", "bits"):
            if part == "value":
                made[part] = ops.Relu.build(x) if kind == "relu" else ops.Maximum.build(x, y)
                continue
            for which in ("first", "second"):
                made[which] = ops.Step.build(x if kind == "relu" else ops.Sub.build(x, y))
        made["alone"] = ops.Relu.build(y)
    graph.finish(made)
    return graph


def test_docstring_example() -> None:
    before, after = example(ShareComparisons.__doc__, context())
    assert ShareComparisons().run(before).text(names=False) == after.text(names=False)


@pytest.mark.parametrize("bits_first", [False, True])
def test_a_bit_is_made_once_and_means_the_same(bits_first: bool) -> None:
    for kind in ("relu", "maximum"):
        graph = program(kind, bits_first=bits_first)
        wanted = evaluate(graph, X, dtype=np.float64)
        found = evaluate(ShareComparisons().run(graph), X, dtype=np.float64)
        graph.verify()
        assert all(np.array_equal(found[name], wanted[name]) for name in wanted)
        counts = Counter(map(kind_of, graph.operations))
        assert (counts["step"], counts["relu"], counts["maximum"]) == (1, 1, 0)


def test_what_no_step_reads_stays() -> None:
    graph = Graph.create(context(), {"x": (4,)}, {})
    (x,) = graph.inputs.values()
    with graph.end("op"):
        y = ops.Relu.build(x)
    graph.finish({"y": y})
    before = graph.text()
    assert ShareComparisons().run(graph).text() == before
