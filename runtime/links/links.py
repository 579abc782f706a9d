"""Rounds of messages between parties: what a link promises, and links by Python's `ssl`.

Parties use native links (native.py) where they can; these are what they fall back on, and
what tests compare those with. Both have one wire.

Sends never wait for receives: sockets don't block, the start of each frame goes out at once, and
what the sockets don't take yet is sent while frames come in. A round of short messages is one
`send` and one `recv_into` a peer on the calling thread; in longer ones each link has a thread,
since OpenSSL works outside the interpreter's lock (but one connection never on two threads).

AES-GCM's limit of 2^24.5 records under one key (RFC 8446, section 5.5) is 24 million rounds or
380 GB a session and direction. Python's `ssl` can't renew a key, so a connection stops before that.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import VeilgraphError
from veilgraph.ir.plan.tables import LARGE_MESSAGE_BYTES
from veilgraph.runtime import _native
from veilgraph.runtime.links.frames import FramedConnection
from veilgraph.runtime.links.tls import PythonTransport, Transport
from veilgraph.runtime.session.config import LEAST_BYTES_PER_SECOND, Config
from veilgraph.runtime.session.connect import connect

Buffer: TypeAlias = bytes | bytearray | memoryview | npt.NDArray[np.uint8]

_POLL_MS = 100  # how soon a thread sees that another link failed


class NativeRounds(Protocol):
    """What links have besides whose rounds are native code: for whoever runs rounds natively."""

    party: int

    @property
    def rounds(self) -> _native.Links:
        """What does the work; `ended_by` takes its faults."""

    @property
    def patience(self) -> tuple[float, float]:
        """What `rounds` are given: seconds of a peer's silence, bytes a second after that."""

    @property
    def encryption_seconds(self) -> float:
        """In TLS itself, on all links together, since `reset_counters`."""

    def during(self, messages: _native.LongRound, step: str) -> AbstractContextManager[None]:
        """A round that begins here and is complete at the end.

        Raises:
            PeerError, SecurityAbort: as `Links.exchange`.
        """

    def ended_by(self, fault: _native.Fault, step: str) -> VeilgraphError:
        """Stops after a fault in a step; the error that says so."""

    def stop(self, reason: int) -> None:
        """Ends all links, and says to each peer which party was the reason."""


class Links(Protocol):
    """One party's links to all others.

    `party` is my index in the plan's parties, `names` are theirs in that order. `sent_bytes` and
    `received_bytes` count payload by peer, without framing and TLS. `timeout_seconds` is how long a
    peer may be silent.
    """

    party: int
    names: tuple[str, ...]
    timeout_seconds: float

    @property
    def sent_bytes(self) -> dict[int, int]: ...

    @property
    def received_bytes(self) -> dict[int, int]: ...

    @property
    def native(self) -> NativeRounds | None:
        """These links where their rounds are native code; None where they are Python."""

    def exchange(
        self, sends: Mapping[int, Buffer], receives: Mapping[int, Buffer], step: str
    ) -> None:
        """One round: sends each buffer to its peer, and fills each receive buffer from its peer.

        Buffers are contiguous bytes; those sent may change again when this returns. After an error
        the links are closed, and the other parties are told.

        A peer may be silent for `timeout_seconds`, and its part of the round may take no longer
        than that and its bytes, of the larger direction, at `least_bytes_per_second`. Both count
        from when this party waits for it: what a party computes is no part of a round.

        Args:
            sends: what goes to whom, by party index.
            receives: what is awaited from whom; the length is the buffer's.
            step: a name for people of what is being done.

        Raises:
            PeerError: a peer that is gone, silent or too slow, named with the step.
            SecurityAbort: a message that is not the one expected, or was changed on the way.
        """

    def reset_counters(self) -> None:
        """Counts bytes from 0 again."""

    def close(self) -> None:
        """Ends all links; nothing can be sent or received any more."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes; after an error the other parties are told that this one stopped."""


def byte_view(buffer: Buffer) -> memoryview:
    """The bytes of a contiguous buffer, without a copy."""
    view = buffer.data if isinstance(buffer, np.ndarray) else memoryview(buffer)
    return view.cast("B") if view.nbytes else memoryview(bytearray())


class TlsLinks:
    """Links over TLS 1.3 by Python's `ssl`, made by `connect`; see Links."""

    def __init__(
        self,
        party: int,
        names: Sequence[str],
        connections: Mapping[int, socket.socket],
        timeout_seconds: float,
        least_bytes_per_second: float = LEAST_BYTES_PER_SECOND,
    ) -> None:
        self.party = party
        self.names = tuple(names)
        self.timeout_seconds = timeout_seconds
        self.least_bytes_per_second = least_bytes_per_second
        self._links = {
            p: FramedConnection(p, self.names, connections[p]) for p in sorted(connections)
        }
        self._threads = ThreadPoolExecutor(max(1, len(connections) - 1), "veilgraph-link")
        self._failed = threading.Event()
        self._closed = False
        self.reset_counters()

    @classmethod
    def connect(
        cls,
        config: Config,
        transport: Transport[socket.socket] | None = None,
        *,
        insecure_plaintext: bool = False,
        timeout_seconds: float | None = None,
    ) -> Self:
        """Connects to all parties of a parties.yaml: dials those before me, awaits those after.

        Args:
            config: the parties, in the plan's order.
            transport: in place of Python's `ssl` as it is.
            insecure_plaintext: no TLS; for measurements, and only where all hosts are loopback.
            timeout_seconds: in place of the file's; for connecting, and for a peer's silence later.

        Raises:
            PeerError: a peer that does not come, or does not show its certificate.
            UsageError: an address that can't be listened at, or plaintext beyond loopback.
        """
        timeout = config.timeout_seconds if timeout_seconds is None else timeout_seconds
        chosen = transport or PythonTransport()
        connections = connect(config, timeout, chosen, insecure_plaintext=insecure_plaintext)
        least = config.least_bytes_per_second
        return cls(config.party, config.names, connections, timeout, least)

    @property
    def native(self) -> None:
        """None: rounds are Python's."""

    def reset_counters(self) -> None:
        self.sent_bytes = dict.fromkeys(self._links, 0)
        self.received_bytes = dict.fromkeys(self._links, 0)

    def exchange(
        self, sends: Mapping[int, Buffer], receives: Mapping[int, Buffer], step: str
    ) -> None:
        assert not self._closed, "these links were closed"
        longest_bytes = 0
        try:
            for link in self._links.values():
                link.sent_bytes = 0
            for peer, buffer in receives.items():
                payload = byte_view(buffer)
                self._links[peer].expect_frame(payload, step)
                self.received_bytes[peer] += len(payload)
                longest_bytes = max(longest_bytes, len(payload))
            for peer, buffer in sends.items():
                payload = byte_view(buffer)
                self._links[peer].send_frame(payload, step)
                self.sent_bytes[peer] += len(payload)
            self._finish(longest_bytes)
        except BaseException:
            self._stop()
            raise

    def _finish(self, longest_bytes: int) -> None:
        """Works on all links until the round is complete."""
        links = [link for link in self._links.values() if link.sending or link.receiving]
        if longest_bytes < LARGE_MESSAGE_BYTES and not any(link.sending for link in links):
            for link in links:
                link.receive_within(self.timeout_seconds, self.least_bytes_per_second)
            return
        others = [self._threads.submit(self._work, link) for link in links[1:]]
        try:
            self._work(links[0])
        except BaseException:
            self._failed.set()
            raise
        finally:
            errors = [each.exception() for each in others]
        for error in errors:
            if error is not None:
                raise error

    def _work(self, link: FramedConnection) -> None:
        """Sends and receives on one link until its part of the round is complete."""
        silence, least = self.timeout_seconds, self.least_bytes_per_second
        last = time.monotonic()
        deadline = last + link.allowed_seconds(silence, least)
        try:
            while (link.sending or link.receiving) and not self._failed.is_set():
                if link.wait(_POLL_MS):
                    while link.receive_some() | link.send_some():
                        last = time.monotonic()
                now = time.monotonic()
                if now - last > silence:
                    raise link.silent(silence)
                if now > deadline and (link.sending or link.receiving):
                    raise link.late(silence, least)
        except VeilgraphError:
            self._failed.set()
            raise

    def _stop(self) -> None:
        """Ends all links after an error, and says to each peer who was the reason."""
        blamed = [link.blamed for link in self._links.values() if link.blamed is not None]
        reason = blamed[0] if blamed else self.party
        for link in self._links.values():
            link.stop(reason)
        self.close()

    def close(self) -> None:
        self._closed = True
        for link in self._links.values():
            link.close()
        self._threads.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and not self._closed:
            self._stop()
        self.close()
