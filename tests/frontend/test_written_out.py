"""Functions and distances that converters write out: what is rewritten, and what isn't."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from models import model, run_onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from veilgraph.frontend.onnx.importer import import_model
from veilgraph.ir.graph.program import kind_of
from veilgraph.ir.meaning.graph import evaluate

X = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
ROWS = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)


def same(proto: ModelProto) -> list[str]:
    """What kinds of operations the program has, which computes what ONNX Runtime does."""
    graph = import_model(proto)
    for name, expected in run_onnx(proto, {"x": X}).items():
        np.testing.assert_allclose(evaluate(graph, {"x": X})[name], expected, rtol=1e-5, atol=1e-5)
    return [kind_of(op) for op in graph.operations]


def sigmoid(one: float) -> ModelProto:
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Add", ["one", "e"], ["d"]),
        helper.make_node("Div", ["one", "d"], ["y"]),
    ]
    return model(nodes, {"x": X.shape}, ["y"], {"one": np.float32(one)})


def test_a_sigmoid_that_is_written_out() -> None:
    assert "sigmoid" in same(sigmoid(1.0))
    assert "sigmoid" not in same(sigmoid(2.0))


def scanned(*measure: NodeProto, axis: int = 0) -> ModelProto:
    """A Scan over ROWS whose body measures `x - c`, called "d", and calls the result "y"."""
    names = [("state", X.shape), ("c", ROWS.shape[1:])]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in names]
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("kept", "y")]
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["state"], ["kept"]),
            helper.make_node("Sub", ["state", "c"], ["d"]),
            *measure,
        ],
        "body",
        infos,
        results,
        [numpy_helper.from_array(np.int64([1]), "axes")],
    )
    more = {"scan_output_axes": [axis]} if axis else {}
    node = helper.make_node(
        "Scan", ["x", "rows"], ["last", "z"], body=body, num_scan_inputs=1, **more
    )
    return model([node], {"x": X.shape}, ["z"], {"rows": ROWS})


def summed(operator: str, x: str = "d") -> NodeProto:
    return helper.make_node(operator, [x, "axes"], ["y"], keepdims=0)


FORMS: list[tuple[Sequence[NodeProto], int, int]] = [
    ([summed("ReduceSumSquare")], 0, 2),
    ([helper.make_node("Abs", ["d"], ["a"]), summed("ReduceSum", "a")], 0, 0),
    ([summed("ReduceSumSquare")], 1, 0),
    ([summed("ReduceMax")], 0, 0),
]


@pytest.mark.parametrize(("measure", "axis", "products"), FORMS)
def test_scans_that_measure(measure: Sequence[NodeProto], axis: int, products: int) -> None:
    """Squares of distances become products of matrices; other bodies are copied, row by row."""
    assert same(scanned(*measure, axis=axis)).count("matmul") == products


def test_roots_of_the_nearest_alone() -> None:
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["s"]),
        helper.make_node("Sqrt", ["s"], ["r"]),
        helper.make_node("TopK", ["r", "k"], ["v", "i"], largest=0),
    ]
    proto = model(nodes, {"x": X.shape}, ["v"], {"k": np.int64([2])})
    kinds = same(proto)
    assert kinds.index("sqrt") > kinds.index("step")
