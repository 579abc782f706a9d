"""A server at the client's own host that speaks the Open Inference Protocol, version 2, over HTTP.

Programs that ask a KServe or Triton server get private inference without a change: the gateway
encodes and masks what they send, asks the parties, and puts the answer together. Who reaches it
asks as this client, and sees its inputs in the clear: it listens on loopback alone.

Protocol: KServe's "Open Inference Protocol", HTTP/REST, and Triton's extension for binary tensors.
"""

from __future__ import annotations

import json
import queue
import struct
import threading
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from veilgraph import __version__
from veilgraph.ir.errors import (
    PeerError,
    ResourceLimitError,
    VeilgraphError,
)
from veilgraph.ir.plan.tables import Tensor
from veilgraph.runtime.client.client_config import ClientConfig
from veilgraph.runtime.client.loopback import LoopbackServer
from veilgraph.runtime.client.wire import MOST_OF_CLIENT
from veilgraph.serving.client import Client

MOST_BYTES = 1 << 28  # of a request
_HEADER_LENGTH = "Inference-Header-Content-Length"
_DATATYPES = {
    "BOOL": "?", "INT8": "i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8", "UINT8": "u1",
    "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip
TEXT = "BYTES"
_LENGTH = struct.Struct("<I")
Arrays = Mapping[str, npt.NDArray[Any]]


class Gateway:
    """Answers until it is closed.

    Args:
        config: path of the client's parties.yaml.
        port: of loopback.
        timeout_seconds: how long to wait for an answer, in place of the file's.

    Raises:
        UsageError: a file that makes no sense, or a port that can't be had.
    """

    def __init__(
        self, config: str | Path, port: int, *, timeout_seconds: float | None = None
    ) -> None:
        ClientConfig.load(Path(config))  # what makes no sense is refused before anybody asks
        self._config, self._seconds = config, timeout_seconds
        self._idle: dict[str, queue.SimpleQueue[Client]] = {}
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(MOST_OF_CLIENT)  # others wait for their turn
        gateway = self

        class Answers(_Answers):
            asked = gateway

        self._server = LoopbackServer(port, Answers, "--port")
        self.port = int(self._server.server_address[1])

    def run(self) -> None:
        """Answers until `close` is called by another thread or a signal handler."""
        self._server.serve_forever()

    def stop(self) -> None:
        """Has `run` end; returns at once."""
        threading.Thread(target=self._server.shutdown, daemon=True).start()

    def close(self) -> None:
        """Lets go of the port, after `run` has ended, and of the parties."""
        self._server.server_close()
        for idle in self._idle.values():
            while not idle.empty():
                idle.get().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # What is asked

    def described(self, model: str) -> dict[str, Any]:
        """The model's metadata."""
        client = self._taken(model)
        self._idle[model].put(client)
        name, _, number = model.partition("/")
        return {
            "name": name,
            "versions": [number] if number else [],
            "platform": "veilgraph",
            "inputs": [_metadata(each, client.rows) for each in client.inputs],
            "outputs": [_metadata(each, client.rows) for each in client.outputs],
        }

    def infer(self, model: str, inputs: Arrays) -> dict[str, npt.NDArray[np.float32]]:
        """One inference, over links that no other request uses meanwhile."""
        with self._free:
            client = self._taken(model)
            try:
                return client.run(inputs)
            finally:
                if client.is_open:  # an input that is refused is not sent
                    self._idle[model].put(client)

    def _taken(self, model: str) -> Client:
        with self._lock:
            idle = self._idle.get(model)
        if idle is not None:
            try:
                return idle.get_nowait()
            except queue.Empty:
                pass
        client = Client(model, self._config, timeout_seconds=self._seconds)
        with self._lock:
            self._idle.setdefault(model, queue.SimpleQueue())
        return client


def _metadata(tensor: Tensor, rows: int) -> dict[str, Any]:
    """Of a tensor; its rows are -1 where a request may have fewer than the model takes."""
    datatype = TEXT if tensor.given.takes_text else "FP32"
    shape = [-1, *tensor.given_shape[1:]] if rows > 1 else list(tensor.given_shape)
    return {"name": tensor.name, "datatype": datatype, "shape": shape}


class _Refused(Exception):
    """A request that makes no sense, with what to say."""


class _Answers(BaseHTTPRequestHandler):
    """One connection."""

    asked: Gateway
    protocol_version = "HTTP/1.1"  # connections are kept
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        match self.path.strip("/").split("/"):
            case ["v2"]:
                self._say({"name": "veilgraph", "version": __version__,
                           "extensions": ["binary_tensor_data"]})  # fmt: skip
            case ["v2", "health", "live" | "ready"]:
                self._say({})
            case ["v2", "models", *rest] if (model := _model(rest, "ready")) is not None:
                self._guarded(lambda: self.asked.described(model) and {})
            case ["v2", "models", *rest] if (model := _model(rest)) is not None:
                self._guarded(lambda: self.asked.described(model))
            case _:
                self._refuse(HTTPStatus.NOT_FOUND, "There is no such page.")

    def do_POST(self) -> None:
        match self.path.strip("/").split("/"):
            case ["v2", "models", *rest] if (model := _model(rest, "infer")) is not None:
                self._infer(model)
            case _:
                self.close_connection = True
                self._refuse(HTTPStatus.NOT_FOUND, "There is no such page.")

    def _infer(self, model: str) -> None:
        try:
            asked, binary = self._read()
            inputs = _inputs(asked, binary)
            outputs = self.asked.infer(model, inputs)
            self._answer(model, asked, outputs)
        except _Refused as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        except VeilgraphError as error:
            self._refuse(_status(error), str(error))

    def _guarded(self, described: Any) -> None:
        try:
            self._say(described())
        except VeilgraphError as error:
            self._refuse(_status(error), str(error))

    def _read(self) -> tuple[dict[str, Any], bytes]:
        """The JSON of a request, and the binary tensors behind it."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            self.close_connection = True
            raise _Refused(f"A request says its length, at most {MOST_BYTES} bytes.")
        content = self.rfile.read(int(length))
        if self.headers.get("Content-Encoding", "identity") != "identity":
            raise _Refused("Requests are taken uncompressed.")
        head = self.headers.get(_HEADER_LENGTH, length)
        if not head.isdecimal() or int(head) > len(content):
            raise _Refused(f"{_HEADER_LENGTH} is no length of this request's JSON.")
        return _object(content[: int(head)]), content[int(head) :]

    def _answer(self, model: str, asked: Mapping[str, Any], outputs: Arrays) -> None:
        wanted = asked.get("outputs") or [{"name": name} for name in outputs]
        every = _parameters(asked).get("binary_data_output") is True
        listed, binary = [], b""
        for each in wanted:
            name = each.get("name") if isinstance(each, dict) else None
            if not isinstance(name, str) or name not in outputs:
                raise _Refused(f"The model has no output `{name}`.")
            array = np.ascontiguousarray(outputs[name], "<f4")
            fields: dict[str, Any] = {
                "name": name, "datatype": "FP32", "shape": list(array.shape)
            }  # fmt: skip
            if _parameters(each).get("binary_data", every) is True:
                fields["parameters"] = {"binary_data_size": array.nbytes}
                binary += array.tobytes()
            else:
                fields["data"] = array.reshape(-1).tolist()
            listed.append(fields)
        name, _, number = model.partition("/")
        answer = {"model_name": name, "model_version": number or "1", "outputs": listed}
        if isinstance(asked.get("id"), str):
            answer["id"] = asked["id"]
        self._say(answer, binary)

    def _say(
        self, fields: Mapping[str, Any], binary: bytes = b"", code: int = HTTPStatus.OK
    ) -> None:
        content = json.dumps(fields).encode()
        self.send_response(code)
        if binary:
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header(_HEADER_LENGTH, str(len(content)))
        else:
            self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content) + len(binary)))
        self.end_headers()
        self.wfile.write(content + binary)

    def _refuse(self, code: int, reason: str) -> None:
        self._say({"error": reason}, code=code)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a path may say what is asked."""


def _model(parts: list[str], verb: str = "") -> str | None:
    """NAME or NAME/VERSION of what follows `models/`, where it ends with the verb."""
    match [*parts, *([] if verb else [""])]:
        case [name, "versions", number, end] if end == verb and number.isdecimal():
            return f"{name}/{number}"
        case [name, end] if end == verb and name:
            return name
    return None


def _object(content: bytes) -> dict[str, Any]:
    """The JSON object of a request."""
    try:
        asked = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _Refused("The request is no JSON.") from error
    if not isinstance(asked, dict):
        raise _Refused("The request is no JSON object.")
    return asked


def _parameters(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    found = fields.get("parameters")
    return found if isinstance(found, dict) else {}


def _inputs(asked: Mapping[str, Any], binary: bytes) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a request."""
    listed = asked.get("inputs")
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise _Refused("A request lists its inputs.")
    found, start = {}, 0
    for each in listed:
        name, shape, kind = each.get("name"), each.get("shape"), each.get("datatype")
        if not isinstance(name, str) or kind not in (TEXT, *_DATATYPES) or not _is_shape(shape):
            raise _Refused("An input has a name, a shape, and a datatype of numbers, or BYTES.")
        size = _parameters(each).get("binary_data_size")
        try:
            if size is None:
                given = each.get("data")
                array = _texts(given) if kind == TEXT else np.asarray(given, _DATATYPES[kind])
            else:
                content = binary[start : start + int(size)]
                start += int(size)
                is_text = kind == TEXT
                array = _unpacked(content) if is_text else np.frombuffer(content, _DATATYPES[kind])
            found[name] = array.reshape(shape)
        except (ValueError, TypeError, OverflowError, struct.error) as error:
            raise _Refused(f"Input `{name}` is not as its shape and datatype say.") from error
    return found


def _texts(data: object) -> npt.NDArray[Any]:
    """The text of a JSON list; what else is in it is refused by its place later."""
    return np.asarray(data, object)


def _unpacked(content: bytes) -> npt.NDArray[Any]:
    """Text, each behind its length in bytes, of 32 bits."""
    found, start = list[str](), 0
    while start < len(content):
        (length,) = _LENGTH.unpack_from(content, start)
        start += _LENGTH.size
        if start + length > len(content):
            raise ValueError("cut short")
        found.append(content[start : start + length].decode())
        start += length
    return np.asarray(found, object)


def _is_shape(shape: object) -> bool:
    return isinstance(shape, list) and all(type(each) is int and each >= 0 for each in shape)


def _status(error: VeilgraphError) -> int:
    if isinstance(error, PeerError):
        return HTTPStatus.SERVICE_UNAVAILABLE
    if isinstance(error, ResourceLimitError):
        return HTTPStatus.TOO_MANY_REQUESTS
    return HTTPStatus.BAD_REQUEST
