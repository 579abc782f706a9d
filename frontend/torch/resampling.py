"""Operators of PyTorch that resample images, as products with public matrices.

An operator that is linear along an axis, and whose weights follow from extents alone, is a product
with the matrix that it makes of the identity: torch's own kernel computes that, once.

    interpolate, linear, 2 to 4     [1.00 0.75 0.25 0.00]
    x [N, C, 2] times               [0.00 0.25 0.75 1.00]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from veilgraph.frontend.torch.constants import public, whole

aten = torch.ops.aten
Row = Callable[..., Any]
Ints = Sequence[int] | None
Factors = Sequence[float] | None
Kernel = Callable[[Tensor, Ints, Factors], Tensor]  # of [rows, extent], along the last axis


def along(x: Tensor, axis: int, matrix: Tensor) -> Tensor:
    """The product of each vector along an axis with a matrix [extent, new extent]."""
    return (x.movedim(axis, -1) @ matrix).movedim(-1, axis)


def _resampled(x: Tensor, sizes: Ints, factors: Factors, kernel: Kernel) -> Tensor:
    """Each spatial axis resampled, those left that keep their extent."""
    for i, extent in enumerate(x.shape[2:]):
        size = None if sizes is None else [sizes[i]]
        factor = None if factors is None else [factors[i]]
        if (size or [extent])[0] != extent or (factor or [1.0])[0] != 1.0:
            with public():
                matrix = kernel(torch.eye(extent), size, factor)
            x = along(x, i + 2, matrix)
    return x


def linear(x: Tensor, sizes: Ints, align_corners: bool, factors: Factors = None) -> Tensor:
    """Linear, bilinear and trilinear interpolation, one axis after another."""

    def kernel(rows: Tensor, size: Ints, factor: Factors) -> Tensor:
        return aten.upsample_linear1d.vec(rows[None], size, align_corners, factor)[0]

    return _resampled(x, sizes, factors, kernel)


def over_images(operator: Any) -> Row:
    """Interpolation that torch has for images alone: the first axis keeps its extent."""

    def row(x: Tensor, sizes: Ints, align_corners: bool, factors: Factors = None) -> Tensor:
        def kernel(rows: Tensor, size: Ints, factor: Factors) -> Tensor:
            extents = None if size is None else [rows.shape[0], *size]
            scales = None if factor is None else [1.0, *factor]
            return operator(rows[None, None], extents, align_corners, scales)[0, 0]

        return _resampled(x, sizes, factors, kernel)

    return row


def nearest(operator: Any) -> Row:
    """The nearest pixel: each repeated for whole factors, else picked by its place."""

    def row(x: Tensor, sizes: Ints, factors: Factors = None) -> Tensor:
        for i, extent in enumerate(x.shape[2:]):
            size = None if sizes is None else [sizes[i]]
            factor = None if factors is None else [factors[i]]
            new = size[0] if size else int(extent * (factor or [1.0])[0])
            if new % extent == 0 and (factor is None or factor[0] * extent == new):
                wide = x.unsqueeze(i + 3).repeat_interleave(new // extent, i + 3)
                x = wide.flatten(i + 2, i + 3)
                continue
            with public():
                numbers = torch.arange(extent, dtype=torch.float32)
                places = operator(numbers[None, None], size, factor)[0, 0].long()
            x = x.index_select(i + 2, places)
        return x

    return row


def adaptive_average(x: Tensor, size: Sequence[int]) -> Tensor:
    """Means over windows that cover each axis evenly; where all are of one size the importer knows
    it.
    """
    first = x.dim() - len(size)
    extents = [x.shape[first + i] if new is None else new for i, new in enumerate(size)]
    if all(x.shape[first + i] % new == 0 for i, new in enumerate(extents)):
        return NotImplemented
    for i, new in enumerate(extents):
        with public():
            matrix = functional.adaptive_avg_pool1d(torch.eye(x.shape[first + i])[None], new)[0]
        x = along(x, first + i, matrix)
    return x


def adaptive_maximum(operator: Any) -> Row:
    """Maxima over the same windows; their places stay torch's."""

    def row(x: Tensor, size: Sequence[int]) -> Any:
        first, y = x.dim() - len(size), x
        if all(new == 1 or x.shape[first + i] % new == 0 for i, new in enumerate(size)):
            return NotImplemented
        for i, new in enumerate(size):
            extent = x.shape[first + i]
            bounds = [(j * extent // new, -(-(j + 1) * extent // new)) for j in range(new)]
            parts = [y.narrow(first + i, start, end - start) for start, end in bounds]
            y = torch.cat([part.amax(first + i, keepdim=True) for part in parts], first + i)
        with whole():
            return y, operator(x, size)[1]

    return row


def sampled(
    x: Tensor, grid: Tensor, interpolation: int, padding: int, align_corners: bool
) -> Tensor:
    """grid_sample: images or volumes times the matrix that each grid makes, which no input goes
    into.
    """
    count, channels, *extents = x.shape
    pixels = math.prod(extents)
    operator = aten.grid_sampler_2d if len(extents) == 2 else aten.grid_sampler_3d
    with public():
        basis = torch.eye(pixels).reshape(1, pixels, *extents).expand(count, -1, *extents)
        made = operator(basis, grid, interpolation, padding, align_corners)
        matrix = made.flatten(2)
    return (x.flatten(2) @ matrix).reshape(count, channels, *grid.shape[1:-1])


def _overhang(
    x: Tensor,
    kernel: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> list[int]:
    """How far the last windows reach beyond padding when extents are rounded up."""
    found = []
    for i in range(rank := len(kernel)):
        extent, reach = x.shape[i - rank], dilation[i] * (kernel[i] - 1) + 1
        padded = extent + 2 * padding[i]
        steps = -((reach - padded) // strides[i])
        steps -= steps * strides[i] >= extent + padding[i]
        found.append(max(0, steps * strides[i] + reach - padded))
    return found


def _spread(values: Sequence[int] | int, kernel: Sequence[int]) -> list[int]:
    """One number an axis, where one may stand for all."""
    given = [values] if isinstance(values, int) else list(values)
    return given * len(kernel) if len(given) == 1 else given


def _wide(low: Sequence[int], high: Sequence[int]) -> list[int]:
    """Padding as torch writes it: of the last axis first, low before high."""
    return [n for pair in zip(reversed(low), reversed(high), strict=True) for n in pair]


def maximum_rounded_up(pool: Row) -> Row:
    """A max pool whose extents are rounded up, padded beforehand."""

    def row(
        x: Tensor,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        ceil_mode: bool = False,
    ) -> Tensor:
        if not ceil_mode:
            return NotImplemented
        strides = _spread(stride or kernel, kernel)
        low, steps = _spread(padding, kernel), _spread(dilation, kernel)
        over = _overhang(x, kernel, strides, low, steps)
        high = [p + more for p, more in zip(low, over, strict=True)]
        y = functional.pad(x, _wide(low, high), value=-torch.inf)
        return pool(y, kernel, strides, 0, steps)

    return row


def average_rounded_up(pool: Row) -> Row:
    """An average pool whose extents are rounded up: of what is padded with zeros, times how much
    more than it each window should count.
    """

    def row(
        x: Tensor,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        if not ceil_mode or divisor_override:
            return NotImplemented
        strides, low = _spread(stride or kernel, kernel), _spread(padding, kernel)
        over = _overhang(x, kernel, strides, low, [1] * len(kernel))
        wide = _wide(low, [p + more for p, more in zip(low, over, strict=True)])
        with public():
            ones = torch.ones(1, 1, *x.shape[-len(kernel) :])
            wanted = pool(ones, kernel, strides, padding, True, count_include_pad)
            factor = wanted / pool(functional.pad(ones, wide), kernel, strides)
            factor = factor[0] if x.dim() == len(kernel) + 1 else factor
        return pool(functional.pad(x, wide), kernel, strides) * factor

    return row


ROWS: dict[Any, Row] = {
    aten.upsample_linear1d.vec: linear,
    aten.upsample_bilinear2d.vec: linear,
    aten.upsample_trilinear3d.vec: linear,
    aten.upsample_bicubic2d.vec: over_images(aten.upsample_bicubic2d.vec),
    aten._upsample_bilinear2d_aa.vec: over_images(aten._upsample_bilinear2d_aa.vec),
    aten._upsample_bicubic2d_aa.vec: over_images(aten._upsample_bicubic2d_aa.vec),
    aten.upsample_nearest1d.vec: nearest(aten.upsample_nearest1d.vec),
    aten.upsample_nearest2d.vec: nearest(aten.upsample_nearest1d.vec),
    aten.upsample_nearest3d.vec: nearest(aten.upsample_nearest1d.vec),
    aten._upsample_nearest_exact1d.vec: nearest(aten._upsample_nearest_exact1d.vec),
    aten._upsample_nearest_exact2d.vec: nearest(aten._upsample_nearest_exact1d.vec),
    aten._upsample_nearest_exact3d.vec: nearest(aten._upsample_nearest_exact1d.vec),
    aten.adaptive_avg_pool1d.default: adaptive_average,
    aten.adaptive_avg_pool2d.default: adaptive_average,
    aten.adaptive_avg_pool3d.default: adaptive_average,
    aten.adaptive_max_pool1d.default: adaptive_maximum(aten.adaptive_max_pool1d.default),
    aten.adaptive_max_pool2d.default: adaptive_maximum(aten.adaptive_max_pool2d.default),
    aten.adaptive_max_pool3d.default: adaptive_maximum(aten.adaptive_max_pool3d.default),
    aten.grid_sampler.default: sampled,
    aten.grid_sampler_2d.default: sampled,
    aten.grid_sampler_3d.default: sampled,
    aten.max_pool1d.default: maximum_rounded_up(functional.max_pool1d),
    aten.max_pool2d.default: maximum_rounded_up(functional.max_pool2d),
    aten.max_pool3d.default: maximum_rounded_up(functional.max_pool3d),
    aten.avg_pool1d.default: average_rounded_up(functional.avg_pool1d),
    aten.avg_pool2d.default: average_rounded_up(functional.avg_pool2d),
    aten.avg_pool3d.default: average_rounded_up(functional.avg_pool3d),
}
