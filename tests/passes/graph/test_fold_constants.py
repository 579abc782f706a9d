"""Constant folding: the docstring's example, names of folded weights, constants, divisions."""

from __future__ import annotations

import numpy as np
from graph_examples import example

from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, attributes, kind_of, name_of
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.mlir import context
from veilgraph.passes.graph.fold_constants import FoldConstants

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def kinds(graph: Graph) -> list[str]:
    return [kind_of(op) for op in graph.operations]


def test_docstring_example() -> None:
    before, after = example(FoldConstants.__doc__, context())
    x = {"x": np.array([[1, 2, 3]], dtype=np.float32)}
    expected = evaluate(before, x)
    w, s = before.weights["fc.weight"], before.weights["scale"]
    folded = FoldConstants().run(before)
    folded.verify()
    assert folded.text(names=False) == after.text(names=False)
    np.testing.assert_array_equal(folded.weights["fc.weight"], w.T)
    np.testing.assert_array_equal(folded.weights["scale"], 1 / s)
    np.testing.assert_allclose(evaluate(folded, x)["y"], expected["y"], rtol=1e-6)


def test_weights_are_named_after_their_largest_source() -> None:
    kernel = np.arange(8, dtype=np.float32).reshape(2, 4)
    graph = Graph.create(context(), {"x": (3, 4)}, {"s": np.full(4, 2), "w": kernel})
    with graph.end("scaled"):
        scaled = ops.Mul.build(graph.parameters["s"], graph.parameters["w"])
    with graph.end("fc"):
        turned = ops.Transpose.build(scaled, permutation=(1, 0))
        y = ops.Matmul.build(graph.inputs["x"], turned)
    graph.finish({"y": y})
    FoldConstants().run(graph).verify()
    assert kinds(graph) == ["matmul"]
    assert [name_of(op) for op in graph.operations] == ["fc"]
    assert list(graph.weights) == ["w"]
    np.testing.assert_array_equal(graph.weights["w"], (kernel * 2).T)


def test_a_name_still_in_use_gets_a_number() -> None:
    graph = Graph.create(context(), {"x": (3, 4)}, {"w": X.T.copy()})
    w = graph.parameters["w"]
    with graph.end("y"):
        raw = ops.Matmul.build(graph.inputs["x"], w)
        negative = ops.Matmul.build(graph.inputs["x"], ops.Neg.build(w))
        doubled = ops.Matmul.build(graph.inputs["x"], ops.Add.build(w, w))
        y = ops.Add.build(ops.Add.build(raw, negative), doubled)
    graph.finish({"y": y})
    FoldConstants().run(graph).verify()
    assert list(graph.weights) == ["w", "w.2", "w.3"]
    np.testing.assert_array_equal(graph.weights["w.2"], -X.T)
    np.testing.assert_array_equal(graph.weights["w.3"], 2 * X.T)


def test_constants_stay_constants_and_unused_weights_go() -> None:
    graph = Graph.create(context(), {"x": (3, 4)}, {"unused": np.ones(4)})
    with graph.end("y"):
        two = ops.Sqrt.build(ops.constant(4.0))
        y = ops.Mul.build(graph.inputs["x"], two)
    graph.finish({"y": y})
    FoldConstants().run(graph).verify()
    assert kinds(graph) == ["constant", "mul"]
    assert attributes(graph.operations[0])["value"] == 2.0
    assert graph.weights == {}


def test_an_output_of_weights_alone_becomes_a_weight() -> None:
    graph = Graph.create(context(), {"x": (3, 4)}, {"w": X})
    with graph.end("y"):
        y = ops.Relu.build(graph.inputs["x"])
        constant = ops.Neg.build(graph.parameters["w"])
    graph.finish({"y": y, "c": constant})
    FoldConstants().run(graph).verify()
    np.testing.assert_array_equal(evaluate(graph, {"x": X})["c"], -X)
    assert kinds(graph) == ["relu"]


def test_division_by_a_secret_stays() -> None:
    graph = Graph.create(context(), {"a": (3, 4), "b": (3, 4)}, {})
    with graph.end("y"):
        y = ops.Div.build(graph.inputs["a"], graph.inputs["b"])
    graph.finish({"y": y})
    assert kinds(FoldConstants().run(graph)) == ["div"]


def test_folding_twice_changes_nothing() -> None:
    before, _ = example(FoldConstants.__doc__, context())
    once = FoldConstants().run(before).text()
    assert FoldConstants().run(before).text() == once
