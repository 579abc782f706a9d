"""How parties that share nothing yet get each other's certificates, and find who stands in between.

Over plain TCP each first sends a commitment to its certificate and a nonce, and reveals them once
it has everyone's commitments. All then compute a short string from everything they saw, and people
compare it by telephone. Whoever shows different values to different parties had to commit to them
before the nonces that the string depends on were revealed: the strings agree with a probability of
10^-15 a try (for two parties: Vaudenay, Secure Communications over Insecure Channels Based on Short
Authenticated Strings, CRYPTO 2005).
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass

from veilgraph.ir.errors import PeerError, SecurityAbort, UsageError
from veilgraph.runtime.randomness import NONCE_BYTES, fresh_nonce
from veilgraph.runtime.session.certificates import is_certificate

DIGITS = 15  # of the string: 49 bits
_COMMITMENT = b"veilgraph join 1 commitment\n"
_STRING = b"veilgraph join 1 string\n"
_HELLO = b"veilgraph join 1\n"
_LENGTH = struct.Struct(">I")
_MAX_FRAME = 1 << 14
_CALL_SECONDS = 5.0  # how long one caller may take to say its name
_PAUSE_SECONDS = 0.1
Address = tuple[str, int]


@dataclass(frozen=True)
class Joined:
    """Every party's certificate (DER) by name, and the string of digits that people compare."""

    certificates: Mapping[str, bytes]
    string: str


def commitment(names: tuple[str, ...], name: str, nonce: bytes, certificate: bytes) -> bytes:
    """What a party says first: SHA-256 of all names, its own, its nonce and its certificate."""
    return _hashed(_COMMITMENT, *(n.encode() for n in names), name.encode(), nonce, certificate)


def string_of(names: tuple[str, ...], seen: Mapping[str, tuple[bytes, bytes, bytes]]) -> str:
    """DIGITS digits over all that a party saw: by name a commitment, a nonce and a certificate."""
    parts = (part for name in names for part in (name.encode(), *seen[name]))
    number = int.from_bytes(_hashed(_STRING, *parts), "big")
    return f"{number % 10**DIGITS:0{DIGITS}}"


def join(me: str, addresses: Mapping[str, Address], certificate: bytes, seconds: float) -> Joined:
    """Exchanges certificates with all others, who do the same meanwhile.

    Args:
        addresses: host and port of every party, me too, the same at all of them.
        certificate: this party's own, DER.
        seconds: how long to wait for the others.

    Raises:
        PeerError: a party that does not come or stops, or an address that can't be listened at.
        SecurityAbort: a party that reveals other than it committed to, or no certificate.
    """
    names, deadline = tuple(sorted(addresses)), time.monotonic() + seconds
    with ExitStack() as stack:
        links = _links(me, names, addresses, deadline, stack)
        nonce = fresh_nonce()
        own = commitment(names, me, nonce, certificate)
        commitments = _exchange(links, own, deadline)
        revealed = _exchange(links, nonce + certificate, deadline)  # after all commitments
    seen = {me: (own, nonce, certificate)}
    for name, content in revealed.items():
        seen[name] = _opened(names, name, commitments[name], content)
    certificates = {name: der for name, (_, _, der) in seen.items()}
    if len(set(certificates.values())) < len(names):
        raise SecurityAbort("Two parties show the same certificate.", "Each makes its own.")
    return Joined(certificates, string_of(names, seen))


def _opened(
    names: tuple[str, ...], name: str, committed: bytes, content: bytes
) -> tuple[bytes, bytes, bytes]:
    """Commitment, nonce and certificate of a peer, once they fit."""
    nonce, der = content[:NONCE_BYTES], content[NONCE_BYTES:]
    if not hmac.compare_digest(commitment(names, name, nonce, der), committed):
        raise SecurityAbort(
            f"{name} reveals something else than it committed to.",
            "Somebody may stand in between: try again, and compare the digits.",
        )
    if not is_certificate(der):
        raise SecurityAbort(
            f"What {name} reveals is no certificate.", "All parties need this version of Veilgraph."
        )
    return committed, nonce, der


def _links(
    me: str,
    names: tuple[str, ...],
    addresses: Mapping[str, Address],
    deadline: float,
    stack: ExitStack,
) -> dict[str, socket.socket]:
    """A connection to each of the others: this party dials those before it, and awaits the rest."""
    at = names.index(me)
    links: dict[str, socket.socket] = {}
    awaited = set(names[at + 1 :])
    if awaited:
        try:
            listener = stack.enter_context(closing(socket.create_server(addresses[me])))
        except OSError as error:
            raise PeerError(
                f"{me} can't listen at {addresses[me][0]}:{addresses[me][1]}: {error.strerror}.",
                "Give an address of this host, and a free port.",
            ) from error
    for name in names[:at]:
        links[name] = stack.enter_context(closing(_dialed(me, name, addresses[name], deadline)))
    while awaited:
        listener.settimeout(_left(deadline, awaited))
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        caller = _introduced(connection, me, awaited)
        if caller is None:
            connection.close()
            continue
        awaited.remove(caller)
        links[caller] = stack.enter_context(closing(connection))
    return links


def _dialed(me: str, peer: str, address: Address, deadline: float) -> socket.socket:
    """A connection on which both have said who they are."""
    while True:
        left = min(_CALL_SECONDS, _left(deadline, {peer}))
        try:
            connection = socket.create_connection(address, left)
        except OSError:
            time.sleep(_PAUSE_SECONDS)
            continue
        try:
            connection.settimeout(_left(deadline, {peer}))
            _send(connection, _HELLO + me.encode())
            if _receive(connection) == _HELLO + peer.encode():
                return connection
        except (OSError, EOFError):
            pass
        connection.close()
        time.sleep(_PAUSE_SECONDS)


def _introduced(connection: socket.socket, me: str, awaited: set[str]) -> str | None:
    """Which of the awaited parties a caller says it is; None for any other caller."""
    try:
        connection.settimeout(_CALL_SECONDS)
        told = _receive(connection)
        name = told.removeprefix(_HELLO).decode()
        if not told.startswith(_HELLO) or name not in awaited:
            return None
        _send(connection, _HELLO + me.encode())
    except (OSError, EOFError, UnicodeDecodeError):
        return None
    return name


def _exchange(
    links: Mapping[str, socket.socket], content: bytes, deadline: float
) -> dict[str, bytes]:
    """Tells everyone the same, and what each says."""
    found, name = {}, ""
    try:
        for name, link in links.items():
            link.settimeout(_left(deadline, {name}))
            _send(link, content)
        for name, link in links.items():
            link.settimeout(_left(deadline, {name}))
            found[name] = _receive(link)
    except (OSError, EOFError) as error:
        raise PeerError(
            f"{name} stopped, or is silent.", "Look at what it says, and start again."
        ) from error
    return found


def _send(connection: socket.socket, content: bytes) -> None:
    connection.sendall(_LENGTH.pack(len(content)) + content)


def _receive(connection: socket.socket) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if length > _MAX_FRAME:
        raise EOFError
    return _exactly(connection, length)


def _exactly(connection: socket.socket, count: int) -> bytes:
    """EOFError where the connection ends before."""
    found = b""
    while len(found) < count:
        piece = connection.recv(count - len(found))
        if not piece:
            raise EOFError
        found += piece
    return found


def _left(deadline: float, awaited: set[str]) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        who = ", ".join(sorted(awaited))
        raise PeerError(
            f"{who} did not come in time.", "All parties start `veilgraph join` within --timeout."
        )
    return left


def _hashed(label: bytes, *parts: bytes) -> bytes:
    """SHA-256 of parts, each behind its length."""
    digest = hashlib.sha256(label)
    for part in parts:
        digest.update(_LENGTH.pack(len(part)) + part)
    return digest.digest()


def require_addresses(me: str, addresses: Mapping[str, Address]) -> None:
    """UsageError unless there are two parties or more, me among them, each at its own address."""
    if me not in addresses or len(addresses) < 2:
        raise UsageError(
            f"--with must name every party, {me} too.", "alice=10.0.0.1:7001, once for each."
        )
    if len(set(addresses.values())) < len(addresses):
        raise UsageError("Two parties have the same address.", "Each has its own host or port.")
