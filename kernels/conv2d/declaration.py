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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self, TypeAlias

from veilgraph.kernels import kernel
from veilgraph.kernels.kernel import Bits, Kernel, Range, Shape

_MOST = 1 << 20  # keeps every coordinate far inside an int64
Count: TypeAlias = Annotated[int, Range(1, _MOST)]
Padding: TypeAlias = Annotated[int, Range(0, _MOST)]


@dataclass(frozen=True)
class Params(kernel.Params):
    bits: Bits
    stride_h: Count = 1
    stride_w: Count = 1
    pad_top: Padding = 0
    pad_left: Padding = 0
    dilation_h: Count = 1
    dilation_w: Count = 1
    groups: Count = 1

    @classmethod
    def of_op(cls, bits: int, attributes: Mapping[str, Any]) -> Self:
        names = ("strides", "pads_low", "dilations")
        axes = (attributes[name][axis] for name in names for axis in (0, 1))
        return cls.of([bits, *axes, attributes["groups"]])


def multiply_adds(shapes: Sequence[Shape]) -> int:
    """Products of ring elements in one call whose buffers have these shapes, padding included."""
    batch, filters, height, width = shapes[0]
    _, channels, kernel_h, kernel_w = shapes[2]
    pairs = (len(shapes) - 1) // 2
    return pairs * batch * filters * height * width * channels * kernel_h * kernel_w


KERNEL = Kernel("conv2d", Params, multiply_adds)
