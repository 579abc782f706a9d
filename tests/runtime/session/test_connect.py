"""Only those come through whose certificate is pinned, and everyone else is told why not."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from strangers import caller, read, shown
from three_parties import (
    Connect,
    connect_all,
    dated,
    edit,
    load_all,
    native_transport,
    pin,
    run_threads,
    write_parties,
)

from veilgraph.ir.errors import PeerError, UsageError
from veilgraph.runtime.links.links import Links, TlsLinks
from veilgraph.runtime.links.native import NativeLinks
from veilgraph.runtime.session import connect as connecting
from veilgraph.runtime.session.certificates import init, issue, load_certificate
from veilgraph.runtime.session.config import Config
from veilgraph.runtime.session.connect import connect as channels


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return write_parties(tmp_path, 0.7)


def try_all(connect: Connect, files: dict[str, Path], **options: Any) -> list[Any]:
    """What each party gets: links (closed again) or an error."""

    def act(config: Config) -> Links:
        with connect(config, **options) as links:
            return links

    return run_threads([lambda c=c: act(c) for c in load_all(files)])


def test_connects_and_encrypts(files: dict[str, Path]) -> None:
    links = connect_all(TlsLinks.connect, load_all(files))
    for each in links:
        for link in each._links.values():
            assert isinstance(link._connection, ssl.SSLSocket)
            assert link._connection.version() == "TLSv1.3"
            assert link._connection.getpeercert(binary_form=True) == load_certificate(
                files["alice"].parent / f"{link.name}.crt"
            )
        each.close()


def test_native_streams_encrypt(files: dict[str, Path]) -> None:
    transport = native_transport()
    for streams in run_threads([lambda c=c: channels(c, 5, transport) for c in load_all(files)]):
        assert [stream.protocol for stream in streams.values()] == ["TLSv1.3"] * 2
        assert [stream.cipher for stream in streams.values()] == ["TLS_AES_128_GCM_SHA256"] * 2


def test_a_key_of_an_earlier_version(connect: Connect, files: dict[str, Path]) -> None:
    """bob has ECDSA on P-256, the others what `cert init` makes now."""
    folder = files["bob"].parent
    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder / "bob.key").write_bytes(pem)
    issue(folder, "bob")
    for links in try_all(connect, files):
        assert isinstance(links, TlsLinks | NativeLinks), links


def test_fingerprints_are_enough(connect: Connect, files: dict[str, Path]) -> None:
    folder = files["alice"].parent
    for i, name in enumerate(files):
        for file in files.values():
            pin(file, i, load_certificate(folder / f"{name}.crt"))
        edit(files[name], lambda c, name=name: c["me"].update(certificate=f"{name}.crt"))
    assert all(isinstance(each, TlsLinks | NativeLinks) for each in try_all(connect, files))


def test_a_peer_that_never_comes(connect: Connect, files: dict[str, Path]) -> None:
    start = time.monotonic()
    alice, carol = run_threads(
        [lambda n=n: connect(Config.load(files[n])) for n in ("alice", "carol")]
    )
    assert time.monotonic() - start < 3
    for error in (alice, carol):
        assert isinstance(error, PeerError)
        assert error.message.startswith("No link to bob (127.0.0.1:")
        assert "within 0.7 seconds." in error.message
        assert error.hint.startswith("Start bob")
    assert "(Connection refused)" in carol.message


def test_a_late_peer_is_awaited(connect: Connect, files: dict[str, Path]) -> None:
    configs = load_all(files)

    def late(config: Config) -> Links:
        time.sleep(0.3 * (2 - config.party))
        return connect(config, timeout_seconds=5)

    for links in run_threads([lambda c=c: late(c) for c in configs]):
        assert isinstance(links, TlsLinks | NativeLinks), links
        assert links.timeout_seconds == 5
        links.close()


def test_an_unknown_certificate_of_a_dialer(connect: Connect, files: dict[str, Path]) -> None:
    """carol made a new certificate, and forgot to tell the others."""
    folder = files["alice"].parent
    init(folder / "new", "carol")
    new = {"certificate": "new/carol.crt"}
    edit(files["carol"], lambda c: c["parties"][2].update(new))
    edit(files["carol"], lambda c: c["me"].update(key="new/carol.key"))
    alice, bob, carol = try_all(connect, files)
    told = [each for each in (alice, bob) if "Turned away" in str(each)]
    assert told  # carol may stop at the first of the two that refuses it
    for error in told:
        assert isinstance(error, PeerError)
        assert error.message.startswith("No link to carol (127.0.0.1:")
        assert "it showed a certificate (" in error.message
        assert "it is none that parties.yaml names" in error.message
    assert isinstance(carol, PeerError)
    assert "refused this party's certificate: it is none that parties.yaml" in carol.message
    assert "cert issue" in carol.hint


def test_an_unknown_certificate_of_the_one_dialed(connect: Connect, files: dict[str, Path]) -> None:
    folder = files["alice"].parent
    init(folder / "new", "alice")
    edit(files["alice"], lambda c: c["parties"][0].update(certificate="new/alice.crt"))
    edit(files["alice"], lambda c: c["me"].update(key="new/alice.key"))
    alice, bob, carol = try_all(connect, files)
    for error in (bob, carol):
        assert isinstance(error, PeerError)
        assert "is not alice: it showed a certificate (" in error.message
        assert "none that parties.yaml names" in error.message
    assert isinstance(alice, PeerError)
    assert "it refused this party's certificate" in alice.message


def test_swapped_certificates(connect: Connect, files: dict[str, Path]) -> None:
    """carol has exchanged the certificates of alice and bob."""

    def swap(content: dict[str, Any]) -> None:
        alice, bob, _ = content["parties"]
        alice["certificate"], bob["certificate"] = bob["certificate"], alice["certificate"]

    edit(files["carol"], swap)
    alice, bob, carol = try_all(connect, files)
    assert isinstance(carol, PeerError)
    assert "it belongs to another party than the one expected here" in carol.message
    refused = [each for each in (alice, bob) if "it refused this party's certificate" in str(each)]
    assert refused
    assert all(isinstance(each, PeerError) for each in (alice, bob))


@pytest.mark.parametrize(
    ("start", "sentence", "hint"),
    [(-30, "it has expired", "It ended at "), (30, "it is not valid yet", "this host's clock")],
)
def test_dates_are_checked_before_anyone_waits(
    connect: Connect, files: dict[str, Path], start: int, sentence: str, hint: str
) -> None:
    dated(files["alice"].parent, "bob", datetime.now(UTC) + timedelta(days=start), 10)
    began = time.monotonic()
    for error in try_all(connect, files):
        assert isinstance(error, PeerError)
        assert error.message == f"The certificate of bob can't be used: {sentence}."
        assert hint in error.hint
        assert f"the clock here says {datetime.now(UTC):%Y-%m-%d}" in error.hint
    assert time.monotonic() - began < 0.6


def test_a_second_connection_of_one_party(connect: Connect, files: dict[str, Path]) -> None:
    config = Config.load(files["carol"])
    alice, *_ = run_threads(
        [lambda: connect(Config.load(files["alice"]))] + [lambda: connect(config)] * 2
    )
    assert isinstance(alice, PeerError)
    assert "bob (127.0.0.1:" in alice.message
    assert "an earlier connection of carol" in alice.message


@pytest.mark.parametrize("confirms", [False, True])
def test_a_party_that_begins_anew_is_let_in_again(
    connect: Connect, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, confirms: bool
) -> None:
    """carol gave up before she heard that she is in, or died afterwards; alice awaits bob still."""
    alice, bob, carol = load_all(files)
    gone, met, kept = threading.Event(), threading.Event(), []
    keep = connecting._Search.keep

    def noting(search: Any, peer: int, channel: Any) -> None:
        keep(search, peer, channel)
        if (search.config.party, peer) == (0, 2):
            kept.append(channel)
            if len(kept) == 1 + confirms:
                met.set()

    def comes_and_goes(connection: socket.socket) -> bytes:
        connection.sendall(shown(load_certificate(carol.certificate)))
        read(connection, len(shown(load_certificate(alice.certificate))) + 1)
        connection.sendall(b"\0")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(carol.certificate, carol.key)
        with context.wrap_socket(connection) as secured:
            said = secured.recv(1)
            if confirms:
                secured.sendall(said)
                while not kept:
                    time.sleep(0.01)
        gone.set()
        return said

    def after(event: threading.Event, config: Config) -> Links:
        assert event.wait(10)
        return connect(config, timeout_seconds=10)

    monkeypatch.setattr(connecting._Search, "keep", noting)
    _, *links = run_threads(
        [
            lambda: caller(alice, comes_and_goes),
            lambda: connect(alice, timeout_seconds=10),
            lambda: after(met, bob),
            lambda: after(gone, carol),
        ]
    )

    def exchange(mine: Any) -> list[bytes]:
        assert isinstance(mine, TlsLinks | NativeLinks), mine
        received = {peer: bytearray(2) for peer in mine.sent_bytes}
        mine.exchange(dict.fromkeys(received, b"hi"), received, "preamble")
        return [bytes(each) for each in received.values()]

    found = run_threads([lambda each=each: exchange(each) for each in links])
    assert found == [[b"hi", b"hi"]] * 3
    for each in links:
        each.close()


def test_one_side_in_plaintext(connect: Connect, files: dict[str, Path]) -> None:
    def act(config: Config) -> Links:
        return connect(config, insecure_plaintext=config.party == 0)

    for error in run_threads([lambda c=c: act(c) for c in load_all(files)]):
        assert isinstance(error, PeerError)
        assert error.message.startswith("No link to ")


@pytest.mark.parametrize("host", ["10.0.0.1", "0.0.0.0", "no-such-host.invalid"])
def test_plaintext_is_for_loopback(connect: Connect, files: dict[str, Path], host: str) -> None:
    edit(files["alice"], lambda c: c["parties"][1].update(host=host))
    with pytest.raises(UsageError, match=f"{host} is not a loopback address"):
        connect(Config.load(files["alice"]), insecure_plaintext=True)
    edit(files["bob"], lambda c: c["me"].update(listen=host))
    with pytest.raises(UsageError, match=f"{host} is not a loopback address") as caught:
        connect(Config.load(files["bob"]), insecure_plaintext=True)
    assert "--insecure-plaintext" in caught.value.hint


def test_a_port_in_use(connect: Connect, files: dict[str, Path]) -> None:
    config = Config.load(files["alice"])
    with (
        socket.create_server(("127.0.0.1", config.me.port)),
        pytest.raises(UsageError, match="alice can't listen at") as caught,
    ):
        connect(config)
    assert "me.listen" in caught.value.hint
