"""Requests of several clients that share an inference: each gets its own rows, and no others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from serving import (
    PATIENT,
    SAMPLES,
    SUITES,
    Hospital,
    answer_to,
    compiled,
    members,
    model,
    question,
    until,
)

import veilgraph
from veilgraph.ir.errors import PeerError, UsageError
from veilgraph.runtime.client import wire
from veilgraph.serving.client import Client
from veilgraph.serving.party_links import wire_receive, wire_send
from veilgraph.serving.service import Service

ROWS = 4
ALL = SAMPLES.reshape(-1, 8)


@pytest.fixture(params=SUITES)
def hospital(request: Any, tmp_path: Path) -> Hospital:
    plan, weights = compiled(request.param, rows=ROWS)
    found = Hospital(tmp_path, members(plan))
    found.put("small/1", plan, weights)
    return found


@pytest.fixture
def patient(hospital: Hospital) -> Iterator[dict[str, Service]]:
    """All parties serve, and wait so long that only what fills a plan goes at once."""
    with hospital.served(wait_seconds=3.0) as services:
        until(lambda: all(each.served for each in services.values()))
        yield services


def ask_at_once(hospital: Hospital, *tables: Any) -> list[Any]:
    """The answers to several clients, in order; or the error that one got."""
    found: list[Any] = [None] * len(tables)

    def ask(number: int) -> None:
        try:
            with Client("small", hospital.client) as client:
                found[number] = client.run({"x": tables[number]})["y"]
        except veilgraph.VeilgraphError as error:
            found[number] = error

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(len(tables))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


def inferences(services: dict[str, Service]) -> set[int]:
    return {each._host.counts.inferences["small/1"] for each in services.values()}


def test_clients_of_some_rows_each_share_one_inference(
    hospital: Hospital, patient: dict[str, Service]
) -> None:
    tables = [ALL[:1], ALL[1:3], ALL[3:4]]
    start = time.monotonic()
    for table, answer in zip(tables, ask_at_once(hospital, *tables), strict=True):
        np.testing.assert_allclose(answer, answer_to(table), atol=0.01)
    assert time.monotonic() - start < 2.5  # nobody waited: they fill the plan
    assert inferences(patient) == {1}


def test_each_phase_is_a_line_for_whatever_collects_logs(
    hospital: Hospital, patient: dict[str, Service], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "veilgraph.service")
    ask_at_once(hospital, ALL[:3], ALL[3:4])
    plan = veilgraph.Plan.load(hospital.models("alice") / "small/1/model.plan")

    def of(phase: str) -> list[dict[str, Any]]:
        lines = [vars(record) for record in caplog.records if hasattr(record, "phase")]
        return [each for each in lines if each["phase"] == phase]

    until(lambda: len(of("online")) == len(plan.manifest.computing))  # a client hears first
    online = of("online")
    for each in online:
        assert (each["model"], each["plan"], each["requests"]) == ("small/1", plan.digest, 2)
        assert 0 <= each["network_seconds"] <= each["seconds"] < 10
        assert len(each["session"]) > 30
    sent = sum(each["sent_bytes"] for each in online)
    assert 0 < sent <= plan.cost().online.total_bytes  # the client's messages are beside them
    assert of("offline")


def test_a_client_alone_is_answered_once_it_has_waited(hospital: Hospital) -> None:
    with hospital.served(wait_seconds=0.2) as services:
        until(lambda: all(each.served for each in services.values()))
        with Client("small", hospital.client) as client:
            for rows in (1, 3):
                answer = client.run({"x": ALL[:rows]})["y"]
                np.testing.assert_allclose(answer, answer_to(ALL[:rows]), atol=0.01)


def test_what_does_not_fit_waits_for_the_next(
    hospital: Hospital, patient: dict[str, Service]
) -> None:
    tables = [ALL[:3], ALL[3:6], ALL[6:7], ALL[7:8], ALL[:4]]
    for table, answer in zip(tables, ask_at_once(hospital, *tables), strict=True):
        np.testing.assert_allclose(answer, answer_to(table), atol=0.01)
    assert len(inferences(patient)) == 1


def stalled(client: Client, rows: int = 1) -> None:
    """Asks, takes its masks, and says no more."""
    for name, link in client._links.items():
        wire_send(name, link, question(client, "ab" * 16, rows))


@pytest.mark.parametrize("goes", [True, False])
def test_others_are_answered_without_who_says_no_more(
    hospital: Hospital, patient: dict[str, Service], goes: bool
) -> None:
    with Client("small", hospital.client) as silent:
        stalled(silent)
        taken: list[Any] = []
        asker = threading.Thread(target=lambda: taken.extend(ask_at_once(hospital, ALL[1:4])))
        asker.start()
        masks = wire.of_rows(silent.inputs, 1, ROWS)
        for name, link in silent._links.items():
            _, content = wire_receive(name, link, wire.elements_bytes(silent.inputs))
            assert len(content) == wire.elements_bytes(masks)  # of its own rows alone
        if goes:
            silent.close()
        asker.join(60)
    np.testing.assert_allclose(taken[0], answer_to(ALL[1:4]), atol=0.01)


def test_rows_that_do_not_fit_are_refused(hospital: Hospital, patient: dict[str, Service]) -> None:
    with Client("small", hospital.client) as client:
        for rows in (0, 5):
            with pytest.raises(UsageError, match=f"takes 1 to 4 rows, .* and got {rows}"):
                client.run({"x": np.zeros((rows, 8), np.float32)})
        link = client._links["alice"]
        for said in (0, 5, True, "1", None):
            wire.send(link, question(client, "cd" * 16) | {"rows": said})
            with pytest.raises(UsageError, match="takes 1 to 4 rows at a time"):
                wire_receive("alice", link, 0)
        np.testing.assert_allclose(client.run({"x": ALL[:4]})["y"], answer_to(ALL[:4]), atol=0.01)


def test_parties_that_are_told_other_rows_answer_nobody(hospital: Hospital) -> None:
    """The client that says so waits in vain, and others are served."""
    with hospital.served(wait_seconds=0.0) as services:
        until(lambda: all(each.served for each in services.values()))
        with Client("small", hospital.client, timeout_seconds=2.0) as odd:
            for rows, (name, link) in enumerate(odd._links.items(), 1):
                wire_send(name, link, question(odd, "ef" * 16, rows))
            answer = ask_at_once(hospital, ALL[:1])[0]
            np.testing.assert_allclose(answer, answer_to(ALL[:1]), atol=0.01)
            with pytest.raises(PeerError):
                wire_receive("alice", odd._links["alice"], 1 << 20)


def test_a_model_whose_rows_depend_on_each_other_is_asked_whole(tmp_path: Path) -> None:
    proto = model(rows=ROWS)
    proto.graph.node.extend(
        [
            helper.make_node("ReduceMean", ["y"], ["m"], axes=[0], keepdims=1),
            helper.make_node("Sub", ["y", "m"], ["z"]),
        ]
    )
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("z", TensorProto.FLOAT, [ROWS, 5]))
    onnx.checker.check_model(proto)
    asked = {**PATIENT, "receivers": {"z": ("patient",)}}
    samples = np.repeat(SAMPLES, ROWS, axis=1)
    plan, weights = veilgraph.compile(proto, calibrate={"x": samples}, **asked)
    hospital = Hospital(tmp_path, members(plan))
    hospital.put("small/1", plan, weights)
    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        with Client("small", hospital.client) as client:
            assert client.rows == 1
            with pytest.raises(UsageError, match=r"shape"):
                client.run({"x": ALL[:1]})
            expected = answer_to(ALL[:4])
            np.testing.assert_allclose(
                client.run({"x": ALL[:4]})["z"], expected - expected.mean(0), atol=0.05
            )


def test_parties_of_which_one_trusts_the_author_share_nothing(tmp_path: Path) -> None:
    """It does not know whether rows are apart: they serve the plan once all of them do."""
    plan, weights = compiled("rep3", rows=ROWS)
    hospital = Hospital(tmp_path, members(plan))
    hospital.put("small/1", plan, weights)
    services = {
        party: hospital.service(party, trust_author=party == "bob") for party in hospital.parties
    }
    assert {each._models()[0].rows for each in services.values()} == {1, ROWS}
    assert len({each._models()[0].key for each in services.values()}) == 2
    for each in services.values():
        each.close()
