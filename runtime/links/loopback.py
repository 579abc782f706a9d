"""Links between parties that are threads of one process: the engine of `simulate`.

They behave as those over TLS: sends never wait, buffers sent may change at once, and a party that
stops stops the others.
"""

from __future__ import annotations

import queue
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeAlias

from veilgraph.runtime.links.links import Buffer, byte_view
from veilgraph.runtime.links.peer_errors import (
    peer_lost,
    peer_silent,
    peer_stopped,
    unexpected_message,
)
from veilgraph.runtime.session.config import TIMEOUT_SECONDS


@dataclass(frozen=True)
class _Stopped:
    """In place of a message: the sender has ended; `reason` is the party to blame, if any."""

    reason: int | None


_Mailbox: TypeAlias = "queue.SimpleQueue[bytes | _Stopped]"


class LoopbackLinks:
    """One thread's links to the others, made by `loopback`; see links.Links."""

    def __init__(
        self,
        party: int,
        names: Sequence[str],
        outgoing: Mapping[int, _Mailbox],
        incoming: Mapping[int, _Mailbox],
        timeout_seconds: float,
    ) -> None:
        self.party = party
        self.names = tuple(names)
        self.timeout_seconds = timeout_seconds
        self._outgoing = outgoing
        self._incoming = incoming
        self._closed = False
        self.reset_counters()

    @property
    def native(self) -> None:
        """None: rounds are Python's."""

    def reset_counters(self) -> None:
        self.sent_bytes = dict.fromkeys(self._outgoing, 0)
        self.received_bytes = dict.fromkeys(self._incoming, 0)

    def exchange(
        self, sends: Mapping[int, Buffer], receives: Mapping[int, Buffer], step: str
    ) -> None:
        assert not self._closed, "these links were closed"
        blamed = self.party
        try:
            for peer, buffer in sends.items():
                message = bytes(byte_view(buffer))
                self._outgoing[peer].put(message)
                self.sent_bytes[peer] += len(message)
            for peer, buffer in receives.items():
                blamed = peer
                received = self._take(peer, step)
                if isinstance(received, _Stopped) and received.reason is not None:
                    blamed = received.reason
                self._fill(peer, byte_view(buffer), received, step)
        except BaseException:
            self._stop(blamed)
            raise

    def _take(self, peer: int, step: str) -> bytes | _Stopped:
        try:
            return self._incoming[peer].get(timeout=self.timeout_seconds)
        except queue.Empty:
            raise peer_silent(self.names[peer], step, self.timeout_seconds) from None

    def _fill(self, peer: int, buffer: memoryview, received: bytes | _Stopped, step: str) -> None:
        name = self.names[peer]
        if isinstance(received, _Stopped):
            if received.reason is None:
                raise peer_lost(name, step, f"{name} closed it")
            raise peer_stopped(name, self.names[received.reason], step)
        if len(received) != len(buffer):
            found, expected = f"{len(received)} bytes", f"a message of {len(buffer)} bytes"
            raise unexpected_message(name, step, found, expected)
        buffer[:] = received
        self.received_bytes[peer] += len(received)

    def _stop(self, reason: int | None) -> None:
        if not self._closed:
            self._closed = True
            for mailbox in self._outgoing.values():
                mailbox.put(_Stopped(reason))

    def close(self) -> None:
        self._stop(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop(None if error is None else self.party)


def loopback(
    parties: int,
    names: Sequence[str] | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> list[LoopbackLinks]:
    """The links of each of some parties in one process, by index; each is used by one thread.

    Args:
        parties: how many there are.
        names: what errors call them; else "party 0", "party 1", ...
        timeout_seconds: how long a party may be silent.
    """
    called = tuple(names) if names is not None else tuple(f"party {i}" for i in range(parties))
    assert len(called) == parties
    boxes: dict[tuple[int, int], _Mailbox] = {
        (i, j): queue.SimpleQueue() for i in range(parties) for j in range(parties) if i != j
    }
    return [
        LoopbackLinks(
            i,
            called,
            {j: boxes[i, j] for j in range(parties) if j != i},
            {j: boxes[j, i] for j in range(parties) if j != i},
            timeout_seconds,
        )
        for i in range(parties)
    ]
