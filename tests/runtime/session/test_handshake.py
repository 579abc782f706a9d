"""Parties go on only if they have the same plan, and each session happens once."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from three_parties import (
    DIGEST,
    NAMES,
    PAIRS_AND_OWN,
    Connect,
    connect_all,
    load_all,
    run_processes,
    run_threads,
    write_parties,
)

from veilgraph.ir.errors import SecurityAbort
from veilgraph.runtime.links.links import Buffer, Links
from veilgraph.runtime.links.loopback import LoopbackLinks, loopback
from veilgraph.runtime.randomness import fresh_nonce
from veilgraph.runtime.session import handshake
from veilgraph.runtime.session.handshake import (
    Session,
    Terms,
    agree_on_id,
    confirm_id,
    open_session,
)
from veilgraph.runtime.session.keys import Holders
from veilgraph.runtime.session.session_ids import SpentSessions

OTHER = bytes(32)


TERMS = Terms(DIGEST, 64)


def all_open(links: list[Any], terms: list[Terms]) -> list[Any]:
    def act(i: int) -> Session:
        with links[i]:
            return open_session(links[i], terms[i], None, fresh_nonce(), PAIRS_AND_OWN)

    return run_threads([lambda i=i: act(i) for i in range(3)])


def keys_of_session(links: Links, folder: Path) -> tuple[bytes, list[tuple[list[int], bytes]]]:
    spent = SpentSessions(folder, links.names[links.party])
    session = open_session(links, TERMS, spent, fresh_nonce(), PAIRS_AND_OWN)
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
    assert len(written) == 6  # a session: its id, and two peers' nonces
    assert written[::3] == [session[0][0].hex() for session in sessions]


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
        return agree_on_id(links[i], TERMS, OTHER).id

    links = loopback(3, NAMES, 5.0)
    alice, bob, _ = run_threads([lambda i=i: act(i) for i in range(3)])
    for error in (alice, bob):
        assert isinstance(error, SecurityAbort)
        assert "carol runs as party number 0, and this party expects 2" in error.message


def test_the_id_depends_on_every_nonce_and_the_plan() -> None:
    def session_id(nonces: list[bytes], digest: bytes) -> bytes:
        links = loopback(3, NAMES, 5.0)
        ids = run_threads(
            [lambda i=i: agree_on_id(links[i], Terms(digest, 64), nonces[i]).id for i in range(3)]
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
            nonce = hashlib.sha256(links.names[links.party].encode()).digest()
            confirm_id(links, agree_on_id(links, TERMS, nonce), spent)

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


class Repeating:
    """Sources of randomness: those of the hosts named say the same in each session, others do not.

    A party runs on a thread of its own.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self._names, self.here = names, threading.local()
        monkeypatch.setattr(handshake, "fresh_nonce", self._nonce)

    def begin(self, name: str) -> None:
        self.here.name, self.here.count = name, 0

    def _nonce(self) -> bytes:
        if self.here.name not in self._names:
            return fresh_nonce()
        self.here.count += 1
        return hashlib.sha256(f"{self.here.name} {self.here.count}".encode()).digest()


ALL_BUT_NONE_OR_ONE = [
    names for count in (1, 2) for names in itertools.combinations(NAMES, count)
]  # of three parties: any one, and any all but one
SECRETS = {name: hashlib.sha256(name.encode()).digest() for name in NAMES}
# What suites of more parties will ask for: keys of three holders too.
WITH_TRIPLE = [*PAIRS_AND_OWN, frozenset({0, 1, 2})]


def sessions_of(
    source: Repeating, state: Path | None, holders: list[Holders] = WITH_TRIPLE
) -> list[Any]:
    """One session of all parties; without `state` nobody keeps records."""

    def act(links: Links) -> Session:
        name = links.names[links.party]
        source.begin(name)
        spent = None if state is None else SpentSessions(state, name)
        with links:
            return open_session(links, TERMS, spent, SECRETS[name], holders)

    return run_threads([lambda x=x: act(x) for x in loopback(3, NAMES, 5.0)])


def keys_in(sessions: list[Any]) -> set[bytes]:
    assert all(isinstance(each, Session) for each in sessions), sessions
    return {key for session in sessions for key in session.keys.values()}


@pytest.mark.parametrize("names", ALL_BUT_NONE_OR_ONE, ids="+".join)
def test_where_randomness_repeats_no_key_does(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    """One good source of the parties makes all keys new, those of the others' own included."""
    source = Repeating(monkeypatch, *names)
    first, second = (keys_in(sessions_of(source, None)) for _ in range(2))
    assert len(first) == len(second) == 7
    assert not first & second


def test_randomness_of_all_that_repeats_would_repeat_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the tests around this one see what they look for."""
    source = Repeating(monkeypatch, *NAMES)
    first, second = (keys_in(sessions_of(source, None)) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("names", ALL_BUT_NONE_OR_ONE, ids="+".join)
@pytest.mark.parametrize("restored", [False, True], ids=["kept", "restored"])
def test_peers_notice_randomness_that_repeats(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, names: tuple[str, ...], restored: bool
) -> None:
    """A host that went back to a snapshot went back with its records: the others refuse it."""
    source = Repeating(monkeypatch, *names)
    assert len(keys_in(sessions_of(source, tmp_path))) == 7
    if restored:
        for name in names:
            (tmp_path / f"spent-sessions-{name}").unlink()
    for name, error in zip(NAMES, sessions_of(source, tmp_path), strict=True):
        assert isinstance(error, SecurityAbort), error
        assert error.exit_code == 6
        assert "has seen its nonce before" in error.message
        assert "snapshot" in error.hint
        if name not in names:
            assert f"The randomness of {names[0]} repeats: this party" in error.message
        elif names == (name,):
            assert "The randomness of this party repeats: " in error.message


def test_two_parties_with_one_randomness(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clones of one machine that act as two parties, in their very first session."""
    source = Repeating(monkeypatch)
    monkeypatch.setattr(
        handshake, "fresh_nonce", lambda: OTHER if source.here.name != "carol" else fresh_nonce()
    )
    alice, bob, carol = sessions_of(source, None)
    assert "The randomness of bob repeats: this party" in alice.message
    assert "The randomness of alice repeats: this party" in bob.message
    assert "The randomness of alice repeats: this party" in carol.message


def test_all_holders_of_a_key_have_it_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = sessions_of(Repeating(monkeypatch), None)
    known: dict[Holders, list[bytes]] = {}
    for party, session in enumerate(sessions):
        for holders, key in session.keys.items():
            assert party in holders
            known.setdefault(holders, []).append(key)
    assert set(known) == set(WITH_TRIPLE)
    for holders, keys in known.items():
        assert len(keys) == len(holders)
        assert len(set(keys)) == 1


def test_contributions_go_to_holders_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: dict[tuple[int, int], int] = {}

    class Noting(LoopbackLinks):
        def exchange(
            self, sends: Mapping[int, Buffer], receives: Mapping[int, Buffer], step: str
        ) -> None:
            if step == "handshake: keys":
                sent.update({(self.party, peer): len(bytes(b)) for peer, b in sends.items()})
            super().exchange(sends, receives, step)

    def act(links: Any) -> Session:
        links.__class__ = Noting
        with links:
            return open_session(links, TERMS, None, fresh_nonce(), [frozenset({0, 2})])

    sessions = run_threads([lambda x=x: act(x) for x in loopback(3, NAMES, 5.0)])
    assert sent == {(0, 2): 32, (2, 0): 32}
    assert [len(session.keys) for session in sessions] == [1, 0, 1]


def test_a_guessed_generator_does_not_give_keys_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all that carol draws, and all nonces, but not her secret, her own key is another."""
    source = Repeating(monkeypatch, *NAMES)
    right = sessions_of(source, None)
    monkeypatch.setitem(SECRETS, "carol", bytes(32))
    guessed = sessions_of(source, None)
    assert guessed[0].id == right[0].id
    for holders, key in right[2].keys.items():
        assert guessed[2].keys[holders] != key
