"""Work beside other work, on the two processors that any party has.

Native code lets other threads run meanwhile; what is Python waits for each other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

A = TypeVar("A")
B = TypeVar("B")


class Beside(Generic[A]):
    """Work that is done in a thread of its own while a block runs.

    It is over behind the block, unless the block is interrupted: who presses Ctrl-C does not wait
    for it, and its thread ends with the process. Where there is no thread to be had it is done
    before the block.
    """

    def __init__(self, work: Callable[[], A]) -> None:
        self._work = work
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._found: list[A] = []
        self._error: BaseException | None = None

    def __enter__(self) -> Beside[A]:
        try:
            self._thread.start()
        except RuntimeError:  # no more threads here
            self._run()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, Exception):
            self._wait()

    def result(self) -> A:
        """What the work gave; raises what it raised."""
        self._wait()
        if self._error is not None:
            raise self._error
        return self._found[0]

    def _run(self) -> None:
        try:
            self._found.append(self._work())
        except BaseException as error:
            self._error = error

    def _wait(self) -> None:
        if self._thread.ident is not None:
            self._thread.join()


def together(first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
    """What both give, as if one had followed the other: where both fail, the first one's error is
    raised.
    """
    with Beside(first) as beside:
        try:
            here = second()
        except Exception:
            beside.result()
            raise
        return beside.result(), here
