"""TLS 1.3 between two parties, twice: in native code, and by Python's `ssl` where that can't be.

Both speak the same: each side trusts the one certificate that the other has shown and parties.yaml
pins, and proves its own. The native one calls the very OpenSSL that Python's `ssl` is linked with,
and encrypts with AES-128-GCM: as many bits as the keys that protocols draw with. A Python with its
OpenSSL built in has no library that could be called; its parties use `ssl`, which leaves the cipher
to OpenSSL, and can compute with native ones.
"""

from __future__ import annotations

import _ssl
import socket
import ssl
from typing import Protocol, TypeVar

from veilgraph.runtime._native import OpenSsl, Stream
from veilgraph.runtime.config import Config
from veilgraph.runtime.greeting import Dropped

# RFC 8446, section 5.5: AES-GCM may encrypt 2^24.5 full records under one key.
RECORDS_PER_KEY = 1 << 24


class Channel(Protocol):
    """A connection to a peer, once it is secured, or plaintext where that was asked for."""

    def recv(self, count: int, /) -> bytes: ...
    def sendall(self, content: bytes, /) -> None: ...
    def close(self) -> None: ...


C_co = TypeVar("C_co", bound=Channel, covariant=True)


class Transport(Protocol[C_co]):
    """Makes channels of sockets, which are the channel's own from then on."""

    def plain(self, connection: socket.socket) -> C_co: ...

    def secured(
        self, connection: socket.socket, shown: bytes, config: Config, *, dialed: bool
    ) -> C_co:
        """TLS 1.3 in which `shown` (DER) is all that is trusted; the socket's timeout holds.

        Args:
            dialed: the other side dialed, so this one is TLS's server.

        Raises:
            OSError: no TLS; ssl.SSLError or TlsError where one side can't prove who it is.
            Dropped: a certificate in TLS other than the one shown.
        """


class PythonTransport:
    """Sockets of Python's `ssl`."""

    def plain(self, connection: socket.socket) -> socket.socket:
        return connection

    def secured(
        self, connection: socket.socket, shown: bytes, config: Config, *, dialed: bool
    ) -> socket.socket:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if dialed else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # the certificate itself is pinned, whatever names it has
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(cadata=shown)
        context.load_cert_chain(config.certificate, config.key)
        if dialed:
            context.num_tickets = 0  # no resumption: each connection proves its keys anew
        secured = context.wrap_socket(connection, server_side=dialed)
        if secured.getpeercert(binary_form=True) != shown:
            secured.close()
            raise Dropped("its certificate in TLS is another than the one it showed")
        return secured


class NativeTransport:
    """Streams of the native module.

    Args:
        openssl: what TLS is done with; see `openssl`.
        records_per_key: that are sent before the key is renewed.
    """

    def __init__(self, openssl: OpenSsl, records_per_key: int = RECORDS_PER_KEY) -> None:
        self.openssl = openssl
        self.records_per_key = records_per_key

    def plain(self, connection: socket.socket) -> Stream:
        connection.setblocking(True)  # a stream says with each call whether it may wait
        return Stream.plain(connection.detach())

    def secured(
        self, connection: socket.socket, shown: bytes, config: Config, *, dialed: bool
    ) -> Stream:
        seconds = connection.gettimeout()
        assert seconds is not None, "a handshake that could last for ever"
        connection.setblocking(True)
        return Stream.secured(
            self.openssl,
            connection.detach(),
            shown,
            str(config.certificate),
            str(config.key),
            dialed,
            seconds,
            self.records_per_key,
        )


def words(error: OSError) -> str:
    """What OpenSSL says of a failure, without `ssl`'s decoration."""
    return str(getattr(error, "reason", None) or error).replace("_", " ").lower()


def openssl() -> OpenSsl | str:
    """The OpenSSL that Python's `ssl` is linked with, or the reason why it can't be called."""
    path = getattr(_ssl, "__file__", None)
    if path is None:
        return "Python's OpenSSL is built into the interpreter"
    try:
        return OpenSsl(path)
    except RuntimeError as error:
        return str(error)
