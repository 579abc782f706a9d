"""States through sessions over TLS: saved, resumed by another session, and revealed at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counters import (
    REVEAL,
    SHAPE,
    STATE,
    STEP,
    SUITES,
    Hosts,
    X,
    near,
    told_total,
)

import veilgraph
from veilgraph.ir.errors import AccuracyError, PeerError, SecurityAbort, UsageError
from veilgraph.ir.plan.tables import Phase
from veilgraph.session import Session


@pytest.mark.parametrize("suite", SUITES)
def test_a_state_is_saved_resumed_in_another_session_and_revealed(
    tmp_path: Path, suite: str
) -> None:
    hosts = Hosts(tmp_path, suite)
    hosts.together(hosts.steps(0, 60))
    hosts.together(hosts.steps(60, 100), resume=hosts.state)
    found = hosts.together(told_total, resume=hosts.state)
    assert near(found["bob"], X.sum(axis=0))
    assert near(hosts.together(told_total)["bob"], 0)  # without a file from zero


def test_a_mixture_of_files_is_refused_by_name(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, "rep3")
    hosts.together(hosts.steps(0, 2))
    hosts.together(hosts.steps(2, 3), resume=hosts.state)

    def older(name: str) -> Path:
        return hosts.state(name).with_suffix(".state.before" if name == "bob" else ".state")

    found = hosts.together(told_total, resume=older)
    assert all(isinstance(error, SecurityAbort | PeerError) for error in found.values())
    assert any(
        "begins from what run 2 of session" in str(e) or "begins from what run 1 of" in str(e)
        for e in found.values()
    )
    every = hosts.together(told_total, resume=lambda n: hosts.state(n).with_suffix(".state.before"))
    assert near(every["bob"], X[:2].sum(axis=0))


def test_a_file_beside_zero_is_refused(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, "rep3")
    hosts.together(hosts.steps(0, 1))
    found = hosts.together(told_total, resume=lambda n: None if n == "carol" else hosts.state(n))
    assert any("from zero" in str(error) for error in found.values())


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, "rep3")
    hosts.together(hosts.steps(0, 1))

    def session(**options: Any) -> Session:
        return Session(hosts.plan, "alice", hosts.files["alice"], trust_author=True, **options)

    with pytest.raises(SecurityAbort, match="is bob's, and this is alice"):
        session(resume=hosts.state("bob"))
    with pytest.raises(UsageError, match="can't be read"):
        session(resume=tmp_path / "nothing")
    whole = hosts.state("alice").read_bytes()
    content = bytearray(hosts.state("alice").read_bytes())
    content[-20] ^= 1
    hosts.state("alice").write_bytes(bytes(content))
    with pytest.raises(SecurityAbort):
        session(resume=hosts.state("alice"))
    hosts.state("alice").write_bytes(whole)
    hosts.plan, _ = veilgraph.compile(STEP, state=STATE, calibrate={"x": X}, frac_bits=7)
    with pytest.raises(SecurityAbort, match="another layout"):
        session(resume=hosts.state("alice"))


def test_who_keeps_no_state_has_no_file(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, "additive")
    with pytest.raises(UsageError, match="carol keeps no state in this plan"):
        Session(hosts.plan, "carol", hosts.files["carol"], trust_author=True, resume=tmp_path / "x")


def test_parties_that_run_different_entries_stop(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, "rep3")

    def act(session: Session, name: str) -> Any:
        return session.run({}, "reveal" if name == "bob" else "start")

    def given(session: Session, name: str) -> Any:
        if name != "alice":
            return act(session, name)
        return session.run({"start": X[0]}, "start")

    found = hosts.together(given)
    assert any("bob runs entry `reveal`, and this party `start`" in str(e) for e in found.values())


def test_a_run_that_breaks_off_loses_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is run or saved on half a state; what was wrong before a run began loses nothing."""
    hosts = Hosts(tmp_path, "rep3")

    def act(session: Session, name: str) -> Any:
        if name == "alice":
            with pytest.raises(AccuracyError):
                session.run({"x": np.full(SHAPE, 1e6, np.float32)}, "step")
        session.run({"x": X[0]} if name == "alice" else {}, "step")
        party = session._party
        phases, _ = party._loops[Phase.ONLINE, 0]

        def broken(number: int, record: Any) -> None:
            raise PeerError("bob is gone.")

        monkeypatch.setattr(phases, "run", broken)
        with pytest.raises(PeerError):
            session.run({"x": X[1]} if name == "alice" else {}, "step")
        with pytest.raises(SecurityAbort, match="its states are lost"):
            session.run({"x": X[1]} if name == "alice" else {}, "step")
        with pytest.raises(SecurityAbort, match="its states are lost"):
            session.save_state(hosts.state(name))
        return True

    assert all(found is True for found in hosts.together(act).values())


# From stores


def test_a_store_holds_no_state(tmp_path: Path) -> None:
    """What is prepared needs none, and leaves none changed."""
    hosts = Hosts(tmp_path, "rep3")
    hosts.plan, _ = veilgraph.compile(
        STEP, state=STATE, calibrate={"x": X}, receivers={"count_next": ["bob"]}
    )

    def prepares(session: Session, name: str) -> Any:
        session.run({"x": X[0]} if name == "alice" else {})
        session.prepare(tmp_path / f"s{name}", 2)
        found = session.run({"x": X[1]} if name == "alice" else {})
        session.save_state(hosts.state(name))
        return found.get("count_next")

    made = hosts.together(prepares)["bob"]
    assert np.abs(made - X[:2].sum(axis=0)).max() < 0.05

    def goes_on(session: Session, name: str) -> Any:
        for x in X[2:4]:
            found = session.run({"x": x} if name == "alice" else {})
        return found.get("count_next")

    store = {"store": lambda name: tmp_path / f"s{name}"}
    found = hosts.together(goes_on, resume=hosts.state, **store)
    assert np.abs(found["bob"] - X[:4].sum(axis=0)).max() < 0.1


def prepared(hosts: Hosts, entry: str | None, count: int = 1) -> dict[str, Any]:
    """All parties prepare runs of an entry; what went wrong by party."""

    def prepares(session: Session, name: str) -> None:
        online = hosts.plan.manifest.role(name).online
        session.prepare(hosts.store(name) if online else None, count, entry)

    return hosts.together(prepares)


def away(hosts: Hosts) -> list[str]:
    """Parties that take no part online."""
    return [n for n in hosts.plan.manifest.parties if not hosts.plan.manifest.role(n).online]


@pytest.mark.parametrize("suite", SUITES)
def test_each_entry_is_prepared_in_a_store_of_its_own(tmp_path: Path, suite: str) -> None:
    """Steps from one store leave a state that a run from another store reveals."""
    hosts = Hosts(tmp_path, suite)
    assert set(prepared(hosts, "step", 3).values()) == {None}
    hosts.together(hosts.steps(0, 3), away(hosts), store=hosts.store)
    for folder in tmp_path.glob("*.store"):
        folder.rename(folder.with_suffix(".used"))
    assert set(prepared(hosts, "reveal").values()) == {None}
    found = hosts.together(told_total, away(hosts), store=hosts.store, resume=hosts.state)
    assert near(found["bob"], X[:3].sum(axis=0))
    empty = hosts.together(told_total, away(hosts), store=hosts.store, resume=hosts.state)
    assert all("The store is used up" in str(error) for error in empty.values())


@pytest.mark.parametrize("entry", ["step", None])
def test_a_store_runs_the_entry_that_it_was_prepared_for(tmp_path: Path, entry: str | None) -> None:
    """Another entry's online phase draws the same numbers: it is refused, and nothing is spent."""
    hosts = Hosts(tmp_path, "rep3")
    prepared(hosts, "reveal")

    def wrong(session: Session, name: str) -> Any:
        told = r"was prepared for entry `reveal`, and this run is of `step`\."
        with pytest.raises(UsageError, match=told) as refused:
            session.run({"x": X[0]} if name == "alice" else {}, entry)
        assert refused.value.hint.startswith("Run --entry reveal, or prepare a store with")
        return told_total(session, name)

    assert near(hosts.together(wrong, store=hosts.store)["bob"], 0)


def test_parties_that_prepare_different_entries_stop(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, "rep3")

    def prepares(session: Session, name: str) -> None:
        session.prepare(hosts.store(name), 1, "reveal" if name == "bob" else "step")

    found = hosts.together(prepares)
    told = "bob runs entry `reveal`, and this party `step`"
    assert any(told in str(error) for error in found.values())
    assert not any(hosts.store(name).exists() for name in found)
    assert set(prepared(hosts, "step").values()) == {None}  # the folders are free


def test_a_store_of_another_plan_is_refused(tmp_path: Path) -> None:
    """Entries of one name are another plan's: a store is bound to both."""
    hosts = Hosts(tmp_path, "rep3")
    prepared(hosts, "reveal")
    hosts.plan, _ = veilgraph.compile(
        {"step": STEP, "reveal": REVEAL},
        state=STATE,
        calibrate={"x": X},
        receivers={"total": "bob"},
    )
    found = hosts.together(told_total, store=hosts.store)
    assert all("was prepared for another plan" in str(error) for error in found.values())


def test_who_prepares_an_entry_that_is_not_there(tmp_path: Path) -> None:
    found = prepared(Hosts(tmp_path, "rep3"), "stepp")
    assert all("The plan has no entry `stepp`." in str(error) for error in found.values())
