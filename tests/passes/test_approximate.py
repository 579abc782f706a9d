"""Real functions rewritten exactly, softmax within its error, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from graph_examples import example
from torch_mlir import ir

from veilgraph.ir import graph_ops as ops
from veilgraph.ir.errors import UnsupportedError
from veilgraph.ir.graph import Graph, attributes, name_of
from veilgraph.ir.legality import check_graph
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.mlir import context
from veilgraph.passes.approximate import Approximate
from veilgraph.passes.bounds import declared_bounds

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
    ("log_softmax", [ROW], lambda x: ops.LogSoftmax.build(x, axis=1)),
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


@pytest.mark.parametrize("count", [1, 2, 10, 1000, 5000])
def test_softmax_error(count: int) -> None:
    graph = program(lambda x: ops.Softmax.build(x, axis=0), (count, 6))
    generator = np.random.default_rng(count)
    x = generator.standard_normal((count, 6)) * np.array([0, 0.01, 1, 3, 6, 40])
    expected = evaluate(graph, {"x0": x}, dtype=np.float64)["y"]
    Approximate().run(graph)
    check_graph(graph, encodable=True)
    found = evaluate(graph, {"x0": x}, dtype=np.float64)["y"]
    assert np.abs(found - expected).max() < 5e-4


@pytest.mark.parametrize("gap", [0.5, 3.0, 7.0, 9.0, 12.0, 60.0, 1000.0])
def test_softmax_of_one_winner(gap: float) -> None:
    graph = program(lambda x: ops.Softmax.build(x, axis=1), (1, 1000))
    x = np.full((1, 1000), -gap)
    x[0, 17] = 0
    expected = evaluate(graph, {"x0": x}, dtype=np.float64)["y"]
    found = evaluate(Approximate().run(graph), {"x0": x}, dtype=np.float64)["y"]
    assert np.abs(found - expected).max() < 5e-4


def test_softmax_keeps_within_the_bounds_that_it_declares() -> None:
    graph = program(lambda x: ops.Softmax.build(x, axis=1), (4, 300))
    Approximate().run(graph)
    declared = declared_bounds(graph)
    x = np.random.default_rng(0).standard_normal((4, 300)) * np.array([[0.0], [1.0], [5.0], [50.0]])
    seen: dict[str, np.ndarray] = {}
    evaluate(graph, {"x0": x}, observe=lambda name, value: seen.update({name: value}))
    assert len(declared) > 30
    for name, (low, high) in declared.items():
        assert seen[name].min() >= low - 1e-6, name
        assert seen[name].max() <= high + 1e-6, name


def test_two_softmaxes_do_not_share_names() -> None:
    graph = Graph.create(context(), {"x": (1, 4)}, {})
    with graph.end("first"):
        y = ops.Softmax.build(graph.inputs["x"], axis=1)
    with graph.end("second"):
        y = ops.Softmax.build(y, axis=1)
    graph.finish({"y": y})
    Approximate().run(graph).verify()
    assert {name.split("/")[0] for name in declared_bounds(graph)} == {"first", "second"}


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
    assert attributes(graph.operations[1])["value"] == 0, "nothing is rewritten before a refusal"
