"""How two parties tell each other who they are, before TLS proves it.

On a fresh connection each side shows its certificate in the clear, the dialer first, and answers
the other's with a status. That is no proof of anything: it lets each side look for the very
certificate that its parties.yaml pins, be it a file or a fingerprint, and say in a clear sentence
why it refuses. In plaintext mode a name stands in place of the certificate.
"""

from __future__ import annotations

import selectors
import socket
import struct
from dataclasses import dataclass

from veilgraph.ir.errors import PeerError
from veilgraph.runtime.session.certificates import fingerprint, load_certificate
from veilgraph.runtime.session.config import Config, PartyAddress
from veilgraph.runtime.session.exchange import Awaited, Dropped, Talk
from veilgraph.runtime.session.peer_status import PeerStatus, validity

_HEAD = struct.Struct("<14sH")  # magic, length of what follows: a certificate or a name
_MAGIC_TLS = b"veilgraph tls\n"
_MAGIC_PLAINTEXT = b"veilgraph raw\n"
_MAX_SHOWN_BYTES = 1 << 13
# The system asks a host that has been quiet for so long, so often, and then gives the link up.
_QUIET_SECONDS, _PROBE_SECONDS, _PROBES = 5, 2, 3


@dataclass
class IdentityExchange:
    """The preamble on one connection: shows who I am, and reads who the other says it is.

    `preamble` is what `own_greeting` says of me. Whoever closes, or speaks something else, raises
    Dropped or OSError; what is read is waited for as talking.Talk says.
    """

    connection: socket.socket
    config: Config
    plaintext: bool
    preamble: bytes

    def __post_init__(self) -> None:
        self._to_stores = False  # what the other said of this session
        self.connection.setblocking(False)
        # Rounds wait for each other, so nothing may linger. Buffer sizes stay the system's: it fits
        # them to the link, while a size set by hand is cut to net.core.wmem_max.
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _keep_alive(self.connection)

    def show(self) -> None:
        self.connection.sendall(self.preamble)  # less than a fresh socket takes at once

    def read_shown(self) -> Talk[bytes]:
        """The other's certificate (DER) or name: bytes that prove nothing yet."""
        magic, length = _HEAD.unpack((yield from self._read(_HEAD.size)))
        if magic != (_MAGIC_PLAINTEXT if self.plaintext else _MAGIC_TLS):
            raise Dropped("it speaks no veilgraph, or one side uses --insecure-plaintext")
        if length > _MAX_SHOWN_BYTES:
            raise Dropped("its preamble is too long")
        return (yield from self._read(length))

    def answer(self, status: PeerStatus) -> None:
        """Says what this side thinks; a welcome says whether it runs from a store."""
        if status is PeerStatus.WELCOME and self.config.absent:
            status = PeerStatus.TO_STORES
        self.connection.sendall(bytes([status]))

    def read_answer(self) -> Talk[PeerStatus]:
        code = (yield from self._read(1))[0]
        if code not in PeerStatus.__members__.values():
            raise Dropped("it speaks no veilgraph")
        self._to_stores = code == PeerStatus.TO_STORES
        return PeerStatus.WELCOME if self._to_stores else PeerStatus(code)

    def check_stores(self, name: str) -> None:
        """PeerError if one side awaits who only prepares and the other runs from a store.

        They would not meet otherwise: the one is not complete without that party. Asked when
        the other has proven who it is; but the word itself came in the clear, so who is in between
        can end the search, as by closing the connection.
        """
        if self._to_stores and not self.config.absent:
            raise PeerError(
                f"{name} runs from a store, and this party has none.",
                "Start this party with --store too, or all others without.",
            )
        if self.config.absent and not self._to_stores:
            raise PeerError(
                f"{name} awaits {_listed(self.config.absent)}, and this party runs from a store.",
                f"Start {name} with --store too, or all others without.",
            )

    def identify(self, shown: bytes) -> tuple[int, PeerStatus]:
        """The index of the party that has this certificate or name (else -1), and a status."""
        for index, party in enumerate(self.config.parties):
            if self._is_of(party, shown):
                if party.name in self.config.unlinked:
                    return index, PeerStatus.UNLINKED
                return index, PeerStatus.WELCOME if self.plaintext else validity(shown)
        known = any(self._is_of(party, shown) for party in self.config.absent)
        return -1, PeerStatus.ABSENT if known else PeerStatus.UNKNOWN

    def _is_of(self, party: PartyAddress, shown: bytes) -> bool:
        if self.plaintext:
            return party.name.encode() == shown
        return fingerprint(shown) in party.fingerprints

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


def _keep_alive(connection: socket.socket) -> None:
    """A host that is gone without a word is noticed while its next message is waited for.

    Its system answers for a party that computes, so this tells a busy peer from a lost one.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _QUIET_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)


def _listed(parties: tuple[PartyAddress, ...]) -> str:
    return " and ".join(party.name for party in parties)


def own_greeting(config: Config, plaintext: bool) -> bytes:
    """What this party says of itself on each connection: its certificate, or its name."""
    if plaintext:
        shown, magic = config.me.name.encode(), _MAGIC_PLAINTEXT
    else:
        shown, magic = load_certificate(config.certificate), _MAGIC_TLS
    return _HEAD.pack(magic, len(shown)) + shown
