"""What pool_sum computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.kernels.pool_sum.declaration import Params

Words = npt.NDArray[np.unsignedinteger[Any]]


def pool_sum(x: Words, params: Params, height: int, width: int) -> Words:
    """Window sums of [N, C, H, W] as [N, C, height, width], modulo 2^32 or 2^64 by the type."""
    out = np.zeros((*x.shape[:2], height, width), x.dtype)
    for y in range(height):
        for z in range(width):
            top, left = y * params.stride_h - params.pad_top, z * params.stride_w - params.pad_left
            rows = slice(max(top, 0), max(top + params.kernel_h, 0))
            columns = slice(max(left, 0), max(left + params.kernel_w, 0))
            out[:, :, y, z] = x[:, :, rows, columns].sum(axis=(2, 3), dtype=x.dtype)
    return out
