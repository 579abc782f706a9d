"""What conv2d computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.kernels.conv2d.declaration import Params

Words = npt.NDArray[np.unsignedinteger[Any]]


def _padded(x: Words, params: Params, extent: tuple[int, int]) -> Words:
    """The image with its zeros around it, of at least the `extent` that windows reach."""
    batch, channels, height, width = x.shape
    top, left = params.pad_top, params.pad_left
    shape = (batch, channels, max(extent[0], top + height), max(extent[1], left + width))
    padded = np.zeros(shape, x.dtype)
    padded[:, :, top : top + height, left : left + width] = x
    return padded


def conv2d(pairs: Sequence[tuple[Words, Words]], params: Params, height: int, width: int) -> Words:
    """Sum over pairs of images [N, C, H, W] and weights [O, C/groups, KH, KW].

    Returns [N, O, height, width], modulo 2^32 or 2^64 by the operands' type.
    """
    batch, channels = pairs[0][0].shape[:2]
    filters, depth, kernel_h, kernel_w = pairs[0][1].shape
    rows, columns = height * params.stride_h, width * params.stride_w
    reach = (
        rows + (kernel_h - 1) * params.dilation_h,
        columns + (kernel_w - 1) * params.dilation_w,
    )
    out = np.zeros(
        (batch, params.groups, filters // params.groups, height, width), pairs[0][0].dtype
    )
    for x, w in pairs:
        padded = _padded(x, params, reach)
        weights = w.reshape(params.groups, filters // params.groups, depth, kernel_h, kernel_w)
        for i in range(kernel_h):
            for j in range(kernel_w):
                top, left = i * params.dilation_h, j * params.dilation_w
                window = padded[
                    :,
                    :,
                    top : top + rows : params.stride_h,
                    left : left + columns : params.stride_w,
                ]
                grouped = window.reshape(batch, params.groups, depth, height, width)
                out += np.einsum("ngchw,goc->ngohw", grouped, weights[..., i, j])
    assert channels == params.groups * depth
    return out.reshape(batch, filters, height, width)
