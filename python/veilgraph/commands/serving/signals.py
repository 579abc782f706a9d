"""What a process that serves does when it is sent a signal."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def on_signals(actions: Mapping[signal.Signals, Callable[[], None]]) -> Iterator[None]:
    """Meanwhile each signal begins its action, in a thread of its own; for the main thread.

    A handler runs between two steps of the main thread, which may hold a lock that the action
    takes: if the handler took it, both would wait forever.
    """

    def begin(number: int, _: object) -> None:
        action = actions[signal.Signals(number)]
        threading.Thread(target=action, name="veilgraph-signal", daemon=True).start()

    kept = {number: signal.signal(number, begin) for number in actions}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
