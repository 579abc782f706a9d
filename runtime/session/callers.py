"""Those who have called at this party's port, and have not proven yet who they are.

One thread listens to all of them, and none is waited for, so that hundreds who keep quiet, or speak
a byte at a time, or stop in the middle of TLS, cost descriptors and little time. There are at
most half as many as the process may have descriptors. Who calls beyond that takes the place of the
oldest, among those from the host that has the most, and who calls from a host with few callers is
heard first: a flood from one network drives out and delays its own. Among equals it is who has cost
the least time so far.
"""

from __future__ import annotations

import ipaddress
import resource
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from veilgraph.runtime.session.exchange import Awaited, Dropped, Talk

_MOST = 1024  # in TLS each takes about 100 kB
_SECONDS = 10.0  # that a caller may take to prove who it is
# A turn: long enough for the few steps that each of those taken in before it needs.
_TURN_SECONDS = 0.03  # spent on those who spoke, before new ones are taken in
_AT_ONCE = 48  # taken in before the others are listened to again
_PAUSE_SECONDS = 0.1  # where no descriptor is left, and no caller has one


@dataclass(eq=False)
class _Caller:
    talk: Talk[None]
    source: str
    came: float
    awaited: Awaited
    spent: float = 0.0  # seconds of this thread


class Callers:
    """Listens at a socket, and to everyone who calls there.

    Args:
        listener: does not block; stays the caller's.
        answer: what is said to a connection from an address, to its end. It sees to its own errors;
            a caller that is dropped is a Dropped thrown into it.
        most: how many there may be at a time; `most_callers()` if left out.
    """

    def __init__(
        self,
        listener: socket.socket,
        answer: Callable[[socket.socket, str], Talk[None]],
        most: int | None = None,
    ) -> None:
        self._listener, self._answer = listener, answer
        self._most = most_callers() if most is None else most
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._callers: dict[_Caller, None] = {}  # in the order in which they came
        self._by_source: dict[str, dict[_Caller, None]] = {}  # the same

    def listen(self, seconds: float) -> None:
        """Goes on with everyone who has said something, or waits for so long for someone to."""
        ready = [key.data for key, _ in self._selector.select(seconds)]
        spoke = [caller for caller in ready if caller is not None]
        spoke.sort(key=lambda caller: (len(self._by_source[caller.source]), caller.spent))
        end = time.monotonic() + _TURN_SECONDS
        for caller in dict.fromkeys(spoke):  # epoll names one twice where a fork holds its number
            self._go_on(caller)
            if time.monotonic() > end:
                break  # the rest are still ready in the next turn, after others with fewer callers
        self._drop_late()
        if len(spoke) < len(ready):
            self._take_in()

    def _drop_late(self) -> None:
        now = time.monotonic()
        while self._callers and (first := next(iter(self._callers))).came + _SECONDS < now:
            self._drop(first, "it was too slow")

    def _take_in(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, (host, port, *_) = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:  # no descriptor is left, or no memory
                if not self._callers:
                    time.sleep(_PAUSE_SECONDS)
                    return
                self._make_room()
                continue
            if len(self._callers) >= self._most:
                self._make_room()
            self._add(connection, host, port)

    def _add(self, connection: socket.socket, host: str, port: int) -> None:
        talk = self._answer(connection, f"{host}:{port}")
        try:
            awaited = next(talk)
        except StopIteration:
            return
        caller = _Caller(talk, source_of(host), time.monotonic(), awaited)
        self._selector.register(*awaited, caller)
        self._callers[caller] = None
        self._by_source.setdefault(caller.source, {})[caller] = None

    def _make_room(self) -> None:
        most = max(self._by_source.values(), key=len)
        self._drop(next(iter(most)), "others called after it, and descriptors were running out")

    def _drop(self, caller: _Caller, reason: str) -> None:
        self._go_on(caller, Dropped(reason))

    def _go_on(self, caller: _Caller, dropped: Dropped | None = None) -> None:
        before, talk, start = caller.awaited, caller.talk, time.monotonic()
        try:
            caller.awaited = next(talk) if dropped is None else talk.throw(dropped)
        except StopIteration:
            self._forget(caller)
            return
        caller.spent += time.monotonic() - start
        if caller.awaited != before:
            self._selector.unregister(before.descriptor)
            self._selector.register(*caller.awaited, caller)

    def _forget(self, caller: _Caller) -> None:
        self._selector.unregister(caller.awaited.descriptor)
        del self._callers[caller]
        same = self._by_source[caller.source]
        del same[caller]
        if not same:
            del self._by_source[caller.source]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends what is said to those who are still there."""
        for caller in self._callers:
            caller.talk.close()
        self._selector.close()


def most_callers() -> int:
    """Half of the descriptors that this process may have: the rest is for links and files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else max(1, min(_MOST, soft // 2))


def source_of(host: str) -> str:
    """Whose callers are counted together: an IPv4 address, or the half of an IPv6 one that names a
    network, since a host may have all of that to itself."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if address.version == 4:
        return host
    return str(ipaddress.ip_network((address, 64), strict=False))
