"""Text of a client: the parties say which categories there are, and no party reads the text."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from click.testing import CliRunner
from onnx import ModelProto, TensorProto, helper
from serving import Hospital, members, until
from tritonclient.utils import InferenceServerException

import veilgraph
from veilgraph.cli import main
from veilgraph.ir.errors import UsageError
from veilgraph.serving.client import Client
from veilgraph.serving.gateway import Gateway

CITIES = ("Lima", "Oslo", "São Paulo")
VALUES = (0.5, 7.25, -1.0)
ROWS = 2


def model() -> ModelProto:
    x = helper.make_tensor_value_info("city", TensorProto.STRING, [None, 1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    encoder = helper.make_node(
        "LabelEncoder", ["city"], ["y"], "encoder", domain="ai.onnx.ml",
        keys_strings=CITIES, values_floats=VALUES,
    )  # fmt: skip
    graph = helper.make_graph([encoder], "main", [x], [y])
    versions = [helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10)


def asked(gateway: Gateway, given: Any, *, binary: bool) -> Any:
    tensor = triton.InferInput("city", list(given.shape), "BYTES")
    tensor.set_data_from_numpy(given, binary_data=binary)
    with triton.InferenceServerClient(f"127.0.0.1:{gateway.port}") as server:
        return server.infer("towns", [tensor]).as_numpy("y")


def test_text_by_client_verb_and_gateway(tmp_path: Path) -> None:
    owners = {"city": "patient"}
    plan, weights = veilgraph.compile(
        model(), shapes={"city": (ROWS, 1)}, clients=("patient",), owners=owners,
        receivers={"y": "patient"}, protocols={"one_hot": "comparisons"},
    )  # fmt: skip
    hospital = Hospital(tmp_path, members(plan))
    hospital.put("towns/1", plan, weights)
    table = tmp_path / "rows.csv"
    table.write_text("city\nOslo\nSão Paulo\nLima\n")
    ask = ["infer", "towns", "--config", str(hospital.client), "--input", f"@{table}"]
    rows = np.array([["São Paulo"], ["Lima"]], object)
    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        with Client("towns", hospital.client) as client:
            found = client.run({"city": rows})["y"]
            np.testing.assert_allclose(found[:, 0], [-1, 0.5], atol=0.01)
            with pytest.raises(UsageError, match="`city` holds text in row 1, column 0, that"):
                client.run({"city": [["Oslo"], ["Paris"]]})
        done = CliRunner().invoke(main, ask)
        assert done.exit_code == 0, done.output
        assert "y, 3x1: 7.25 -1 0.5" in done.output
        with Gateway(hospital.client, 0) as gateway:
            thread = threading.Thread(target=gateway.run)
            thread.start()
            try:
                _ask_the_gateway(gateway, rows)
            finally:
                gateway.stop()
                thread.join(10)


def test_text_whose_categories_are_secret(tmp_path: Path) -> None:
    """It is shared as numbers are; what is no category gets the model's default."""
    plan, weights = veilgraph.compile(
        model(), shapes={"city": (ROWS, 1)}, clients=("patient",), owners={"city": "patient"},
        receivers={"y": "patient"}, categories="secret",
    )  # fmt: skip
    hospital = Hospital(tmp_path, members(plan))
    hospital.put("towns/1", plan, weights)
    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        with Client("towns", hospital.client) as client:
            found = client.run({"city": np.array([["São Paulo"], ["Paris"]], object)})["y"]
            np.testing.assert_allclose(found[:, 0], [-1, 0], atol=0.01)
            with pytest.raises(UsageError, match="`city` has no text in row 1, column 0, and"):
                client.run({"city": [["Oslo"], [""]]})


def _ask_the_gateway(gateway: Gateway, rows: Any) -> None:
    with triton.InferenceServerClient(f"127.0.0.1:{gateway.port}") as server:
        (told,) = server.get_model_metadata("towns")["inputs"]
    assert told == {"name": "city", "datatype": "BYTES", "shape": [-1, 1]}
    for binary in (True, False):
        found = asked(gateway, rows, binary=binary)
        np.testing.assert_allclose(found[:, 0], [-1, 0.5], atol=0.01)
    with pytest.raises(InferenceServerException, match="that is no category of the model's"):
        asked(gateway, np.array([["Oslo"], ["Paris"]], object), binary=True)
    with pytest.raises(InferenceServerException, match="is not as its shape and datatype say"):
        asked(gateway, np.array([[b"Oslo"], [b"\xff"]], object), binary=True)
