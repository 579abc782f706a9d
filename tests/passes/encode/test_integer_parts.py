"""Floors and nearest integers of secrets: exact for the number that is encoded, in every suite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

import veilgraph
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.meaning.secret import evaluate
from veilgraph.ir.mlir import context
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.passes.encode.encode_fixed_point import EncodeFixedPoint
from veilgraph.passes.graph.infer_visibility import InferVisibility
from veilgraph.passes.ranges.calibrate import assume, calibrate
from veilgraph.passes.secret.choose_comparison import ChooseComparison
from veilgraph.passes.secret.merge_truncations import MergeTruncations
from veilgraph.runtime.simulate import simulate

Array = NDArray[np.float32]
MEANING = {"Floor": np.floor, "Ceil": np.ceil, "Round": np.rint}
BITS = 6


def compiled(kind: type[ops.Unary], samples: Array | None, ring: int, squared: bool) -> Any:
    graph = Graph.create(context(), {"x": (4 << BITS,)}, {})
    with graph.end("y"):
        x = graph.inputs["x"]
        y = kind.build(ops.Mul.build(x, x) if squared else x)
    graph.finish({"y": y})
    ranges = assume(graph) if samples is None else calibrate(graph, {"x": samples})
    visibility = InferVisibility({"x": "alice"}).run(graph)
    encoding = EncodeFixedPoint(ring_bits=ring, frac_bits=BITS)
    program: SecretProgram = encoding.run(graph, visibility, ranges)
    return ChooseComparison().run(MergeTruncations().run(program))


@pytest.mark.parametrize("ring", [24, 64])
@pytest.mark.parametrize("kind", [ops.Floor, ops.Round])
def test_every_number_of_a_scale_under_every_rounding(kind: type[ops.Unary], ring: int) -> None:
    """All of [-2, 2), whatever the truncation adds: nothing may leave its range either."""
    x = (np.arange(-2 << BITS, 2 << BITS) / (1 << BITS)).astype(np.float32)
    meaning = np.floor if kind is ops.Floor else np.rint
    for samples in (x[None], None):
        program = compiled(kind, samples, ring, squared=False)
        for seed in range(20):
            found = evaluate(program, {"x": x}, np.random.default_rng(seed))
            assert found.excursions == []
            np.testing.assert_array_equal(found.outputs["y"], meaning(x))


@pytest.mark.parametrize("kind", [ops.Floor, ops.Round])
def test_of_a_product_that_waits_for_its_truncation(kind: type[ops.Unary]) -> None:
    x = (np.arange(-2 << BITS, 2 << BITS) / (1 << BITS)).astype(np.float32)
    program = compiled(kind, x[None], 64, squared=True)
    found = evaluate(program, {"x": x}, np.random.default_rng(0)).outputs["y"]
    near = {kind is ops.Round: np.rint, kind is ops.Floor: np.floor}[True]
    unit = 1 / (1 << BITS)
    allowed = (found == near(x * x)) | (found == near(x * x + unit)) | (found == near(x * x - unit))
    assert allowed.all()


@pytest.mark.parametrize("suite", ["rep3", "additive", "cleartext"])
@pytest.mark.parametrize("operator", MEANING)
def test_all_parties_agree_over_thousands(operator: str, suite: str) -> None:
    x = np.random.default_rng(0).uniform(-3000, 3000, (2, 150)).astype(np.float32)
    x[0] = np.arange(-75, 75) / 2
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"])], "g", [given], [y])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    dealer = "dave" if suite == "additive" else None
    plan, weights = veilgraph.compile(proto, suite=suite, dealer=dealer, calibrate={"x": x[None]})
    found = simulate(plan, weights, {"x": x}).outputs["y"]
    np.testing.assert_array_equal(found, MEANING[operator](x))


def test_a_function_of_integers_is_no_integer() -> None:
    """It has a scale of its own, whatever the scale of its operand."""
    x = np.linspace(-3, 3, 64, dtype=np.float32)[None]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)
    nodes = [helper.make_node("Floor", ["x"], ["z"]), helper.make_node("Sigmoid", ["z"], ["y"])]
    graph = helper.make_graph(nodes, "g", [given], [y])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    plan, weights = veilgraph.compile(proto, calibrate={"x": x[None]})
    found = simulate(plan, weights, {"x": x}).outputs["y"]
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-np.floor(x))), atol=2e-3)
