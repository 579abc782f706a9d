"""Rows of the aten table that slide windows: convolutions and pools.

What slides over one axis slides over two, the first of extent 1. A pool over three slides over two,
then over the third; a convolution over three is one over two (convolutions_3d.py). Zeros padded
beforehand, and minus infinity before a maximum, become the operation's own padding.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from torch_mlir import ir

from veilgraph.frontend.lowering.layout import reversed_along
from veilgraph.frontend.lowering.operands import Aten, Unsupported
from veilgraph.frontend.onnx.operators import convolutions_3d as boxes
from veilgraph.ir.attributes import Shape, shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import attributes, defining

Ints = tuple[int, ...]
Pool = Callable[..., ir.Value]
LOWEST = -sys.float_info.max  # what torch-mlir pads with where minus infinity is meant


def convolution(a: Aten) -> ir.Value:
    """aten.convolution(x, w, bias, stride, padding, dilation, transposed, output_pad, groups)."""
    if a.flag(6):
        return transposed_convolution(a)
    x, low, high = _absorb_padding(a.tensor(0), zeros=True)
    padding = a.integers(4)
    if len(shape_of(x)) == 5:
        pads = (_sum(low, padding), _sum(high, padding))
        given = boxes.Windows(a.integers(3), *pads, a.integers(5), a.integer(8))
        return boxes.convolution(x, a.tensor(1), a.optional(2), given)
    rank = _spatial_rank(shape_of(x))
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
        raise Unsupported("Its extents are rounded up.", "Give it explicit padding.")
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
        raise Unsupported("Dilated average pools aren't supported.")
    if a.flag(4):
        raise Unsupported("Its extents are rounded up.", "Give it explicit padding.")
    y = ops.AvgPool.build(
        _two_axes(x),
        kernel=_pair(kernel, 1),
        strides=_pair(strides, 1),
        pads_low=_pair(low, 0),
        pads_high=_pair(high, 0),
        count_include_pad=a.flag(5) or not any((*low, *high)),
    )
    return _back(y, rank, a.shape)


def transposed_convolution(a: Aten) -> ir.Value:
    """The convolution of x, zeros between its elements, with the kernel turned round."""
    x, w = a.tensor(0), a.tensor(1)
    if len(shape_of(x)) == 5:
        return _transposed_box(a)
    rank, groups = _spatial_rank(shape_of(x)), a.integer(8)
    strides, dilations = _pair(a.integers(3), 1), _pair(a.integers(5), 1)
    padding, extra = _pair(a.integers(4), 0), _pair(a.integers(7) or (0,) * rank, 0)
    kernel = _turned(_two_axes(w), groups)
    reach = [d * (k - 1) for d, k in zip(dilations, shape_of(kernel)[2:], strict=True)]
    low = [r - p for r, p in zip(reach, padding, strict=True)]
    high = [before + e for before, e in zip(low, extra, strict=True)]
    spread = _cropped(_spread(_two_axes(x), strides), low, high)
    y = ops.Conv.build(
        spread,
        kernel,
        bias=a.optional(2),
        strides=(1, 1),
        pads_low=tuple(max(p, 0) for p in low),
        pads_high=tuple(max(p, 0) for p in high),
        dilations=dilations,
        groups=groups,
    )
    return _back(y, rank, a.shape)


def _transposed_box(a: Aten) -> ir.Value:
    """The same over three axes."""
    x, w, groups = a.tensor(0), a.tensor(1), a.integer(8)
    kernel, dilations, padding = _turned(w, groups), a.integers(5), a.integers(4)
    reach = [d * (k - 1) for d, k in zip(dilations, shape_of(kernel)[2:], strict=True)]
    low = tuple(r - p for r, p in zip(reach, padding, strict=True))
    high = _sum(low, a.integers(7) or (0, 0, 0))
    spread = _cropped(boxes.spread(x, a.integers(3), _spread), low, high)
    before, after = (tuple(max(p, 0) for p in side) for side in (low, high))
    given = boxes.Windows((1, 1, 1), before, after, dilations, groups)
    return boxes.convolution(spread, kernel, a.optional(2), given)


def _turned(w: ir.Value, groups: int) -> ir.Value:
    """w [I, O / groups, kh, kw] as [O, I / groups, kh, kw], all spatial axes reversed."""
    channels_in, channels_out, *kernel = shape_of(w)
    spatial = range(2, 2 + len(kernel))
    parts = ops.Reshape.build(
        reversed_along(w, tuple(spatial)),
        shape=(groups, channels_in // groups, channels_out, *kernel),
    )
    order = (0, 2, 1, *(axis + 1 for axis in spatial))
    swapped = ops.Transpose.build(parts, permutation=order)
    shape = (groups * channels_out, channels_in // groups, *kernel)
    return ops.Reshape.build(swapped, shape=shape)


def _spread(x: ir.Value, strides: Ints) -> ir.Value:
    """x [N, C, H, W] with stride - 1 zeros between neighbours along each spatial axis."""
    if set(strides) == {1}:
        return x
    n, c, h, w = shape_of(x)
    apart = ops.Reshape.build(x, shape=(n, c, h, 1, w, 1))
    high = (0, 0, 0, strides[0] - 1, 0, strides[1] - 1)
    wide = ops.Pad.build(apart, low=(0,) * 6, high=high, value=0.0)
    whole = ops.Reshape.build(wide, shape=(n, c, h * strides[0], w * strides[1]))
    shape = (n, c, (h - 1) * strides[0] + 1, (w - 1) * strides[1] + 1)
    return ops.Slice.build(whole, shape=shape, starts=(0,) * 4, steps=(1,) * 4)


def _cropped(x: ir.Value, low: Sequence[int], high: Sequence[int]) -> ir.Value:
    """x without what negative padding takes away."""
    if min(*low, *high) >= 0:
        return x
    starts = (0, 0, *(max(-p, 0) for p in low))
    sizes = zip(shape_of(x)[2:], low, high, strict=True)
    shape = (*shape_of(x)[:2], *(size + min(b, 0) + min(c, 0) for size, b, c in sizes))
    return ops.Slice.build(x, shape=shape, starts=starts, steps=(1,) * len(shape))


def max_pool3d(a: Aten) -> ir.Value:
    """aten.max_pool3d(x, kernel, stride, padding, dilation, ceil_mode)."""
    x, low, high = _absorb_padding(a.tensor(0), zeros=False)
    if a.flag(5):
        raise Unsupported("Its extents are rounded up.", "Give it explicit padding.")
    kernel, padding = a.integers(1), a.integers(3)
    windows = {
        "kernel": kernel,
        "strides": a.integers(2) or kernel,
        "pads_low": _sum(low, padding),
        "pads_high": _sum(high, padding),
        "dilations": a.integers(4),
    }
    return _over_three(x, windows, ops.MaxPool.build)


def avg_pool3d(a: Aten) -> ir.Value:
    """aten.avg_pool3d(x, kernel, stride, padding, ceil_mode, count_include_pad, ...).

    As in two dimensions the strides may be followed by dilations, the padding by that after it.
    """
    strides, padding = a.integers(2) or a.integers(1), a.integers(3)
    if any(dilation != 1 for dilation in strides[3:]):
        raise Unsupported("Dilated average pools aren't supported.")
    if a.flag(4):
        raise Unsupported("Its extents are rounded up.", "Give it explicit padding.")
    windows = {
        "kernel": a.integers(1),
        "strides": strides[:3],
        "pads_low": padding[:3],
        "pads_high": padding[3:] or padding,
    }
    include = a.flag(5) or not any(padding)
    return _over_three(a.tensor(0), windows, partial(ops.AvgPool.build, count_include_pad=include))


def _over_three(x: ir.Value, windows: Mapping[str, Ints], pool: Pool) -> ir.Value:
    """A pool over the last two axes of x [N, C, D, H, W], then over D: the window is a box."""
    n, c, d, h, w = shape_of(x)
    planes = ops.Reshape.build(x, shape=(n, c * d, h, w))
    planes = pool(planes, **{name: values[1:] for name, values in windows.items()})
    height, width = shape_of(planes)[2:]
    columns = ops.Reshape.build(planes, shape=(n, c, d, height * width))
    neutral = {"kernel": 1, "strides": 1, "dilations": 1}
    columns = pool(columns, **{n: (v[0], neutral.get(n, 0)) for n, v in windows.items()})
    return ops.Reshape.build(columns, shape=(n, c, shape_of(columns)[2], height, width))


def _spatial_rank(shape: Shape) -> int:
    if len(shape) not in (3, 4):
        raise Unsupported(f"Windows over {len(shape) - 2} axes aren't supported, only up to three.")
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
    none = (0,) * (len(shape_of(x)) - 2)
    op = defining(x)
    if not isinstance(op, ops.Pad):
        return x, none, none
    given = attributes(op)
    neutral = given["value"] == 0.0 if zeros else given["value"] <= LOWEST
    low, high = given["low"], given["high"]
    if not neutral or any((*low[:2], *high[:2])):
        return x, none, none
    return op.operation.operands[0], low[2:], high[2:]
