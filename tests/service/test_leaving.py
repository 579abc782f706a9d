"""A signal's action waits for no lock of the main thread."""

from __future__ import annotations

import signal
import threading

from veilgraph.commands.serving.signals import on_signals

SECONDS = 10.0


def test_an_action_may_take_a_lock_that_the_main_thread_holds() -> None:
    lock, took = threading.Lock(), list[bool]()
    ended = threading.Event()

    def leave() -> None:
        took.append(lock.acquire(timeout=SECONDS))
        ended.set()

    before = signal.getsignal(signal.SIGTERM)
    with on_signals({signal.SIGTERM: leave}), lock:
        signal.raise_signal(signal.SIGTERM)
        assert not ended.is_set()
    assert ended.wait(SECONDS)
    assert took == [True]
    assert signal.getsignal(signal.SIGTERM) is before
