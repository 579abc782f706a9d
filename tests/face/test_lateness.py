"""Links that are slower than the network that a plan was compiled for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import veilgraph
from veilgraph.ir.plan.tables import Phase
from veilgraph.measuring.lateness import Lateness, LinkSeconds
from veilgraph.plans import Plan
from veilgraph.runtime.transcript import PhaseRecord, Transcript


@pytest.fixture(scope="module")
def plan() -> Plan:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8])],
    )
    samples: dict[str, Any] = {"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(1, 1, 8)}
    return veilgraph.compile(helper.make_model(graph), calibrate=samples, network="wan")[0]


def run(seconds: float, network_seconds: float) -> Transcript:
    return Transcript({Phase.ONLINE: PhaseRecord(seconds, network_seconds)})


def test_what_is_predicted_stands_beside_what_was_measured(plan: Plan) -> None:
    found = LinkSeconds.of(plan, [run(3, 2), run(9, 5), run(0.5, 0.25)])
    assert found.network == "wan"
    assert found.predicted == plan.cost("wan").online.network_seconds
    assert (found.measured, found.computing) == (2, 1)


@pytest.mark.parametrize(
    ("predicted", "measured", "computing", "is_late"),
    [
        (0.2, 0.2, 0.0, False),
        (0.2, 0.59, 0.0, False),  # within three times
        (0.2, 0.61, 0.0, True),
        (0.2, 0.61, 0.5, False),  # peers computed meanwhile
        (0.001, 0.1, 0.0, False),  # what a busy host explains
        (0.001, 0.102, 0.0, True),
    ],
)
def test_links_that_are_late(
    predicted: float, measured: float, computing: float, is_late: bool
) -> None:
    assert LinkSeconds("lan", predicted, measured, computing).is_late is is_late


def test_a_service_warns_once_for_as_long_as_links_are_late(
    plan: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    late, usual = run(60, 60), run(0.1, 0.1)
    told = Lateness()

    def warnings(transcript: Transcript, count: int) -> int:
        caplog.clear()
        for _ in range(count):
            told.ran("small/1", plan, transcript)
        return len(caplog.messages)

    assert warnings(late, 15) == 0  # the median of 16 counts
    assert warnings(late, 1) == 1
    assert "small/1: Links took 60.0 s an inference online, and `wan`" in caplog.text
    assert warnings(late, 32) == 0
    assert warnings(usual, 16) == 0
    assert warnings(late, 16) == 1
