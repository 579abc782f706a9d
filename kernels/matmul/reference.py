"""What matmul computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.unsignedinteger[Any]]


def matmul(pairs: Sequence[tuple[Words, Words]]) -> Words:
    """Sum of a @ b over pairs of [B, M, K] and [B, K, N], modulo 2^32 or 2^64 by their type."""
    terms = [np.einsum("bik,bkj->bij", a, b) for a, b in pairs]
    out: Words = np.add.reduce(terms, dtype=terms[0].dtype)
    return out
