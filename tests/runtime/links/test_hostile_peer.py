"""A peer that has its key but does not play by TLS: a round ends when its patience is over."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile_peer import DATA, HANDSHAKE, KEY_UPDATE, HostilePeer
from three_parties import native_transport, run_threads

from veilgraph.ir.plan.tables import LARGE_MESSAGE_BYTES
from veilgraph.runtime._native import FaultKind, Links, Stream, TlsTerms
from veilgraph.runtime.session.certificates import init, load_certificate
from veilgraph.runtime.session.config import LEAST_BYTES_PER_SECOND
from veilgraph.runtime.session.exchange import Awaited, Talk, hold

PATIENCE_SECONDS = 1.0
LARGE = 4 << 20  # more than sockets hold


def victim(folder: Path) -> tuple[Stream, HostilePeer]:
    """A stream of ours, and the one at its other end."""
    ours, theirs = init(folder, "alice"), init(folder, "mallory")
    pinned = load_certificate(theirs.certificate)
    own = str(ours.certificate), str(ours.key)
    terms = TlsTerms(native_transport().openssl, pinned, *own, True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dialing = socket.create_connection(listener.getsockname())
        connection, _ = listener.accept()
    stream, peer = run_threads(
        [
            lambda: shaken(
                connection.fileno(),
                Stream.secured(terms, connection.detach(), 10.0, 1 << 24),
            ),
            lambda: HostilePeer(dialing, theirs, folder),
        ]
    )
    assert isinstance(stream, Stream), stream
    assert isinstance(peer, HostilePeer), peer
    return stream, peer


def shaken(descriptor: int, stream: Stream) -> Stream:
    def talk() -> Talk[Stream]:
        while event := stream.shake_hands():
            yield Awaited(descriptor, event)
        return stream

    return hold(talk(), time.monotonic() + 10)


def half_an_update(peer: HostilePeer) -> None:
    peer.raw.sendall(peer.record(HANDSHAKE, KEY_UPDATE))


def updates_without_end(peer: HostilePeer) -> None:
    while True:
        peer.raw.sendall(b"".join(peer.key_update() for _ in range(50)))


def a_byte_at_a_time(peer: HostilePeer) -> None:
    for byte in peer.record(DATA, struct.pack("<QQ", 0, LARGE) + bytes(16_000)):
        peer.raw.sendall(bytes([byte]))
        time.sleep(0.02)


@pytest.mark.parametrize("attack", [half_an_update, updates_without_end, a_byte_at_a_time])
def test_patience_ends_a_round(tmp_path: Path, attack: Callable[[HostilePeer], None]) -> None:
    stream, peer = victim(tmp_path)
    links = Links({1: stream}, 2, LARGE_MESSAGE_BYTES)

    def attacking() -> None:
        with contextlib.suppress(OSError):  # the victim has gone
            attack(peer)

    thread = threading.Thread(target=attacking)
    thread.start()
    start = time.monotonic()
    messages = {1: bytes(LARGE)}, {1: bytearray(LARGE)}
    fault = links.exchange(*messages, PATIENCE_SECONDS, LEAST_BYTES_PER_SECOND)
    assert fault is not None
    assert fault.kind == FaultKind.SILENT
    assert time.monotonic() - start < 10 * PATIENCE_SECONDS
    links.close()
    peer.raw.close()
    thread.join()


def test_a_signal_is_seen_while_another_link_is_silent(tmp_path: Path) -> None:
    """The main thread's own link has nothing left to do."""
    stream, peer = victim(tmp_path)
    mine, theirs = socket.socketpair()
    links = Links({1: Stream.plain(mine.detach()), 2: stream}, 3, LARGE_MESSAGE_BYTES)
    frame = struct.pack("<QQ", 0, LARGE) + bytes(LARGE)
    sender = threading.Thread(target=theirs.sendall, args=(frame,))
    sender.start()
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    received = {1: bytearray(LARGE), 2: bytearray(LARGE)}
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        links.exchange({}, received, 60.0, LEAST_BYTES_PER_SECOND)
    assert time.monotonic() - start < 30
    links.close()
    sender.join()
    theirs.close()
    peer.raw.close()
