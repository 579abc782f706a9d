"""Receipts of requests: each party signs what it did, and the client checks it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from serving import SAMPLES, SUITES, Hospital, compiled, members, until
from test_meetings import S, X, at_once, client, hospital_of
from test_meetings import compiled as compiled_for_two

import veilgraph
from veilgraph.cli import main
from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.runtime.client import wire
from veilgraph.serving.client import Client


@pytest.fixture(params=SUITES)
def hospital(request: Any, tmp_path: Path) -> Hospital:
    plan, weights = compiled(request.param)
    found = Hospital(tmp_path, members(plan))
    found.put("small/1", plan, weights)
    return found


def test_a_client_gets_one_of_each_party(hospital: Hospital, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", SAMPLES[0])
    given = ["--config", str(hospital.client), "--input", f"x=@{tmp_path / 'x.npy'}"]
    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        asked = CliRunner().invoke(main, ["infer", "small", *given, "--receipts", str(tmp_path)])
        assert asked.exit_code == 0, asked.output
    plan = hospital.models("alice") / "small/1/model.plan"
    computing = veilgraph.Plan.load(plan).manifest.computing
    found = []
    for party in computing:
        files = ["--receipt", f"{tmp_path / party}.receipt", "--cert", f"{tmp_path / party}.crt"]
        shown = CliRunner().invoke(main, ["verify", str(plan), *files, "--json"])
        assert shown.exit_code == 0, shown.output
        found.append(json.loads(shown.output))
    assert [each["party"] for each in found] == list(computing)
    assert {tuple(each["parties"]) for each in found} == {tuple(hospital.parties)}
    assert len({(each["session"], each["request"]) for each in found}) == 1
    assert all(each["inferences"] == 1 and each["rounds"]["online"] > 0 for each in found)
    assert all(each["began"] <= each["ended"] for each in found)
    text = CliRunner().invoke(main, ["verify", *files])
    assert found[0]["request"] in text.output
    log = next(tmp_path.rglob("asked-alice.jsonl")).read_bytes().splitlines()
    asked_for, answered = (json.loads(line.partition(b"\t")[0]) for line in log)
    assert (asked_for["what"], answered["what"]) == ("asked", "answered")
    assert asked_for["meeting"] == answered["meeting"]
    assert "request" not in asked_for  # which is known once all its clients have come
    assert answered["request"] == found[0]["request"]


def test_both_clients_of_a_meeting_get_the_same(tmp_path: Path) -> None:
    hospital = hospital_of(tmp_path, *compiled_for_two("rep3"))
    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        with (
            client(hospital, "patient", receipts=True) as patient,
            client(hospital, "doctor", receipts=True) as doctor,
        ):
            at_once(
                lambda: patient.run({"x": X[0]}, meeting="of one and another"),
                lambda: doctor.run({"s": S[0]}, meeting="of one and another"),
            )
            requests = {
                json.loads(each.splitlines()[0])["request"]
                for asking in (patient, doctor)
                for each in asking.receipts.values()
            }
    assert len(requests) == 1


@pytest.mark.parametrize("change", ["another request", "a count", "none"])
def test_a_receipt_that_is_not_of_this_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    plan, weights = compiled("rep3")
    hospital = Hospital(tmp_path, members(plan))
    hospital.put("small/1", plan, weights)
    send, kept = wire.send, list[str]()

    def odd(link: Any, fields: Any, elements: bytes = b"") -> None:
        if isinstance(fields.get("receipt"), str):
            kept.append(fields["receipt"])
            changed = {
                "another request": kept[0],
                "a count": fields["receipt"].replace('"inferences": 1', '"inferences": 2'),
                "none": "",
            }
            fields = {**fields, "receipt": changed[change]}
        send(link, fields, elements)

    refused = {"another request": "something else than|did not sign", "a count": "did not sign",
               "none": "is no receipt"}  # fmt: skip
    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        with Client("small", hospital.client) as client:
            client.run({"x": SAMPLES[0]})
            assert client.receipts == {}
        with Client("small", hospital.client, receipts=True) as client:
            client.run({"x": SAMPLES[0]})
            assert set(client.receipts) == set(hospital.parties)
            monkeypatch.setattr(wire, "send", odd)
            if change == "another request":
                kept.append(client.receipts["alice"].decode())
            with pytest.raises((SecurityAbort, UsageError), match=refused[change]):
                client.run({"x": SAMPLES[0]})
