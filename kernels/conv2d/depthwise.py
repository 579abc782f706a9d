"""The kernels of depthwise.cuh: which convolutions they are for, and their sources."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from veilgraph.kernels.conv2d.declaration import Params
from veilgraph.kernels.cuda.source import Source, params_struct

STRIP = 7  # rows of outputs that a thread makes; depthwise.cuh has it too
KERNELS, STRIDES = (3, 5), (1, 2)
LEAST_THREADS = 1 << 15  # fewer do not hide each other's waiting: a thread an output then


def is_able(params: Params, weights: Sequence[int]) -> bool:
    """Whether there is a kernel for it: weights are [O, C / groups, KH, KW]."""
    _, channels, *kernel = weights
    is_square = kernel[0] == kernel[1] and params.stride_h == params.stride_w
    known = kernel[0] in KERNELS and params.stride_h in STRIDES
    known = known and params.dilation_h == params.dilation_w == 1
    return channels == 1 and is_square and known


def strips_of(rows: int) -> int:
    """How many strips the rows of an image's outputs take."""
    return -(-rows // STRIP)


@cache
def source(word_bits: int, kernel: int, stride: int) -> tuple[Source, str]:
    """The kernel for square weights and strides, and its entry."""
    entry = f"veil_conv2d{word_bits}_depthwise_{kernel}_{stride}"
    text = params_struct("conv2d") + (
        '#include "kernels/conv2d/depthwise.cuh"\n\n'
        f"VEIL_CONV2D_DEPTHWISE({entry}, uint{word_bits}_t, {kernel}, {stride})\n"
    )
    return Source("conv2d_depthwise", text, (entry,)), entry
