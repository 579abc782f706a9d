"""Prepared inferences: encrypted, agreed on, each used once, whatever dies when."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import veilgraph
from veilgraph.ir.errors import (
    PeerError,
    ResourceLimitError,
    SecurityAbort,
    UsageError,
    VeilgraphError,
)
from veilgraph.plans import Plan
from veilgraph.processes import write_configs
from veilgraph.runtime.store import Store
from veilgraph.session import Session

WEIGHTS = np.array([[1.0, -2.0], [0.5, 3.0], [-1.5, 0.25]], np.float32)
INPUT = np.array([[1.0, -1.0, 2.0]], np.float32)
EXPECTED = np.maximum(INPUT @ WEIGHTS, 0)
SUITES: dict[str, dict[str, Any]] = {
    "rep3": {},
    "additive": {"parties": ["alice", "bob"], "dealer": "dave"},
}


def small_model() -> onnx.ModelProto:
    """relu(x w) for a 3x2 matrix."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
            helper.make_node("Relu", ["p"], ["y"], name="relu"),
        ],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Hosts:
    """All parties of a plan, each on a thread, with files of its own."""

    def __init__(self, folder: Path, suite: str) -> None:
        self.folder = folder
        self.suite = suite
        self.plan, self.weights = self.compiled()
        write_configs(folder, self.plan.manifest.parties)

    def compiled(self, **options: Any) -> tuple[Plan, Any]:
        return veilgraph.compile(small_model(), suite=self.suite, **SUITES[self.suite], **options)

    @property
    def online(self) -> list[str]:
        return [p for p in self.plan.manifest.parties if p != self.plan.manifest.dealer]

    def open(self, party: str, **options: Any) -> Session:
        config = self.folder / f"{party}.yaml"
        return Session(self.plan, party, config, timeout_seconds=5, **options)

    def store(self, party: str) -> Path:
        return self.folder / f"{party}.store"

    def kept_by(self, party: str) -> Path | None:
        return None if party == self.plan.manifest.dealer else self.store(party)

    def prepare(self, count: int) -> list[Any]:
        def work(party: str) -> None:
            with self.open(party, weights=self.weights) as session:
                session.prepare(self.kept_by(party), count)

        return self.all(self.plan.manifest.parties, work)

    def run(self, times: int = 1) -> list[Any]:
        def work(party: str) -> list[Any]:
            inputs = {"x": INPUT} if party == "alice" else {}
            with self.open(party, store=self.store(party)) as session:
                return [session.run(inputs) for _ in range(times)]

        return self.all(self.online, work)

    def all(self, parties: Any, work: Callable[[str], Any]) -> list[Any]:
        """What each party's work gives, or the user error that ended it."""
        results: dict[str, Any] = {}

        def run(party: str) -> None:
            try:
                results[party] = work(party)
            except VeilgraphError as error:
                results[party] = error

        threads = [threading.Thread(target=run, args=(party,)) for party in parties]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [results[party] for party in parties]


@pytest.fixture(params=SUITES)
def hosts(request: pytest.FixtureRequest, tmp_path: Path) -> Hosts:
    return Hosts(tmp_path, request.param)


@pytest.fixture
def rep3_hosts(tmp_path: Path) -> Hosts:
    return Hosts(tmp_path, "rep3")


def test_prepared_inferences_give_the_answer_without_offline_rounds(hosts: Hosts) -> None:
    assert hosts.prepare(2) == [None] * len(hosts.plan.manifest.parties)
    for outputs in hosts.run(2)[0]:
        np.testing.assert_allclose(outputs["y"], EXPECTED, atol=1e-3)


def test_a_store_that_is_used_up_says_so(hosts: Hosts) -> None:
    hosts.prepare(1)
    hosts.run()
    errors = hosts.run()
    assert all(isinstance(error, ResourceLimitError) for error in errors)
    assert "used up" in errors[0].message


def test_a_copied_store_is_refused(hosts: Hosts) -> None:
    hosts.prepare(1)
    copies = {p: hosts.folder / f"{p}.copy" for p in hosts.online}
    for party, copy in copies.items():
        shutil.copytree(hosts.store(party), copy)
    hosts.run()
    for party, copy in copies.items():
        shutil.rmtree(hosts.store(party))
        copy.rename(hosts.store(party))
    errors = hosts.run()
    assert any(isinstance(error, SecurityAbort) for error in errors)
    assert not any(isinstance(result, list) for result in errors)


def test_parties_go_on_with_what_all_of_them_have(rep3_hosts: Hosts) -> None:
    hosts = rep3_hosts
    hosts.prepare(3)
    (hosts.store("bob") / "store.00000001").unlink()  # as if bob had died in the middle of it
    outputs = hosts.run()[0][0]
    np.testing.assert_allclose(outputs["y"], EXPECTED, atol=1e-3)
    left = [sorted(f.name for f in hosts.store(p).iterdir()) for p in hosts.online]
    assert left == [["store.00000003", "store.session"]] * 3


def test_all_parties_die_once_an_inference_is_spent(
    rep3_hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = rep3_hosts
    hosts.prepare(2)
    read = Store._read

    def dies(self: Store, name: str, path: Path | None = None) -> bytes:
        if name == "store.00000001":
            raise ResourceLimitError("Out of power.", "Find some.")
        return read(self, name, path)

    with monkeypatch.context() as during:
        during.setattr(Store, "_read", dies)
        assert not any(isinstance(result, list) for result in hosts.run())
    np.testing.assert_allclose(hosts.run()[0][0]["y"], EXPECTED, atol=1e-3)
    left = [sorted(f.name for f in hosts.store(p).iterdir()) for p in hosts.online]
    assert left == [["store.session"]] * 3


def test_stores_of_two_sessions_do_not_mix(hosts: Hosts) -> None:
    hosts.prepare(1)
    shutil.move(hosts.store("bob"), hosts.folder / "bob.first")
    for party in set(hosts.online) - {"bob"}:
        shutil.rmtree(hosts.store(party))
    hosts.prepare(1)
    shutil.rmtree(hosts.store("bob"))
    shutil.move(hosts.folder / "bob.first", hosts.store("bob"))
    errors = hosts.run()
    assert any(isinstance(e, SecurityAbort) and "another session" in e.message for e in errors)


def test_a_changed_file_is_refused(rep3_hosts: Hosts) -> None:
    hosts = rep3_hosts
    hosts.prepare(1)
    file = hosts.store("alice") / "store.session"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(SecurityAbort, match="was changed"):
        hosts.open("alice", store=hosts.store("alice"))


def test_a_store_of_another_party_is_refused(rep3_hosts: Hosts) -> None:
    rep3_hosts.prepare(1)
    with pytest.raises(SecurityAbort, match="another party's key"):
        rep3_hosts.open("alice", store=rep3_hosts.store("bob"))


def test_a_store_of_another_plan_is_refused(rep3_hosts: Hosts) -> None:
    rep3_hosts.prepare(1)
    rep3_hosts.plan, _ = rep3_hosts.compiled(frac_bits=10)
    with pytest.raises(SecurityAbort, match="another plan"):
        rep3_hosts.open("alice", store=rep3_hosts.store("alice"))


def test_a_store_is_not_overwritten(rep3_hosts: Hosts) -> None:
    rep3_hosts.prepare(1)
    rep3_hosts.run()
    errors = rep3_hosts.prepare(1)
    refused = [e for e in errors if isinstance(e, UsageError)]
    assert refused
    for error in refused:
        assert "holds a store already" in error.message
        assert error.hint == "Name another folder with --store, or remove this one."


def test_more_than_the_session_is_for(rep3_hosts: Hosts) -> None:
    hosts = rep3_hosts

    def work(party: str) -> None:
        with hosts.open(party, weights=hosts.weights, inferences=1) as session:
            session.prepare(hosts.store(party), 1)
            session.run({"x": INPUT} if party == "alice" else {})

    for error in hosts.all(hosts.online, work):
        assert isinstance(error, UsageError)
        assert error.message == "This session is for 1 inference, and has done 1 already."


@pytest.mark.parametrize("inferences", [-1, 1 << 32])
def test_a_number_of_inferences_that_cannot_be(rep3_hosts: Hosts, inferences: int) -> None:
    with pytest.raises(UsageError, match=f"can't run {inferences} inferences"):
        rep3_hosts.open("alice", inferences=inferences)


def test_one_party_without_its_store(rep3_hosts: Hosts) -> None:
    hosts = rep3_hosts
    hosts.prepare(1)

    def work(party: str) -> None:
        own: dict[str, Any] = {"store": hosts.store(party)}
        if party == "bob":
            own = {"weights": hosts.weights}
        hosts.open(party, **own).close()

    errors = hosts.all(hosts.online, work)
    assert all(isinstance(error, SecurityAbort) for error in errors), errors
    assert "bob runs with no store, and this party expects a store." in errors[0].message


def test_no_store(rep3_hosts: Hosts) -> None:
    with pytest.raises(UsageError, match=r"has no store\.session"):
        rep3_hosts.open("alice", store=rep3_hosts.folder / "nothing")


def test_a_store_that_cannot_be_written(rep3_hosts: Hosts) -> None:
    (rep3_hosts.folder / "alice.store").write_text("a file is in the way")
    errors = rep3_hosts.prepare(1)
    assert isinstance(errors[0], ResourceLimitError)
    assert all(isinstance(error, VeilgraphError) for error in errors)


def test_the_dealer_keeps_nothing(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, "additive")
    before = set(tmp_path.iterdir())
    hosts.prepare(1)
    states = {tmp_path / f"{party}.state" for party in hosts.plan.manifest.parties}
    assert set(tmp_path.iterdir()) - before == {*map(hosts.store, hosts.online), *states}
    assert [file.name for file in (tmp_path / "dave.state").iterdir()] == ["spent-sessions-dave"]


@pytest.mark.parametrize(
    ("misled", "said"), [("dave", "dave is the dealer"), ("bob", "where bob keeps what is prep")]
)
def test_who_names_a_store(tmp_path: Path, misled: str, said: str) -> None:
    hosts = Hosts(tmp_path, "additive")

    def work(party: str) -> None:
        right = hosts.kept_by(party)
        wrong = hosts.store(party) if right is None else None
        with hosts.open(party, weights=hosts.weights) as session:
            session.prepare(wrong if party == misled else right, 1)

    parties = hosts.plan.manifest.parties
    error = hosts.all(parties, work)[parties.index(misled)]
    assert isinstance(error, UsageError)
    assert said in error.message


def test_the_dealer_takes_no_part_online(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, "additive")
    hosts.prepare(1)
    with pytest.raises(UsageError, match="takes no part"):
        hosts.open("dave", store=hosts.store("dave"))


@pytest.mark.parametrize("plaintext", [False, True])
def test_a_dealer_that_comes_to_a_run_from_stores(tmp_path: Path, plaintext: bool) -> None:
    hosts = Hosts(tmp_path, "additive")
    hosts.prepare(1)

    def work(party: str) -> None:
        hosts.open(party, store=hosts.kept_by(party), insecure_plaintext=plaintext).close()

    error = hosts.all(["dave", "alice"], work)[0]
    assert isinstance(error, PeerError)
    assert error.message == (
        "alice runs from a store, without the dealer, and this party is the dealer."
    )
    assert "without --store" in error.hint


@pytest.mark.parametrize("plaintext", [False, True])
@pytest.mark.parametrize("forgetful", ["alice", "bob"])
def test_a_party_that_forgets_its_store(tmp_path: Path, forgetful: str, plaintext: bool) -> None:
    """Neither waits for the dealer, who does not come."""
    hosts = Hosts(tmp_path, "additive")
    hosts.prepare(1)

    def work(party: str) -> None:
        store = None if party == forgetful else hosts.store(party)
        hosts.open(party, store=store, weights=hosts.weights, insecure_plaintext=plaintext).close()

    with_store = "bob" if forgetful == "alice" else "alice"
    errors = dict(zip(hosts.online, hosts.all(hosts.online, work), strict=True))
    expected = {
        forgetful: f"{with_store} runs from a store, without the dealer, and this party has none.",
        with_store: f"{forgetful} awaits the dealer, and this party runs from a store, without it.",
    }
    assert all(isinstance(error, PeerError) for error in errors.values())
    assert {party: error.message for party, error in errors.items()} == expected


def test_a_dealer_that_never_comes(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, "additive")

    def work(party: str) -> None:
        hosts.open(party, weights=hosts.weights)

    errors = hosts.all(hosts.online, work)
    assert all(isinstance(error, PeerError) for error in errors)
    assert any("dave" in error.message for error in errors)


def test_a_dealer_that_dies_half_way(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, "additive")

    def work(party: str) -> None:
        with hosts.open(party, weights=hosts.weights) as session:
            session.prepare(hosts.kept_by(party), 1)
            if party != "dave":
                session.run({"x": INPUT} if party == "alice" else {})

    errors = hosts.all(hosts.plan.manifest.parties, work)
    assert any(isinstance(error, PeerError) and "dave" in error.message for error in errors[:2])


def deal_and_die(folder: Path) -> None:
    """The dealer's process: it is killed after the first of two inferences."""
    plan = Plan.load(folder / "model.plan")
    with Session(plan, "dave", folder / "dave.yaml", timeout_seconds=5) as session:
        session.prepare(None, 1)
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_dealer_that_is_killed(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, "additive")
    hosts.plan.save(hosts.folder / "model.plan")
    dealer = multiprocessing.get_context("spawn").Process(target=deal_and_die, args=(tmp_path,))
    dealer.start()

    def work(party: str) -> None:
        with hosts.open(party, weights=hosts.weights) as session:
            session.prepare(hosts.store(party), 2)

    errors = hosts.all(hosts.online, work)
    dealer.join()
    assert dealer.exitcode == -signal.SIGKILL
    assert any(isinstance(error, PeerError) and "dave" in error.message for error in errors)


def test_a_dealer_with_another_plan(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, "additive")
    other, _ = hosts.compiled(frac_bits=10)

    def work(party: str) -> None:
        plan = other if party == "dave" else hosts.plan
        config = hosts.folder / f"{party}.yaml"
        Session(plan, party, config, weights=hosts.weights, timeout_seconds=5).close()

    errors = hosts.all(hosts.plan.manifest.parties, work)
    assert all(isinstance(error, VeilgraphError) for error in errors)
    assert any(isinstance(error, SecurityAbort) for error in errors)
