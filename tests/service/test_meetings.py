"""Plans of several clients: who fills their roles meets in one request, or is told why not."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from onnx import ModelProto, TensorProto, helper, numpy_helper
from serving import RNG, SUITES, Hospital, until

import veilgraph
from veilgraph.cli import main
from veilgraph.ir.errors import PeerError, ResourceLimitError, SecurityAbort, UsageError
from veilgraph.runtime.service.meetings import Arrival, Meetings
from veilgraph.runtime.service.requests import Requests
from veilgraph.runtime.service.seat import Seat
from veilgraph.runtime.session import certificates
from veilgraph.serving.client import Client
from veilgraph.serving.gateway import Gateway
from veilgraph.serving.service import Service

W = RNG.standard_normal((8, 5)).astype(np.float32)
X = RNG.uniform(-1, 1, (16, 1, 8)).astype(np.float32)
S = RNG.uniform(-1, 1, (16, 1, 8)).astype(np.float32)
AGREED = "of patient and doctor"
CLIENTS = ("patient", "doctor")


def model(rows: int) -> ModelProto:
    """y for who is told by `receivers`; both inputs meet in a product."""
    shaped = {name: [rows, size] for name, size in (("x", 8), ("s", 8), ("y", 5), ("z", 8))}
    infos = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in shaped.items()
    }
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["x", "s"], ["z"]),
            helper.make_node("MatMul", ["z", "w"], ["h"]),
            helper.make_node("Relu", ["h"], ["y"]),
        ],
        "two",
        [infos["x"], infos["s"]],
        [infos["y"], infos["z"]],
        [numpy_helper.from_array(W, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def answers(x: Any, s: Any) -> dict[str, Any]:
    return {"y": np.maximum((x * s) @ W, 0), "z": x * s}


def compiled(suite: str, rows: int = 1, **options: Any) -> tuple[Any, Any]:
    asked: dict[str, Any] = {
        **SUITES[suite], "clients": CLIENTS, "owners": {"x": "patient", "s": "doctor"},
        "receivers": {"y": CLIENTS, "z": ("doctor",)}, **options,
    }  # fmt: skip
    samples = {"x": np.repeat(X, rows, axis=1), "s": np.repeat(S, rows, axis=1)}
    return veilgraph.compile(model(rows), suite=suite, calibrate=samples, **asked)


def hospital_of(folder: Path, plan: Any, weights: Any) -> Hospital:
    """With a doctor, who is enrolled like the patient."""
    found = Hospital(folder, [n for n in plan.manifest.parties if n not in CLIENTS])
    found.put("two/1", plan, weights)
    for name in ("doctor", "stranger"):
        files = certificates.init(folder, name, ["127.0.0.1"])
        (folder / "clients" / f"{name}.crt").write_bytes(files.certificate.read_bytes())
        content = yaml.safe_load(found.client.read_text())
        content["me"] = {"name": name, "key": f"{name}.key", "certificate": f"{name}.crt"}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return found


@pytest.fixture(params=SUITES)
def hospital(request: Any, tmp_path: Path) -> Hospital:
    return hospital_of(tmp_path, *compiled(request.param))


@pytest.fixture
def rep3(tmp_path: Path) -> Iterator[tuple[Hospital, dict[str, Service]]]:
    """All parties serve, and clients wait for each other for two seconds."""
    found = hospital_of(tmp_path, *compiled("rep3"))
    with found.served() as services:
        for each in services.values():
            each._desk._meetings = Meetings(each._host.requests, 2.0)
        until(lambda: all(each.served for each in services.values()))
        yield found, services


def client(hospital: Hospital, name: str, **options: Any) -> Client:
    return Client("two", hospital.folder / f"{name}.yaml", **options)


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """What each gave, or the error that it raised."""
    found: list[Any] = [None] * len(calls)

    def call(number: int) -> None:
        try:
            found[number] = calls[number]()
        except veilgraph.VeilgraphError as error:
            found[number] = error

    threads = [threading.Thread(target=call, args=(n,)) for n in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


def asks(
    hospital: Hospital, name: str, inputs: Any, meeting: str = AGREED, **options: Any
) -> Callable[[], Any]:
    def ask() -> Any:
        with client(hospital, name, **options) as asking:
            return asking.run(inputs, meeting=meeting)

    return ask


def test_two_clients_meet_and_each_is_told_its_own(hospital: Hospital) -> None:
    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        with client(hospital, "patient") as patient, client(hospital, "doctor") as doctor:
            assert patient.roles == doctor.roles == CLIENTS
            for number in range(3):
                x, s, meeting = X[number], S[number], f"{AGREED} {number}"
                run = at_once(
                    lambda x=x, meeting=meeting: patient.run({"x": x}, meeting=meeting),
                    lambda s=s, meeting=meeting: doctor.run({"s": s}, meeting=meeting),
                )
                assert [set(each) for each in run] == [{"y"}, {"y", "z"}], run
                for told in run:
                    for name, value in told.items():
                        np.testing.assert_allclose(value, answers(x, s)[name], atol=0.02)


def test_meetings_share_an_inference_by_rows(tmp_path: Path) -> None:
    hospital = hospital_of(tmp_path, *compiled("rep3", rows=4))
    x, s = X[:4, 0], S[:4, 0]
    with hospital.served(wait_seconds=3.0) as services:
        until(lambda: all(each.served for each in services.values()))
        run = at_once(
            asks(hospital, "patient", {"x": x[:3]}, "the first of two meetings"),
            asks(hospital, "doctor", {"s": s[:3]}, "the first of two meetings"),
            asks(hospital, "patient", {"x": x[3:]}, "the second of two meetings"),
            asks(hospital, "doctor", {"s": s[3:]}, "the second of two meetings"),
        )
        counts = {each._host.counts.inferences["two/1"] for each in services.values()}
    assert counts == {1}
    wanted = answers(x, s)["y"]
    for number, rows in enumerate((slice(0, 3), slice(0, 3), slice(3, 4), slice(3, 4))):
        np.testing.assert_allclose(run[number]["y"], wanted[rows], atol=0.02)


def test_a_role_that_is_only_told(tmp_path: Path) -> None:
    plan, weights = compiled(
        "rep3",
        owners={"x": "patient", "s": "patient"},
        receivers={"y": ("doctor",), "z": ("doctor",)},
    )
    hospital = hospital_of(tmp_path, plan, weights)
    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        sent, told = at_once(
            asks(hospital, "patient", {"x": X[0], "s": S[0]}), asks(hospital, "doctor", {})
        )
    assert sent == {}
    np.testing.assert_allclose(told["y"], answers(X[0], S[0])["y"], atol=0.02)


def test_who_came_alone_is_told_so(rep3: Any) -> None:
    hospital, services = rep3
    start = time.monotonic()
    with pytest.raises(PeerError, match="doctor did not come to this meeting within 2 seconds"):
        asks(hospital, "patient", {"x": X[0]})()
    assert time.monotonic() - start < 4
    until(lambda: not any(each._desk._meetings._open for each in services.values()))
    told = at_once(asks(hospital, "patient", {"x": X[0]}), asks(hospital, "doctor", {"s": S[0]}))
    np.testing.assert_allclose(told[0]["y"], answers(X[0], S[0])["y"], atol=0.02)


def test_a_role_that_is_filled_already(rep3: Any) -> None:
    hospital, services = rep3
    waiting = threading.Thread(target=at_once, args=(asks(hospital, "patient", {"x": X[0]}),))
    waiting.start()
    until(lambda: all(each._desk._meetings._open for each in services.values()))
    with pytest.raises(PeerError, match="come to this meeting as patient already"):
        asks(hospital, "stranger", {"x": X[1]}, role="patient")()
    waiting.join(30)


def test_somebody_else_in_the_doctors_role(rep3: Any) -> None:
    """The patient finds out before it sends anything, and the stranger is told nothing."""
    hospital, services = rep3
    others = {"doctor": hospital.folder / "doctor.crt"}
    patient, stranger = at_once(
        asks(hospital, "patient", {"x": X[0]}, others=others),
        asks(hospital, "stranger", {"s": S[0]}, role="doctor"),
    )
    assert isinstance(patient, SecurityAbort)
    assert "Somebody else came as doctor" in str(patient)
    assert isinstance(stranger, PeerError)
    assert {each._host.counts.inferences["two/1"] for each in services.values()} == {0}
    told = at_once(
        asks(hospital, "patient", {"x": X[0]}, others=others),
        asks(hospital, "doctor", {"s": S[0]}),
    )
    np.testing.assert_allclose(told[0]["y"], answers(X[0], S[0])["y"], atol=0.02)


def test_parties_at_which_others_came_run_nothing(rep3: Any) -> None:
    """A stranger came as doctor first at carol, and the doctor elsewhere."""
    hospital, services = rep3
    new = Arrival("doctor", "stranger", "ab" * 32, 1)
    with client(hospital, "patient") as patient:
        facts = [patient._nonce(AGREED), patient.plan, patient._session]
        meetings = services["carol"]._desk._meetings
        session = bytes.fromhex(patient._session)
        early = threading.Thread(
            target=at_once,
            args=(lambda: meetings.join(facts, session, new, CLIENTS, lambda: None),),
        )
        early.start()
        until(lambda: meetings._open)
    run = at_once(asks(hospital, "patient", {"x": X[0]}), asks(hospital, "doctor", {"s": S[0]}))
    early.join(30)
    assert all(isinstance(each, PeerError) for each in run), run
    assert {each._host.counts.inferences["two/1"] for each in services.values()} == {0}


def test_one_leaves_while_the_other_waits_for_it(rep3: Any) -> None:
    hospital, services = rep3
    with client(hospital, "doctor") as doctor:
        waiting = threading.Thread(target=at_once, args=(asks(hospital, "patient", {"x": X[0]}),))
        waiting.start()
        until(lambda: all(each._desk._meetings._open for each in services.values()))
        doctor.close()
    waiting.join(30)
    until(lambda: not any(each._desk._meetings._open for each in services.values()))


def test_links_that_break_end_a_meeting(rep3: Any) -> None:
    hospital, services = rep3
    found: list[Any] = []
    waiting = threading.Thread(
        target=lambda: found.extend(at_once(asks(hospital, "patient", {"x": X[0]})))
    )
    waiting.start()
    until(lambda: all(each._desk._meetings._open for each in services.values()))
    services["carol"].leave()
    waiting.join(30)
    assert isinstance(found[0], PeerError)
    assert "The plan is served no more" in str(found[0])


def test_other_numbers_of_rows(tmp_path: Path) -> None:
    meetings = Meetings(Requests(), 5.0)
    first = Arrival("patient", "p", "ab", 3)
    waiting = threading.Thread(
        target=at_once,
        args=(lambda: meetings.join(["m"], b"", first, CLIENTS, lambda: None),),
    )
    waiting.start()
    until(lambda: meetings._open)
    with pytest.raises(UsageError, match="patient brings 3 rows, and doctor 2"):
        meetings.join(["m"], b"", Arrival("doctor", "d", "cd", 2), CLIENTS, lambda: None)
    with pytest.raises(PeerError):  # links are down: both are told so
        meetings.join(["m"], b"", Arrival("doctor", "d", "cd", 3), CLIENTS, lambda: None)
    waiting.join(30)


def test_each_client_has_rows_a_day_of_its_own(rep3: Any) -> None:
    hospital, services = rep3
    services["bob"]._desk._audit.allow(1)
    at_once(asks(hospital, "patient", {"x": X[0]}), asks(hospital, "doctor", {"s": S[0]}))
    patient, stranger = at_once(
        asks(hospital, "patient", {"x": X[0]}, AGREED + " 2"),
        asks(hospital, "stranger", {"s": S[0]}, AGREED + " 2", role="doctor"),
    )
    assert isinstance(patient, ResourceLimitError)
    assert isinstance(stranger, PeerError)
    path = hospital.folder / "bob.state" / "asked-bob.jsonl"
    lines = [json.loads(each.partition(b"\t")[0]) for each in path.read_bytes().splitlines()]
    told = {each["client"]: each for each in lines if each["what"] == "answered"}
    assert {name: each["with"] for name, each in told.items()} == {
        "patient": "doctor", "doctor": "patient",
    }  # fmt: skip
    assert {each["role"] for each in told.values()} == set(CLIENTS)
    over = [each["client"] for each in lines if each["what"] == "over its number"]
    assert over == ["patient"]


def test_what_a_client_says_of_itself(rep3: Any) -> None:
    hospital, _ = rep3
    with pytest.raises(UsageError, match="two has no client stranger"):
        client(hospital, "stranger")
    with pytest.raises(UsageError, match="two has no client nurse"):
        client(hospital, "patient", others={"nurse": hospital.folder / "doctor.crt"})
    with client(hospital, "patient") as patient:
        for meeting in (None, "short"):
            with pytest.raises(UsageError, match="who ask together"):
                patient.run({"x": X[0]}, meeting=meeting)
        with pytest.raises(UsageError, match="two has no input `s`"):
            patient.run({"s": S[0]}, meeting=AGREED)


def test_a_plan_of_one_client_has_no_meeting(tmp_path: Path) -> None:
    plan, weights = compiled(
        "rep3", clients=("patient",), owners={"x": "patient", "s": "patient"},
        receivers={"y": ("patient",), "z": ("patient",)},
    )  # fmt: skip
    hospital = hospital_of(tmp_path, plan, weights)
    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        with (
            client(hospital, "stranger") as asking,  # it has one role, whoever fills it
            pytest.raises(UsageError, match="two has one client, who meets nobody"),
        ):
            asking.run({"x": X[0], "s": S[0]}, meeting=AGREED)


def test_by_the_command_line(rep3: Any) -> None:
    hospital, _ = rep3
    folder = hospital.folder
    np.save(folder / "x.npy", X[0])
    np.save(folder / "s.npy", S[0])

    def verb(name: str, source: str, other: str) -> Callable[[], Any]:
        given = ["--config", f"{folder / name}.yaml", "--input", f"{source}=@{folder / source}.npy"]
        agreed = ["--meeting", AGREED, "--with", f"{other}={folder / other}.crt", "--json"]
        return lambda: CliRunner().invoke(main, ["infer", "two", *given, *agreed])

    # click's runner takes over the process's streams: one of both asks in Python
    told = at_once(asks(hospital, "doctor", {"s": S[0]}), verb("patient", "x", "doctor"))
    found = json.loads(told[1].output)["outputs"]
    np.testing.assert_allclose(found["y"]["values"], answers(X[0], S[0])["y"], atol=0.02)


def test_clients_that_talk_to_each_other_have_no_seats() -> None:
    """The compiler makes no such plan: what one client tells another passes by no party."""
    plan, _ = compiled("rep3")
    program, (bob, doctor) = (
        plan.party("patient"),
        map(plan.manifest.parties.index, ("bob", "doctor")),
    )
    messages = program.messages.copy()
    messages["peer"][messages["peer"] == bob] = doctor
    odd = replace(plan, programs={**plan.programs, "patient": replace(program, messages=messages)})
    with pytest.raises(UsageError, match="patient does more in this plan"):
        Seat(odd, "patient", "alice")


def test_a_gateway_asks_about_plans_of_one_client(rep3: Any) -> None:
    hospital, _ = rep3
    asked = {"name": "x", "shape": [1, 8], "datatype": "FP32", "data": X[0].ravel().tolist()}
    with Gateway(hospital.folder / "patient.yaml", 0) as gateway:
        thread = threading.Thread(target=gateway.run)
        thread.start()
        url = f"http://127.0.0.1:{gateway.port}/v2/models/two/infer"
        request = urllib.request.Request(url, json.dumps({"inputs": [asked]}).encode())
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=30)
        gateway.stop()
        thread.join(30)
    assert refused.value.code == 400
    assert "who ask together" in json.loads(refused.value.read())["error"]
