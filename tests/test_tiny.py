"""Life in ten seconds: a model of one layer, all parties in this process, the right answer."""

from __future__ import annotations

import numpy as np
import pytest
from models import model
from onnx import helper

import veilgraph

SUITES = {
    "rep3": {},
    "additive": {"parties": ("alice", "bob"), "dealer": "dave"},
    "cleartext": {"owners": {"weights": "alice"}},
}


@pytest.mark.parametrize("suite", SUITES)
def test_one_layer(suite: str) -> None:
    weights = np.array([[1.0, -2.0], [0.5, 3.0]], np.float32)
    proto = model(
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])],
        {"x": [1, 2]},
        ["y"],
        {"w": weights},
    )
    x = np.array([[2.0, -1.0]], np.float32)
    plan, secret = veilgraph.compile(proto, suite=suite, **SUITES[suite])
    answer = veilgraph.simulate(plan, secret, {"x": x})
    np.testing.assert_allclose(answer.outputs["y"], np.maximum(x @ weights, 0), atol=1e-3)
