"""Two pieces of work at once, on the two processors that any party has.

Native passes let other threads run meanwhile; what is Python waits for each other.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def together(first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
    """What both give, as if one had followed the other: where both fail, the first one's error is
    raised. Neither goes on behind this.
    """
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(first)
        try:
            here = second()
        except Exception:
            beside.result()
            raise
        return beside.result(), here
