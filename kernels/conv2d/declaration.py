"""Sums of two-dimensional convolutions (cross-correlations, as ONNX has them), modulo 2^bits.

    out[n, o, y, x] = sum over pairs p, c, i, j of
        x_p[n, g C/groups + c, y stride_h + i dilation_h - pad_top,
            x stride_w + j dilation_w - pad_left] w_p[o, c, i, j]

where g = o // (O / groups) is the filter's group, and an element outside the image is zero. Padding
below and to the right is what the output's extents ask for.

Buffers, all contiguous and of words of one width: out [N, O, OH, OW], then pairs x_p [N, C, H, W],
w_p [O, C / groups, KH, KW], of the same shapes for every pair. The output
shares no memory with them.

Parameters (int64): bits (as in matmul), stride_h, stride_w, pad_top, pad_left, dilation_h,
dilation_w, groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

NAME = "conv2d"


@dataclass(frozen=True)
class Params:
    bits: int
    stride_h: int = 1
    stride_w: int = 1
    pad_top: int = 0
    pad_left: int = 0
    dilation_h: int = 1
    dilation_w: int = 1
    groups: int = 1

    def values(self) -> tuple[int, ...]:
        return astuple(self)


def multiply_adds(params: Params, shapes: Sequence[tuple[int, ...]]) -> int:
    """Products of ring elements in one call whose buffers have these shapes, padding included."""
    batch, filters, height, width = shapes[0]
    _, channels, kernel_h, kernel_w = shapes[2]
    pairs = (len(shapes) - 1) // 2
    return pairs * batch * filters * height * width * channels * kernel_h * kernel_w
