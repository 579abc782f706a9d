"""Convolutions over three axes as one over two: the depths of a window become channels.

    x [N, C, D, H, W]  ->  [N D', C kd, H, W]     for each place of the depth its kd planes
    w [O, C / g, kd, kh, kw]  ->  [O, C kd / g, kh, kw]

One product and one truncation; what a plane is read for more than once is copied, which is local.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.graph import ops

Ints = tuple[int, ...]


@dataclass(frozen=True)
class Windows:
    """How a box slides; three numbers each, the depth's first."""

    strides: Ints
    pads_low: Ints
    pads_high: Ints
    dilations: Ints
    groups: int


def convolution(x: ir.Value, w: ir.Value, bias: ir.Value | None, given: Windows) -> ir.Value:
    """x [N, C, D, H, W], w [O, C / groups, kd, kh, kw], bias [O]."""
    count, depth = shape_of(x)[0], shape_of(w)[2]
    planes = _planes(x, depth, given)
    _, channels, places, *plane = shape_of(planes)
    moved = ops.Transpose.build(planes, permutation=(0, 2, 1, 3, 4))
    stacked = ops.Reshape.build(moved, shape=(count * places, channels, *plane))
    out, inner, _, *kernel = shape_of(w)
    flat = ops.Reshape.build(w, shape=(out, inner * depth, *kernel))
    y = ops.Conv.build(
        stacked,
        flat,
        bias=bias,
        strides=given.strides[1:],
        pads_low=given.pads_low[1:],
        pads_high=given.pads_high[1:],
        dilations=given.dilations[1:],
        groups=given.groups,
    )
    apart = ops.Reshape.build(y, shape=(count, places, *shape_of(y)[1:]))
    return ops.Transpose.build(apart, permutation=(0, 2, 1, 3, 4))


def _planes(x: ir.Value, depth: int, given: Windows) -> ir.Value:
    """[N, C kd, D', H, W]: the planes that each place of the depth sees, by channel."""
    low, high = given.pads_low[0], given.pads_high[0]
    if low or high:
        x = ops.Pad.build(x, low=(0, 0, low, 0, 0), high=(0, 0, high, 0, 0), value=0.0)
    n, c, extent, *plane = shape_of(x)
    stride, dilation = given.strides[0], given.dilations[0]
    places = (extent - dilation * (depth - 1) - 1) // stride + 1
    seen = [
        ops.Slice.build(
            x,
            shape=(n, c, places, *plane),
            starts=(0, 0, i * dilation, 0, 0),
            steps=(1, 1, stride, 1, 1),
        )
        for i in range(depth)
    ]
    wide = [ops.Reshape.build(part, shape=(n, c, 1, places, *plane)) for part in seen]
    joined = ops.concat(wide, 2) if depth > 1 else wide[0]
    return ops.Reshape.build(joined, shape=(n, c * depth, places, *plane))


def spread(x: ir.Value, strides: Ints, over_two: Callable[[ir.Value, Ints], ir.Value]) -> ir.Value:
    """x [N, C, D, H, W] with stride - 1 zeros between neighbours along each spatial axis."""
    n, c, d, h, w = shape_of(x)
    planes = over_two(ops.Reshape.build(x, shape=(n, c * d, h, w)), strides[1:])
    height, width = shape_of(planes)[2:]
    columns = ops.Reshape.build(planes, shape=(n, c, d, height * width))
    deep = over_two(columns, (strides[0], 1))
    return ops.Reshape.build(deep, shape=(n, c, shape_of(deep)[2], height, width))
