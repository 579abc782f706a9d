"""Clients, from `compile` to hosts over TLS: who gives and receives, and computes nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from at_once import at_once
from onnx import ModelProto, TensorProto, helper, numpy_helper
from verbs import json_of, reason, run_verb

import veilgraph
from veilgraph.ir.errors import PeerError, SecurityAbort, UsageError
from veilgraph.ir.plan.checks import check
from veilgraph.ir.plan.tables import Phase
from veilgraph.measuring.processes import write_configs
from veilgraph.plans import Plan
from veilgraph.session import Session
from veilgraph.verification.verify import verify

RNG = np.random.default_rng(1)
W = RNG.standard_normal((8, 5)).astype(np.float32)
X = RNG.uniform(-1, 1, (4, 1, 8)).astype(np.float32)
EXPECTED = np.maximum(X[0] @ W, 0)
SUITES: dict[str, dict[str, Any]] = {
    "rep3": {},
    "additive": {"parties": ("alice", "bob"), "dealer": "dave"},
}
PATIENT: dict[str, Any] = {
    "clients": ("patient",), "owners": {"x": "patient"}, "receivers": {"y": ("patient",)}
}  # fmt: skip


def model() -> ModelProto:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        [numpy_helper.from_array(W, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def compiled(suite: str, **options: Any) -> tuple[Plan, Any]:
    asked = {**SUITES[suite], **PATIENT, **options}
    return veilgraph.compile(model(), suite=suite, calibrate={"x": X}, **asked)


@pytest.fixture(scope="module", params=SUITES)
def made(request: pytest.FixtureRequest) -> tuple[Plan, Any]:
    return compiled(request.param)


# One process


def test_the_answer_is_the_clients(made: tuple[Plan, Any]) -> None:
    plan, weights = made
    answer = veilgraph.simulate(plan, weights, {"x": X[0]})
    np.testing.assert_allclose(answer.outputs["y"], EXPECTED, atol=0.01)
    assert [t.name for t in plan.party("patient").inputs] == ["x"]
    assert [t.name for t in plan.party("patient").outputs] == ["y"]
    assert {n for n in plan.manifest.parties if plan.party(n).outputs} == {"patient"}


def test_a_plan_with_a_client_is_verified_against_all_it_may_join(made: tuple[Plan, Any]) -> None:
    found = verify(made[0])
    computing = made[0].manifest.computing
    alone = {*found.coalitions} & {(name,) for name in made[0].manifest.parties}
    assert alone == {(name,) for name in made[0].manifest.parties}
    assert {(name, "patient") for name in computing} <= {*found.coalitions}


def test_the_clients_bytes_are_counted(made: tuple[Plan, Any]) -> None:
    plan = made[0]
    links = {link for phase in Phase for link in plan.sent_bytes(phase)}
    assert {link for link in links if link.startswith("patient->")} == (
        {"patient->bob", "patient->carol"} if plan.manifest.suite == "rep3" else {"patient->bob"}
    )
    assert sum(link.endswith("->patient") for link in links) == 2
    assert plan.cost().online.total_bytes == sum(plan.sent_bytes(Phase.ONLINE).values())


@pytest.mark.parametrize("suite", SUITES)
def test_a_client_may_have_the_weights(suite: str) -> None:
    plan, weights = compiled(
        suite, clients=("patient", "vendor"), owners={"x": "patient", "weights": "vendor"}
    )
    assert verify(plan).secrets[-1].owner == "vendor"
    answer = veilgraph.simulate(plan, weights, {"x": X[0]})
    np.testing.assert_allclose(answer.outputs["y"], EXPECTED, atol=0.01)
    assert "vendor->bob" in plan.sent_bytes(Phase.SETUP)


def test_two_clients_receive_the_same() -> None:
    receivers = {"y": ("patient", "doctor")}
    plan, weights = compiled("rep3", clients=("patient", "doctor"), receivers=receivers)
    verify(plan)
    answer = veilgraph.simulate(plan, weights, {"x": X[0]})
    np.testing.assert_allclose(answer.outputs["y"], EXPECTED, atol=0.01)


def test_a_client_is_asked_for_no_threshold(made: tuple[Plan, Any]) -> None:
    """It computes nothing, so it knows of no value how it was rounded."""
    whys = [d.why for d in made[0].manifest.disclosures if d.to == "patient"]
    assert any(why.startswith("patient knows no threshold") for why in whys)


# What is refused


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "computes too": ({"clients": ("patient", "alice")}, "alice can't be a client and compute."),
    "deals too": ({"clients": ("patient", "dave")}, "dave can't be a client and the dealer"),
    "twice": ({"clients": ("patient", "patient")}, "Names must be different plain words"),
    "no name": ({"clients": ("patient", "a b")}, "Names must be different plain words"),
    "too long": (
        {"clients": (32 * "p",), "owners": {"x": 32 * "p"}, "receivers": {}},
        "can't be a party's name",
    ),
    "beyond ASCII": (
        {"clients": ("müller",), "owners": {"x": "müller"}, "receivers": {}},
        "'müller' can't be a party's name",
    ),
    "a dealer so": ({"dealer": 32 * "d"}, "can't be a party's name"),
    "idle": ({"clients": ("patient", "eve")}, "Client eve gives nothing and receives nothing."),
    "unnamed": ({"clients": ()}, "patient owns `x`, and is no party."),
    "too many": (
        {"clients": tuple("abcde"), "receivers": {"y": tuple("abcde")}, "owners": {}},
        "5 clients are named, and a plan has at most 4.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_clients_that_are_refused(case: str) -> None:
    options, said = REFUSED[case]
    with pytest.raises(UsageError) as caught:
        compiled("additive", **options)
    assert said in f"{caught.value.message} {caught.value.hint}"


LIES: dict[str, tuple[Callable[[Mapping[str, str]], Mapping[str, str]], str]] = {
    "a client computes": (lambda roles: {**roles, "patient": "computing"}, "has 3 parties, and 4"),
    "a party is a client": (lambda roles: {**roles, "carol": "client"}, "has 3 parties, and 2"),
    "a client deals": (lambda roles: {**roles, "patient": "dealer"}, "gives something to patient"),
    "no role": (lambda roles: {**roles, "patient": "king"}, "roles are not those of its parties"),
    "a role less": (lambda roles: {"alice": "computing"}, "roles are not those of its parties"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_plan_that_lies_about_roles(lie: str) -> None:
    plan, _ = compiled("rep3")
    change, said = LIES[lie]
    false = replace(plan, manifest=replace(plan.manifest, roles=change(plan.manifest.roles)))
    with pytest.raises(SecurityAbort, match=said):
        verify(false)


def test_a_plan_of_dealers_alone_has_nobody_who_computes() -> None:
    plan, _ = compiled("rep3")
    nobody = dict.fromkeys(plan.manifest.parties, "client")
    with pytest.raises(ValueError, match="none of its parties computes"):
        check(replace(plan, manifest=replace(plan.manifest, roles=nobody)))


# Hosts


class Hosts:
    """All parties of a plan, each on a thread, over TLS."""

    def __init__(self, folder: Path, plan: Plan, weights: Any) -> None:
        self.folder, self.plan, self.weights = folder, plan, weights
        write_configs(folder, plan.manifest.parties)

    def open(self, party: str, seconds: float = 20, **options: Any) -> Session:
        config = self.folder / f"{party}.yaml"
        return Session(self.plan, party, config, timeout_seconds=seconds, **options)

    def all(self, parties: Any, work: Callable[[str], Any]) -> dict[str, Any]:
        """What each party's work gives, or the user error that ended it."""
        return at_once(parties, work)


@pytest.fixture
def hosts(made: tuple[Plan, Any], tmp_path: Path) -> Hosts:
    return Hosts(tmp_path, *made)


def test_a_client_takes_part_in_a_session(hosts: Hosts) -> None:
    def work(party: str) -> Any:
        with hosts.open(party, weights=hosts.weights if party == "bob" else None) as session:
            assert [t.name for t in session.inputs] == (["x"] if party == "patient" else [])
            return session.run({"x": X[0]} if party == "patient" else {})

    done = hosts.all(hosts.plan.manifest.parties, work)
    np.testing.assert_allclose(done.pop("patient")["y"], EXPECTED, atol=0.01)
    assert all(outputs == {} for outputs in done.values())


def test_a_client_runs_from_a_store(hosts: Hosts) -> None:
    """It keeps keys and what it was sent ahead; who deals keeps nothing, and is not there."""
    manifest = hosts.plan.manifest
    online = [name for name in manifest.parties if manifest.role(name).online]
    assert "patient" in online
    assert "dave" not in online

    def ahead(party: str) -> None:
        with hosts.open(party, weights=hosts.weights if party == "bob" else None) as session:
            session.prepare(hosts.folder / f"{party}.store" if party in online else None, 1)

    def run(party: str) -> Any:
        with hosts.open(party, store=hosts.folder / f"{party}.store") as session:
            return session.run({"x": X[0]} if party == "patient" else {})

    assert {*hosts.all(manifest.parties, ahead).values()} == {None}
    done = hosts.all(online, run)
    np.testing.assert_allclose(done["patient"]["y"], EXPECTED, atol=0.01)


def test_a_client_without_a_store_is_told_so(hosts: Hosts) -> None:
    def ahead(party: str) -> None:
        with hosts.open(party, weights=hosts.weights if party == "bob" else None) as session:
            store = hosts.folder / f"{party}.store"
            session.prepare(store if hosts.plan.manifest.role(party).computes else None, 1)

    done = hosts.all(hosts.plan.manifest.parties, ahead)
    assert "Nothing says where patient keeps what is prepared" in str(done["patient"])


def test_a_client_that_never_comes(hosts: Hosts) -> None:
    def work(party: str) -> Any:
        with hosts.open(party, seconds=2, weights=hosts.weights if party == "bob" else None):
            return None

    there = [name for name in hosts.plan.manifest.parties if name != "patient"]
    for error in hosts.all(there, work).values():
        assert isinstance(error, PeerError)
    assert "patient" in str(hosts.all(there[:1], work)[there[0]])


def test_a_client_that_gives_nothing(hosts: Hosts) -> None:
    """It is told so before anything is sent; the others hear that it left."""

    def work(party: str) -> Any:
        with hosts.open(
            party, seconds=5, weights=hosts.weights if party == "bob" else None
        ) as session:
            return session.run({})

    done = hosts.all(hosts.plan.manifest.parties, work)
    assert isinstance(done.pop("patient"), UsageError)
    assert any("patient" in str(error) for error in done.values())
    assert all(isinstance(done[name], PeerError) for name in hosts.plan.manifest.computing)


# The command line


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("client")
    (found / "small.onnx").write_bytes(model().SerializeToString())
    np.savez(found / "samples.npz", x=X)
    np.save(found / "x.npy", X[0])
    return found


OPTIONS = ("--client", "patient", "--owner", "x=patient", "--reveal", "y=patient")


def test_compile_inspect_and_simulate_with_a_client(folder: Path) -> None:
    made = ("compile", folder / "small.onnx", "--calibrate", folder / "samples.npz")
    found = json_of(*made, "-o", folder / "small.plan", *OPTIONS)
    assert found["clients"] == ["patient"]
    assert found["inputs"][0]["owner"] == "patient"
    shown = run_verb("inspect", folder / "small.plan").stdout
    assert ["client", "patient"] in [line.split()[:2] for line in shown.splitlines()]
    given = ("--weights", folder / "small.weights", "--input", f"x=@{folder / 'x.npy'}")
    answer = json_of("simulate", folder / "small.plan", *given)
    np.testing.assert_allclose(answer["outputs"]["y"]["values"], EXPECTED, atol=0.01)


def test_four_processes_one_of_which_computes_nothing(folder: Path) -> None:
    made = ("compile", folder / "small.onnx", "--calibrate", folder / "samples.npz")
    assert run_verb(*made, "-o", folder / "run.plan", *OPTIONS).exit_code == 0
    write_configs(folder, ("alice", "bob", "carol", "patient"))
    own = {"bob": ["--weights", "run.weights"], "patient": ["--input", "x=@x.npy"]}
    started = {}
    for party in ("alice", "bob", "carol", "patient"):
        named = ["--party", party, "--config", f"{party}.yaml", "--json", *own.get(party, [])]
        command = [sys.executable, "-m", "veilgraph", "run", "run.plan", *named]
        started[party] = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE)
    printed = {party: process.communicate(timeout=60)[0] for party, process in started.items()}
    assert [process.returncode for process in started.values()] == [0, 0, 0, 0]
    report = json.loads(printed["patient"])
    np.testing.assert_allclose(report["outputs"]["y"]["values"], EXPECTED, atol=0.01)
    assert {*report["sent_bytes"]["online"]} == {"patient->bob", "patient->carol"}


def test_a_client_that_computes_is_refused_at_the_command_line(folder: Path) -> None:
    made = ("compile", folder / "small.onnx", "-o", folder / "other.plan")
    code, told = reason(*made, "--client", "alice")
    assert (code, "alice can't be a client and compute." in told.replace("\n", " ")) == (2, True)
