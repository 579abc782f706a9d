"""Links of one machine made to behave like those of a network: for `bench --netem`, never a run.

What a party sends is delayed by half a round trip and let through at a rate, in user space: between
the socket and TLS is a pair of sockets with a native loop on a thread, which costs a copy and some
microseconds a message. The rate is each link's own.
"""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass
from typing import Generic, TypeVar

from veilgraph.runtime import _native
from veilgraph.runtime.links.tls import Channel, Transport
from veilgraph.runtime.session.config import Config
from veilgraph.runtime.session.exchange import Talk

C = TypeVar("C", bound=Channel)


@dataclass(frozen=True)
class Shape:
    """A network's links: seconds there and back, bytes a second one way."""

    round_trip_seconds: float
    bytes_per_second: float


class ShapedTransport(Generic[C]):
    """Another transport's channels, behind links of a shape."""

    def __init__(self, inner: Transport[C], shape: Shape) -> None:
        self.inner = inner
        self.shape = shape

    def plain(self, connection: socket.socket) -> C:
        return self.inner.plain(self._shaped(connection))

    def secured(
        self, connection: socket.socket, shown: bytes, config: Config, *, dialed: bool
    ) -> Talk[C]:
        return self.inner.secured(self._shaped(connection), shown, config, dialed=dialed)

    def _shaped(self, connection: socket.socket) -> socket.socket:
        delay, rate = self.shape.round_trip_seconds / 2, self.shape.bytes_per_second
        shaped, near = socket.socketpair()
        shaped.setblocking(False)
        ends = near.detach(), connection.detach()
        # No daemon: what is on its way arrives, also when its sender has come to its end.
        threading.Thread(target=_native.forward, args=(*ends, delay, rate)).start()
        return shaped
