"""What reduce_sum computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.unsignedinteger[Any]]


def reduce_sum(x: Words, shape: tuple[int, ...]) -> Words:
    """Sum over the dimensions where `shape` has extent 1, of the rank of `x`."""
    axes = tuple(d for d, extent in enumerate(shape) if extent == 1)
    out: Words = x.sum(axis=axes, keepdims=True, dtype=x.dtype)
    return out
