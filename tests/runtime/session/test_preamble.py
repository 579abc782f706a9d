"""What a party says to those who show the wrong thing, and what it makes of their answers."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from strangers import RAW, caller, mallory, read, shown, signed_by_authority, verdict_on
from three_parties import Connect, dated, pin, run_threads, write_parties

from veilgraph.ir.errors import PeerError
from veilgraph.runtime.links.links import Links, TlsLinks
from veilgraph.runtime.links.native import NativeLinks
from veilgraph.runtime.session.certificates import load_certificate
from veilgraph.runtime.session.config import Config
from veilgraph.runtime.session.exchange import Dropped, hold
from veilgraph.runtime.session.peer_status import PeerStatus
from veilgraph.runtime.session.preamble import IdentityExchange, own_greeting


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return write_parties(tmp_path, 0.7)


def test_a_party_that_dials_those_after_it(connect: Connect, files: dict[str, Path]) -> None:
    """alice's certificate at bob's door, where only carol is awaited."""
    folder = files["alice"].parent
    config = Config.load(files["alice"])
    act = verdict_on(shown(load_certificate(folder / "alice.crt")))
    error, status = run_threads([lambda: connect(config), lambda: caller(config, act)])
    assert status == 4
    assert "the certificate of alice" in error.message


@pytest.mark.parametrize(("start", "code"), [(-30, 2), (30, 3)])
def test_an_expired_certificate_of_a_dialer(
    connect: Connect, files: dict[str, Path], start: int, code: int
) -> None:
    der = dated(files["alice"].parent, "carol", datetime.now(UTC) + timedelta(days=start), 10)
    pin(files["alice"], 2, der)
    config = Config.load(files["alice"])
    error, status = run_threads(
        [lambda: connect(config), lambda: caller(config, verdict_on(shown(der)))]
    )
    assert status == code
    assert isinstance(error, PeerError)
    assert "it showed the certificate of carol" in error.message
    assert ("it has expired", "it is not valid yet")[code - 2] in error.message


def test_an_expired_certificate_of_the_one_dialed(connect: Connect, files: dict[str, Path]) -> None:
    der = dated(files["alice"].parent, "alice", datetime.now(UTC) - timedelta(days=30), 10)
    pin(files["carol"], 0, der)
    config = Config.load(files["carol"])
    with socket.create_server(("127.0.0.1", config.parties[0].port)) as listener:

        def answer() -> bytes:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(shown(der) + b"\0")
                return connection.recv(1)

        error, status = run_threads([lambda: connect(config), answer])
    assert status == b"\2"
    assert isinstance(error, PeerError)
    assert "alice showed the certificate of alice" in error.message
    assert "it has expired" in error.message
    assert f"the clock here says {datetime.now(UTC):%Y-%m-%d}" in error.hint


def test_being_told_of_an_expired_certificate(connect: Connect, files: dict[str, Path]) -> None:
    """carol's clock is right for carol, and alice's for alice."""
    config = Config.load(files["carol"])
    der = load_certificate(files["alice"].parent / "alice.crt")
    with socket.create_server(("127.0.0.1", config.parties[0].port)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(shown(der) + b"\2")

        error, _ = run_threads([lambda: connect(config), answer])
    assert isinstance(error, PeerError)
    assert error.message == "alice refused this party's certificate: it has expired."
    assert f"the clock here says {datetime.now(UTC):%Y-%m-%d}" in error.hint


def test_a_clock_that_is_behind_is_named(connect: Connect, files: dict[str, Path]) -> None:
    """alice's clock is behind: carol's certificate is fine, and a new one would be no better."""
    config = Config.load(files["carol"])
    der = load_certificate(files["alice"].parent / "alice.crt")
    with socket.create_server(("127.0.0.1", config.parties[0].port)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(shown(der) + bytes([PeerStatus.NOT_YET_VALID]))

        error, _ = run_threads([lambda: connect(config), answer])
    assert isinstance(error, PeerError)
    assert error.message == "alice refused this party's certificate: it is not valid yet."
    assert "Set alice's clock if it is behind" in error.hint
    mine = load_certificate(files["carol"].parent / "carol.crt")
    begins = x509.load_der_x509_certificate(mine).not_valid_before_utc
    assert f"It begins at {begins:%Y-%m-%d %H:%M} UTC" in error.hint


def test_a_dialer_with_a_certificate_but_not_its_key(
    connect: Connect, files: dict[str, Path]
) -> None:
    config = Config.load(files["alice"])
    der = load_certificate(files["alice"].parent / "carol.crt")
    preamble = shown(load_certificate(files["alice"].parent / "alice.crt"))

    def act(connection: socket.socket) -> bytes:
        connection.sendall(shown(der))
        read(connection, len(preamble) + 1)
        connection.sendall(b"\0")
        context = mallory(files["alice"].parent, server=False)
        try:
            with context.wrap_socket(connection) as secured:
                return secured.recv(1)
        except ssl.SSLError as error:
            return str(error.reason).encode()

    error, got = run_threads([lambda: connect(config), lambda: caller(config, act)])
    assert b"ALERT" in got
    assert isinstance(error, PeerError)
    assert "certificate verify failed" in error.message


def test_a_pinned_authority_does_not_vouch_for_others(
    connect: Connect, files: dict[str, Path]
) -> None:
    """carol's certificate could sign others; what it signs is still not carol's certificate."""
    authority, context = signed_by_authority(files["alice"].parent)
    pin(files["alice"], 2, authority)
    config = Config.load(files["alice"])
    preamble = shown(load_certificate(config.certificate))

    def act(connection: socket.socket) -> bytes:
        connection.sendall(shown(authority))
        read(connection, len(preamble) + 1)
        connection.sendall(b"\0")
        with context.wrap_socket(connection) as secured:
            return secured.recv(1)

    error, got = run_threads([lambda: connect(config), lambda: caller(config, act)])
    assert got == b""
    assert "its certificate in TLS is another than the one it showed" in error.message


def test_one_dialed_with_a_certificate_but_not_its_key(
    connect: Connect, files: dict[str, Path]
) -> None:
    config = Config.load(files["carol"])
    der = load_certificate(files["alice"].parent / "alice.crt")
    with socket.create_server(("127.0.0.1", config.parties[0].port)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            connection.recv(4096)
            connection.sendall(shown(der) + b"\0")
            connection.recv(1)
            with pytest.raises(ssl.SSLError):
                mallory(files["alice"].parent, server=True).wrap_socket(
                    connection, server_side=True
                )

        error, _ = run_threads([lambda: connect(config), answer])
    assert isinstance(error, PeerError)
    assert "could not prove who they are: certificate verify failed" in error.message


@pytest.mark.parametrize("reset", [False, True])
def test_a_connection_that_ends_inside_tls_is_dialed_again(
    connect: Connect, files: dict[str, Path], reset: bool
) -> None:
    """It says nothing of the other's key: a listener that makes room does the same."""
    config = Config.load(files["carol"])
    der = load_certificate(files["alice"].parent / "alice.crt")
    calls: list[bytes] = []
    with socket.create_server(("127.0.0.1", config.parties[0].port)) as listener:
        listener.settimeout(1.0)

        def answer() -> None:
            with contextlib.suppress(TimeoutError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        read(connection, len(shown(load_certificate(config.certificate))))
                        connection.sendall(shown(der) + b"\0")
                        read(connection, 6)  # the status, and the head of TLS's first record
                        if reset:
                            linger = struct.pack("ii", 1, 0)
                            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                        calls.append(connection.recv(1 << 16))

        error, _ = run_threads([lambda: connect(config), answer])
    assert len(calls) > 1
    assert isinstance(error, PeerError)
    assert error.message.startswith("No link to alice (127.0.0.1:")


@pytest.mark.parametrize(
    "bad",
    [
        b"GET / HTTP/1.1\r\nHost: alice\r\n\r\n",
        b"",
        shown(b"x" * 60000),
        shown(os.urandom(700)),
        shown(b"carol", RAW),
        b"veilgraph",
    ],
)
def test_strangers_do_not_stop_the_run(
    connect: Connect, files: dict[str, Path], bad: bytes
) -> None:
    config = Config.load(files["alice"])
    done = threading.Event()

    def act(connection: socket.socket) -> None:
        connection.sendall(bad)
        done.set()
        time.sleep(0.2)

    def others(name: str) -> Links:
        done.wait()
        return connect(Config.load(files[name]), timeout_seconds=5)

    alice, _, bob, carol = run_threads(
        [
            lambda: connect(config, timeout_seconds=5),
            lambda: caller(config, act),
            lambda: others("bob"),
            lambda: others("carol"),
        ]
    )
    for each in (alice, bob, carol):
        assert isinstance(each, TlsLinks | NativeLinks), each
        each.close()


def test_one_that_speaks_something_else(connect: Connect, files: dict[str, Path]) -> None:
    config = Config.load(files["carol"])
    with socket.create_server(("127.0.0.1", config.parties[0].port)) as listener:

        def answer() -> None:
            listener.settimeout(0.8)
            for content in (
                b"HTTP/1.1 400 Bad Request",
                shown(b"alice", RAW),
                shown(b"x") + b"\x09",
            ):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(content)

        error, _ = run_threads([lambda: connect(config), answer])
    assert isinstance(error, PeerError)
    assert "No link to alice (127.0.0.1:" in error.message
    assert "bob (127.0.0.1:" in error.message


def test_plaintext_knows_who_is_who(connect: Connect, files: dict[str, Path]) -> None:
    config = Config.load(files["alice"])

    act = verdict_on(shown(b"mallory", RAW))
    error, status = run_threads(
        [lambda: connect(config, insecure_plaintext=True), lambda: caller(config, act)]
    )
    assert status == 1
    assert "the name b'mallory'" in error.message


def test_a_caller_that_greets_a_byte_at_a_time_is_dropped(files: dict[str, Path]) -> None:
    """Each byte comes in time, all of them don't."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dialing = socket.create_connection(listener.getsockname())
        connection, _ = listener.accept()
    ended = threading.Event()

    def drip() -> None:
        with contextlib.suppress(OSError):
            for byte in b"veilgraph tls\n\0\x20" + bytes(8192):  # a length of 8192
                dialing.sendall(bytes([byte]))
                ended.wait(0.01)

    caller = threading.Thread(target=drip)
    caller.start()
    config = Config.load(files["alice"])
    introduction = IdentityExchange(connection, config, False, own_greeting(config, False))
    start = time.monotonic()
    with pytest.raises(Dropped, match="too slow"):
        hold(introduction.read_shown(), start + 0.3)
    assert time.monotonic() - start < 5
    ended.set()
    connection.close()
    caller.join()
    dialing.close()


def test_a_host_that_is_gone_is_asked_for_by_the_system(files: dict[str, Path]) -> None:
    """Within 15 s: a link that waits has no timeout of its own so short."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = socket.create_connection(server.getsockname())
        IdentityExchange(connection, Config.load(files["alice"]), False, b"")
        asked = [
            connection.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        ]
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        connection.close()
    quiet, pause, count = asked
    assert quiet + pause * count <= 15
