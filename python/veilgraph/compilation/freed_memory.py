"""Memory that was freed, given back to the system."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4  # numbers of glibc's options
MOST = (1 << 31) - 1
GROWN = 1 << 25  # bytes of the largest block of a heap, as far as glibc lets it grow


def give_back() -> None:
    """Gives back what the C library keeps of freed memory, where it is glibc.

    It keeps whatever is in pieces, for requests of that size; what is made next is of another. Of
    a program of a million nodes that is a third of all that a process holds.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@contextmanager
def reused() -> Iterator[None]:
    """Memory that is freed meanwhile stays with the process, and is given back after it.

    A program that runs many times asks for the same large arrays each time. glibc asks the system
    for each, which clears every page of them: two fifths of such a run's seconds.
    """
    allocator = getattr(ctypes.CDLL(None), "mallopt", None)
    if allocator is None:
        yield
        return
    allocator(TRIM_THRESHOLD, MOST)
    allocator(MMAP_MAX, 0)
    try:
        yield
    finally:
        allocator(MMAP_MAX, 1 << 16)
        allocator(MMAP_THRESHOLD, GROWN)
        allocator(TRIM_THRESHOLD, 2 * GROWN)
        give_back()
