"""Links whose rounds are native code, and the choice between them and those of Python's `ssl`.

Rounds, frames and encryption run without the interpreter's lock; the wire is that of `TlsLinks`, so
parties with one kind compute with parties of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Self, TypeVar

from veilgraph.ir.errors import VeilgraphError
from veilgraph.ir.plan.tables import LARGE_MESSAGE_BYTES
from veilgraph.runtime._native import Fault, FaultKind, LongRound, OpenSsl, Stream
from veilgraph.runtime._native import Links as Rounds
from veilgraph.runtime.links.links import Buffer, Links, TlsLinks
from veilgraph.runtime.links.openssl import openssl
from veilgraph.runtime.links.peer_errors import (
    bytes_changed,
    peer_late,
    peer_lost,
    peer_silent,
    peer_stopped,
    unexpected_message,
)
from veilgraph.runtime.links.shaping import Shape, ShapedTransport
from veilgraph.runtime.links.tls import (
    Channel,
    NativeTransport,
    PythonTransport,
    Transport,
)
from veilgraph.runtime.session.config import LEAST_BYTES_PER_SECOND, Config
from veilgraph.runtime.session.connect import check_loopback, connect

C = TypeVar("C", bound=Channel)


class NativeLinks:
    """Links over TLS 1.3 in native code, made by `connect`; see links.Links and NativeRounds."""

    def __init__(
        self,
        party: int,
        names: Sequence[str],
        streams: Mapping[int, Stream],
        timeout_seconds: float,
        least_bytes_per_second: float = LEAST_BYTES_PER_SECOND,
    ) -> None:
        self.party = party
        self.names = tuple(names)
        self.timeout_seconds = timeout_seconds
        self.least_bytes_per_second = least_bytes_per_second
        in_order = {p: streams[p] for p in sorted(streams)}
        self.rounds = Rounds(in_order, len(names), LARGE_MESSAGE_BYTES)
        self._closed = False

    @classmethod
    def connect(
        cls,
        config: Config,
        transport: Transport[Stream],
        *,
        insecure_plaintext: bool = False,
        timeout_seconds: float | None = None,
    ) -> Self:
        """Connects to all parties of a parties.yaml; see `TlsLinks.connect`."""
        timeout = config.timeout_seconds if timeout_seconds is None else timeout_seconds
        streams = connect(config, timeout, transport, insecure_plaintext=insecure_plaintext)
        least = config.least_bytes_per_second
        return cls(config.party, config.names, streams, timeout, least)

    @property
    def native(self) -> Self:
        return self

    @property
    def sent_bytes(self) -> dict[int, int]:
        return self.rounds.sent_bytes

    @property
    def received_bytes(self) -> dict[int, int]:
        return self.rounds.received_bytes

    @property
    def patience(self) -> tuple[float, float]:
        return self.timeout_seconds, self.least_bytes_per_second

    def reset_counters(self) -> None:
        self.rounds.reset_counters()

    def exchange(
        self, sends: Mapping[int, Buffer], receives: Mapping[int, Buffer], step: str
    ) -> None:
        assert not self._closed, "these links were closed"
        try:
            fault = self.rounds.exchange(
                dict(sends), dict(receives), self.timeout_seconds, self.least_bytes_per_second
            )
        except BaseException:
            self.stop(self.party)
            raise
        if fault is not None:
            raise self.ended_by(fault, step)

    @contextmanager
    def during(self, messages: LongRound, step: str) -> Iterator[None]:
        assert not self._closed, "these links were closed"
        fault = messages.begin(*self.patience)
        if fault is None:
            try:
                yield
            except BaseException:
                messages.abandon()
                self.stop(self.party)
                raise
            try:
                fault = messages.finish()
            except BaseException:
                self.stop(self.party)
                raise
        if fault is not None:
            raise self.ended_by(fault, step)

    def ended_by(self, fault: Fault, step: str) -> VeilgraphError:
        self.stop(fault.blamed)
        return self._error(fault, step)

    @property
    def encryption_seconds(self) -> float:
        return self.rounds.times[2] / 1e9

    def _error(self, fault: Fault, step: str) -> VeilgraphError:
        name = self.names[fault.peer]
        match fault.kind:
            case FaultKind.SILENT:
                return peer_silent(name, step, self.timeout_seconds)
            case FaultKind.LATE:
                return peer_late(name, step, *self.patience)
            case FaultKind.CLOSED:
                return peer_lost(name, step, f"{name} closed it")
            case FaultKind.BROKEN:
                return peer_lost(name, step, fault.reason)
            case FaultKind.CHANGED:
                return bytes_changed(name, step, fault.reason)
            case FaultKind.STOPPED:
                return peer_stopped(name, self.names[fault.blamed], step)
        return unexpected_message(
            name,
            step,
            f"message {fault.number} of {fault.bytes} bytes",
            f"message {fault.due_number} of {fault.due_bytes} bytes",
        )

    def stop(self, reason: int) -> None:
        self._closed = True
        self.rounds.stop(reason)

    def close(self) -> None:
        self._closed = True
        self.rounds.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and not self._closed:
            self.stop(self.party)
        self.close()


def open_links(
    config: Config,
    *,
    insecure_plaintext: bool = False,
    shape: Shape | None = None,
) -> Links:
    """Links to all parties of a parties.yaml: native ones where this Python's OpenSSL allows it.

    Args:
        shape: of a network to imitate; for measurements, and only where all hosts are loopback.

    Raises:
        PeerError, UsageError: as `TlsLinks.connect`.
    """
    if shape is not None:
        check_loopback(config, "Shaped links are", "Leave out the shape")
        least = min(config.least_bytes_per_second, shape.bytes_per_second / 2)  # slow as asked for
        config = replace(config, least_bytes_per_second=least)
    found = openssl()
    if isinstance(found, OpenSsl):
        native = _in_shape(NativeTransport(found), shape)
        return NativeLinks.connect(config, native, insecure_plaintext=insecure_plaintext)
    python = _in_shape(PythonTransport(), shape)
    return TlsLinks.connect(config, python, insecure_plaintext=insecure_plaintext)


def _in_shape(transport: Transport[C], shape: Shape | None) -> Transport[C]:
    return transport if shape is None else ShapedTransport(transport, shape)
