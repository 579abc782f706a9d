"""Layers whose weights are small: a bias then has more fraction bits than its ring has bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import veilgraph
from veilgraph.ir.errors import AccuracyError

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((4, 2, 8)).astype(np.float32)


def layer(size: float) -> tuple[onnx.ModelProto, np.ndarray, np.ndarray]:
    w, b = ((size * RANDOM.standard_normal(shape)).astype(np.float32) for shape in ((8, 4), (4,)))
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"])],
        "layer",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 8])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 4])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), w, b


@pytest.mark.parametrize("size", [1e-3, 1e-6, 1e-20, 1e-25, 1e-28])
def test_its_plan_is_read_again(size: float, tmp_path: Path) -> None:
    model, w, b = layer(size)
    plan, weights = veilgraph.compile(model, calibrate={"x": X}, ring=64)
    every = (tensor for program in plan.programs.values() for tensor in program.weights)
    bits = {tensor.name: tensor.frac_bits for tensor in every}
    assert bits["b"] > 64
    plan.save(tmp_path / "model.plan")
    read = veilgraph.Plan.load(tmp_path / "model.plan")
    assert read.digest == plan.digest
    found = veilgraph.simulate(read, weights, {"x": X[0]}).outputs["y"]
    np.testing.assert_allclose(found, X[0] @ w + b, atol=size * 1e-3)


@pytest.mark.parametrize("ring", [64, "auto"])
def test_what_128_fraction_bits_do_not_tell_is_refused(ring: int | str) -> None:
    model, *_ = layer(1e-38)
    with pytest.raises(AccuracyError, match="most of it at 'w'") as caught:
        veilgraph.compile(model, calibrate={"x": X}, ring=ring)
    assert "scale them in the model" in caught.value.hint
