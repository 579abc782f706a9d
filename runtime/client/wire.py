"""What a client and a party say to each other: messages of some fields, and of ring elements.

A message is the length of its fields and of its elements, in bytes (32 and 64 bits, little endian),
then the fields as a JSON object, then the elements. It goes over TLS 1.3 in which either side has
proven who it is. An element takes 1, 2, 4 or 8 bytes, the fewest that hold its ring.
"""

from __future__ import annotations

import hashlib
import json
import math
import socket
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan.checks import hints_of, is_sane, record, typed
from veilgraph.ir.plan.given import Given
from veilgraph.ir.plan.tables import Tensor
from veilgraph.runtime.encoding import Words, word_dtype

MAGIC = b"veilgraph ask\n"  # a client's first bytes, before TLS
ENROL = b"veilgraph new\n"  # those of who becomes one
VERSION = 4  # of what clients and parties say to each other
ID_BYTES = 16  # of a request
MOST_FIELD_BYTES = 1 << 20
MOST_OF_CLIENT = 8  # requests that are open at a time: one client alone holds up no others
_LEAST_SECONDS = 0.001  # a timeout of none would be no wait at all
_HEAD = struct.Struct("<IQ")
_SHOWN = ("name", "shape", "ring_bits", "frac_bits", "low", "high", "column_exponents", "columns")


class WireError(Exception):
    """The other side closed, or said something that is no message, as the end of a sentence."""


def send(connection: socket.socket, fields: Mapping[str, Any], elements: bytes = b"") -> None:
    """Sends one message."""
    content = json.dumps(fields).encode()
    connection.sendall(b"".join((_HEAD.pack(len(content), len(elements)), content, elements)))


def receive(
    connection: socket.socket, most_bytes: int, seconds: float | None = None
) -> tuple[dict[str, Any], bytes]:
    """The next message: its fields, and its elements of at most so many bytes.

    Args:
        seconds: that all of it may take; None for the socket's timeout, of each piece.

    Raises:
        WireError: the connection was closed, or a message is none, or too long.
        OSError: the connection broke, or nothing came in its timeout.
    """
    end = None if seconds is None else time.monotonic() + seconds
    length, count = _HEAD.unpack(_exactly(connection, _HEAD.size, end))
    if length > MOST_FIELD_BYTES or count > most_bytes:
        raise WireError("it sent a message that is too long")
    try:
        fields = json.loads(_exactly(connection, length, end))
    except (ValueError, RecursionError) as error:
        raise WireError("it sent what is no message") from error
    if not isinstance(fields, dict):
        raise WireError("it sent what is no message")
    return fields, _exactly(connection, count, end)


def require_same_version(party: str, of_party: object, of_client: object) -> None:
    """UsageError where a party and a client don't state the same `VERSION`."""
    if of_party == of_client == VERSION:
        return
    stated = (
        each if isinstance(each, int) else "none that is known" for each in (of_party, of_client)
    )
    raise UsageError(
        "{} speaks version {} with clients, and the client {}.".format(party, *stated),
        "Install the same version of Veilgraph at the parties and at the client.",
    )


def _exactly(connection: socket.socket, count: int, end: float | None) -> bytes:
    content = bytearray(count)
    view = memoryview(content)
    while view:
        if end is not None:
            connection.settimeout(max(_LEAST_SECONDS, end - time.monotonic()))
        got = connection.recv_into(view)
        if not got:
            raise WireError("it closed the connection")
        view = view[got:]
    return bytes(content)


# Requests


def digest(what: str, facts: Sequence[str]) -> bytes:
    """ID_BYTES bytes of a meeting or a request, the same at all parties."""
    content = f"veilgraph {what}\0" + "\0".join(facts)
    return hashlib.sha256(content.encode()).digest()[:ID_BYTES]


def request_id(facts: Sequence[str], rows: int, certificates: Iterable[str]) -> bytes:
    """Of a request, at parties and clients alike.

    Args:
        facts: nonce, plan and session.
        certificates: SHA-256 in hex of the clients', in the plan's order of their roles.
    """
    return digest("request", [*facts, str(rows), *certificates])


# Tensors


def described(tensor: Tensor) -> dict[str, Any]:
    """What a client has to know of an input or an output."""
    fields = {name: getattr(tensor, name) for name in _SHOWN}
    bounds = {"low": _finite(tensor.low), "high": _finite(tensor.high)}
    return {**fields, **bounds, "given": asdict(tensor.given)}


def _finite(bound: float) -> float | None:
    return bound if math.isfinite(bound) else None


def tensor_of(fields: Mapping[str, Any], owner: str) -> Tensor:
    """The tensor that a party described.

    Raises:
        WireError: no tensor.
    """
    hints = hints_of(Tensor)
    try:
        low, high = fields["low"], fields["high"]
        bounds = {
            "low": -math.inf if low is None else low,
            "high": math.inf if high is None else high,
        }
        given = {name: fields[name] for name in _SHOWN} | bounds
        stated = {name: typed(hints[name], value, name) for name, value in given.items()}
        tensor = Tensor(**stated, owner=owner, offset=0, given=record(Given, fields["given"]))
    except (KeyError, ValueError) as error:
        raise WireError("it described no input or output") from error
    if not is_sane(tensor):
        raise WireError("it described no input or output")
    return tensor


def of_rows(tensors: Sequence[Tensor], rows: int, most: int) -> tuple[Tensor, ...]:
    """The inputs or outputs of a request that has so many of the rows that a plan takes.

    Args:
        most: rows that the plan takes, each computed for itself; 1 where it takes its inputs whole.
    """
    if most == 1:
        return tuple(tensors)
    return tuple(replace(each, shape=(rows, *each.shape[1:])) for each in tensors)


def labels_of(fields: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """What a party said that classes are called, by output.

    Raises:
        WireError: no such names.
    """
    found = fields.get("labels")
    if not isinstance(found, dict) or not all(
        isinstance(texts, list) and texts and all(isinstance(each, str) for each in texts)
        for texts in found.values()
    ):
        raise WireError("it named no classes")
    return {name: tuple(texts) for name, texts in found.items()}


def forms_of(fields: Mapping[str, Any]) -> dict[str, str]:
    """What a party said is revealed in place of outputs.

    Raises:
        WireError: no such names.
    """
    found = fields.get("forms")
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise WireError("it named no form of an output")
    return dict(found)


def _element(tensor: Tensor) -> np.dtype[Any]:
    size = next(size for size in (1, 2, 4, 8) if tensor.ring_bits <= 8 * size)
    return np.dtype(f"<u{size}")


def elements_bytes(tensors: Sequence[Tensor]) -> int:
    """Of a message with one value of each."""
    return sum(tensor.elements * _element(tensor).itemsize for tensor in tensors)


def to_bytes(words: Mapping[str, Words], tensors: Sequence[Tensor]) -> bytes:
    """The elements of a message: one value of each tensor, in their order."""
    return b"".join(words[t.name].astype(_element(t)).tobytes() for t in tensors)


def from_bytes(content: bytes, tensors: Sequence[Tensor]) -> dict[str, Words]:
    """What `to_bytes` was given, flat.

    Raises:
        WireError: another length.
    """
    if len(content) != elements_bytes(tensors):
        raise WireError("it sent elements of other inputs or outputs")
    found: dict[str, Words] = {}
    start = 0
    for tensor in tensors:
        each = np.frombuffer(content, _element(tensor), tensor.elements, start)
        found[tensor.name] = wrapped(each.astype(word_dtype(tensor.ring_bits)), tensor)
        start += each.nbytes
    return found


def wrapped(words: Words, tensor: Tensor) -> Words:
    """Modulo 2^ring_bits."""
    low = word_dtype(tensor.ring_bits).type((1 << tensor.ring_bits) - 1)
    found: Words = words & low
    return found
