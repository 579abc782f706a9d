"""ONNX operators that slide windows in ways that the importer doesn't know, written out."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto

from veilgraph.frontend.lowering.operands import Unsupported
from veilgraph.frontend.onnx.nodes import Steps
from veilgraph.frontend.onnx.operators.elementary import MOST_POWER


def lp_pool(s: Steps) -> list[NodeProto]:
    """(sum of |x|^p over a window)^(1/p)."""
    p, x = s.attribute("p", 2), s.operand(0)
    if not 1 <= p <= MOST_POWER:
        raise Unsupported(f"A pool of order {p} isn't supported, only 1 to {MOST_POWER}.")
    magnitude = s("Abs", x) if p % 2 else x
    total = summed_windows(s, s("Pow", magnitude, s.numbers(p)) if p > 1 else magnitude)
    return s.finish(s("Pow", total, s.numbers(1 / p)) if p > 1 else total)


def average_pool(s: Steps) -> list[NodeProto]:
    """Averages over windows with gaps: sums, times how many elements each window has."""
    if all(d == 1 for d in s.attribute("dilations", [])):
        return [s.node]
    if s.attribute("ceil_mode", 0):
        raise Unsupported("Its extents are rounded up.", "Give it explicit padding.")
    kernel = s.attribute("kernel_shape", [])
    if s.attribute("count_include_pad", 0):
        counts = np.array(float(prod(kernel)))
    else:
        counts = _window_counts(s)
    return s.finish(s("Mul", summed_windows(s, s.operand(0)), s.numbers(1 / counts)))


def summed_windows(s: Steps, x: str) -> str:
    """The sum of each window: a convolution of each channel with ones."""
    kernel, channels = s.attribute("kernel_shape", []), s.shape(0)[1]
    names = ("auto_pad", "dilations", "pads", "strides")
    given = {name: s.attribute(name, None) for name in names}
    windows = {name: value for name, value in given.items() if value is not None}
    ones = s.numbers(np.ones((channels, 1, *kernel)))
    return s("Conv", x, ones, group=channels, **windows)


def _window_counts(s: Steps) -> NDArray[np.float64]:
    """How many elements of each window are no padding, [1, 1, ...]."""
    shape, result = s.shape(0)[2:], s.result_shape()[2:]
    kernel = s.attribute("kernel_shape", [])
    rank = len(kernel)
    strides, dilations = (s.attribute(n, [1] * rank) for n in ("strides", "dilations"))
    low = s.attribute("pads", [0] * rank)[:rank]
    if s.attribute("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise Unsupported(
            "It pads by itself around windows with gaps.", "Give it explicit padding."
        )
    counts = np.ones((1, 1, *(1,) * rank))
    for i in range(rank):
        first = np.arange(result[i]) * strides[i] - low[i]
        places = first[:, None] + np.arange(kernel[i]) * dilations[i]
        inside = ((places >= 0) & (places < shape[i])).sum(axis=1)
        counts = counts * inside.reshape([-1 if j == i + 2 else 1 for j in range(rank + 2)])
    return counts


def transposed_convolution(s: Steps) -> list[NodeProto]:
    """Without padding, then cropped, where the padding isn't even or follows from a shape."""
    result, shape = s.result_shape()[2:], s.shape(0)[2:]
    rank = len(shape)
    pads = s.attribute("pads", [0] * 2 * rank)
    mode, wanted = s.attribute("auto_pad", "NOTSET"), s.attribute("output_shape", [])
    if mode in ("NOTSET", "VALID") and not wanted and pads[:rank] == pads[rank:]:
        return [s.node]
    given = {name: s.attribute(name, [1] * rank) for name in ("strides", "dilations")}
    more = s.attribute("output_padding", [0] * rank)
    whole = s("ConvTranspose", *s.node.input, group=s.attribute("group", 1), **given)
    low, full = pads[:rank], []
    for axis, extent in enumerate(shape):
        stride, dilation, size = given["strides"][axis], given["dilations"][axis], s.shape(1)
        full.append(stride * (extent - 1) + dilation * (size[2 + axis] - 1) + 1)
        cut = full[axis] + more[axis] - result[axis]
        if mode.startswith("SAME") or wanted:
            low = [*low[:axis], cut // 2 if mode == "SAME_UPPER" else cut - cut // 2]
    over = [max(at + size - have, 0) for at, size, have in zip(low, result, full, strict=True)]
    if min(low) < 0:
        raise Unsupported("It would be padded by less than nothing.", "Give it explicit padding.")
    if any(over):
        whole = s("Pad", whole, s.integers(*(0,) * (rank + 4), *over))
    ends = (at + size for at, size in zip(low, result, strict=True))
    axes = s.integers(*range(2, 2 + rank))
    return s.finish(s("Slice", whole, s.integers(*low), s.integers(*ends), axes))
