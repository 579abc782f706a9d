"""The port of a process that lives on: parties and clients call at it at any time.

One thread answers all who call (callers.py). Who begins as a client does is handed on; anybody else
is answered as a party while links are looked for, and turned away at other times.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TypeAlias

from veilgraph.runtime.session.callers import Callers
from veilgraph.runtime.session.exchange import Awaited, Dropped, Talk

_SLICE_SECONDS = 0.1
Answer: TypeAlias = Callable[[socket.socket, str], Talk[None]]


class Port:
    """Answers at a listening socket, which is its own, until it is closed.

    Args:
        listener: does not block.
        takes: by the first bytes of those who are no party, as many of each: is handed the
            connection, behind these bytes, and its address; returns at once.
    """

    def __init__(
        self, listener: socket.socket, takes: Mapping[bytes, Callable[[socket.socket, str], None]]
    ) -> None:
        self._listener, self._takes = listener, takes
        (self._length,) = {len(magic) for magic in takes}
        self._parties: Answer | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="veilgraph-port", daemon=True)
        self._thread.start()

    @contextmanager
    def answering(self, parties: Answer) -> Iterator[None]:
        """Parties who call meanwhile are answered so."""
        self._parties = parties
        try:
            yield
        finally:
            self._parties = None

    def _listen(self) -> None:
        with self._listener, Callers(self._listener, self._answer) as callers:
            while not self._closed.is_set():
                callers.listen(_SLICE_SECONDS)

    def _answer(self, connection: socket.socket, address: str) -> Talk[None]:
        try:
            connection.setblocking(False)
            while not (begun := _begun(connection, self._length)):
                yield Awaited(connection.fileno(), selectors.EVENT_READ)
            if (take := self._takes.get(begun)) is not None:
                connection.recv(self._length)
                take(connection, address)
                return
            parties = self._parties
            if parties is None:
                raise Dropped("no party is awaited")
        except (Dropped, OSError):
            connection.close()
            return
        except GeneratorExit:
            connection.close()
            raise
        yield from parties(connection, address)

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _begun(connection: socket.socket, count: int) -> bytes:
    """The first bytes that came, which stay there; none where none are there yet.

    They are of one segment: who sends fewer is dropped, since waiting for more would not wait.
    """
    try:
        begun = connection.recv(count, socket.MSG_PEEK)
    except BlockingIOError:
        return b""
    if len(begun) < count:
        raise Dropped("it closed the connection, or sends byte by byte")
    return begun
