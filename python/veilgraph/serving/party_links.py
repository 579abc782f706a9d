"""A client's links to parties, over TLS 1.3 in which either side proves who it is, and messages.

What goes wrong there is told as the error that the client's caller gets.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from veilgraph.ir import errors
from veilgraph.ir.errors import PeerError, VeilgraphError
from veilgraph.runtime.client import wire
from veilgraph.runtime.client.client_config import Address, ClientConfig


def wire_send(
    party: str, link: ssl.SSLSocket, fields: Mapping[str, Any], elements: bytes = b""
) -> None:
    """Sends a message to a party; PeerError if it is lost."""
    try:
        wire.send(link, fields, elements)
    except OSError as error:
        raise lost(party, error) from error


def wire_receive(party: str, link: ssl.SSLSocket, most_bytes: int) -> tuple[dict[str, Any], bytes]:
    """A party's next message; PeerError if it is lost, or the error that it says."""
    try:
        return answer_of(party, link, most_bytes)
    except (OSError, wire.WireError) as error:
        raise lost(party, error) from error


def reach(
    party: Address, config: ClientConfig, seconds: float, magic: bytes = wire.MAGIC
) -> ssl.SSLSocket:
    """A link to a party, which has proven who it is.

    Raises:
        PeerError: nobody there, or somebody else.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate itself is pinned, whatever names it has
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=b"".join(party.certificates))
    context.load_cert_chain(config.certificate, config.key)
    try:
        plain = socket.create_connection((party.host, party.port), seconds)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.sendall(magic)
        link = context.wrap_socket(plain)
        shown = link.getpeercert(binary_form=True)  # which asks whether it is still connected
    except ssl.SSLError as error:
        raise PeerError(
            f"{party.name} at {party.host}:{party.port} could not prove who it is: "
            f"{error.reason or error}.",
            "Ask who runs it which certificate it uses.",
        ) from error
    except OSError as error:
        raise PeerError(
            f"{party.name} at {party.host}:{party.port} can't be reached: "
            f"{error.strerror or error}.",
            "Look at the address, and whether it serves.",
        ) from error
    if shown not in party.certificates:
        link.close()
        raise PeerError(f"{party.name} showed another certificate.", "Ask who runs it.")
    return link


def answer_of(party: str, link: ssl.SSLSocket, most_bytes: int) -> tuple[dict[str, Any], bytes]:
    """What a party says next; what it refuses is raised as the error that it is there."""
    fields, content = wire.receive(link, most_bytes)
    if "error" in fields:
        kind = getattr(errors, str(fields.get("kind")), PeerError)
        known = isinstance(kind, type) and issubclass(kind, VeilgraphError)
        chosen = kind if known and kind is not errors.UnsupportedError else PeerError
        raise chosen(f"{party}: {fields['error']}", str(fields.get("hint", "")))
    return fields, content


@contextmanager
def first_words(party: str) -> Iterator[None]:
    """TLS is over for a client before a party has looked at its certificate: it hears that here."""
    try:
        yield
    except TimeoutError as error:
        raise lost(party, error) from error
    except (OSError, wire.WireError) as error:
        raise PeerError(
            f"{party} turned this client away: it does not know its certificate, or has as many "
            "clients as it can talk to.",
            f"Give the certificate to who runs {party}: it belongs in its folder of clients.",
        ) from error


def lost(party: str, error: Exception) -> PeerError:
    reason = (isinstance(error, OSError) and error.strerror) or str(error) or "nothing came in time"
    return PeerError(f"{party} is lost: {reason}.", "Ask again; nobody has learned the input.")
