"""Shaped links deliver the same bytes, no sooner and no faster than their network would."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from three_parties import edit, load_all, run_threads, write_parties

from veilgraph.ir.errors import UsageError
from veilgraph.runtime import _native
from veilgraph.runtime.links import native as native_links
from veilgraph.runtime.links.links import Links
from veilgraph.runtime.links.native import open_links
from veilgraph.runtime.links.shaping import Shape
from veilgraph.runtime.session.config import Config

MIB = 1 << 20
Line = tuple[socket.socket, socket.socket, threading.Thread]


@pytest.fixture
def line(request: pytest.FixtureRequest) -> Iterator[Line]:
    """The two ends of a shaped line, and the thread between them."""
    delay, rate = request.param
    sender, near = socket.socketpair()
    receiver, far = socket.socketpair()
    arguments = (near.detach(), far.detach(), delay, rate)
    thread = threading.Thread(target=_native.forward, args=arguments)
    thread.start()
    with sender, receiver:
        yield sender, receiver, thread
    thread.join(5)
    assert not thread.is_alive()


def read(connection: socket.socket, count: int) -> bytes:
    content = b""
    while len(content) < count:
        piece = connection.recv(count - len(content))
        assert piece
        content += piece
    return content


@pytest.mark.parametrize("line", [(0.05, 1e9)], indirect=True)
def test_a_byte_takes_the_delay_one_way(line: Line) -> None:
    sender, receiver, _ = line
    start = time.monotonic()
    sender.sendall(b"x")
    assert receiver.recv(1) == b"x"
    there = time.monotonic() - start
    receiver.sendall(b"y")
    assert sender.recv(1) == b"y"
    assert 0.05 <= there < 0.5
    assert time.monotonic() - start - there < 0.05


@pytest.mark.parametrize("line", [(0.0, 20e6)], indirect=True)
def test_many_bytes_take_as_long_as_the_rate_says(line: Line) -> None:
    sender, receiver, _ = line
    content = bytes(range(256)) * (4 * MIB // 256)
    start = time.monotonic()
    writer = threading.Thread(target=sender.sendall, args=(content,))
    writer.start()
    assert read(receiver, len(content)) == content
    assert 0.9 * 4 * MIB / 20e6 < time.monotonic() - start < 2
    writer.join()


@pytest.mark.parametrize("line", [(0.1, 1e9)], indirect=True)
def test_what_is_on_its_way_arrives_after_its_sender_has_closed(line: Line) -> None:
    sender, receiver, thread = line
    sender.sendall(b"last words")
    sender.close()
    assert read(receiver, 10) == b"last words"
    assert receiver.recv(1) == b""
    assert thread.is_alive()
    receiver.close()


@pytest.mark.parametrize("line", [(0.5, 1e6)], indirect=True)
def test_a_sender_can_not_run_far_ahead(line: Line) -> None:
    """As over a network, a full line stops who writes."""
    sender, receiver, _ = line
    sender.setblocking(False)
    sent = 0
    deadline = time.monotonic() + 0.3
    while time.monotonic() < deadline:
        try:
            sent += sender.send(bytes(MIB))
        except BlockingIOError:
            time.sleep(0.01)
    assert sent < 4 * MIB
    receiver.close()


@pytest.mark.parametrize("kind", ["native", "python"])
def test_links_in_a_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    if kind == "python":
        monkeypatch.setattr(native_links, "openssl", lambda: "none")
    shape = Shape(round_trip_seconds=0.06, bytes_per_second=125e6)
    configs = load_all(write_parties(tmp_path))
    links = run_threads([lambda c=c: open_links(c, shape=shape) for c in configs])

    def act(mine: Links) -> float:
        peers = [peer for peer in range(3) if peer != mine.party]
        start = time.monotonic()
        for _ in range(3):
            receives = {peer: bytearray(3 * MIB) for peer in peers}
            mine.exchange({p: bytes([mine.party]) * 3 * MIB for p in peers}, receives, "round")
            assert all(receives[peer] == bytes([peer]) * 3 * MIB for peer in peers)
        return time.monotonic() - start

    for seconds in run_threads([lambda x=x: act(x) for x in links]):
        assert seconds > 3 * (0.03 + 0.9 * 3 * MIB / 125e6)
    for each in links:
        each.close()


def test_a_shape_may_be_slower_than_a_link_may_be(tmp_path: Path) -> None:
    configs = load_all(write_parties(tmp_path))
    slow = Shape(round_trip_seconds=0.001, bytes_per_second=10_000)
    for each in run_threads([lambda c=c: open_links(c, shape=slow) for c in configs]):
        assert each.least_bytes_per_second == 5000
        each.close()


def test_shapes_are_for_loopback(tmp_path: Path) -> None:
    files = write_parties(tmp_path)
    edit(files["alice"], lambda c: c["parties"][1].update(host="10.0.0.1"))
    with pytest.raises(UsageError, match=r"Shaped links are for this host alone, and 10\.0\.0\.1"):
        open_links(Config.load(files["alice"]), shape=Shape(0.04, 12.5e6))
