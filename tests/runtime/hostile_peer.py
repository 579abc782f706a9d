"""A party that has its key, and sends TLS records that no TLS library would send."""

from __future__ import annotations

import socket
import ssl
import struct
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from veilgraph.runtime.session.certificates import CertificateFiles

HANDSHAKE, DATA = 22, 23
KEY_UPDATE = b"\x18\0\0\1"  # type and length of one; a byte follows


class HostilePeer:
    """The dialing side of TLS 1.3; after the handshake its records are made here (RFC 8446, 5)."""

    def __init__(self, connection: socket.socket, files: CertificateFiles, folder: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(files.certificate, files.key)
        context.keylog_filename = str(folder / "keys")
        self.raw = connection.dup()
        self._tls = context.wrap_socket(connection)
        lines = (folder / "keys").read_text().splitlines()
        own = next(line for line in lines if line.startswith("CLIENT_TRAFFIC_SECRET_0"))
        self._secret = bytes.fromhex(own.split()[2])
        self._use_secret()

    def _use_secret(self) -> None:
        self._key = AESGCM(self._derived(b"key", 16))
        self._nonce, self._number = self._derived(b"iv", 12), 0

    def _derived(self, label: bytes, length: int) -> bytes:
        name = b"tls13 " + label
        info = struct.pack(">HB", length, len(name)) + name + b"\0"
        return HKDFExpand(hashes.SHA256(), length, info).derive(self._secret)

    def record(self, kind: int, content: bytes) -> bytes:
        inner = content + bytes([kind])
        head = struct.pack(">BHH", DATA, 0x0303, len(inner) + 16)
        counter = struct.pack(">4xQ", self._number)
        self._number += 1
        nonce = bytes(a ^ b for a, b in zip(self._nonce, counter, strict=True))
        return head + self._key.encrypt(nonce, inner, head)

    def key_update(self) -> bytes:
        made = self.record(HANDSHAKE, KEY_UPDATE + b"\0")
        self._secret = self._derived(b"traffic upd", 32)
        self._use_secret()
        return made
