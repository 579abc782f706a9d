"""The gateway, asked by Triton's own client, and by clients who make no sense."""

from __future__ import annotations

import errno
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from serving import SAMPLES, Hospital, answer_to, compiled, members, until
from tritonclient.utils import InferenceServerException

from veilgraph.ir.errors import UsageError
from veilgraph.measuring.processes import free_ports
from veilgraph.runtime.client.wire import MOST_OF_CLIENT
from veilgraph.serving.gateway import MOST_BYTES, Gateway


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hospital]:
    plan, weights = compiled("rep3")
    found = Hospital(tmp_path_factory.mktemp("gateway"), members(plan))
    found.put("small/1", plan, weights)
    with found.served() as services:
        until(lambda: all(each.served for each in services.values()))
        yield found


@pytest.fixture(scope="module")
def gateway(hospital: Hospital) -> Iterator[Gateway]:
    with Gateway(hospital.client, 0) as found:
        thread = threading.Thread(target=found.run)
        thread.start()
        yield found
        found.stop()
        thread.join(10)


@pytest.fixture
def asking(gateway: Gateway) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"127.0.0.1:{gateway.port}") as found:
        yield found


def given(x: Any, binary: bool, datatype: str = "FP32") -> list[triton.InferInput]:
    tensor = triton.InferInput("x", list(x.shape), datatype)
    tensor.set_data_from_numpy(x, binary_data=binary)
    return [tensor]


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("version", ["", "1"])
def test_tritons_client_is_answered(
    asking: triton.InferenceServerClient, binary: bool, version: str
) -> None:
    outputs = [triton.InferRequestedOutput("y", binary_data=binary)]
    for x in SAMPLES[:3]:
        answer = asking.infer("small", given(x, binary), version, outputs, request_id="7")
        np.testing.assert_allclose(answer.as_numpy("y"), answer_to(x), atol=0.01)
        assert answer.get_response()["id"] == "7"


def test_more_ask_at_once_than_a_client_may(gateway: Gateway) -> None:
    """Others wait for their turn, and are answered."""
    wrong = []

    def ask() -> None:
        with triton.InferenceServerClient(f"127.0.0.1:{gateway.port}") as asking:
            y = asking.infer("small", given(SAMPLES[0], True)).as_numpy("y")
            if not np.allclose(y, answer_to(SAMPLES[0]), atol=0.01):
                wrong.append(y)

    errors: list[str] = []
    threads = [threading.Thread(target=told(errors, ask)) for _ in range(3 * MOST_OF_CLIENT)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    assert not wrong


def told(errors: list[str], act: Callable[[], None]) -> Callable[[], None]:
    """The same, with what ends it in a list."""

    def acting() -> None:
        try:
            act()
        except Exception as error:
            errors.append(str(error))

    return acting


def test_all_outputs_come_where_none_is_named(asking: triton.InferenceServerClient) -> None:
    answer = asking.infer("small", given(SAMPLES[0].astype(np.float64), True, "FP64"))
    np.testing.assert_allclose(answer.as_numpy("y"), answer_to(SAMPLES[0]), atol=0.01)


def test_what_servers_say_of_themselves(asking: triton.InferenceServerClient) -> None:
    assert asking.is_server_live()
    assert asking.is_server_ready()
    assert asking.is_model_ready("small")
    assert not asking.is_model_ready("large")
    assert asking.get_server_metadata()["name"] == "veilgraph"
    assert asking.get_model_metadata("small", "1") == {
        "name": "small",
        "versions": ["1"],
        "platform": "veilgraph",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 8]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 5]}],
    }


def test_what_does_not_fit_is_said(asking: triton.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="shape 1x4, and the plan needs 1x8"):
        asking.infer("small", given(np.zeros((1, 4), np.float32), True))
    with pytest.raises(InferenceServerException, match="outside the range"):
        asking.infer("small", given(np.full((1, 8), 100, np.float32), True))
    with pytest.raises(InferenceServerException, match="serves no model 'large'"):
        asking.infer("large", given(SAMPLES[0], True))
    with pytest.raises(InferenceServerException, match="no output `z`"):
        asking.infer("small", given(SAMPLES[0], True), outputs=[triton.InferRequestedOutput("z")])
    answer = asking.infer("small", given(SAMPLES[0], True))
    np.testing.assert_allclose(answer.as_numpy("y"), answer_to(SAMPLES[0]), atol=0.01)


def posted(gateway: Gateway, body: bytes, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=10)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", "/v2/models/small/infer", body, named)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())["error"]


X = {"name": "x", "shape": [1, 8], "datatype": "FP32"}
SENSELESS: dict[str, tuple[Any, str]] = {
    "no JSON": (b"{", "no JSON"),
    "no object": (b"[]", "no JSON object"),
    "deep": (b"[" * 100_000, "no JSON"),
    "no inputs": ({}, "lists its inputs"),
    "inputs of texts": ({"inputs": ["x"]}, "lists its inputs"),
    "text": ({"inputs": [{**X, "datatype": "BYTES", "data": ["a"] * 8}]}, "text"),
    "a shape of texts": ({"inputs": [{**X, "shape": ["1", 8], "data": [0]}]}, "a name, a shape"),
    "too few": ({"inputs": [{**X, "data": [0]}]}, "not as its shape"),
    "words": ({"inputs": [{**X, "data": ["a"] * 8}]}, "not as its shape"),
    "ragged": ({"inputs": [{**X, "data": [[0], [0, 0]]}]}, "not as its shape"),
    "no tensor behind": (
        {"inputs": [{**X, "parameters": {"binary_data_size": 32}}]}, "not as its shape"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SENSELESS)
def test_what_makes_no_sense_is_refused(gateway: Gateway, case: str) -> None:
    asked, reason = SENSELESS[case]
    body = asked if isinstance(asked, bytes) else json.dumps(asked).encode()
    status, said = posted(gateway, body)
    assert status == 400
    assert reason in said


def test_lengths_that_are_none_are_refused(gateway: Gateway) -> None:
    assert posted(gateway, b"{}", Inference_Header_Content_Length="9")[0] == 400
    assert posted(gateway, b"{}", Content_Encoding="gzip")[0] == 400
    with socket.create_connection(("127.0.0.1", gateway.port)) as caller:
        long = f"POST /v2/models/small/infer HTTP/1.1\r\nContent-Length: {MOST_BYTES + 1}\r\n\r\n"
        caller.sendall(long.encode())
        assert b" 400 " in caller.recv(100)


def test_a_port_that_is_taken(gateway: Gateway, hospital: Hospital) -> None:
    with pytest.raises(UsageError, match="can't be had"):
        Gateway(hospital.client, gateway.port)


def test_a_configuration_that_makes_no_sense(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it can't be read"):
        Gateway(tmp_path / "patient.yaml", 0)


def test_the_verb_answers_and_ends(hospital: Hospital) -> None:
    with free_ports(1) as (port,):
        pass
    verb = [sys.executable, "-m", "veilgraph", "gateway", "--config", str(hospital.client)]
    with subprocess.Popen([*verb, "--port", str(port)], stderr=subprocess.PIPE) as process:
        with triton.InferenceServerClient(f"127.0.0.1:{port}") as asking:

            def is_live() -> bool:
                try:
                    return bool(asking.is_server_live())
                except OSError:
                    return False

            until(is_live)
            answer = asking.infer("small", given(SAMPLES[0], True))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 0
    np.testing.assert_allclose(answer.as_numpy("y"), answer_to(SAMPLES[0]), atol=0.01)


def test_a_caller_that_left_is_a_line_and_no_traceback(
    gateway: Gateway, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "veilgraph.loopback")
    try:
        raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
    except ConnectionResetError:
        gateway._server.handle_error(None, ("127.0.0.1", 5))
    assert "left before its answer: Connection reset by peer" in caplog.text
    assert "Traceback" not in caplog.text + capfd.readouterr().err
