"""A TCP proxy on loopback that cuts connections, and holds, slows or damages what they carry."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress


class Proxy:
    """Forwards to a port of loopback until it is closed."""

    def __init__(self, to: int) -> None:
        self._to, self._open = to, set[socket.socket]()
        self._flows, self._lock = threading.Event(), threading.Lock()
        self._flows.set()
        self._bytes_per_second = 0.0  # as fast as it goes
        self._flips = False
        self._listens = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listens.getsockname()[1])
        self.is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self._listens.accept()
                try:
                    called = socket.create_connection(("127.0.0.1", self._to))
                except OSError:
                    caller.close()
                    continue
                with self._lock:
                    self._open |= {caller, called}
                for pair in ((caller, called), (called, caller)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()
                if self.is_cut:
                    self._end()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while content := source.recv(1 << 16):
                self._flows.wait()
                sink.sendall(self._damaged(content))
                if self._bytes_per_second:
                    time.sleep(len(content) / self._bytes_per_second)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            with self._lock:
                self._open.discard(each)

    def _damaged(self, content: bytes) -> bytes:
        with self._lock:
            flips, self._flips = self._flips, False
        if not flips:
            return content
        middle = len(content) // 2
        return content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]

    def _end(self) -> None:
        with self._lock:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Ends connections, and those that come, until `mend`."""
        self.is_cut = True
        self._end()

    def hold(self) -> None:
        """Carries nothing until `mend`, and loses nothing."""
        self._flows.clear()

    def throttle(self, bytes_per_second: float) -> None:
        """Carries no more than that, each way of each connection, until `mend`."""
        self._bytes_per_second = bytes_per_second

    def flip(self) -> None:
        """Flips a bit of what it carries next."""
        self._flips = True

    def mend(self) -> None:
        self.is_cut = self._flips = False
        self._bytes_per_second = 0.0
        self._flows.set()

    def close(self) -> None:
        self.cut()
        self._flows.set()
        self._listens.close()
