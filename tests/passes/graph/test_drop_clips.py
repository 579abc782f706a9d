"""Clips of quantisers that samples do not reach, and those that stay."""

from __future__ import annotations

import numpy as np
import pytest
from graph_examples import example
from torch_mlir import ir

from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, QuantisersClip, kind_of, name_of
from veilgraph.ir.mlir import context
from veilgraph.passes.graph.drop_clips import DropClips, DroppedClips

BOTH = QuantisersClip(slack=0.5, has_lower=True)


def upper(graph: Graph, x: ir.Value, kept: ir.Value) -> ir.Value:
    """What is left of `kept` where x is above h."""
    above = ops.Relu.build(ops.Sub.build(x, graph.parameters["h"]))
    return ops.Sub.build(kept, above)


def clip(low: float, high: float, name: str = "q") -> Graph:
    """y = x clipped."""
    weights = {"w": np.float32(low), "h": np.float32(high)}
    graph = Graph.create(context(), {"x": (2,)}, {n: np.asarray(w) for n, w in weights.items()})
    with graph.end(name):
        x = graph.inputs["x"]
        y = upper(graph, x, ops.Maximum.build(x, graph.parameters["w"]))
    graph.finish({"y": y})
    graph.clips = {"q": BOTH}
    return graph


def samples(low: float, high: float) -> DropClips:
    return DropClips({"x": np.array([[0, low], [high, 0]], np.float32)})


def kinds(graph: Graph) -> list[str]:
    return [kind_of(op) for op in graph.operations]


def test_docstring_example() -> None:
    before, after = example(DropClips.__doc__, context())
    before.clips = {"q": BOTH}
    before.weights |= {"w": np.asarray(np.float32(-4)), "h": np.asarray(np.float32(4))}
    assert samples(-3, 5).run(before) == DroppedClips(("q",), 1, 2)
    before.verify()
    assert before.text(names=False) == after.text(names=False)
    assert [name_of(op) for op in before.operations][-1] == "q"


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-4.0, 4.0, []),
        (-4.5, 4.5, []),  # by a step, as rounding might
        (-4.6, 4.0, ["maximum"]),
        (-4.0, 4.6, ["sub", "relu", "sub"]),
        (-5.0, 5.0, ["maximum", "sub", "relu", "sub"]),
    ],
)
def test_a_bound_that_samples_reach_stays(low: float, high: float, expected: list[str]) -> None:
    graph = clip(-4, 4)
    dropped = samples(low, high).run(graph)
    graph.verify()
    assert kinds(graph) == expected
    assert dropped.all_bounds == 2
    assert (dropped.names == ("q",)) == (dropped.bounds > 0)
    assert not expected or name_of(graph.operations[-1]) == "q"


def test_a_relu_that_a_quantiser_removed_is_a_relu() -> None:
    graph = clip(0, 4)
    samples(-3, 3).run(graph)
    assert kinds(graph) == ["relu"]
    assert name_of(graph.operations[0]) == "q"


def test_a_relu_of_the_model_is_no_clip_however_idle() -> None:
    graph = clip(0, 4)
    graph.clips = {"q": QuantisersClip(slack=0.5, has_lower=False)}
    assert samples(1, 3).run(graph).all_bounds == 1
    assert kinds(graph) == ["relu"]


def test_a_clip_of_the_model_is_none_of_a_quantisers() -> None:
    graph = clip(-4, 4, name="hardtanh")
    assert samples(-1, 1).run(graph) == DroppedClips()
    assert kinds(graph) == ["maximum", "sub", "relu", "sub"]


def test_a_minimum_alone_is_a_bound() -> None:
    graph = Graph.create(context(), {"x": (2,)}, {"h": np.asarray(np.float32(4))})
    with graph.end("q"):
        y = ops.Minimum.build(ops.Neg.build(graph.inputs["x"]), graph.parameters["h"])
    graph.finish({"y": y})
    graph.clips = {"q": BOTH}
    assert samples(-4.6, 0).run(graph).bounds == 0
    assert samples(-4.4, 9).run(graph).bounds == 1
    assert kinds(graph) == ["neg"]


def test_what_was_dropped_is_said_with_a_few_names() -> None:
    names = tuple(f"q{i}" for i in range(9))
    told = str(DroppedClips(names, 12, 20))
    assert told.startswith("12 of 20 bounds of quantisers' clips are left out, which no sample")
    assert told.endswith("q6, q7, ...")
