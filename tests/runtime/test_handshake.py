"""Parties go on only if they have the same plan, and each session happens once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from three_parties import (
    DIGEST,
    NAMES,
    Connect,
    connect_all,
    load_all,
    run_processes,
    run_threads,
    write_parties,
)

from veilgraph.ir.errors import SecurityAbort
from veilgraph.runtime import handshake
from veilgraph.runtime.handshake import Session, Terms, agree_on_id, confirm_id, open_session
from veilgraph.runtime.links import Buffer, Links
from veilgraph.runtime.loopback import LoopbackLinks, loopback
from veilgraph.runtime.session_ids import SpentSessions

OTHER = bytes(32)


TERMS = Terms(DIGEST, 64)


def all_open(links: list[Any], terms: list[Terms]) -> list[Any]:
    def act(i: int) -> Session:
        with links[i]:
            return open_session(links[i], terms[i], None)

    return run_threads([lambda i=i: act(i) for i in range(3)])


def keys_of_session(links: Links, folder: Path) -> tuple[bytes, list[tuple[list[int], bytes]]]:
    spent = SpentSessions(folder, links.names[links.party])
    session = open_session(links, TERMS, spent)
    assert set(links.sent_bytes.values()) == {0}
    return session.id, [(sorted(holders), key) for holders, key in session.keys.items()]


def test_processes_share_a_session(connect: Connect, tmp_path: Path) -> None:
    files = write_parties(tmp_path)
    sessions = [
        run_processes(connect, keys_of_session, files, tmp_path / "state") for _ in range(2)
    ]
    for session in sessions:
        assert len({session_id for session_id, _ in session}) == 1
        known: dict[tuple[int, ...], set[bytes]] = {}
        for _, keys in session:
            for holders, key in keys:
                known.setdefault(tuple(holders), set()).add(key)
        # each pair has one key, the same on both sides; each party has one of its own
        assert sorted(known) == [(0,), (0, 1), (0, 2), (1,), (1, 2), (2,)]
        assert all(len(keys) == 1 for keys in known.values())
        assert len(set.union(*known.values())) == 6
    assert sessions[0][0][0] != sessions[1][0][0]
    written = (tmp_path / "state" / "spent-sessions-alice").read_text().split()
    assert written == [session[0][0].hex() for session in sessions]


def test_different_plans() -> None:
    results = all_open(loopback(3, NAMES, 5.0), [TERMS, TERMS, Terms(OTHER, 64)])
    assert all(isinstance(each, SecurityAbort) for each in results), results
    assert results[0].message == (
        f"The parties don't fit together: carol runs a plan with the digest {OTHER.hex()}, and "
        f"this party expects {DIGEST.hex()}."
    )
    assert "alice runs a plan" in results[2].message
    assert "bob runs a plan" in results[2].message
    assert "model.plan" in results[0].hint


def test_different_plans_over_tls(connect: Connect, tmp_path: Path) -> None:
    links = connect_all(connect, load_all(write_parties(tmp_path)))
    results = all_open(links, [Terms(OTHER, 64), TERMS, TERMS])
    assert [each.exit_code for each in results] == [6, 6, 6]
    assert "alice runs a plan" in results[1].message


def test_different_rings() -> None:
    results = all_open(loopback(3, NAMES, 5.0), [TERMS, Terms(DIGEST, 32), TERMS])
    assert all(isinstance(each, SecurityAbort) for each in results), results
    assert (
        "bob runs a ring with this many bits: 32, and this party expects 64" in results[0].message
    )


@pytest.mark.parametrize(
    ("bobs", "others", "said"),
    [
        (3, 2, "bob runs 3 inferences, and this party expects 2."),
        (1, 2, "bob runs 1 inference, and this party expects 2."),
        (0, 2, "bob runs an open number of inferences, and this party expects 2."),
        (1, 0, "bob runs 1 inference, and this party expects an open number."),
    ],
)
def test_different_numbers_of_inferences(bobs: int, others: int, said: str) -> None:
    terms = [Terms(DIGEST, 64, inferences) for inferences in (others, bobs, others)]
    results = all_open(loopback(3, NAMES, 5.0), terms)
    assert all(isinstance(each, SecurityAbort) for each in results), results
    assert said in results[0].message
    assert said in results[2].message


def test_a_store_at_some() -> None:
    stored = Terms(DIGEST, 64, 1, from_store=True)
    results = all_open(loopback(3, NAMES, 5.0), [stored, Terms(DIGEST, 64, 1), stored])
    assert all(isinstance(each, SecurityAbort) for each in results), results
    assert "bob runs with no store, and this party expects a store." in results[0].message


def test_the_longest_hello_fits() -> None:
    names = ",".join(["a" * 31] * 16)
    terms = Terms(DIGEST, 64, handshake.MAX_INFERENCES, from_store=True)
    hello = handshake._Hello(handshake.PROTOCOL_VERSION, 15, terms, OTHER, names)
    assert handshake._Hello.unpack(hello.pack()) == hello


def test_different_parties() -> None:
    links = loopback(3, NAMES, 5.0)
    links[1].names = ("alice", "bob", "dave")
    results = all_open(links, [TERMS] * 3)
    assert all(isinstance(each, SecurityAbort) for each in results), results
    assert "bob runs a session of the parties alice,bob,dave" in results[2].message


def test_a_name_that_would_paint_the_terminal() -> None:
    links = loopback(3, NAMES, 5.0)
    links[1].names = ("alice", "bob", "\x1b]0;owned\x07")
    results = all_open(links, [TERMS] * 3)
    assert "alice,bob,?]0;owned?" in results[0].message
    assert results[0].message.isprintable()


def test_different_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    class Newer(LoopbackLinks):
        def exchange(
            self, sends: Mapping[int, Buffer], receives: Mapping[int, Buffer], step: str
        ) -> None:
            newer = {p: (9).to_bytes(2, "little") + bytes(b)[2:] for p, b in sends.items()}
            super().exchange(newer, receives, step)

    links = loopback(3, NAMES, 5.0)
    links[1].__class__ = Newer
    alice, _, carol = all_open(links, [TERMS] * 3)
    for error in (alice, carol):
        assert isinstance(error, SecurityAbort)
        assert "bob runs veilgraph's protocol in version 9" in error.message


def _hello_as_alice() -> bytes:
    version = handshake.PROTOCOL_VERSION
    return handshake._Hello(version, 0, TERMS, OTHER, "alice,bob,carol").pack()


def test_a_party_that_claims_to_be_another() -> None:
    def act(i: int) -> bytes:
        if i == 2:
            claimed = _hello_as_alice()
            sink = {p: bytearray(len(claimed)) for p in (0, 1)}
            links[2].exchange(dict.fromkeys((0, 1), claimed), sink, "hello")
            return b""
        return agree_on_id(links[i], TERMS, OTHER)

    links = loopback(3, NAMES, 5.0)
    alice, bob, _ = run_threads([lambda i=i: act(i) for i in range(3)])
    for error in (alice, bob):
        assert isinstance(error, SecurityAbort)
        assert "carol runs as party number 0, and this party expects 2" in error.message


def test_the_id_depends_on_every_nonce_and_the_plan() -> None:
    def session_id(nonces: list[bytes], digest: bytes) -> bytes:
        links = loopback(3, NAMES, 5.0)
        ids = run_threads(
            [lambda i=i: agree_on_id(links[i], Terms(digest, 64), nonces[i]) for i in range(3)]
        )
        assert len(set(ids)) == 1, ids
        assert len(ids[0]) == 32
        return bytes(ids[0])

    zero, one = bytes(32), bytes([1] * 32)
    cases = [
        session_id([zero, zero, zero], DIGEST),
        session_id([one, zero, zero], DIGEST),
        session_id([zero, one, zero], DIGEST),
        session_id([zero, zero, one], DIGEST),
        session_id([zero, zero, zero], OTHER),
    ]
    assert len(set(cases)) == len(cases)
    assert session_id([zero, zero, zero], DIGEST) == cases[0]


@pytest.mark.parametrize("forgetful", [(), (1,), (1, 2)])
def test_a_replayed_session(tmp_path: Path, forgetful: tuple[int, ...]) -> None:
    """All nonces come again, as in copied machines; one party that remembers is enough."""

    def act(links: Links) -> None:
        with links:
            spent = SpentSessions(tmp_path, links.names[links.party])
            confirm_id(links, agree_on_id(links, TERMS, OTHER), spent)

    def session() -> list[Any]:
        return run_threads([lambda x=x: act(x) for x in loopback(3, NAMES, 5.0)])

    assert session() == [None] * 3
    for i in forgetful:
        (tmp_path / f"spent-sessions-{NAMES[i]}").unlink()
    results = session()
    for i, error in enumerate(results):
        assert isinstance(error, SecurityAbort), results
        assert "is a replay" in error.message
        who = "alice has" if i in forgetful else "this party has"
        assert who in error.message


def test_different_nonces_to_different_parties() -> None:
    class TwoFaced(LoopbackLinks):
        def exchange(
            self, sends: Mapping[int, Buffer], receives: Mapping[int, Buffer], step: str
        ) -> None:
            altered = dict(sends)
            if step == "handshake: hello":
                hello = bytearray(sends[1])  # type: ignore[arg-type]
                hello[45] ^= 1  # inside the nonce
                altered[1] = hello
            super().exchange(altered, receives, step)

    links = loopback(3, NAMES, 5.0)
    links[0].__class__ = TwoFaced
    alice, bob, carol = all_open(links, [TERMS] * 3)
    for error in (alice, bob, carol):
        assert isinstance(error, SecurityAbort)
        assert "in session" in error.message
