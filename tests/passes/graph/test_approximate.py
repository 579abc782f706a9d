"""Real functions rewritten exactly, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from graph_examples import example
from torch_mlir import ir

from veilgraph.ir.errors import UnsupportedError
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, attributes, name_of
from veilgraph.ir.legality import check_graph
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.mlir import context
from veilgraph.passes.graph.approximate import Approximate

Build = Callable[..., ir.Value]


def program(build: Build, *shapes: tuple[int, ...], name: str = "node") -> Graph:
    graph = Graph.create(context(), {f"x{i}": shape for i, shape in enumerate(shapes)}, {})
    with graph.end(name):
        y = build(*graph.inputs.values())
    graph.finish({"y": y})
    return graph


def number(value: float) -> ir.Value:
    return ops.Constant.build(value=np.full((1, 1), value, np.float32))


def test_docstring_example() -> None:
    before, after = example(Approximate.__doc__, context())
    assert Approximate().run(before).text(names=False) == after.text(names=False)


ROW = (3, 8)
CASES: list[tuple[str, list[tuple[int, ...]], Build]] = [
    ("relu6", [ROW], lambda x: ops.Clip.build(x, min=0.0, max=6.0)),
    ("clip", [ROW], lambda x: ops.Clip.build(x, min=-1.5, max=2.5)),
    ("at least", [ROW], lambda x: ops.Clip.build(x, min=-1.5, max=math.inf)),
    ("at most", [ROW], lambda x: ops.Clip.build(x, min=-math.inf, max=2.5)),
    ("unbounded", [ROW], lambda x: ops.Clip.build(x, min=-math.inf, max=math.inf)),
    ("minimum", [ROW, ROW], ops.Minimum.build),
    ("abs", [ROW], ops.Abs.build),
    ("sign", [ROW], ops.Sign.build),
    ("leaky", [ROW], lambda x: ops.LeakyRelu.build(x, alpha=0.1)),
    ("hardsigmoid", [ROW], ops.HardSigmoid.build),
    ("hardswish", [ROW], ops.HardSwish.build),
    ("div", [ROW], lambda x: ops.Div.build(x, number(-3.0))),
    ("div by a secret", [ROW, ROW], lambda x, y: ops.Div.build(x, ops.Exp.build(y))),
    ("pad", [ROW], lambda x: ops.Pad.build(x, low=(1, 0), high=(0, 2), value=-2.5)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_exact_rewritings(case: tuple[str, list[tuple[int, ...]], Build]) -> None:
    _, shapes, build = case
    graph = program(build, *shapes)
    generator = np.random.default_rng(2)
    inputs = {f"x{i}": 4 * generator.standard_normal(shape) for i, shape in enumerate(shapes)}
    expected = evaluate(graph, inputs, dtype=np.float64)["y"]
    Approximate().run(graph)
    check_graph(graph, encodable=True)
    found = evaluate(graph, inputs, dtype=np.float64)["y"]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    if graph.operations:
        assert name_of(graph.operations[-1]) == "node", "the result keeps the node's name"


def test_softmax_stays_whole() -> None:
    for kind in (ops.Softmax, ops.LogSoftmax):
        graph = program(lambda x, kind=kind: kind.build(x, axis=0), (5, 6))
        before = graph.text()
        assert Approximate().run(graph).text() == before
        check_graph(graph, encodable=True)


def test_all_that_is_unknown_is_told_at_once() -> None:
    graph = Graph.create(context(), {"x": (1, 4), "v": (4,)}, {})
    value, vector = graph.inputs.values()
    for name, number in (("one", -math.inf), ("two", 0.0), ("three", 1e30)):
        with graph.end(name):
            value = ops.Pad.build(value, low=(0, 0), high=(1, 0), value=number)
    with graph.end("four"):
        value = ops.BatchNorm.build(value, vector, vector, vector, vector, epsilon=0.1)
    graph.finish({"y": value})
    with pytest.raises(UnsupportedError) as caught:
        Approximate().run(graph)
    offenders = [(o.node, o.operator) for o in caught.value.offenders]
    assert offenders == [("one", "pad"), ("three", "pad"), ("four", "batch_norm")]
    assert all(o.way_out for o in caught.value.offenders)
    assert caught.value.exit_code == 3
    assert attributes(graph.operations[1])["value"] == 0, "nothing is rewritten before a reason"
