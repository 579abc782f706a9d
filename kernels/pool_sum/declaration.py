"""Sums over windows of images.

    out[n, c, y, x] = sum over i, j of
        x[n, c, y stride_h + i - pad_top, x stride_w + j - pad_left]

An element outside the image is zero. The sum is modulo 2^32 or 2^64, the words' width.

Buffers, both contiguous and of words of one width: out [N, C, OH, OW], x [N, C, H, W].

Parameters (int64): kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

NAME = "pool_sum"


@dataclass(frozen=True)
class Params:
    kernel_h: int
    kernel_w: int
    stride_h: int = 1
    stride_w: int = 1
    pad_top: int = 0
    pad_left: int = 0

    def values(self) -> tuple[int, ...]:
        return astuple(self)


def multiply_adds(params: Params, shapes: Sequence[tuple[int, ...]]) -> int:
    """None: only additions."""
    return 0
