"""Callers and answerers that speak the preamble by hand, to show what no veilgraph would."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from veilgraph.runtime.session.certificates import init
from veilgraph.runtime.session.config import Config
from veilgraph.runtime.session.private_keys import load_private_key

TLS, RAW = b"veilgraph tls\n", b"veilgraph raw\n"


def shown(content: bytes, magic: bytes = TLS) -> bytes:
    return struct.pack("<14sH", magic, len(content)) + content


def caller(config: Config, act: Callable[[socket.socket], Any]) -> Any:
    """Dials a party that is about to listen, and does something to it."""
    for _ in range(100):
        try:
            connection = socket.create_connection(("127.0.0.1", config.me.port), 2)
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
    with connection:
        return act(connection)


def verdict_on(content: bytes) -> Callable[[socket.socket], int]:
    """Says something; the status that comes back before the connection ends."""

    def act(connection: socket.socket) -> int:
        connection.sendall(content)
        return read(connection)[-1]

    return act


def read(connection: socket.socket, most: int = 1 << 16) -> bytes:
    """What comes until the connection ends, or so much of it."""
    content = b""
    while len(content) < most and (piece := connection.recv(most - len(content))):
        content += piece
    return content


def mallory(folder: Path, *, server: bool) -> ssl.SSLContext:
    """TLS of somebody whose certificate nobody has pinned, and who trusts anyone."""
    files = init(folder / "mallory", "mallory", force=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(files.certificate, files.key)
    return context


def client_hello() -> bytes:
    """The first that a dialer says in TLS, who needs no key for it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    said = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), said).do_handshake()
    return said.read()


def signed_by_authority(folder: Path) -> tuple[bytes, ssl.SSLContext]:
    """An authority's certificate (DER), and TLS of somebody whose certificate it has signed."""
    context = mallory(folder, server=False)
    authority, key = ec.generate_private_key(ec.SECP256R1()), folder / "mallory" / "mallory.key"
    issuer = _certificate(authority.public_key(), "authority", authority)
    leaf = _certificate(load_private_key(key).public_key(), "mallory", authority)
    (folder / "leaf.crt").write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
    context.load_cert_chain(folder / "leaf.crt", key)
    return issuer.public_bytes(serialization.Encoding.DER), context


def _certificate(
    subject: ec.EllipticCurvePublicKey, name: str, authority: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_called(name))
        .issuer_name(_called("authority"))
        .public_key(subject)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=name == "authority", path_length=None), True)
        .sign(authority, hashes.SHA256())
    )


def _called(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
