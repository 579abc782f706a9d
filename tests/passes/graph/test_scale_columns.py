"""Columns of unlike sizes: what takes their scales, and what makes the pass leave them alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from before_after import listing
from graph_examples import example
from torch_mlir import ir

from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, name_of
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.mlir import context
from veilgraph.ir.plan.tables import divided
from veilgraph.passes.graph.scale_columns import ScaleColumns

SIZES = np.array([900.0, 3.0, 0.05, 0.0], np.float32)
EXPONENTS = (0, -8, -14, 0)  # 2^10, 2^2, 2^-4, and nothing is known of zeros
Body = Callable[[Graph, ir.Value], ir.Value]


def weight(graph: Graph, name: str) -> ir.Value:
    return graph.parameters[name]


def program(body: Body) -> Graph:
    """y = body(x) of 3 rows, with weights: matrix w, row r, column c."""
    generator = np.random.default_rng(1)
    shapes = {"w": (4, 2), "r": (4,), "c": (3, 1)}
    weights = {n: generator.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    graph = Graph.create(context(), {"x": (3, 4)}, weights)
    with graph.end("body"):
        y = body(graph, graph.inputs["x"])
    graph.finish({"y": y})
    return graph


def samples(count: int = 5) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(2)
    return {"x": generator.uniform(-1, 1, (count, 3, 4)).astype(np.float32) * SIZES}


def scaled(graph: Graph) -> dict[str, tuple[int, ...]]:
    """The exponents; the program computes the same of columns over 2^k."""
    given = samples()
    given["x"][0, 0] = SIZES  # the largest there are
    expected = evaluate(graph, {"x": given["x"][1]}, dtype=np.float64)["y"]
    exponents = ScaleColumns(given, ["x"]).run(graph)
    graph.verify()
    x = divided(given["x"][1], exponents.get("x", ()))
    found = evaluate(graph, {"x": x}, dtype=np.float64)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    return exponents


def test_the_docstring() -> None:
    before, after = example(ScaleColumns.__doc__, context())
    given = {"x": np.array([[[1000, 0.1]], [[-3, 0.02]]], np.float32)}
    assert ScaleColumns(given, ["x"]).run(before) == {"x": (0, -13)}
    assert listing(before) == listing(after)


TAKEN: dict[str, Body] = {
    "matrix": lambda g, x: ops.Matmul.build(x, weight(g, "w")),
    "row": lambda g, x: ops.Mul.build(x, weight(g, "r")),
    "column": lambda g, x: ops.Mul.build(weight(g, "c"), x),
    "standardised": lambda g, x: ops.Matmul.build(
        ops.Mul.build(ops.Sub.build(x, weight(g, "r")), weight(g, "r")), weight(g, "w")
    ),
    "thresholds": lambda g, x: ops.Step.build(ops.Sub.build(weight(g, "r"), x)),
    "picked": lambda g, x: ops.Step.build(
        ops.Matmul.build(x, ops.Constant.build(value=np.eye(4, dtype=np.float32)[:, [2, 0, 1]]))
    ),
    "moved": lambda g, x: ops.Step.build(
        ops.Transpose.build(ops.Reshape.build(x, shape=(2, 6)), permutation=(1, 0))
    ),
    "rectified": lambda g, x: ops.Matmul.build(ops.Relu.build(ops.Neg.build(x)), weight(g, "w")),
    "twice": lambda g, x: ops.Matmul.build(ops.Add.build(x, x), weight(g, "w")),
    "joined": lambda g, x: ops.Step.build(ops.concat([x, ops.Neg.build(x)], 1)),
    "read by two": lambda g, x: ops.Add.build(
        ops.Matmul.build(x, weight(g, "w")), ops.Matmul.build(ops.Relu.build(x), weight(g, "w"))
    ),
}


@pytest.mark.parametrize("body", TAKEN.values(), ids=TAKEN.keys())
def test_weights_and_comparisons_take_the_scale(body: Body) -> None:
    assert scaled(program(body)) == {"x": EXPONENTS}


REFUSED: dict[str, Body] = {
    "returned": lambda g, x: ops.Neg.build(x),
    "function": lambda g, x: ops.Sigmoid.build(x),
    "square": lambda g, x: ops.Mul.build(x, x),
    "number added": lambda g, x: ops.Step.build(ops.Add.build(x, ops.constant(1.0))),
    "sums of columns": lambda g, x: ops.ReduceSum.build(x, axes=(1,), keepdims=True),
    "maximum of columns": lambda g, x: ops.ReduceMax.build(x, axes=(1,), keepdims=True),
    "two scales meet": lambda g, x: ops.Step.build(
        ops.Add.build(x, ops.Slice.build(x, shape=(3, 4), starts=(0, 3), steps=(1, -1)))
    ),
    "public matrix": lambda g, x: ops.Matmul.build(
        x, ops.Constant.build(value=np.ones((4, 2), np.float32))
    ),
    "from the right": lambda g, x: ops.Matmul.build(
        ops.Transpose.build(weight(g, "c"), permutation=(1, 0)), x
    ),
    "one reader of two": lambda g, x: ops.Add.build(
        ops.Matmul.build(x, weight(g, "w")), ops.ReduceSum.build(x, axes=(1,), keepdims=True)
    ),
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED.keys())
def test_what_else_reads_a_column_leaves_one_scale(body: Body) -> None:
    graph = program(body)
    before = str(graph.module)
    assert scaled(graph) == {}
    assert str(graph.module) == before


def test_columns_that_are_alike_share_a_scale() -> None:
    graph = program(TAKEN["matrix"])
    given = {"x": np.array([[[8.0, 1.1, -3, 2]] * 3], np.float32)}
    assert ScaleColumns(given, ["x"]).run(graph) == {}


def test_public_inputs_and_images_are_left_alone() -> None:
    assert ScaleColumns(samples(), []).run(program(TAKEN["matrix"])) == {}
    graph = Graph.create(context(), {"x": (1, 1, 2)}, {"w": np.ones((2, 1), np.float32)})
    with graph.end("body"):
        y = ops.Matmul.build(graph.inputs["x"], weight(graph, "w"))
    graph.finish({"y": y})
    assert ScaleColumns({"x": np.float32([[[[1000, 0.1]]]])}, ["x"]).run(graph) == {}


def test_a_weight_that_would_be_rounded_is_left_alone() -> None:
    graph = program(TAKEN["thresholds"])
    graph.weights["r"] = np.full(4, 3e38, np.float32)
    assert ScaleColumns(samples(), ["x"]).run(graph) == {}


def test_a_value_on_the_way_is_not_the_models_own() -> None:
    graph = program(TAKEN["thresholds"])
    scaled(graph)
    names = [name_of(op) for op in graph.operations]
    assert ["scaled" in name for name in names] == [True, False]
