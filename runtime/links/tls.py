"""TLS 1.3 between two parties, twice: in native code, and by Python's `ssl` where that can't be.

Both speak the same: each side trusts the one certificate that the other has shown and parties.yaml
pins, and proves its own. The native one calls the very OpenSSL that Python's `ssl` is linked with,
and encrypts with AES-128-GCM: as many bits as the keys that protocols draw with. A Python with its
OpenSSL built in has no library that could be called; its parties use `ssl`, which leaves the cipher
to OpenSSL, and can compute with native ones.
"""

from __future__ import annotations

import selectors
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from veilgraph.runtime._native import OpenSsl, Stream, TlsTerms
from veilgraph.runtime.session.config import Config
from veilgraph.runtime.session.exchange import Awaited, Dropped, Talk

# RFC 8446, section 5.5: AES-GCM may encrypt 2^24.5 full records under one key.
RECORDS_PER_KEY = 1 << 24
# What `ssl` raises where the connection ended or broke, which says nothing of who the other is.
CUT = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
_PROVEN = b"\x06"
_SECONDS = 5.0  # that a channel may wait before links take it over


class Channel(Protocol):
    """A connection to a peer, once it is secured, or plaintext where that was asked for."""

    def sendall(self, content: bytes, /) -> None: ...
    def close(self) -> None: ...
    def fileno(self) -> int: ...


C_co = TypeVar("C_co", bound=Channel, covariant=True)


class Transport(Protocol[C_co]):
    """Makes channels of sockets, which are the channel's own from then on."""

    def plain(self, connection: socket.socket) -> C_co: ...

    def secured(
        self, connection: socket.socket, shown: bytes, config: Config, *, dialed: bool
    ) -> Talk[C_co]:
        """TLS 1.3 in which `shown` (DER) is all that is trusted, on a socket that does not block.

        It ends with a byte each way, the dialed side's first: each knows then that the other has
        been let in, and is still there.

        Args:
            dialed: the other side dialed, so this one is TLS's server, and does nothing before the
                other has begun.

        Raises:
            OSError: no TLS; ssl.SSLError or TlsError where one side can't prove who it is.
            Dropped: a certificate in TLS other than the one shown.
        """


class _Side(NamedTuple):
    """What all connections with one peer share, so that the key is read once: it takes long.

    `written` is another when the certificate's file is: it may change between connections. A
    descriptor to read it with may be what a host that strangers call lacks.
    """

    shown: bytes
    written: tuple[int, int, int]
    certificate: Path
    key: Path
    dialed: bool

    @staticmethod
    def of(shown: bytes, config: Config, dialed: bool) -> _Side:
        stat = config.certificate.stat()
        written = stat.st_ino, stat.st_mtime_ns, stat.st_size
        return _Side(shown, written, config.certificate, config.key, dialed)


class PythonTransport:
    """Sockets of Python's `ssl`.

    What a stranger may say in a handshake is bounded by OpenSSL alone, not to the 16 kB of native
    ones: 131 kB, which cost 0.1 s in records of a byte. Enough such callers delay the right party.
    """

    def __init__(self) -> None:
        self._contexts: dict[_Side, ssl.SSLContext] = {}

    def plain(self, connection: socket.socket) -> socket.socket:
        connection.settimeout(_SECONDS)
        return connection

    def secured(
        self, connection: socket.socket, shown: bytes, config: Config, *, dialed: bool
    ) -> Talk[socket.socket]:
        with _closed_on_error(connection):
            if dialed:
                yield Awaited(connection.fileno(), selectors.EVENT_READ)
            context = self._context(_Side.of(shown, config, dialed))
            secured = context.wrap_socket(
                connection, server_side=dialed, do_handshake_on_connect=False
            )
        with _closed_on_error(secured):
            while event := _shake_hands(secured):
                yield Awaited(secured.fileno(), event)
            if secured.getpeercert(binary_form=True) != shown:
                raise Dropped("its certificate in TLS is another than the one it showed")
            yield from _agree(secured, secured.fileno(), partial(_receive_now, secured), dialed)
            secured.settimeout(_SECONDS)
        return secured

    def _context(self, side: _Side) -> ssl.SSLContext:
        if side in self._contexts:
            return self._contexts[side]
        kind = ssl.PROTOCOL_TLS_SERVER if side.dialed else ssl.PROTOCOL_TLS_CLIENT
        context = ssl.SSLContext(kind)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # the certificate itself is pinned, whatever names it has
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(cadata=side.shown)
        context.load_cert_chain(side.certificate, side.key)
        if side.dialed:
            context.num_tickets = 0  # no resumption: each connection proves its keys anew
        self._contexts[side] = context
        return context


def _shake_hands(secured: ssl.SSLSocket) -> int:
    """As `Stream.shake_hands`."""
    try:
        secured.do_handshake()
    except ssl.SSLWantReadError:
        return selectors.EVENT_READ
    except ssl.SSLWantWriteError:
        return selectors.EVENT_WRITE
    return 0


def _receive_now(secured: ssl.SSLSocket) -> bytes | None:
    """As `Stream.recv_now`, a byte."""
    try:
        return secured.recv(1)
    except ssl.SSLWantReadError:
        return None


def _agree(
    channel: Channel, descriptor: int, receive_now: Callable[[], bytes | None], dialed: bool
) -> Talk[None]:
    """Without it, who was dialed would keep a connection that the dialer has given up."""
    if dialed:
        channel.sendall(_PROVEN)
    while (heard := receive_now()) is None:
        yield Awaited(descriptor, selectors.EVENT_READ)
    if heard != _PROVEN:
        raise Dropped("it closed the connection")
    if not dialed:
        channel.sendall(_PROVEN)


@contextmanager
def _closed_on_error(channel: Channel) -> Iterator[None]:
    """Whatever ends a conversation, an end from outside too."""
    try:
        yield
    except BaseException:
        channel.close()
        raise


class NativeTransport:
    """Streams of the native module.

    Args:
        openssl: what TLS is done with; see `openssl`.
        records_per_key: that are sent before the key is renewed.
    """

    def __init__(self, openssl: OpenSsl, records_per_key: int = RECORDS_PER_KEY) -> None:
        self.openssl = openssl
        self.records_per_key = records_per_key
        self._terms: dict[_Side, TlsTerms] = {}

    def plain(self, connection: socket.socket) -> Stream:
        connection.setblocking(True)  # a stream says with each call whether it may wait
        return Stream.plain(connection.detach())

    def secured(
        self, connection: socket.socket, shown: bytes, config: Config, *, dialed: bool
    ) -> Talk[Stream]:
        descriptor = connection.fileno()
        with _closed_on_error(connection):
            if dialed:
                yield Awaited(descriptor, selectors.EVENT_READ)
            connection.setblocking(True)  # as in `plain`
            terms = self._terms_of(_Side.of(shown, config, dialed))
            stream = Stream.secured(terms, connection.detach(), _SECONDS, self.records_per_key)
        with _closed_on_error(stream):
            while event := stream.shake_hands():
                yield Awaited(descriptor, event)
            yield from _agree(stream, descriptor, partial(stream.recv_now, 1), dialed)
        return stream

    def _terms_of(self, side: _Side) -> TlsTerms:
        if side not in self._terms:
            certificate, key = str(side.certificate), str(side.key)
            self._terms[side] = TlsTerms(self.openssl, side.shown, certificate, key, side.dialed)
        return self._terms[side]


def words(error: OSError) -> str:
    """What OpenSSL says of a failure, without `ssl`'s decoration."""
    return str(getattr(error, "reason", None) or error).replace("_", " ").lower()
