"""Derivatives of what slides windows over images: convolutions, and means and sums over windows.

No zero is written between the elements of a derivative to be multiplied. By the kernel a
convolution has the derivative as its kernel, strides for dilations and dilations for strides. By
the image there are two ways, whose multiplications are counted:

* by phases: each image row belongs to one of `stride` phases, whose elements see the same elements
  of the kernel. A phase is a convolution of stride 1 with that part of the kernel. It multiplies
  padding at the borders.
* scattered: the matrix product of each output's derivative with the whole kernel, as many
  multiplications as forwards, whose numbers are added up where they came from.

Phases are taken unless they multiply more than the forward operation does: for an image that was
padded, as most are, and not for one whose windows lie inside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import attributes
from veilgraph.passes.graph.derivatives.algebra import (
    Rules,
    Values,
    expanded,
    filled,
    product,
    reshaped,
    scaled,
    summed,
    total,
    transposed,
)
from veilgraph.passes.graph.derivatives.moves import (
    padded_along,
    part_along,
    placed,
    rows_of,
    with_extent,
)
from veilgraph.passes.graph.fold_divisors import window_shares


@dataclass(frozen=True)
class Axis:
    """How windows slide along one axis: element k of window j lies at j * stride + k * dilation -
    low."""

    extent: int
    windows: int
    kernel: int
    stride: int
    dilation: int
    low: int

    @property
    def phases(self) -> list[Phase]:
        return [self._phase(number) for number in range(self.stride)]

    @property
    def multiplications(self) -> int:
        """Of all phases, of one channel."""
        return sum(phase.extent * phase.kernel for phase in self.phases)

    def _phase(self, number: int) -> Phase:
        extent = max(0, -(-(self.extent - number) // self.stride))
        seen = [
            k
            for k in range(self.kernel)
            if (k * self.dilation - self.low - number) % self.stride == 0
        ]
        common = math.gcd(self.stride, self.dilation)
        ahead = (seen[0] * self.dilation - self.low - number) // self.stride if seen else 0
        step, dilation = self.stride // common, self.dilation // common
        return Phase(extent, seen[0] if seen else 0, len(seen), step, dilation, ahead)


@dataclass(frozen=True)
class Phase:
    """The image's elements that see the same part of the kernel.

    Attributes:
        extent: how many there are.
        first, kernel, step: elements first, first + step, ... of the kernel are seen, so many.
        dilation: how many outputs apart.
        ahead: element q sees output q - ahead through the first of them.
    """

    extent: int
    first: int
    kernel: int
    step: int
    dilation: int
    ahead: int


def conv(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    image, w, *bias = x
    named: dict[str, Any] = attributes(op)
    axes = _axes(op)
    forward = math.prod(axis.windows * axis.kernel for axis in axes)
    by_image = _by_phases if _multiplications(axes) <= forward else _scattered
    to_bias = [reshaped(summed(d, (0, 2, 3)), shape_of(b)) for b in bias]
    return [by_image(d, w, axes, named["groups"]), _by_kernel(op, image, d, axes), *to_bias]


def _axes(op: ir.OpView) -> list[Axis]:
    """How the windows of a convolution or a pool slide along both axes."""
    named: dict[str, Any] = attributes(op)
    operands = op.operation.operands
    kernel = named["kernel"] if "kernel" in named else shape_of(operands[1])[2:]
    sizes = shape_of(operands[0])[2:], shape_of(op.operation.results[0])[2:]
    dilations = named.get("dilations", (1, 1))
    every = zip(*sizes, kernel, named["strides"], dilations, named["pads_low"], strict=True)
    return [Axis(*numbers) for numbers in every]


def _multiplications(axes: Sequence[Axis]) -> int:
    return math.prod(axis.multiplications for axis in axes)


def _by_phases(d: ir.Value, w: ir.Value, axes: Sequence[Axis], groups: int) -> ir.Value:
    rows, columns = axes
    parts = [
        _interleaved([_phase(d, w, (p, q), groups) for q in columns.phases], 3, columns.extent)
        for p in rows.phases
    ]
    return _interleaved(parts, 2, rows.extent)


def _phase(d: ir.Value, w: ir.Value, phases: tuple[Phase, Phase], groups: int) -> ir.Value:
    """[N, C, extents of both phases]: d convolved with the part of w that they see, reversed."""
    images, channels = shape_of(d)[0], groups * shape_of(w)[1]
    shape = (images, channels, *(phase.extent for phase in phases))
    for axis, phase in enumerate(phases, 2):
        reach = (phase.kernel - 1) * phase.dilation
        windows = shape_of(d)[axis]
        first, last = -phase.ahead - reach, phase.extent - 1 - phase.ahead
        if not phase.kernel or phase.extent <= 0 or last < 0 or first >= windows:
            return filled(0.0, shape)
        w = part_along(
            w, axis, phase.first + (phase.kernel - 1) * phase.step, phase.kernel, -phase.step
        )
        d = padded_along(d, axis, min(-first, 0), min(last + 1 - windows, 0))
    lows = [max(p.ahead + (p.kernel - 1) * p.dilation, 0) for p in phases]
    pads = zip(phases, lows, shape_of(d)[2:], strict=True)
    highs = [p.extent + (p.kernel - 1) * p.dilation - low - extent for p, low, extent in pads]
    return ops.Conv.build(
        d,
        _channels_swapped(w, groups),
        strides=(1, 1),
        pads_low=tuple(lows),
        pads_high=tuple(highs),
        dilations=tuple(p.dilation for p in phases),
        groups=groups,
    )


def _channels_swapped(w: ir.Value, groups: int) -> ir.Value:
    """w [O, C / groups, ...] as [C, O / groups, ...]."""
    channels_out, inner, *kernel = shape_of(w)
    parts = reshaped(w, (groups, channels_out // groups, inner, *kernel))
    swapped = transposed(parts, (0, 2, 1, *range(3, 3 + len(kernel))))
    return reshaped(swapped, (groups * inner, channels_out // groups, *kernel))


def _interleaved(parts: Values, axis: int, extent: int) -> ir.Value:
    """Elements of the parts in turn along one axis: the first of each, then the second."""
    if len(parts) == 1:
        return parts[0]
    longest = max(shape_of(part)[axis] for part in parts)
    full = [padded_along(part, axis, 0, longest - shape_of(part)[axis]) for part in parts]
    between = ops.concat([rows_of(part, axis) for part in full], 1)
    shape = with_extent(shape_of(full[0]), axis, longest * len(parts))
    return part_along(reshaped(between, shape), axis, 0, extent)


def _scattered(d: ir.Value, w: ir.Value, axes: Sequence[Axis], groups: int) -> ir.Value:
    """One number for each output, channel and element of the kernel; each to its place."""
    images, outputs, *windows = shape_of(d)
    inner, *kernel = shape_of(w)[1:]
    parts = reshaped(w, (groups, outputs // groups, inner, *kernel))
    flat = reshaped(
        transposed(parts, (0, 3, 4, 2, 1)),
        (groups * math.prod(kernel) * inner, outputs // groups, 1, 1),
    )
    each = ops.Conv.build(
        d,
        flat,
        strides=(1, 1),
        pads_low=(0, 0),
        pads_high=(0, 0),
        dilations=(1, 1),
        groups=groups,
    )
    (height, width), (rows, columns) = windows, axes
    blocks = images * groups
    x = reshaped(each, (blocks * kernel[0], kernel[1], inner * height, width))
    x = reshaped(_gathered(x, columns), (blocks, kernel[0], inner, height, columns.extent))
    return reshaped(_gathered(x, rows), (images, groups * inner, rows.extent, columns.extent))


def _gathered(x: ir.Value, axis: Axis) -> ir.Value:
    """Of the kernel's elements along axis 1, each at its places along axis 3, added up."""
    found = []
    for k in range(axis.kernel):
        first = k * axis.dilation - axis.low
        found.append(placed(part_along(x, 1, k, 1), 3, first, axis.stride, axis.extent))
    return total(found)


def _by_kernel(op: ir.OpView, image: ir.Value, d: ir.Value, axes: Sequence[Axis]) -> ir.Value:
    """The image convolved with d: channels stand for images, images for channels.

    Of a kernel of one element, that is a matrix product.
    """
    named: dict[str, Any] = attributes(op)
    groups, (images, channels) = named["groups"], shape_of(image)[:2]
    if all(axis.kernel == 1 and not axis.low and _last(axis) <= 0 for axis in axes):
        return _by_one_element(image, d, axes, groups)
    for number, axis in enumerate(axes, 2):
        image = padded_along(image, number, 0, min(_last(axis), 0))
    split = reshaped(image, (images, groups, channels // groups, *shape_of(image)[2:]))
    swapped = transposed(split, (2, 1, 0, 3, 4))
    flat = reshaped(swapped, (channels // groups, groups * images, *shape_of(image)[2:]))
    found = ops.Conv.build(
        flat,
        transposed(d, (1, 0, 2, 3)),
        strides=tuple(axis.dilation for axis in axes),
        pads_low=named["pads_low"],
        pads_high=tuple(max(_last(axis), 0) for axis in axes),
        dilations=tuple(axis.stride for axis in axes),
        groups=groups,
    )
    return transposed(found, (1, 0, 2, 3))


def _by_one_element(image: ir.Value, d: ir.Value, axes: Sequence[Axis], groups: int) -> ir.Value:
    """d [O, N H' W'] times what windows look at, [N H' W', C / groups], group by group."""
    for number, axis in enumerate(axes, 2):
        image = part_along(image, number, 0, axis.windows, axis.stride)
    rows, columns = (_by_group(x, groups) for x in (d, image))
    found = ops.Matmul.build(rows, transposed(columns, (0, 2, 1)))
    return reshaped(found, (shape_of(d)[1], shape_of(image)[1] // groups, 1, 1))


def _by_group(x: ir.Value, groups: int) -> ir.Value:
    """x [N, C, H, W] as [groups, C / groups, N H W]."""
    images, channels, *size = shape_of(x)
    return reshaped(
        transposed(x, (1, 0, 2, 3)), (groups, channels // groups, images * math.prod(size))
    )


def _last(axis: Axis) -> int:
    """How far behind the image windows reach; negative where they end before."""
    last = (axis.windows - 1) * axis.stride + (axis.kernel - 1) * axis.dilation
    return last + 1 - axis.low - axis.extent


def sum_pool(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    """Each element gets what all of its windows have."""
    for number, axis in enumerate(_axes(op), 2):
        d = _copied(d, number, axis)
    return [d]


def _copied(d: ir.Value, number: int, axis: Axis) -> ir.Value:
    shape = shape_of(d)
    if axis.stride == axis.kernel or axis.windows == 1:  # windows that share no element
        apart = rows_of(d, number)
        wide = expanded(apart, with_extent(shape_of(apart), 1, axis.kernel))
        whole = reshaped(wide, with_extent(shape, number, axis.windows * axis.kernel))
        behind = axis.extent + axis.low - shape_of(whole)[number]
        return padded_along(whole, number, -axis.low, behind)
    places = range(-axis.low, axis.kernel - axis.low)
    return total([placed(d, number, first, axis.stride, axis.extent) for first in places])


def avg_pool(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    named: dict[str, Any] = attributes(op)
    padded = any((*named["pads_low"], *named["pads_high"]))
    if named["count_include_pad"] or not padded:
        return sum_pool(op, x, y, scaled(d, 1 / math.prod(named["kernel"])))
    return sum_pool(op, x, y, product(d, window_shares(op)))


RULES: Rules = {
    ops.Conv: conv,
    ops.AvgPool: avg_pool,
    ops.SumPool: sum_pool,
}
