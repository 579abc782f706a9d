"""What fill computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.unsignedinteger[Any]]


def fill(value: int, shape: tuple[int, ...], word: type[np.uint32] | type[np.uint64]) -> Words:
    """An array of `shape`, every element `value` modulo 2^32 or 2^64."""
    return np.full(shape, value % (1 << 8 * word().itemsize), word)
