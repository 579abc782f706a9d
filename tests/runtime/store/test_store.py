"""Prepared inferences: encrypted, agreed on, each used once, whatever dies when."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from at_once import at_once
from onnx import TensorProto, helper, numpy_helper

import veilgraph
from veilgraph.ir.errors import (
    PeerError,
    ResourceLimitError,
    SecurityAbort,
    UsageError,
    VeilgraphError,
)
from veilgraph.measuring.processes import write_configs
from veilgraph.plans import Plan
from veilgraph.runtime.devices.cpu import CpuDevice
from veilgraph.runtime.session import setup as joining
from veilgraph.runtime.session.config import Config
from veilgraph.runtime.session.private_keys import secret_of
from veilgraph.runtime.session.setup import store_at
from veilgraph.runtime.store import position as store_state
from veilgraph.runtime.store import store as store_module
from veilgraph.runtime.store.at_rest import AtRest, read_at_rest
from veilgraph.runtime.store.position import StoreState
from veilgraph.runtime.store.store import Store
from veilgraph.session import Session

WEIGHTS = np.array([[1.0, -2.0], [0.5, 3.0], [-1.5, 0.25]], np.float32)
INPUT = np.array([[1.0, -1.0, 2.0]], np.float32)
EXPECTED = np.maximum(INPUT @ WEIGHTS, 0)
IN_VAIN = 2.0  # seconds that a party waits for one that does not come
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


@cache
def small_plan(suite: str) -> tuple[Plan, dict[str, Any]]:
    """The plan of the small model, which no test changes, and its weights."""
    return veilgraph.compile(small_model(), suite=suite, **SUITES[suite])


class Hosts:
    """All parties of a plan, each on a thread, with files of its own.

    Attributes:
        timeout_seconds: of their sessions; short where somebody is waited for in vain.
    """

    timeout_seconds = 5.0

    def __init__(self, folder: Path, suite: str) -> None:
        self.folder = folder
        self.suite = suite
        self.plan, weights = small_plan(suite)
        self.weights = dict(weights)
        write_configs(folder, self.plan.manifest.parties)

    def compiled(self, **options: Any) -> tuple[Plan, Any]:
        return veilgraph.compile(small_model(), suite=self.suite, **SUITES[self.suite], **options)

    @property
    def online(self) -> list[str]:
        return [*self.plan.manifest.computing]

    def open(self, party: str, **options: Any) -> Session:
        config = self.folder / f"{party}.yaml"
        timeout = self.timeout_seconds
        return Session(self.plan, party, config, timeout_seconds=timeout, **options)

    def store(self, party: str) -> Path:
        return self.folder / f"{party}.store"

    def kept_by(self, party: str) -> Path | None:
        return self.store(party) if party in self.plan.manifest.computing else None

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
        results = at_once(parties, work)
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


def test_a_host_reads_its_key_once(rep3_hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """What opens the store is what the session is joined with, whatever becomes of the file."""
    hosts, read = rep3_hosts, []
    hosts.prepare(1)

    def noting(path: Path) -> bytes:
        read.append(path.name)
        return secret_of(path)

    monkeypatch.setattr(joining, "secret_of", noting)
    assert isinstance(hosts.run()[0], list)
    assert sorted(read) == ["alice.key", "bob.key", "carol.key"]


def test_a_store_that_is_used_up_says_so(hosts: Hosts) -> None:
    hosts.prepare(1)
    hosts.run()
    errors = hosts.run()
    assert all(isinstance(error, ResourceLimitError) for error in errors)
    assert "used up" in errors[0].message


def test_too_few_inferences_are_counted_before_one_is_spent(rep3_hosts: Hosts) -> None:
    hosts = rep3_hosts
    hosts.prepare(2)

    def run(party: str, count: int) -> Any:
        with hosts.open(party, store=hosts.store(party), inferences=count) as session:
            inputs = {"x": INPUT} if party == "alice" else {}
            return [session.run(inputs) for _ in range(count)]

    with pytest.raises(ResourceLimitError, match="2 of the 5 inferences"):
        run("alice", 5)  # alone: no link was opened
    (hosts.store("bob") / "store.00000001").unlink()  # as if bob had died in the middle of it
    for error in hosts.all(hosts.online, lambda party: run(party, 1 if party == "bob" else 2)):
        assert isinstance(error, SecurityAbort | PeerError)
    with pytest.raises(ResourceLimitError, match="1 of the 2 inferences"):
        run("bob", 2)
    assert hosts.store("alice").joinpath("store.00000001").exists()
    (outputs,) = hosts.all(hosts.online, lambda party: run(party, 1))[0]
    np.testing.assert_allclose(outputs["y"], EXPECTED, atol=1e-3)


def test_parties_find_together_that_too_few_are_left(rep3_hosts: Hosts) -> None:
    hosts = rep3_hosts
    hosts.prepare(3)
    (hosts.store("alice") / "store.00000003").unlink()
    (hosts.store("bob") / "store.00000001").unlink()

    def run(party: str) -> None:
        with hosts.open(party, store=hosts.store(party), inferences=2) as session:
            session.run({"x": INPUT} if party == "alice" else {})

    for error in hosts.all(hosts.online, run):
        assert isinstance(error, ResourceLimitError)
        assert "1 of the 2 inferences" in error.message
    left = {p: sorted(f.name for f in hosts.store(p).iterdir()) for p in hosts.online}
    assert [len(files) for files in left.values()] == [3, 3, 4]


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

    def dies(self: Store, path: Path, header: AtRest, key: bytes) -> bytes:
        if path.name.startswith("store.00000001"):
            raise ResourceLimitError("Out of power.", "Find some.")
        return read(self, path, header, key)

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
    with pytest.raises(SecurityAbort, match="another store or another party's key"):
        rep3_hosts.open("alice", store=rep3_hosts.store("bob"))


def test_a_file_of_another_store_is_refused(rep3_hosts: Hosts) -> None:
    """One that was used, put where a new store has its own by somebody who knows no key."""
    hosts = rep3_hosts
    hosts.prepare(1)
    used = (hosts.store("alice") / "store.00000001").read_bytes()
    hosts.run()
    for party in hosts.online:
        shutil.rmtree(hosts.store(party))
    hosts.prepare(2)
    mine = hosts.store("alice") / "store.00000001"
    unused = mine.read_bytes()
    mine.write_bytes(used)
    errors = hosts.run()
    assert isinstance(errors[0], SecurityAbort), errors
    assert "belongs to another store" in errors[0].message
    assert not any(isinstance(result, list) for result in errors)
    (hosts.store("alice") / "store.00000002").write_bytes(unused)  # another number of this store
    errors = hosts.run()
    assert isinstance(errors[0], SecurityAbort), errors


def test_nothing_that_is_left_opens_a_used_inference(rep3_hosts: Hosts) -> None:
    """Whoever copied its file before, and gets the whole host afterwards, private key included."""
    hosts = rep3_hosts
    hosts.prepare(3)
    config = Config.load(hosts.folder / "carol.yaml")
    store = store_at(hosts.store("carol"), config)
    made = store.session()
    with store._state.held(made.id) as first:
        pass
    backup = {p.name: p.read_bytes() for p in hosts.store("carol").iterdir()}
    hosts.run(2)
    hosts.store("carol").joinpath("store.00000002").write_bytes(backup["store.00000002"])
    left = [p for p in (hosts.folder / "carol.state").iterdir() if p.is_file()]
    assert sorted(p.name for p in left) == [
        "spent-sessions-carol",
        store._state.path(made.id).name,
        "stores-carol.lock",
    ]
    with store._state.held(made.id) as now:
        assert now.number == 3
    # The ratchet goes on from where it was, and not back: what it was is nowhere.
    assert now == first.at(3)
    past = [first, first.next()]
    secret, name = secret_of(config.key), "store.00000002"
    kept = hosts.folder / "kept"
    kept.write_bytes(backup[name])
    header = AtRest("inference", "carol", made.id, made.id, 2)
    for ratchet in (now, now.next()):
        with pytest.raises(SecurityAbort, match="doesn't open"):
            read_at_rest(kept, header, ratchet.seal(secret, made.id))
    assert list(read_at_rest(kept, header, past[1].seal(secret, made.id)))
    gone = [s for r in past for s in (*r.states.values(), *r.keys().values())]
    disk = b"".join(p.read_bytes() for p in (*left, *hosts.store("carol").iterdir()))
    known = [*now.states.values(), *now.keys().values(), disk, made.memory]
    assert not any(each in content for each in gone for content in known)


def test_keys_of_a_session_say_nothing_of_its_store_nor_the_other_way(rep3_hosts: Hosts) -> None:
    """Inferences before, in and after a store of one session; and two stores of it."""
    hosts = rep3_hosts
    used: dict[str, list[bytes]] = {}
    rekey = CpuDevice.rekey

    def work(party: str) -> Any:
        inputs = {"x": INPUT} if party == "alice" else {}
        with hosts.open(party, weights=hosts.weights) as session:
            device = session._party.device

            def noting(keys: bytes) -> None:
                used.setdefault(party, []).extend(keys[i:][:16] for i in range(0, len(keys), 16))
                rekey(device, keys)

            device.rekey = noting
            answers = [session.run(inputs)]
            session.prepare(hosts.folder / f"{party}.one", 2)
            answers.append(session.run(inputs))
            session.prepare(hosts.folder / f"{party}.store", 2)
        return answers

    for outputs in hosts.all(hosts.online, work)[0]:
        np.testing.assert_allclose(outputs["y"], EXPECTED, atol=1e-3)
    for party in hosts.online:
        assert len(set(used[party])) == len(used[party])
    state = StoreState(hosts.folder / "alice.state", "alice", secret_of(hosts.folder / "alice.key"))
    ids = {
        folder: store_at(
            hosts.folder / f"alice.{folder}", Config.load(hosts.folder / "alice.yaml")
        ).session()
        for folder in ("one", "store")
    }
    found = []
    for each in ids.values():
        with state.held(each.id) as ratchet:
            found.append(ratchet)
    assert [each.number for each in found] == [2, 5]
    own, *later = (set(found[0].at(i).keys().values()) for i in range(3, 7))
    assert own & set(used["alice"])  # of inference 3 as many as the plan draws with
    assert not set().union(*later) & set(used["alice"])
    np.testing.assert_allclose(hosts.run(2)[0][1]["y"], EXPECTED, atol=1e-3)


@pytest.mark.parametrize("at", ["advance", "sync"])
def test_a_crash_before_the_state_is_written_uses_nothing(
    rep3_hosts: Hosts, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    hosts = rep3_hosts
    hosts.prepare(2)

    def dies(*_: object) -> None:
        raise ResourceLimitError("Out of power.", "Find some.")

    with monkeypatch.context() as during:
        if at == "advance":
            during.setattr(StoreState, "advance", dies)
        else:
            during.setattr(store_module, "sync_folder", dies)
        assert not any(isinstance(result, list) for result in hosts.run())
    for outputs in hosts.run(2)[0]:
        np.testing.assert_allclose(outputs["y"], EXPECTED, atol=1e-3)


def test_a_full_disk_while_the_state_is_written(
    rep3_hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = rep3_hosts
    hosts.prepare(1)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as during:
        during.setattr(store_state, "write_to", full)
        errors = hosts.run()
    assert any(isinstance(e, ResourceLimitError) and "No space left" in e.message for e in errors)
    np.testing.assert_allclose(hosts.run()[0][0]["y"], EXPECTED, atol=1e-3)


def test_preparing_that_is_interrupted_keeps_what_is_whole(
    rep3_hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = rep3_hosts
    sync = os.fsync

    def full(descriptor: int) -> None:
        if ".store.00000003." in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    with monkeypatch.context() as during:
        during.setattr(os, "fsync", full)
        errors = hosts.prepare(4)
    assert any(isinstance(error, ResourceLimitError) for error in errors)
    for party in hosts.online:
        names = {path.name for path in hosts.store(party).iterdir()}
        assert names == {"store.session", "store.00000001", "store.00000002"}
    for outputs in hosts.run(2)[0]:
        np.testing.assert_allclose(outputs["y"], EXPECTED, atol=1e-3)


def test_preparing_that_fails_at_once_leaves_no_store_anywhere(rep3_hosts: Hosts) -> None:
    """alice's folder is taken; the others can try again when it is not."""
    hosts = rep3_hosts
    hosts.store("alice").mkdir()
    taken = hosts.store("alice") / "store.session"
    taken.write_bytes(b"taken")
    errors = hosts.prepare(1)
    assert isinstance(errors[0], UsageError)
    assert "holds a store already" in errors[0].message
    assert taken.read_bytes() == b"taken"
    for party in hosts.online:
        assert not list((hosts.folder / f"{party}.state").glob("store-*"))
    for party in ("bob", "carol"):
        assert not list(hosts.store(party).iterdir())
    taken.unlink()
    assert hosts.prepare(1) == [None] * 3
    np.testing.assert_allclose(hosts.run()[0][0]["y"], EXPECTED, atol=1e-3)


def test_a_first_inference_that_cannot_be_stored_leaves_no_store(
    rep3_hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise ResourceLimitError("Full.", "Make room.")

    with monkeypatch.context() as during:
        during.setattr(Store, "add", full)
        assert all(isinstance(error, VeilgraphError) for error in rep3_hosts.prepare(2))
    for party in rep3_hosts.online:
        assert not list(rep3_hosts.store(party).iterdir())
        assert not list((rep3_hosts.folder / f"{party}.state").glob("store-*"))


def four_times_at_once(act: Callable[[], None]) -> None:
    threads = [threading.Thread(target=act) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_of_two_that_claim_one_folder_one_gets_it(rep3_hosts: Hosts) -> None:
    config = Config.load(rep3_hosts.folder / "alice.yaml")
    start, found = threading.Barrier(4), []

    def claims() -> None:
        store = store_at(rep3_hosts.store("alice"), config)
        start.wait()
        try:
            found.append(store.claim())
        except UsageError as error:
            found.append(error)

    four_times_at_once(claims)
    assert found.count(None) == 1
    assert all("holds a store already" in e.message for e in found if e is not None)


def test_files_with_other_names_are_no_inferences(rep3_hosts: Hosts) -> None:
    rep3_hosts.prepare(1)
    for name in ("store.\u00b2", "store.\u0663", "store.\u00b2.taken", "store.x"):
        (rep3_hosts.store("alice") / name).touch()
    np.testing.assert_allclose(rep3_hosts.run()[0][0]["y"], EXPECTED, atol=1e-3)


def test_a_store_without_its_state_is_refused(rep3_hosts: Hosts) -> None:
    """It was taken to another host, or the state was lost."""
    hosts = rep3_hosts
    hosts.prepare(1)
    (state,) = (hosts.folder / "bob.state").glob("store-bob-*")
    content = state.read_bytes()
    state.unlink()
    hosts.timeout_seconds = IN_VAIN
    errors = hosts.run()
    assert isinstance(errors[1], SecurityAbort)
    assert "Nothing says where this party's store stands" in errors[1].message
    state.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    errors = hosts.run()
    assert isinstance(errors[1], SecurityAbort)
    assert "was changed" in errors[1].message


def test_two_runs_at_once_never_use_one_inference_twice(
    rep3_hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each party's two processes take at the same time; each inference goes to one of them."""
    hosts = rep3_hosts
    hosts.prepare(4)
    config = Config.load(hosts.folder / "alice.yaml")
    start = threading.Barrier(4)
    found: list[tuple[int, bytes] | VeilgraphError] = []

    def takes() -> None:
        store = store_at(hosts.store("alice"), config)
        made = store.session().id
        start.wait()
        for number in (1, 2, 3, 4):
            try:
                found.append((number, store.take(number, made).memory))
            except VeilgraphError as error:
                found.append(error)

    four_times_at_once(takes)
    taken = [each[0] for each in found if isinstance(each, tuple)]
    assert len(found) == 16
    assert len(set(taken)) == len(taken)
    assert max(taken) == 4
    refused = [each for each in found if isinstance(each, SecurityAbort)]
    assert len(taken) + len(refused) == 16


def test_a_run_that_holds_the_state_is_not_awaited_for_ever(
    rep3_hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = rep3_hosts
    hosts.prepare(1)
    monkeypatch.setattr(store_state, "_HELD_SECONDS", 0.2)
    with (hosts.folder / "alice.state" / "stores-alice.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        hosts.timeout_seconds = IN_VAIN
        errors = hosts.run()
    hosts.timeout_seconds = Hosts.timeout_seconds
    assert isinstance(errors[0], ResourceLimitError)
    assert errors[0].message.startswith("Another run of alice holds ")
    np.testing.assert_allclose(hosts.run()[0][0]["y"], EXPECTED, atol=1e-3)


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
    kept = {file.name for file in (tmp_path / "dave.state").iterdir()}
    assert kept == {"spent-sessions-dave", "verified-plans"}


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
    hosts.timeout_seconds = IN_VAIN

    def work(party: str) -> None:
        hosts.open(party, store=hosts.kept_by(party), insecure_plaintext=plaintext).close()

    error = hosts.all(["dave", "alice"], work)[0]
    assert isinstance(error, PeerError)
    assert error.message == ("alice runs from a store, and dave takes no part in that.")
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
        forgetful: f"{with_store} runs from a store, and this party has none.",
        with_store: f"{forgetful} awaits dave, and this party runs from a store.",
    }
    assert all(isinstance(error, PeerError) for error in errors.values())
    assert {party: error.message for party, error in errors.items()} == expected


def test_a_dealer_that_never_comes(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, "additive")
    hosts.timeout_seconds = IN_VAIN

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
