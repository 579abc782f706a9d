"""A service end to end: clients ask, several plans, parties that leave and come again."""

from __future__ import annotations

import errno
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from serving import SAMPLES, SUITES, Hospital, W, answer_to, compiled, members, question, until
from sklearn.linear_model import LogisticRegression

import veilgraph
from veilgraph.cli import main
from veilgraph.ir.errors import (
    AccuracyError,
    PeerError,
    ResourceLimitError,
    SecurityAbort,
    SupersededError,
    UsageError,
    VeilgraphError,
)
from veilgraph.runtime.client import wire
from veilgraph.runtime.service.desk import MOST_LINKS_OF_CLIENT, Desk
from veilgraph.runtime.session import certificates
from veilgraph.serving.client import Client
from veilgraph.serving.party_links import wire_receive, wire_send


@pytest.fixture(params=SUITES)
def hospital(request: pytest.FixtureRequest, tmp_path: Path) -> Hospital:
    plan, weights = compiled(request.param)
    found = Hospital(tmp_path, members(plan))
    found.put("small/1", plan, weights)
    return found


def test_a_client_is_told_the_answer(hospital: Hospital) -> None:
    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        with Client("small", hospital.client) as client:
            for x in SAMPLES[:5]:
                outputs = client.run({"x": x})
                np.testing.assert_allclose(outputs["y"], answer_to(x), atol=0.01)


def test_several_clients_ask_at_once(hospital: Hospital) -> None:
    wrong: list[str] = []

    def ask(first: int) -> None:
        with Client("small/1", hospital.client) as client:
            for x in SAMPLES[first::4]:
                if not np.allclose(client.run({"x": x})["y"], answer_to(x), atol=0.01):
                    wrong.append(f"{first}")

    with hospital.served(ahead=3) as services:
        until(lambda: all(each.served for each in services.values()))
        threads = [threading.Thread(target=ask, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert not wrong


def test_a_party_comes_again_and_links_with_it(hospital: Hospital) -> None:
    last = hospital.parties[-1]
    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        services[last].leave()
        until(lambda: not services["alice"].served)
        with pytest.raises(PeerError, match="serves nothing now"):
            Client("small", hospital.client)
        until(lambda: not services[last].served)
        services[last].close()
        again = services[last] = hospital.service(last)
        thread = threading.Thread(target=again.run)
        thread.start()
        until(lambda: all(each.served for each in services.values()))
        with Client("small", hospital.client) as client:
            np.testing.assert_allclose(
                client.run({"x": SAMPLES[0]})["y"], answer_to(SAMPLES[0]), atol=0.01
            )
        again.leave()
        thread.join(60)


def test_another_plan_is_served_once_all_have_it(hospital: Hospital) -> None:
    suite = "additive" if "dave" in hospital.parties else "rep3"
    newer = compiled(suite, -W)
    first, *others = hospital.parties
    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        hospital.put("small/2", *newer, first)
        services[first].reload()
        with Client("small", hospital.client) as client:
            until(lambda: client.run({"x": SAMPLES[1]}) is not None)
        hospital.put("small/2", *newer, *others)
        for each in services.values():
            each.reload()
        until(lambda: all(len(each.served) == 2 for each in services.values()))
        for name, weights in (("small", -W), ("small/1", W)):
            with Client(name, hospital.client) as client:
                np.testing.assert_allclose(
                    client.run({"x": SAMPLES[1]})["y"], answer_to(SAMPLES[1], weights), atol=0.01
                )


def test_two_versions_may_have_one_plan(tmp_path: Path) -> None:
    """With weights of their own."""
    plan, weights = compiled("rep3")
    hospital = Hospital(tmp_path, members(plan))
    hospital.put("small/1", plan, weights)
    hospital.put("small/2", plan, {name: -each for name, each in dict(weights).items()})
    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        for name, w in (("small/1", W), ("small/2", -W)):
            with Client(name, hospital.client) as client:
                y = client.run({"x": SAMPLES[0]})["y"]
                np.testing.assert_allclose(y, answer_to(SAMPLES[0], w), atol=0.01)


def test_other_weights_of_a_plan_that_is_served(tmp_path: Path) -> None:
    """They count from the next reload on, though plan and version are the same."""
    plan, weights = compiled("rep3")
    hospital = Hospital(tmp_path, members(plan))
    hospital.put("small/1", plan, weights)
    (owner,) = (party for party in hospital.parties if plan.party(party).weights)
    folder = hospital.models(owner) / "small" / "1"
    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        first = services["alice"]._host.served["small"].id
        veilgraph.save_weights(
            {name: -w for name, w in dict(weights).items()}, folder / "new", plan
        )
        (folder / "new").replace(folder / "model.weights")
        services[owner].reload()
        until(lambda: all(each._host.served.get("small") for each in services.values()))
        until(lambda: services["alice"]._host.served["small"].id != first)
        until(lambda: all(each.served for each in services.values()))
        with Client("small", hospital.client) as client:
            y = client.run({"x": SAMPLES[0]})["y"]
    np.testing.assert_allclose(y, answer_to(SAMPLES[0], -W), atol=0.01)


@pytest.mark.parametrize("is_same", [True, False], ids=["the same plan", "another"])
def test_a_client_that_is_there_while_models_are_read_again(tmp_path: Path, is_same: bool) -> None:
    """It asks again where the plan is the same, and says so where its inputs may be other ones."""
    plan, weights = compiled("rep3")
    newer = (plan, {name: -w for name, w in dict(weights).items()})
    hospital = Hospital(tmp_path, members(plan))
    hospital.put("small/1", plan, weights)
    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        with Client("small", hospital.client) as client:
            hospital.put("small/2", *(newer if is_same else compiled("rep3", -W, ring=48)))
            for each in services.values():
                each.reload()
            until(lambda: all("small/2" in each.served for each in services.values()))
            if is_same:
                y = client.run({"x": SAMPLES[0]})["y"]
                np.testing.assert_allclose(y, answer_to(SAMPLES[0], -W), atol=0.01)
                return
            with pytest.raises(SupersededError, match="serves another plan or session now"):
                client.run({"x": SAMPLES[0]})
            assert not client.is_open
        with Client("small", hospital.client) as client:
            y = client.run({"x": SAMPLES[0]})["y"]
            np.testing.assert_allclose(y, answer_to(SAMPLES[0], -W), atol=0.01)


def test_a_folder_that_can_not_be_read_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan, weights = compiled("rep3")
    hospital = Hospital(tmp_path, members(plan))
    hospital.put("small/1", plan, weights)
    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        broken = hospital.models("alice") / "small" / "2"
        broken.mkdir()
        (broken / "model.plan").write_text("no plan")
        services["alice"].reload()
        until(lambda: "all stays as it is" in caplog.text)
        with Client("small", hospital.client) as client:
            assert client.run({"x": SAMPLES[0]})["y"].shape == (1, 5)


def test_certificates_change_while_all_serve(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """bob's and the client's; nobody is cut off, and each new one is what is shown at the end."""
    plan, weights = compiled("rep3")
    hospital = Hospital(tmp_path, members(plan))
    hospital.put("small/1", plan, weights)

    def ask(client: veilgraph.Client) -> None:
        y = client.run({"x": SAMPLES[0]})["y"]
        np.testing.assert_allclose(y, answer_to(SAMPLES[0]), atol=0.01)

    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        certificates.issue(tmp_path, "bob", beside=True)
        certificates.issue(tmp_path, "patient", beside=True)
        own = tmp_path / "patient.crt"
        (tmp_path / "clients" / "patient.crt").write_bytes(own.read_bytes())
        for each in services.values():
            each.reload()
        with veilgraph.Client("small", hospital.client) as client:
            until(lambda: all(each.served for each in services.values()))
            ask(client)
        services["bob"].leave()
        until(lambda: not services["alice"].served)
        services["bob"].close()
        both = (tmp_path / "bob.crt").read_bytes()
        (tmp_path / "new.crt").write_bytes(both[both.rindex(b"-----BEGIN") :])
        content = yaml.safe_load((tmp_path / "bob.yaml").read_text())
        content["me"]["certificate"] = "new.crt"
        content["me"]["key_command"] = ["cat", content["me"].pop("key")]  # as an agent's
        (tmp_path / "bob.yaml").write_text(yaml.safe_dump(content))
        certificates.retire(tmp_path, "patient")
        again = services["bob"] = hospital.service("bob")
        thread = threading.Thread(target=again.run)
        thread.start()
        until(lambda: all(each.served for each in services.values()))
        with veilgraph.Client("small", hospital.client) as client:
            ask(client)
        again.leave()
        thread.join(60)
    assert "turned away" not in caplog.text


def test_parties_yaml_is_read_again(hospital: Hospital, caplog: pytest.LogCaptureFixture) -> None:
    """What clients may, and whom this party accepts; what a process keeps is refused by name."""
    file = hospital.folder / "alice.yaml"
    content = yaml.safe_load(file.read_text())
    state_dir = content["me"]["state_dir"]
    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        with veilgraph.Client("small", hospital.client) as client:
            client.run({"x": SAMPLES[0]})
            content["me"]["rows_a_day"] = 2
            file.write_text(yaml.safe_dump(content))
            services["alice"].reload()
            until(lambda: services["alice"]._desk._audit._most == 2)
            client.run({"x": SAMPLES[0]})
            with pytest.raises(ResourceLimitError, match="asked about 2 of the 2 rows"):
                client.run({"x": SAMPLES[0]})
        content["me"]["state_dir"] = "elsewhere"
        file.write_text(yaml.safe_dump(content))
        services["alice"].reload()
        until(lambda: "another value for me.state_dir" in caplog.text)
        content["me"]["state_dir"] = state_dir
        content["consent"] = []
        file.write_text(yaml.safe_dump(content))
        services["alice"].reload()
        until(lambda: "does not consent to the plan" in caplog.text)
        assert services["alice"].served


# What is refused


@pytest.fixture(scope="module")
def open_hospital(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hospital]:
    plan, weights = compiled("rep3")
    found = Hospital(tmp_path_factory.mktemp("open"), members(plan))
    found.put("small/1", plan, weights)
    with found.served() as services:
        until(lambda: all(each.served for each in services.values()))
        yield found


def test_a_client_that_nobody_enrolled(open_hospital: Hospital) -> None:
    enrolled = open_hospital.folder / "clients" / "patient.crt"
    kept = enrolled.read_bytes()
    enrolled.unlink()
    try:
        with pytest.raises(PeerError, match="turned this client away"):
            Client("small", open_hospital.client)
    finally:
        enrolled.write_bytes(kept)


def test_a_client_is_revoked_between_two_requests(open_hospital: Hospital) -> None:
    enrolled = open_hospital.folder / "clients" / "patient.crt"
    kept = enrolled.read_bytes()
    with Client("small", open_hospital.client) as client:
        client.run({"x": SAMPLES[0]})
        enrolled.unlink()
        try:
            with pytest.raises(PeerError, match="may not ask any more"):
                client.run({"x": SAMPLES[0]})
        finally:
            enrolled.write_bytes(kept)


def test_a_model_that_is_not_served(open_hospital: Hospital) -> None:
    with pytest.raises(UsageError, match="serves no model 'large'"):
        Client("large", open_hospital.client)


def test_an_input_that_does_not_fit(open_hospital: Hospital) -> None:
    with Client("small", open_hospital.client) as client:
        with pytest.raises(UsageError, match="shape 8, and the plan needs 1x8"):
            client.run({"x": SAMPLES[0, 0]})
        with pytest.raises(AccuracyError, match="outside the range"):
            client.run({"x": 100 * np.ones((1, 8))})
        with pytest.raises(UsageError, match="no input `z`"):
            client.run({"z": SAMPLES[0]})
        assert client.run({"x": SAMPLES[0]})["y"].shape == (1, 5)


def test_another_plan_than_was_asked_for(open_hospital: Hospital) -> None:
    with pytest.raises(SecurityAbort, match="was asked for"):
        Client("small", open_hospital.client, plan="ab" * 32)


def test_a_client_that_stops_after_its_masks(open_hospital: Hospital) -> None:
    """Others are served meanwhile, and afterwards."""
    with (
        Client("small", open_hospital.client) as stalled,
        Client("small", open_hospital.client) as client,
    ):
        asked = question(stalled, "ab" * 16)
        for name, link in stalled._links.items():
            wire_send(name, link, asked)
        for name, link in stalled._links.items():
            wire_receive(name, link, wire.elements_bytes(stalled.inputs))
        client.run({"x": SAMPLES[0]})
        stalled.close()
        client.run({"x": SAMPLES[0]})


@pytest.mark.parametrize(
    "asked",
    [
        {"ask": "infer", "model": ["small"]},
        {"ask": "infer", "model": {"small": 1}},
        {"ask": ["model"], "model": "small"},
        {"ask": "infer", "model": "small"},
        {"ask": "infer", "model": "small", "plan": 1, "session": None, "nonce": 5},
        {},
    ],
)
def test_a_client_that_says_what_makes_no_sense(
    open_hospital: Hospital, asked: dict[str, Any]
) -> None:
    """It is refused or cut off; others are served."""
    with Client("small", open_hospital.client) as client:
        for name, link in client._links.items():
            wire_send(name, link, asked)
            with pytest.raises(VeilgraphError):
                wire_receive(name, link, 0)
    with Client("small", open_hospital.client) as client:
        assert client.run({"x": SAMPLES[0]})["y"].shape == (1, 5)


def test_a_client_with_a_nonce_that_is_none(open_hospital: Hospital) -> None:
    with Client("small", open_hospital.client) as client:
        asked = question(client, 5)
        for name, link in client._links.items():
            wire_send(name, link, asked)
            with pytest.raises(PeerError, match="is lost"):
                wire_receive(name, link, 0)


def test_a_client_has_so_many_connections(open_hospital: Hospital) -> None:
    with ExitStack() as stack:
        for _ in range(MOST_LINKS_OF_CLIENT):
            stack.enter_context(Client("small", open_hospital.client))
        with pytest.raises(PeerError, match="turned this client away"):
            Client("small", open_hospital.client)

    def is_let_in() -> bool:
        with suppress(PeerError), Client("small", open_hospital.client) as client:
            return bool(client.run({"x": SAMPLES[0]}))
        return False

    until(is_let_in)


def test_a_client_that_asks_one_party_and_goes(open_hospital: Hospital) -> None:
    """Its requests are no longer counted soon after."""
    for number in range(2 * wire.MOST_OF_CLIENT):
        with Client("small", open_hospital.client) as client:
            asked = question(client, f"{number:032x}")
            wire_send("bob", client._links["bob"], asked)
        if number == wire.MOST_OF_CLIENT - 2:
            time.sleep(1)
    time.sleep(1)
    with Client("small", open_hospital.client) as client:
        assert client.run({"x": SAMPLES[0]})["y"].shape == (1, 5)


def test_an_input_that_comes_byte_by_byte(hospital: Hospital, monkeypatch: Any) -> None:
    """All of it has its time, and not each piece: then others go on."""
    monkeypatch.setattr("veilgraph.serving.service.Desk", partial(Desk, input_seconds=1.0))
    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        with Client("small", hospital.client) as slow:
            asked = question(slow, "cd" * 16)
            for name, link in slow._links.items():
                wire_send(name, link, asked)
            for name, link in slow._links.items():
                wire_receive(name, link, wire.elements_bytes(slow.inputs))
            link = slow._links["bob"]

            def is_cut_off() -> bool:
                try:
                    link.sendall(b"\0")
                except OSError:
                    return True
                time.sleep(0.2)
                return False

            until(is_cut_off, 8.0)
        with Client("small", hospital.client) as client:
            assert client.run({"x": SAMPLES[0]})["y"].shape == (1, 5)


def test_a_client_that_leaves_many_requests_open(open_hospital: Hospital) -> None:
    with ExitStack() as stack:
        stalled = [
            stack.enter_context(Client("small", open_hospital.client))
            for _ in range(wire.MOST_OF_CLIENT)
        ]
        for number, client in enumerate(stalled):
            asked = question(client, f"{number:032x}")
            for name, link in client._links.items():
                wire_send(name, link, asked)
            for name, link in client._links.items():
                wire_receive(name, link, wire.elements_bytes(client.inputs))
        with (
            Client("small", open_hospital.client) as client,
            pytest.raises(ResourceLimitError, match="requests of this client are open"),
        ):
            client.run({"x": SAMPLES[0]})
    with Client("small", open_hospital.client) as client:
        until(lambda: client.run({"x": SAMPLES[0]})["y"].shape == (1, 5))


def test_callers_who_never_finish_their_handshake(open_hospital: Hospital) -> None:
    listed = yaml.safe_load(open_hospital.client.read_text())["parties"]
    with ExitStack() as stack:
        for party in listed:
            for number in range(40):
                caller = socket.create_connection((party["host"], party["port"]))
                stack.enter_context(caller)
                caller.sendall((wire.MAGIC, b"veilgraph tls\n", b"\x16\x03\x01")[number % 3])
        with Client("small", open_hospital.client) as client:
            assert client.run({"x": SAMPLES[0]})["y"].shape == (1, 5)


def test_what_has_no_meaning_ends_that_conversation_alone(
    open_hospital: Hospital, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: list[object] = []
    monkeypatch.setattr(threading, "excepthook", broken.append)
    with Client("small", open_hospital.client) as client:
        infer = question(client, "")
        for asked in (
            {"model": []},
            {"ask": {}, "model": "small"},
            {**infer, "nonce": 32 * "\ud800"},
        ):
            with Client("small", open_hospital.client) as odd:
                link = odd._links["alice"]
                wire.send(link, asked)
                with pytest.raises((PeerError, UsageError)):
                    wire_receive("alice", link, 0)
        assert client.run({"x": SAMPLES[0]})["y"].shape == (1, 5)
    assert not broken


# Plans that are not served


NOT_SERVED: dict[str, tuple[dict[str, Any], str]] = {
    "nobody asks": ({"clients": (), "owners": {"x": "alice"}, "receivers": {"y": ("alice",)}},
                    "this has none"),
    "a party is told too": ({"receivers": {"y": ("patient", "alice")}}, "alone receive outputs"),
}  # fmt: skip


@pytest.mark.parametrize("case", NOT_SERVED)
def test_a_plan_that_is_not_served(case: str, tmp_path: Path) -> None:
    options, reason = NOT_SERVED[case]
    plan, weights = compiled("rep3", **options)
    hospital = Hospital(tmp_path, ["alice", "bob", "carol"])
    hospital.put("small/1", plan, weights)
    with pytest.raises(UsageError, match=reason):
        hospital.service("alice")


def test_a_folder_without_models(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path, ["alice", "bob", "carol"])
    with pytest.raises(UsageError, match="There is no folder"):
        hospital.service("alice")
    hospital.models("alice").mkdir()
    with pytest.raises(UsageError, match="holds no model"):
        hospital.service("alice")


def test_a_plan_that_a_party_does_not_consent_to(tmp_path: Path) -> None:
    plan, weights = compiled("rep3")
    hospital = Hospital(tmp_path, members(plan))
    hospital.put("small/1", plan, weights)
    config = tmp_path / "alice.yaml"
    content = yaml.safe_load(config.read_text())
    others = {"plan": "ab" * 32, "reveal": {"y": ["patient"]}, "openings": []}
    config.write_text(yaml.safe_dump({**content, "consent": [others]}))
    with pytest.raises(SecurityAbort, match="does not consent to the plan"):
        hospital.service("alice")


# The command line


def test_three_processes_serve_and_leave(tmp_path: Path) -> None:
    plan, weights = compiled("rep3")
    hospital = Hospital(tmp_path, members(plan))
    hospital.put("small/1", plan, weights)
    verb = [sys.executable, "-m", "veilgraph"]
    parties = [
        subprocess.Popen(
            [*verb, "serve", "--party", party, "--config", hospital.folder / f"{party}.yaml",
             "--models", hospital.models(party)],
            stderr=subprocess.PIPE, text=True,
        )
        for party in hospital.parties
    ]  # fmt: skip
    np.save(tmp_path / "x.npy", SAMPLES[0])
    ask = [*verb, "infer", "small", "--config", hospital.client, "--input",
           f"x=@{tmp_path / 'x.npy'}", "--output", f"y=@{tmp_path / 'y.npy'}"]  # fmt: skip
    try:
        until(lambda: subprocess.run(ask, capture_output=True).returncode == 0)
    finally:
        for process in parties:
            process.terminate()
        told = [process.communicate(timeout=60)[1] for process in parties]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), answer_to(SAMPLES[0]), atol=0.01)
    assert [process.returncode for process in parties] == [0, 0, 0], told
    assert all("has left" in text for text in told)
    lost = subprocess.run(ask, capture_output=True, text=True)
    assert lost.returncode == 5
    assert "alice" in lost.stderr
    assert "can't be reached" in lost.stderr


def test_names_of_classes_are_told(tmp_path: Path) -> None:
    rows = np.random.default_rng(3).uniform(-1, 1, (40, 2)).astype(np.float32)
    wanted = np.where(rows[:, 0] > 0, "approved", "refused")
    model = LogisticRegression(C=100).fit(rows, wanted)
    receivers = {"label": ("patient",), "probabilities": ("patient",)}
    plan, weights = veilgraph.compile(
        model, shapes={"X": (1, 2)}, calibrate={"X": rows[:, None]},
        clients=("patient",), owners={"X": "patient"}, receivers=receivers,
    )  # fmt: skip
    hospital = Hospital(tmp_path, members(plan))
    hospital.put("credit/1", plan, weights)
    np.save(tmp_path / "x.npy", np.array([[0.9, 0.1]], np.float32))
    given = ["--config", str(hospital.client), "--input", f"X=@{tmp_path / 'x.npy'}"]
    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        with veilgraph.Client("credit", hospital.client) as client:
            assert client.labels == {"label": ("approved", "refused")}
        asked = CliRunner().invoke(main, ["infer", "credit", *given])
        as_json = CliRunner().invoke(main, ["infer", "credit", *given, "--json"])
    assert "label, 1: approved\n" in asked.output
    assert json.loads(as_json.output)["outputs"]["label"]["labels"] == ["approved"]


def test_a_link_that_breaks_right_after_its_handshake(
    open_hospital: Hospital, monkeypatch: pytest.MonkeyPatch
) -> None:
    """benchmarks/serving/faults.py found it: asking for the certificate asks for the connection."""

    def gone(*_: object, **__: object) -> bytes:
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))

    monkeypatch.setattr(ssl.SSLSocket, "getpeercert", gone)
    with pytest.raises(PeerError, match=r"alice at .* can't be reached: Transport endpoint"):
        Client("small", open_hospital.client)
