"""How two parties tell each other who they are, before TLS proves it.

On a fresh connection each side shows its certificate in the clear, the dialer first, and answers
the other's with a verdict. That is no proof of anything: it lets each side look for the very
certificate that its parties.yaml pins, be it a file or a fingerprint, and say in a clear sentence
why it refuses. In plaintext mode a name stands in place of the certificate.
"""

from __future__ import annotations

import selectors
import socket
import struct
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum

from cryptography import x509

from veilgraph.ir.errors import PeerError
from veilgraph.runtime.certificates import fingerprint, load_certificate
from veilgraph.runtime.config import Config, PartyAddress
from veilgraph.runtime.talking import Awaited, Dropped, Talk

_HEAD = struct.Struct("<14sH")  # magic, length of what follows: a certificate or a name
_MAGIC_TLS = b"veilgraph tls\n"
_MAGIC_PLAINTEXT = b"veilgraph raw\n"
_MAX_SHOWN_BYTES = 1 << 13


class Verdict(IntEnum):
    """What one side thinks of the identity that the other has shown."""

    WELCOME = 0
    UNKNOWN = 1
    EXPIRED = 2
    NOT_YET_VALID = 3
    SWAPPED = 4  # a known party, but not one that belongs at this end
    ABSENT = 5  # a known party that takes no part in this session: the dealer of a store
    TO_STORES = 6  # welcome, to a session that runs from stores, without the dealer

    @property
    def reason(self) -> str:
        """Why not, to go on after "refused this party's certificate: "."""
        return {
            Verdict.WELCOME: "it is fine",
            Verdict.UNKNOWN: "it is none that parties.yaml names",
            Verdict.EXPIRED: "it has expired",
            Verdict.NOT_YET_VALID: "it is not valid yet",
            Verdict.SWAPPED: "it belongs to another party than the one expected here",
            Verdict.ABSENT: "it is the dealer's, who takes no part in a run from stores",
            Verdict.TO_STORES: "it is fine",
        }[self]


@dataclass
class Introduction:
    """The greeting on one connection: shows who I am, and reads who the other says it is.

    `greeting` is what `own_greeting` says of me. Whoever closes, or speaks something else, raises
    Dropped or OSError; what is read is waited for as talking.Talk says.
    """

    connection: socket.socket
    config: Config
    plaintext: bool
    greeting: bytes

    def __post_init__(self) -> None:
        self._to_stores = False  # what the other said of this session
        self.connection.setblocking(False)
        # Rounds wait for each other, so nothing may linger. Buffer sizes stay the system's: it fits
        # them to the link, while a size set by hand is cut to net.core.wmem_max.
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def show(self) -> None:
        self.connection.sendall(self.greeting)  # less than a fresh socket takes at once

    def read_shown(self) -> Talk[bytes]:
        """The other's certificate (DER) or name: bytes that prove nothing yet."""
        magic, length = _HEAD.unpack((yield from self._read(_HEAD.size)))
        if magic != (_MAGIC_PLAINTEXT if self.plaintext else _MAGIC_TLS):
            raise Dropped("it speaks no veilgraph, or one side uses --insecure-plaintext")
        if length > _MAX_SHOWN_BYTES:
            raise Dropped("its greeting is too long")
        return (yield from self._read(length))

    def answer(self, verdict: Verdict) -> None:
        """Says what this side thinks; a welcome says whether it runs from a store."""
        if verdict is Verdict.WELCOME and self.config.absent:
            verdict = Verdict.TO_STORES
        self.connection.sendall(bytes([verdict]))

    def read_answer(self) -> Talk[Verdict]:
        code = (yield from self._read(1))[0]
        if code not in Verdict.__members__.values():
            raise Dropped("it speaks no veilgraph")
        self._to_stores = code == Verdict.TO_STORES
        return Verdict.WELCOME if self._to_stores else Verdict(code)

    def check_stores(self, name: str) -> None:
        """PeerError if one side awaits the dealer and the other runs from a store, without it.

        They would not meet otherwise: who awaits the dealer is not complete without it. Asked when
        the other has proven who it is; but the word itself came in the clear, so who is in between
        can end the search, as by closing the connection.
        """
        if self._to_stores and not self.config.absent:
            raise PeerError(
                f"{name} runs from a store, without the dealer, and this party has none.",
                "Start this party with --store too, or all others without.",
            )
        if self.config.absent and not self._to_stores:
            raise PeerError(
                f"{name} awaits the dealer, and this party runs from a store, without it.",
                f"Start {name} with --store too, or all others without.",
            )

    def identify(self, shown: bytes) -> tuple[int, Verdict]:
        """The index of the party that has this certificate or name (else -1), and a verdict."""
        for index, party in enumerate(self.config.parties):
            if self._is_of(party, shown):
                return index, Verdict.WELCOME if self.plaintext else validity(shown)
        known = any(self._is_of(party, shown) for party in self.config.absent)
        return -1, Verdict.ABSENT if known else Verdict.UNKNOWN

    def _is_of(self, party: PartyAddress, shown: bytes) -> bool:
        if self.plaintext:
            return party.name.encode() == shown
        return party.fingerprint == fingerprint(shown)

    def describe(self, shown: bytes) -> str:
        """What was shown, for a message."""
        if self.plaintext:
            return f"the name {shown[:40]!r}"
        peer, _ = self.identify(shown)
        owner = f"the certificate of {self.config.names[peer]}" if peer >= 0 else "a certificate"
        return f"{owner} ({fingerprint(shown).hex()[:16]}...)"

    def _read(self, count: int) -> Talk[bytes]:
        content = b""
        while len(content) < count:
            try:
                piece = self.connection.recv(count - len(content))
            except BlockingIOError:
                yield Awaited(self.connection.fileno(), selectors.EVENT_READ)
                continue
            if not piece:
                raise Dropped("it closed the connection")
            content += piece
        return content


def own_greeting(config: Config, plaintext: bool) -> bytes:
    """What this party says of itself on each connection: its certificate, or its name."""
    if plaintext:
        shown, magic = config.me.name.encode(), _MAGIC_PLAINTEXT
    else:
        shown, magic = load_certificate(config.certificate), _MAGIC_TLS
    return _HEAD.pack(magic, len(shown)) + shown


def validity(der: bytes) -> Verdict:
    """Whether a certificate (DER) may be used now; UNKNOWN if it is no certificate at all."""
    try:
        certificate = x509.load_der_x509_certificate(der)
    except ValueError:
        return Verdict.UNKNOWN
    now = datetime.now(UTC)
    if now > certificate.not_valid_after_utc:
        return Verdict.EXPIRED
    return Verdict.NOT_YET_VALID if now < certificate.not_valid_before_utc else Verdict.WELCOME
