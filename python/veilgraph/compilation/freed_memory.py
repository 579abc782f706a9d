"""Memory that was freed, given back to the system."""

from __future__ import annotations

import ctypes


def give_back() -> None:
    """Gives back what the C library keeps of freed memory, where it is glibc.

    It keeps whatever is in pieces, for requests of that size; what is made next is of another. Of
    a program of a million nodes that is a third of all that a process holds.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
