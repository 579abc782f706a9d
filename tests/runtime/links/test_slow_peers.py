"""A peer may be silent for the timeout, and a round has an end: whatever a peer does, it is over.

The links here are plain ones to a peer that is a bare socket. With `LEAST` a second, what is sent
in these rounds takes next to no time, unless a test says otherwise.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from veilgraph.ir.errors import PeerError
from veilgraph.runtime._native import LongRound, Stream
from veilgraph.runtime.links.frames import HEAD
from veilgraph.runtime.links.links import TlsLinks
from veilgraph.runtime.links.native import NativeLinks

NAMES = ("alice", "bob")
TIMEOUT = 0.4
LEAST = 1e8
SHORT, LONG = 1000, 4 << 20  # moved by the calling thread; by threads, and more than sockets hold

Links = NativeLinks | TlsLinks
Act = Callable[[socket.socket], None]


@dataclass
class Pair:
    """alice's links, and bob's end of the socket, on which bob acts on a thread."""

    links: Links
    bob: socket.socket

    def while_bob(self, act: Act) -> threading.Thread:
        def acting() -> None:
            with contextlib.suppress(OSError):  # alice has gone
                act(self.bob)

        thread = threading.Thread(target=acting, daemon=True)
        thread.start()
        return thread


def native(connection: socket.socket) -> Links:
    stream = Stream.plain(connection.detach())
    return NativeLinks(0, NAMES, {1: stream}, TIMEOUT, LEAST)


def python(connection: socket.socket) -> Links:
    return TlsLinks(0, NAMES, {1: connection}, TIMEOUT, LEAST)


@pytest.fixture(params=[native, python])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    alice, bob = socket.socketpair()
    links = request.param(alice)
    yield Pair(links, bob)
    bob.close()
    links.close()


def sends_slowly(size: int) -> Act:
    """A byte in each quarter of the timeout."""

    def act(bob: socket.socket) -> None:
        bob.sendall(HEAD.pack(0, size))
        for _ in range(size):
            bob.sendall(b"x")
            time.sleep(TIMEOUT / 4)

    return act


def takes_slowly(bob: socket.socket) -> None:
    while bob.recv(1 << 17):
        time.sleep(TIMEOUT / 4)


def greets_slowly(bob: socket.socket) -> None:
    """The head itself."""
    for byte in HEAD.pack(0, SHORT):
        bob.sendall(bytes([byte]))
        time.sleep(TIMEOUT / 4)


@pytest.mark.parametrize(
    ("act", "sends", "receives"),
    [
        (sends_slowly(SHORT), {}, {1: SHORT}),
        (sends_slowly(LONG), {}, {1: LONG}),
        (sends_slowly(LONG), {1: LONG}, {1: LONG}),
        (greets_slowly, {}, {1: SHORT}),
        (takes_slowly, {1: LONG}, {}),
    ],
    ids=["short", "long", "both ways", "its head", "takes"],
)
def test_a_round_ends(
    pair: Pair, act: Act, sends: dict[int, int], receives: dict[int, int]
) -> None:
    sent = {peer: bytes(size) for peer, size in sends.items()}
    received = {peer: bytearray(size) for peer, size in receives.items()}
    pair.while_bob(act)
    start = time.monotonic()
    with pytest.raises(PeerError) as caught:
        pair.links.exchange(sent, received, "online round 1")
    assert TIMEOUT < time.monotonic() - start < 10 * TIMEOUT
    assert caught.value.message == (
        "bob was slower than 100000000 bytes a second in step online round 1, after the "
        "0.4 seconds it may be silent."
    )
    assert "lower `least_bytes_per_second` in parties.yaml" in caught.value.hint
    assert "raise `timeout_seconds`" in caught.value.hint
    assert caught.value.exit_code == 5


def test_bytes_have_their_time(pair: Pair) -> None:
    """A link that is slow all along, and no slower than what is allowed."""
    pair.links.least_bytes_per_second = LONG / 10
    pieces = [HEAD.pack(0, LONG), *[bytes(LONG // 10)] * 9, bytes(LONG - LONG // 10 * 9)]

    def act(bob: socket.socket) -> None:
        for piece in pieces:
            bob.sendall(piece)
            time.sleep(TIMEOUT / 4)

    pair.while_bob(act)
    start = time.monotonic()
    pair.links.exchange({}, {1: bytearray(LONG)}, "online round 1")
    assert time.monotonic() - start > 2 * TIMEOUT


@pytest.mark.parametrize("size", [0, SHORT, LONG])
def test_who_computes_for_long_may_send_after_it(pair: Pair, size: int) -> None:
    def act(bob: socket.socket) -> None:
        time.sleep(TIMEOUT / 2)
        bob.sendall(HEAD.pack(0, size) + bytes(size))

    pair.while_bob(act)
    pair.links.exchange({}, {1: bytearray(size)}, "online round 1")


def test_each_round_has_its_own_time(pair: Pair) -> None:
    def act(bob: socket.socket) -> None:
        for number in range(6):
            time.sleep(TIMEOUT / 2)
            bob.sendall(HEAD.pack(number, SHORT) + bytes(SHORT))

    pair.while_bob(act)
    for number in range(6):
        pair.links.exchange({}, {1: bytearray(SHORT)}, f"online round {number}")


@pytest.mark.parametrize("waits", [False, True])
def test_a_round_that_has_begun_ends(waits: bool) -> None:
    """One whose links work on threads of their own; a GPU's waits for its bytes one by one."""
    alice, bob = socket.socketpair()
    links = native(alice)
    assert isinstance(links, NativeLinks)
    messages = LongRound(links.rounds, {1: [(bytes(LONG), 0)]}, {1: bytearray(LONG)})
    Pair(links, bob).while_bob(sends_slowly(LONG))

    def run() -> None:
        with links.during(messages, "open"):
            assert messages.release(1)
            if waits:
                assert not messages.wait_for(1, LONG)

    start = time.monotonic()
    with pytest.raises(PeerError, match="bob was slower than 100000000 bytes a second in"):
        run()
    assert TIMEOUT < time.monotonic() - start < 10 * TIMEOUT
    bob.close()


def test_what_a_party_computes_is_no_part_of_a_round() -> None:
    """alice's steps run for longer than bob may take, while bob sends and takes a little."""
    alice, bob = socket.socketpair()
    links = native(alice)
    assert isinstance(links, NativeLinks)
    received = bytearray(LONG)
    messages = LongRound(links.rounds, {1: [(bytes(SHORT), 1)]}, {1: received})

    def act(bob: socket.socket) -> None:
        bob.sendall(HEAD.pack(0, LONG))
        for _ in range(8):
            bob.sendall(b"x")
            time.sleep(TIMEOUT / 4)
        bob.sendall(b"x" * (LONG - 8))

    with links.during(messages, "open"):
        Pair(links, bob).while_bob(act)
        time.sleep(2 * TIMEOUT)
        assert messages.release(1)
    assert received == b"x" * LONG
    assert bob.recv(1 << 16) == HEAD.pack(0, SHORT) + bytes(SHORT)
    links.close()
    bob.close()
