"""Rounds over every kind of link: what is sent arrives, and whoever fails stops everyone."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from three_parties import (
    KINDS,
    NAMES,
    Connect,
    connect_all,
    edit,
    load_all,
    run_processes,
    run_threads,
    write_parties,
)

from veilgraph.ir.errors import PeerError, SecurityAbort
from veilgraph.runtime.links.links import Links, byte_view
from veilgraph.runtime.links.loopback import loopback
from veilgraph.runtime.session.config import Config

MIB = 1 << 20
Round = Callable[[Links], Any]
Make = Callable[[float], list[Links]]


PLAINTEXT = [f"{kind}, plaintext" for kind in KINDS]


@pytest.fixture(params=[*KINDS, *PLAINTEXT, "loopback"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Makes the links of three parties, given how long they wait for each other."""
    made: list[Links] = []

    def links(timeout_seconds: float) -> list[Links]:
        if request.param == "loopback":
            made.extend(loopback(3, NAMES, timeout_seconds))
        else:
            configs = load_all(write_parties(tmp_path))
            connect = KINDS[request.param.partition(",")[0]]
            plaintext = request.param in PLAINTEXT
            made.extend(connect_all(connect, configs, insecure_plaintext=plaintext))
            for each in made:
                each.timeout_seconds = timeout_seconds  # type: ignore[attr-defined]
        return made

    yield links
    for each in made:
        each.close()


def each_does(links: list[Links], act: Round) -> list[Any]:
    return run_threads([lambda x=x: act(x) for x in links])


def message(sender: int, receiver: int, number: int, size: int) -> np.ndarray[Any, Any]:
    """What `sender` sends to `receiver` in a round, known to both: only tests draw like this."""
    return np.random.default_rng([sender, receiver, number]).integers(0, 256, size, np.uint8)


def all_to_all(links: Links, number: int, size_of: Callable[[int, int], int]) -> None:
    """One round in which everyone sends to everyone, compared with what was due."""
    me, peers = links.party, [p for p in range(3) if p != links.party]
    sends = {p: message(me, p, number, size_of(me, p)) for p in peers}
    receives = {p: np.zeros(size_of(p, me), np.uint8) for p in peers}
    links.exchange(sends, receives, f"round {number}")
    for p in peers:
        assert (receives[p] == message(p, me, number, len(receives[p]))).all()


def random_rounds(links: Links) -> dict[int, int]:
    for number in range(60):
        rng = np.random.default_rng(number)
        sizes = rng.choice([0, 1, 7, 100, 16367, 16368, 16369, 40000, 3 * MIB], (3, 3), p=_ODDS)
        all_to_all(links, number, lambda i, j, sizes=sizes: int(sizes[i, j]))
    return links.sent_bytes


_ODDS = [0.14, 0.14, 0.14, 0.13, 0.1, 0.1, 0.1, 0.1, 0.05]


def large_round(links: Links) -> float:
    """All to all with 32 MiB each; the seconds it takes."""
    peers = [p for p in range(3) if p != links.party]
    sends = {p: np.full(32 * MIB, 1 + 3 * links.party + p, np.uint8) for p in peers}
    receives = {p: np.zeros(32 * MIB, np.uint8) for p in peers}
    start = time.monotonic()
    links.exchange(sends, receives, "large")
    seconds = time.monotonic() - start
    for p in peers:
        assert (receives[p] == 1 + 3 * p + links.party).all()
    return seconds


def one_way_rounds(links: Links) -> None:
    """Party 1 runs far ahead of party 0, which receives and never answers."""
    for number in range(200):
        if links.party == 1:
            links.exchange({0: message(1, 0, number, 20000)}, {}, "one way")
        elif links.party == 0:
            received = bytearray(20000)
            links.exchange({}, {1: received}, "one way")
            assert received == message(1, 0, number, 20000).tobytes()


def killed_in_the_middle(links: Links) -> None:
    for number in range(1000):
        if links.party == 1 and number == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        all_to_all(links, number, lambda i, j: 5000)


def test_random_rounds(make: Make) -> None:
    sent = each_does(make(10.0), random_rounds)
    assert all(isinstance(each, dict) for each in sent), sent
    total = sum(sum(each.values()) for each in sent)
    sizes = (
        np.random.default_rng(n).choice(
            [0, 1, 7, 100, 16367, 16368, 16369, 40000, 3 * MIB], (3, 3), p=_ODDS
        )
        for n in range(60)
    )
    assert total == sum(int(size.sum() - np.trace(size)) for size in sizes)


def test_random_rounds_between_processes(connect: Connect, tmp_path: Path) -> None:
    sent = run_processes(connect, random_rounds, write_parties(tmp_path))
    assert [sorted(each) for each in sent] == [[1, 2], [0, 2], [0, 1]]


def test_large_messages_between_processes(connect: Connect, tmp_path: Path) -> None:
    seconds = run_processes(connect, large_round, write_parties(tmp_path))
    assert all(isinstance(each, float) and each < 10 for each in seconds), seconds


def test_one_party_may_run_ahead(make: Make) -> None:
    assert each_does(make(10.0), one_way_rounds) == [None] * 3


def test_counters(make: Make) -> None:
    links = make(10.0)

    def act(mine: Links) -> None:
        all_to_all(mine, 0, lambda i, j: 10 * i + j)
        all_to_all(mine, 1, lambda i, j: 100000)

    each_does(links, act)
    assert links[1].sent_bytes == {0: 100010, 2: 100012}
    assert links[1].received_bytes == {0: 100001, 2: 100021}
    links[1].reset_counters()
    assert links[1].sent_bytes == links[1].received_bytes == {0: 0, 2: 0}


def test_buffers_may_change_once_sent(make: Make) -> None:
    def act(links: Links) -> bytes:
        mine = bytearray(b"%d" % links.party)
        received = bytearray(1)
        links.exchange({(links.party + 1) % 3: mine}, {(links.party + 2) % 3: received}, "ring")
        mine[:] = b"x"
        return bytes(received)

    assert each_does(make(10.0), act) == [b"2", b"0", b"1"]


def test_a_killed_process_stops_the_others(connect: Connect, tmp_path: Path) -> None:
    start = time.monotonic()
    alice, bob, carol = run_processes(connect, killed_in_the_middle, write_parties(tmp_path, 20.0))
    assert time.monotonic() - start < 5
    assert bob == -signal.SIGKILL
    for code, sentence in (alice, carol):
        assert code == PeerError.exit_code
        assert "bob" in sentence
        assert "round 20" in sentence


def test_a_silent_peer(make: Make) -> None:
    def act(links: Links) -> None:
        if links.party == 1:
            time.sleep(0.8)
        else:
            links.exchange({}, {1: bytearray(4)}, "matmul 7")

    alice, _, carol = each_does(make(0.3), act)
    for error in (alice, carol):
        assert isinstance(error, PeerError)
        assert error.message == "bob was silent for 0.3 seconds in step matmul 7."
        assert "timeout_seconds" in error.hint


def test_a_peer_that_takes_nothing(connect: Connect, tmp_path: Path) -> None:
    links = connect_all(connect, load_all(write_parties(tmp_path)))
    links[0].timeout_seconds = 0.3
    links[2].exchange({0: b"x"}, {}, "conv")
    with pytest.raises(PeerError, match=r"bob was silent for 0\.3 seconds in step conv"):
        links[0].exchange({1: bytes(32 * MIB), 2: bytes(10)}, {2: bytearray(1)}, "conv")
    links[2].exchange({}, {0: bytearray(10)}, "conv")
    with pytest.raises(PeerError, match=r"alice stopped because of bob \(here: step relu\)"):
        links[2].exchange({}, {0: bytearray(10)}, "relu")
    links[1].close()
    links[2].close()


def test_a_peer_that_closes(make: Make) -> None:
    links = make(10.0)
    links[1].close()
    with pytest.raises(PeerError, match="The link to bob broke in step matmul: bob closed it"):
        links[0].exchange({}, {1: bytearray(1)}, "matmul")


def test_a_party_that_fails_tells_the_others(make: Make) -> None:
    def act(links: Links) -> None:
        with links:
            all_to_all(links, 0, lambda i, j: 10)
            if links.party == 2:
                raise SecurityAbort("These are weights of another model.")
            all_to_all(links, 1, lambda i, j: 10)

    alice, bob, carol = each_does(make(10.0), act)
    assert isinstance(carol, SecurityAbort)
    for error in (alice, bob):
        assert isinstance(error, PeerError)
        assert "stopped" in error.message
        assert "carol" in error.message
        assert "step round 1" in error.message


def test_the_reason_is_passed_on(make: Make) -> None:
    links = make(10.0)
    links[1].close()
    with pytest.raises(PeerError):
        links[0].exchange({}, {1: bytearray(1)}, "here")
    with pytest.raises(PeerError, match=r"alice stopped because of bob \(here: step there\)"):
        links[2].exchange({}, {0: bytearray(1)}, "there")


def test_a_message_of_another_length(make: Make) -> None:
    links = make(10.0)
    sizes = {0: 8, 1: 24, 2: 24}

    def act(mine: Links) -> None:
        all_to_all(mine, 0, lambda i, j: 5)
        all_to_all(mine, 1, lambda i, j: sizes[mine.party])

    alice, bob, carol = each_does(links, act)
    assert all(isinstance(each, SecurityAbort | PeerError) for each in (alice, bob, carol))
    assert isinstance(alice, SecurityAbort)
    assert "bob sent" in alice.message
    assert "24 bytes" in alice.message
    assert "of 8 bytes is due" in alice.message
    assert "step round 1" in alice.message


@pytest.mark.parametrize("connect", [KINDS["python"], KINDS["mixed"]])
def test_a_message_out_of_order(connect: Connect, tmp_path: Path) -> None:
    links = connect_all(connect, load_all(write_parties(tmp_path)))
    links[0]._links[1]._sent_frames = 7  # as a peer would whose messages got lost
    links[0].exchange({1: b"abcd"}, {}, "open")
    with pytest.raises(SecurityAbort) as caught:
        links[1].exchange({}, {0: bytearray(4)}, "open")
    assert caught.value.message == (
        "alice sent message 7 of 4 bytes in step open, where message 0 of 4 bytes is due."
    )
    for each in links:
        each.close()


def test_closed_links_are_not_used(make: Make) -> None:
    links = make(10.0)
    links[0].close()
    links[0].close()
    with pytest.raises(AssertionError, match="closed"):
        links[0].exchange({}, {}, "late")


def test_byte_view_shares_memory() -> None:
    array = np.zeros(4, np.uint8)
    byte_view(array)[1] = 9
    assert array.tolist() == [0, 9, 0, 0]
    assert byte_view(np.zeros(0, np.uint8)).nbytes == 0
    assert byte_view(memoryview(np.zeros((2, 3), np.uint32)).cast("B")).nbytes == 24


class Tamperer:
    """A host in between that carries bytes both ways, and flips one bit towards the dialer."""

    def __init__(self, port: int) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.flip = threading.Event()
        self.target = port
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        while True:
            dialer, _ = self.listener.accept()
            try:
                dialed = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                dialer.close()
                continue
            threading.Thread(target=self.carry, args=(dialer, dialed), daemon=True).start()
            threading.Thread(target=self.carry, args=(dialed, dialer, True), daemon=True).start()

    def carry(self, source: socket.socket, sink: socket.socket, flips: bool = False) -> None:
        try:
            while content := bytearray(source.recv(1 << 16)):
                if flips and self.flip.is_set():
                    content[-3] ^= 4
                sink.sendall(content)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            sink.close()


def test_a_bit_flipped_on_the_way(connect: Connect, tmp_path: Path) -> None:
    files = write_parties(tmp_path)
    tamperer = Tamperer(Config.load(files["alice"]).me.port)
    edit(files["bob"], lambda c: c["parties"][0].update(port=tamperer.port))
    links = connect_all(connect, load_all(files))
    each_does(links, lambda mine: all_to_all(mine, 0, lambda i, j: 100))
    tamperer.flip.set()
    alice, bob, carol = each_does(links, lambda mine: all_to_all(mine, 1, lambda i, j: 100))
    assert isinstance(bob, SecurityAbort)
    assert bob.message.startswith("Bytes between this party and alice were changed on the way")
    assert "step round 1" in bob.message
    tamperer.listener.close()
    for each in links:
        each.close()
    assert alice is None or isinstance(alice, SecurityAbort | PeerError)
    assert carol is None or isinstance(carol, PeerError)
