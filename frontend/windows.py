"""Rows of the aten table that slide windows: convolutions and pools, in one and two dimensions.

What slides over one axis slides over two, the first of extent 1. Zeros padded beforehand, and
minus infinity before a maximum, become the operation's own padding.
"""

from __future__ import annotations

import sys

from torch_mlir import ir

from veilgraph.frontend.reading import Aten, Refusal
from veilgraph.ir import graph_ops as ops
from veilgraph.ir.attributes import Shape, shape_of
from veilgraph.ir.graph import attributes, defining

Ints = tuple[int, ...]
LOWEST = -sys.float_info.max  # what torch-mlir pads with where minus infinity is meant


def convolution(a: Aten) -> ir.Value:
    """aten.convolution(x, w, bias, stride, padding, dilation, transposed, output_pad, groups)."""
    if a.flag(6):
        raise Refusal("Transposed convolutions aren't supported.", "Resize and convolve instead.")
    x, low, high = _absorb_padding(a.tensor(0), zeros=True)
    rank = _spatial_rank(shape_of(x))
    padding = a.integers(4)
    y = ops.Conv.build(
        _two_axes(x),
        _two_axes(a.tensor(1)),
        bias=a.optional(2),
        strides=_pair(a.integers(3), 1),
        pads_low=_pair(_sum(low, padding), 0),
        pads_high=_pair(_sum(high, padding), 0),
        dilations=_pair(a.integers(5), 1),
        groups=a.integer(8),
    )
    return _back(y, rank, a.shape)


def max_pool(a: Aten) -> ir.Value:
    """aten.max_pool{1,2}d(x, kernel, stride, padding, dilation, ceil_mode)."""
    x, low, high = _absorb_padding(a.tensor(0), zeros=False)
    rank = _spatial_rank(shape_of(x))
    kernel, dilations, padding = a.integers(1), a.integers(4), a.integers(3)
    strides = a.integers(2) or kernel
    if a.flag(5):
        raise Refusal("Its extents are rounded up.", "Give it explicit padding.")
    y = ops.MaxPool.build(
        _two_axes(x),
        kernel=_pair(kernel, 1),
        strides=_pair(strides, 1),
        pads_low=_pair(_sum(low, padding), 0),
        pads_high=_pair(_sum(high, padding), 0),
        dilations=_pair(dilations, 1),
    )
    return _back(y, rank, a.shape)


def avg_pool(a: Aten) -> ir.Value:
    """aten.avg_pool{1,2}d(x, kernel, stride, padding, ceil_mode, count_include_pad, ...).

    From ONNX the strides may be followed by dilations, and the padding says low before high.
    """
    x = a.tensor(0)
    rank = _spatial_rank(shape_of(x))
    kernel, strides, padding = a.integers(1), a.integers(2) or a.integers(1), a.integers(3)
    strides, dilations = strides[:rank], strides[rank:]
    low, high = padding[:rank], padding[rank:] or padding
    if any(dilation != 1 for dilation in dilations):
        raise Refusal("Dilated average pools aren't supported.")
    if a.flag(4):
        raise Refusal("Its extents are rounded up.", "Give it explicit padding.")
    y = ops.AvgPool.build(
        _two_axes(x),
        kernel=_pair(kernel, 1),
        strides=_pair(strides, 1),
        pads_low=_pair(low, 0),
        pads_high=_pair(high, 0),
        count_include_pad=a.flag(5) or not any((*low, *high)),
    )
    return _back(y, rank, a.shape)


def channel_pool(a: Aten) -> ir.Value:
    """aten.avg_pool3d over one axis of x [N, 1, C, H, W]: the mean over neighbouring channels."""
    x, kernel, padding = a.tensor(0), a.integers(1), a.integers(3)
    shape = shape_of(x)
    if len(shape) != 5 or kernel[1:] != (1, 1) or set(a.integers(2)) != {1} or any(padding):
        raise Refusal("Pools over three axes aren't supported.")
    flat = ops.Reshape.build(x, shape=(shape[0] * shape[1], 1, shape[2], shape[3] * shape[4]))
    y = ops.AvgPool.build(
        flat,
        kernel=(kernel[0], 1),
        strides=(1, 1),
        pads_low=(0, 0),
        pads_high=(0, 0),
        count_include_pad=True,
    )
    return ops.Reshape.build(y, shape=a.shape)


def _spatial_rank(shape: Shape) -> int:
    if len(shape) not in (3, 4):
        raise Refusal(f"Windows over {len(shape) - 2} axes aren't supported, only one and two.")
    return len(shape) - 2


def _sum(a: Ints, b: Ints) -> Ints:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _pair(values: Ints, neutral: int) -> Ints:
    return values if len(values) == 2 else (neutral, *values)


def _two_axes(value: ir.Value) -> ir.Value:
    """x [N, C, L] as [N, C, 1, L]."""
    shape = shape_of(value)
    if len(shape) == 4:
        return value
    return ops.Reshape.build(value, shape=(*shape[:2], 1, *shape[2:]))


def _back(value: ir.Value, rank: int, shape: Shape) -> ir.Value:
    return value if rank == 2 else ops.Reshape.build(value, shape=shape)


def _absorb_padding(x: ir.Value, zeros: bool) -> tuple[ir.Value, Ints, Ints]:
    """`x` without the padding that was just put around its images, and how much that was."""
    rank = _spatial_rank(shape_of(x))
    none = (0,) * rank
    op = defining(x)
    if not isinstance(op, ops.Pad):
        return x, none, none
    given = attributes(op)
    neutral = given["value"] == 0.0 if zeros else given["value"] <= LOWEST
    low, high = given["low"], given["high"]
    if not neutral or any((*low[:2], *high[:2])):
        return x, none, none
    return op.operation.operands[0], low[2:], high[2:]
