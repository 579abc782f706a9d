"""Links that are measured: every pair in both directions, by peers who want it, and no more."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from three_parties import DIGEST, NAMES, load_all, pin, run_threads, write_parties

from veilgraph.ir.errors import PeerError, SecurityAbort
from veilgraph.runtime.links import measuring
from veilgraph.runtime.links.links import Links
from veilgraph.runtime.links.loopback import loopback
from veilgraph.runtime.links.measuring import measure_links
from veilgraph.runtime.links.native import open_links
from veilgraph.runtime.randomness import fresh_nonce
from veilgraph.runtime.session.config import Config
from veilgraph.runtime.session.handshake import Terms, agree_on_id

PAIRS = {(a, b) for a in NAMES for b in NAMES if a != b}


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transfers that take no time: how long they are is all that differs."""
    monkeypatch.setattr(measuring, "MOST_BYTES", 1 << 18)


def measured(configs: list[Config], *peers: tuple[str, ...]) -> list[Any]:
    """What each party finds, or the error that it ends with; `peers` says with whom each one is."""
    linked = [c.linked_with(names) for c, names in zip(configs, peers, strict=True)]
    return run_threads([lambda c=c: measure_links(c) for c in linked])


def others(name: str) -> tuple[str, ...]:
    return tuple(other for other in NAMES if other != name)


@pytest.mark.parametrize("parties", range(2, 17))
def test_every_pair_meets_once_and_no_party_is_in_two_pairs(parties: int) -> None:
    order = [list(measuring._opponents(me, parties)) for me in range(parties)]
    for me, opponents in enumerate(order):
        assert sorted(opponents) == [other for other in range(parties) if other != me]
    # Played as parties do, each waiting for its next opponent, all of them come to their end.
    while any(order):
        ready = [i for i, left in enumerate(order) if left and order[left[0]][0] == i]
        assert ready
        for i in ready:
            del order[i][0]


def test_all_parties_find_the_same_of_every_link(tmp_path: Path, short: None) -> None:
    configs = load_all(write_parties(tmp_path))
    found = measured(configs, *map(others, NAMES))
    assert found[0] == found[1] == found[2]
    assert set(found[0]) == PAIRS
    assert all(r.round_trip_seconds > 0 and r.bytes_per_second > 0 for r in found[0].values())


def test_who_measures_with_some_is_told_of_these_alone(tmp_path: Path, short: None) -> None:
    configs = load_all(write_parties(tmp_path))
    alice, bob, carol = measured(configs, ("bob", "carol"), ("alice",), ("alice",))
    with_bob, with_carol = (
        {("alice", "bob"), ("bob", "alice")},
        {("alice", "carol"), ("carol", "alice")},
    )
    assert set(bob) == with_bob
    assert set(carol) == with_carol
    assert set(alice) == with_bob | with_carol
    assert alice == {**bob, **carol}


def test_a_transfer_grows_to_the_most(short: None) -> None:
    """On links that take no time, every length up to the most is sent, and the last thrice."""
    links = loopback(2)
    run_threads([lambda: measuring._probe(links[0], 1), lambda: measuring._answer(links[1], 0)])
    pings = 2 + measuring.PINGS
    transfers = [1 << 16, 1 << 17, *[1 << 18] * 4]
    assert links[0].sent_bytes[1] == pings + sum(transfers) + 8 * (len(transfers) + 1)


def test_a_peer_that_is_not_wanted_is_told(tmp_path: Path, short: None) -> None:
    """By alice, who waits for bob: he comes once carol has her answer."""
    peers = (("bob",), ("alice",), ("alice",))
    configs = [
        c.linked_with(p) for c, p in zip(load_all(write_parties(tmp_path)), peers, strict=True)
    ]
    answered = Event()

    def late() -> Any:
        assert answered.wait(20)
        return measure_links(configs[1])

    def turned_away() -> Any:
        try:
            return measure_links(configs[2])
        finally:
            answered.set()

    alice, bob, carol = run_threads([lambda: measure_links(configs[0]), late, turned_away])
    assert set(alice) == set(bob) == {("alice", "bob"), ("bob", "alice")}
    assert isinstance(carol, PeerError)
    assert carol.message == "alice measures its links, and not the one to carol."
    assert "--peer carol" in carol.hint


def test_a_peer_that_runs_a_plan(tmp_path: Path) -> None:
    configs = load_all(write_parties(tmp_path))

    def run(config: Config) -> None:
        with open_links(config) as links:
            agree_on_id(links, Terms(DIGEST, 32), fresh_nonce())

    alice, bob, _ = run_threads(
        [
            lambda: measure_links(configs[0]),
            lambda: measure_links(configs[1]),
            lambda: run(configs[2]),
        ]
    )
    for each in (alice, bob):
        assert isinstance(each, SecurityAbort | PeerError)
    told = "carol runs a plan, and this party measures links with `doctor`"
    assert any(told in each.message for each in (alice, bob))


def test_a_peer_with_another_certificate(tmp_path: Path) -> None:
    files = write_parties(tmp_path, 2.0)
    pin(files["bob"], 0, b"another")
    alice, bob = measured(load_all(files)[:2], ("bob",), ("alice",))
    assert isinstance(bob, PeerError)
    assert "is not alice" in bob.message
    assert isinstance(alice, PeerError)
    assert "No link to bob" in alice.message


def test_a_peer_that_does_not_come(tmp_path: Path) -> None:
    config = load_all(write_parties(tmp_path, 0.3))[0]
    with pytest.raises(PeerError, match=r"No link to bob \(127.0.0.1:\d+\) within 0.3 seconds"):
        measure_links(config.linked_with(["bob"]))


def sends_sizes(sizes: list[int]) -> Callable[[Links], None]:
    def act(links: Links) -> None:
        for _ in range(2 + measuring.PINGS):
            links.exchange({1: b"\0"}, {1: bytearray(1)}, "ping")
        for size in sizes:
            links.exchange({1: struct.pack("<Q", size)}, {}, "size")
            links.exchange({1: bytes(min(size, 1 << 18))}, {1: bytearray(1)}, "content")

    return act


@pytest.mark.parametrize("sizes", [[(1 << 18) + 1], [1 << 62], [1] * 8, [1 << 18] * 6])
def test_a_peer_that_sends_more_than_it_may(sizes: list[int], short: None) -> None:
    links = loopback(2)

    def answers() -> None:
        with links[1]:
            measuring._answer(links[1], 0)

    hostile, error = run_threads([lambda: sends_sizes(sizes)(links[0]), answers])
    assert isinstance(hostile, PeerError)
    assert isinstance(error, SecurityAbort)
    assert "party 0 sends more than a measurement of a link takes." in error.message


@pytest.mark.parametrize("figures", [(0.0, 1.0), (1.0, math.inf), (math.nan, 1.0), (1.0, -1.0)])
def test_a_peer_that_tells_nonsense(figures: tuple[float, float]) -> None:
    flat = [math.nan] * 32
    flat[2:4] = figures
    with pytest.raises(SecurityAbort, match="figures of links that none can have"):
        measuring._read(loopback(2)[1], 0, struct.pack("<32d", *flat))
