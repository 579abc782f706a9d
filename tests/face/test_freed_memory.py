"""Memory that is asked for again and again while a model is compiled."""

from __future__ import annotations

import resource

import numpy as np

from veilgraph.compilation.freed_memory import reused
from veilgraph.measuring.memory import Memory

LARGE = 1 << 27  # bytes: a block that glibc asks the system for by itself
PAGES = LARGE >> 12


def faults() -> int:
    """Pages that the system cleared for an array that is let go at once."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.zeros(LARGE, np.uint8).fill(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_freed_memory_is_taken_again_and_then_given_back() -> None:
    with reused():
        faults()
        assert faults() < PAGES // 64
        held = Memory.now().held_bytes
    assert Memory.now().held_bytes < held - LARGE // 2
