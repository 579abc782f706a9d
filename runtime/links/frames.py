"""One connection to a peer, and the frames on it.

A message is one frame: its number on the link (64 bits, counted from 0 in each direction) and its
length in bytes (64 bits), little endian, then the payload. Peers, lengths and order are the plan's,
so the frame's head is only compared with what is expected. A head with the number 2^64 - 1 says
that the peer stopped, and its length is the index of the party that was the reason.

The head and the start of the payload fill the first TLS record together; the rest goes from the
sender's buffer and into the receiver's without a copy.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import time
from collections.abc import Sequence

from veilgraph.ir.errors import PeerError, VeilgraphError
from veilgraph.runtime.links.peer_errors import (
    bytes_changed,
    peer_late,
    peer_lost,
    peer_silent,
    peer_stopped,
    session_too_long,
    unexpected_message,
)
from veilgraph.runtime.links.tls import CUT, RECORDS_PER_KEY, words

HEAD = struct.Struct("<QQ")
STOPPED = (1 << 64) - 1
_RECORD_BYTES = 1 << 14  # the most that one TLS record holds
_FIRST_BYTES = _RECORD_BYTES - HEAD.size  # of the payload, in the frame's first record
_CHUNK_BYTES = 1 << 17  # moved in one direction before a look at the other; measured, flat here
_NOTHING = memoryview(b"")
_NOT_NOW = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError)


class FramedConnection:
    """The connection to one peer, and how far the frames of the current round have come.

    `sending` and `receiving` say whether something is still to be moved. Only `wait` and
    `receive_within` wait. `sent_bytes` is the payload sent in this round: 0 is set before it.
    `blamed` is who was the reason, by index, once the connection has failed: the peer, or the one
    that the peer named when it stopped.
    """

    def __init__(self, peer: int, names: Sequence[str], connection: socket.socket) -> None:
        self.peer = peer
        self.name = names[peer]
        self.step = ""
        self.sending = False
        self.receiving = False
        self.sent_bytes = 0
        self.blamed: int | None = None
        self._names = names
        self._connection = connection
        self._sent_frames = 0
        self._received_frames = 0
        self._records = 0  # that were sent
        self._unsent: list[memoryview] = []
        self._record = memoryview(bytearray(_RECORD_BYTES))
        self._expected = b""  # the head that is due
        self._payload = _NOTHING  # where the whole payload goes
        self._missing = _NOTHING  # of the first record, then of the payload's rest
        self._opened = False  # the first record is complete
        self._events = select.POLLIN
        self._poll = select.poll()
        self._poll.register(connection, self._events)
        connection.setblocking(False)

    def send_frame(self, payload: memoryview, step: str) -> None:
        """Puts a frame up, and sends its first record and a chunk, if the socket takes them.

        Raises:
            ResourceLimitError: the key has encrypted as much as it may.
        """
        self.step = step
        self.sent_bytes = len(payload)
        self._records += -(-(HEAD.size + len(payload)) // _RECORD_BYTES)
        if self._records > RECORDS_PER_KEY:
            raise session_too_long(self.name, step)
        head = HEAD.pack(self._sent_frames, len(payload))
        self._unsent.append(memoryview(b"".join((head, payload[:_FIRST_BYTES]))))
        if len(payload) > _FIRST_BYTES:
            self._unsent.append(payload[_FIRST_BYTES:])
        self._sent_frames += 1
        self.sending = True
        if self.send_some():
            self.send_some()

    def expect_frame(self, payload: memoryview, step: str) -> None:
        """Awaits the next frame, of exactly the payload's length."""
        self.step = step
        self._expected = HEAD.pack(self._received_frames, len(payload))
        self._payload = payload
        self._missing = self._record[: HEAD.size + min(len(payload), _FIRST_BYTES)]
        self._opened = False
        self._received_frames += 1
        self.receiving = True

    def send_some(self) -> bool:
        """Sends at most a chunk; False if there is nothing to send or the socket is full."""
        if not self.sending:
            return False
        piece = self._unsent[0]
        try:
            sent = self._connection.send(piece[:_CHUNK_BYTES])
        except _NOT_NOW:
            return False
        except OSError as error:
            raise self._broke(error) from error
        if sent < len(piece):
            self._unsent[0] = piece[sent:]
        else:
            del self._unsent[0]
            self.sending = bool(self._unsent)
        return True

    def receive_some(self) -> bool:
        """Reads about a chunk; False if nothing is due or nothing came."""
        moved = 0
        while self.receiving and moved < _CHUNK_BYTES:
            try:
                count = self._connection.recv_into(self._missing)
            except _NOT_NOW:
                break
            except OSError as error:
                raise self._broke(error) from error
            self._take(count)
            moved += count
        return moved > 0

    def receive_within(self, seconds: float, least_bytes_per_second: float) -> None:
        """Reads the whole frame; a peer may be silent for so long, and be so slow after that."""
        left, start = seconds, time.monotonic()
        self._connection.settimeout(left)
        try:
            while self.receiving:
                self._take(self._connection.recv_into(self._missing))
                if self.receiving:
                    allowed = self.allowed_seconds(seconds, least_bytes_per_second)
                    left = min(seconds, start + allowed - time.monotonic())
                    if left <= 0:
                        raise self.late(seconds, least_bytes_per_second)
                    self._connection.settimeout(left)
        except TimeoutError as error:
            if left < seconds:
                raise self.late(seconds, least_bytes_per_second) from error
            raise self.silent(seconds) from error
        except OSError as error:
            raise self._broke(error) from error
        self._connection.settimeout(0)

    def allowed_seconds(self, seconds: float, least_bytes_per_second: float) -> float:
        """How long the round may take on this link, by the larger direction."""
        awaited_bytes = len(self._payload) if self.receiving else 0
        return seconds + max(self.sent_bytes, awaited_bytes) / least_bytes_per_second

    def wait(self, milliseconds: int) -> bool:
        """Waits until there may be something to do; False if the time ran out first."""
        events = (select.POLLOUT if self.sending else 0) | (select.POLLIN if self.receiving else 0)
        if events != self._events:
            self._poll.modify(self._connection, events)
            self._events = events
        return bool(self._poll.poll(milliseconds))

    def silent(self, seconds: float) -> PeerError:
        self.blamed = self.peer
        return peer_silent(self.name, self.step, seconds)

    def late(self, seconds: float, least_bytes_per_second: float) -> PeerError:
        self.blamed = self.peer
        return peer_late(self.name, self.step, seconds, least_bytes_per_second)

    def stop(self, reason: int) -> None:
        """Ends the link; a peer that isn't in the middle of a frame is told who was the reason."""
        if not self.sending and self.blamed != self.peer:
            # What can't be said is no matter: the peer sees the end of the connection.
            with contextlib.suppress(OSError):
                self._connection.setblocking(False)
                self._connection.send(HEAD.pack(STOPPED, reason))
        self.close()

    def close(self) -> None:
        self._connection.close()

    def _take(self, count: int) -> None:
        """Moves on by `count` bytes that came in; 0 is the connection's end."""
        if not count:
            raise self._broke(None)
        self._missing = self._missing[count:]
        if not self._opened:
            self._open()
        self.receiving = not self._opened or bool(self._missing)

    def _open(self) -> None:
        """Checks the head once it is there, and unpacks the first record once that is complete."""
        inside = min(len(self._payload), _FIRST_BYTES)
        if HEAD.size + inside - len(self._missing) < HEAD.size:
            return
        if self._record[: HEAD.size] != self._expected:
            raise self._unexpected()
        if not self._missing:
            self._payload[:inside] = self._record[HEAD.size : HEAD.size + inside]
            self._missing = self._payload[inside:]
            self._opened = True

    def _unexpected(self) -> VeilgraphError:
        number, length = HEAD.unpack(self._record[: HEAD.size])
        if number == STOPPED:
            self.blamed = length if length < len(self._names) else self.peer
            return peer_stopped(self.name, self._names[self.blamed], self.step)
        self.blamed = self.peer
        due_number, due_length = HEAD.unpack(self._expected)
        return unexpected_message(
            self.name,
            self.step,
            f"message {number} of {length} bytes",
            f"message {due_number} of {due_length} bytes",
        )

    def _broke(self, error: OSError | None) -> VeilgraphError:
        self.blamed = self.peer
        if isinstance(error, ssl.SSLError) and not isinstance(error, CUT):
            return bytes_changed(self.name, self.step, words(error))
        if error is None or isinstance(error, CUT):
            return peer_lost(self.name, self.step, f"{self.name} closed it")
        return peer_lost(self.name, self.step, error.strerror or type(error).__name__)
