"""The large graphs of the package onnx, with random weights: compiled, and simulated by parties."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from models import light_model

import veilgraph
from veilgraph.ir.plan.tables import Phase
from veilgraph.measuring.processes import simulate_processes

SHAPE = (1, 3, 224, 224)
SIMULATED = ("squeezenet", "resnet50", "vgg19")
COMPILED = ("densenet121", "shufflenet", "inception_v2")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SIMULATED, *COMPILED])
def test_a_large_graph(name: str) -> None:
    proto = light_model(name, seed=0)
    image = proto.graph.input[0].name
    samples = np.random.default_rng(0).standard_normal((2, *SHAPE), dtype=np.float32)
    plan, weights = veilgraph.compile(proto, calibrate={image: samples})
    assert plan.rounds(Phase.ONLINE) > 1
    if name not in SIMULATED:
        return
    answer, _ = simulate_processes(plan, weights, [{image: samples[0]}])
    (found,) = answer.outputs.values()
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    expected = session.run(None, {image: samples[0]})[0]
    assert found.argmax() == expected.argmax()
    assert np.abs(found - expected).sum() < 0.02 * np.abs(expected).sum()
