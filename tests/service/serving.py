"""A service of all parties in this process, a thread each, and a client of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from onnx import ModelProto, TensorProto, helper, numpy_helper

import veilgraph
from veilgraph.measuring.processes import write_configs
from veilgraph.plans import Plan
from veilgraph.runtime.session import certificates
from veilgraph.serving.client import Client
from veilgraph.serving.service import Service

RNG = np.random.default_rng(1)
W = RNG.standard_normal((8, 5)).astype(np.float32)
SAMPLES = RNG.uniform(-1, 1, (16, 1, 8)).astype(np.float32)
SUITES: dict[str, dict[str, Any]] = {
    "rep3": {},
    "additive": {"parties": ("alice", "bob"), "dealer": "dave"},
}
PATIENT: dict[str, Any] = {
    "clients": ("patient",), "owners": {"x": "patient"}, "receivers": {"y": ("patient",)}
}  # fmt: skip


def answer_to(x: Any, w: Any = W) -> Any:
    return np.maximum(x @ w, 0)


def model(w: Any = W, rows: int = 1) -> ModelProto:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 5])],
        [numpy_helper.from_array(w, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def compiled(suite: str, w: Any = W, rows: int = 1, **options: Any) -> tuple[Plan, Any]:
    asked = {**SUITES[suite], **PATIENT, **options}
    samples = np.repeat(SAMPLES, rows, axis=1)
    return veilgraph.compile(model(w, rows), suite=suite, calibrate={"x": samples}, **asked)


def members(plan: Plan) -> list[str]:
    return [name for name in plan.manifest.parties if name != "patient"]


class Hospital:
    """A folder with what parties and a client have; models are put into each party's own."""

    def __init__(self, folder: Path, parties: list[str], timeout_seconds: float = 10.0) -> None:
        self.folder, self.parties = folder, parties
        write_configs(folder, parties)
        files = certificates.init(folder, "patient", ["127.0.0.1"])
        (folder / "clients").mkdir()
        (folder / "clients" / "patient.crt").write_bytes(files.certificate.read_bytes())
        for party in parties:
            content = yaml.safe_load((folder / f"{party}.yaml").read_text())
            content["me"]["clients"] = "clients"
            content["timeout_seconds"] = timeout_seconds
            (folder / f"{party}.yaml").write_text(yaml.safe_dump(content))
        listed = content["parties"]
        me = {"name": "patient", "key": "patient.key", "certificate": "patient.crt"}
        client = {"parties": listed, "me": me, "timeout_seconds": timeout_seconds}
        self.client = folder / "patient.yaml"
        self.client.write_text(yaml.safe_dump(client))

    def models(self, party: str) -> Path:
        return self.folder / f"{party}.models"

    def put(self, name: str, plan: Plan, weights: Any, *parties: str) -> None:
        """NAME/VERSION at these parties, or all; weights at their owner."""
        for party in parties or self.parties:
            place = self.models(party) / name
            place.mkdir(parents=True)
            plan.save(place / "model.plan")
            if plan.party(party).weights:
                veilgraph.save_weights(weights, place / "model.weights", plan)

    def service(self, party: str, **options: Any) -> Service:
        return Service(party, self.folder / f"{party}.yaml", self.models(party), **options)

    @contextmanager
    def served(self, **options: Any) -> Iterator[dict[str, Service]]:
        """All parties serve meanwhile; each leaves at the end."""
        services = {party: self.service(party, **options) for party in self.parties}
        threads = [threading.Thread(target=each.run) for each in services.values()]
        for thread in threads:
            thread.start()
        try:
            yield services
        finally:
            for each in services.values():
                each.leave()
            for thread in threads:
                thread.join(60)
            for each in services.values():
                each.close()
            assert not any(thread.is_alive() for thread in threads)


def question(client: Client, nonce: object, rows: int = 1) -> dict[str, Any]:
    """What a client says to each party as it asks, for tests of clients that go on otherwise."""
    return {
        "ask": "infer", "model": "small", "plan": client.plan, "session": client._session,
        "role": client.role, "nonce": nonce, "rows": rows,
    }  # fmt: skip


def until(is_true: Any, seconds: float = 30.0) -> None:
    """Waits for what other threads bring about."""
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)
