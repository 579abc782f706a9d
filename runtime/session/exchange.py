"""What two parties say before they are linked, on sockets that never block.

One side of it is a generator, which yields what its socket must be ready for before it can go on:
one thread follows as many as there are descriptors (callers.py), or a single one (`hold`).
"""

from __future__ import annotations

import math
import select
import selectors
import time
from collections.abc import Generator
from contextlib import closing
from typing import NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")


class Dropped(Exception):
    """A connection that led to nothing; waiting or dialing goes on."""


class Awaited(NamedTuple):
    """A descriptor, and what it must be ready for: selectors.EVENT_READ or EVENT_WRITE."""

    descriptor: int
    event: int


Talk: TypeAlias = Generator[Awaited, None, T]


def hold(talk: Talk[T], deadline: float) -> T:
    """Follows one conversation to its end, on the calling thread.

    Raises:
        Dropped: it was not over at the deadline, a time of `time.monotonic`.
    """
    with closing(talk):
        try:
            while True:
                _wait(next(talk), deadline)
        except StopIteration as end:
            found: T = end.value
            return found


def _wait(awaited: Awaited, deadline: float) -> None:
    poll = select.poll()
    to_read = awaited.event == selectors.EVENT_READ
    poll.register(awaited.descriptor, select.POLLIN if to_read else select.POLLOUT)
    remaining = deadline - time.monotonic()
    if remaining <= 0 or not poll.poll(math.ceil(1000 * remaining)):
        raise Dropped("it was too slow")
