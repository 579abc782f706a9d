"""Sums over windows of images.

    out[n, c, y, x] = sum over i, j of
        x[n, c, y stride_h + i - pad_top, x stride_w + j - pad_left]

An element outside the image is zero. The sum is modulo 2^32 or 2^64, the words' width.

Buffers, both contiguous and of words of one width: out [N, C, OH, OW], x [N, C, H, W].

Parameters (int64): kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self, TypeAlias

from veilgraph.kernels import kernel
from veilgraph.kernels.kernel import Kernel, Range

_MOST = 1 << 24  # keeps every coordinate far inside an int64
Count: TypeAlias = Annotated[int, Range(1, _MOST)]
Padding: TypeAlias = Annotated[int, Range(0, _MOST)]


@dataclass(frozen=True)
class Params(kernel.Params):
    kernel_h: Count
    kernel_w: Count
    stride_h: Count = 1
    stride_w: Count = 1
    pad_top: Padding = 0
    pad_left: Padding = 0

    @classmethod
    def of_op(cls, bits: int, attributes: Mapping[str, Any]) -> Self:
        return cls(*attributes["kernel"], *attributes["strides"], *attributes["pads_low"])


KERNEL = Kernel("pool_sum", Params)
