"""Derivatives of graph programs in NumPy, backwards through one run, and what they say about noise.

For the operations that are left when a program is about to be encoded: sums, products, maxima and
layout.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.facts import Arithmetic
from veilgraph.ir.graph.program import Graph, attributes
from veilgraph.ir.meaning.graph import apply, image_groups, padded, shifted_views, slice_
from veilgraph.ir.meaning.onnx_runtime import OnnxProgram

Array = NDArray[Any]
Run = Callable[[], dict[ir.Value, Array]]
BLUR = 2.0**-8  # relative: as coarse as a number is that is stored with the fewest bits
QUIET = 2.0**-16  # of the outputs' mean square
SIGNS = 16  # of outputs, at least, that tell of noise that seems to do nothing
SURPRISING = 16  # times the gain: a factor of four in the derivative, two bits


def gradients(
    graph: Graph, values: dict[ir.Value, Array], seeds: Mapping[str, Array]
) -> Iterator[tuple[ir.Value, Array, Array]]:
    """The derivative of sum(seed * output) with respect to every value that bears on it.

    Args:
        values: every value where to differentiate; those of operations are taken out of it.
        seeds: one array an output, of its shape.

    Yields:
        Values from the outputs back to the arguments, each with its numbers and its derivative.
    """
    found: dict[ir.Value, Array] = {}
    for name, value in graph.outputs.items():
        found[value] = found.get(value, 0) + np.asarray(seeds[name], np.float32)
    for op in reversed(graph.operations):
        result = op.operation.results[0]
        y, reached = values.pop(result), found.pop(result, None)
        if reached is None:
            continue
        yield result, y, reached
        operands = list(op.operation.operands)
        back = BACK[type(op)](op, [values[v] for v in operands], y, reached)
        for operand, part in zip(operands, back, strict=True):
            found[operand] = found.get(operand, 0) + part
    for value, derivative in found.items():
        yield value, values[value], derivative


def _blurred(
    program: OnnxProgram, sample: Mapping[str, Array], generator: np.random.Generator
) -> dict[ir.Value, Array]:
    """Every value, where each number is off by BLUR of itself, up or down, before others are
    computed from it."""

    def blur(array: Array) -> Array:
        signs = generator.integers(0, 2, array.shape, np.int8) * 2 - 1
        return array * (1 + np.float32(BLUR) * signs).astype(np.float32)

    values = {value: blur(array) for value, array in program.arguments(sample).items()}
    for op in program.graph.operations:
        operands = [values[value] for value in op.operation.operands]
        result = apply(op, operands)
        values[op.operation.results[0]] = result if ops.facts_of(op).selects else blur(result)
    return values


def noise_gains(
    program: OnnxProgram,
    samples: Sequence[Mapping[str, Array]],
    outputs: Sequence[Mapping[str, Array]],
    generator: np.random.Generator,
    peaks: dict[ir.Value, float] | None = None,
) -> dict[ir.Value, float]:
    """For each value: the outputs' mean square if each of its elements had noise of variance 1.

    The outputs' noise is counted relative to their size, so that the root is the mean error over
    the mean magnitude, for normally distributed errors. One run with random signs a sample is an
    unbiased estimate of the sum of the squared derivatives of all outputs (Hutchinson, 1990).

    A derivative may vanish where the samples lie and nowhere else: that of a variance by the mean
    does, for the distances from it add up to nothing. So may what a few signs make of several
    derivatives. What seems to do nothing even if it were off by its whole size is therefore tried
    again, with other signs, where every number is off by BLUR of itself.

    Args:
        outputs: those of each sample.
        peaks: takes, for each value, what noise of variance 1 on the one element does that bears
            most on the outputs, for the signs that were drawn.
    """
    graph, runs = program.graph, [partial(program.run, sample) for sample in samples]
    powers = {name: _variance([found[name] for found in outputs]) for name in graph.outputs}
    gains, effects = _gains(graph, runs, powers, generator, peaks)
    quiet = [value for value, effect in effects.items() if effect < QUIET]
    if quiet:
        draws = -(-SIGNS // sum(math.prod(shape_of(y)) for y in graph.outputs.values()))
        off = [partial(_blurred, program, sample, generator) for sample in samples] * draws
        with np.errstate(all="ignore"):  # a root may leave its domain: that tells nothing
            blurred, _ = _gains(graph, off, powers, generator)
        for value in quiet:
            if SURPRISING * gains[value] < blurred[value] < math.inf:
                gains[value] = blurred[value]
    return gains


def _gains(
    graph: Graph,
    runs: Sequence[Run],
    powers: Mapping[str, float],
    generator: np.random.Generator,
    peaks: dict[ir.Value, float] | None = None,
) -> tuple[dict[ir.Value, float], dict[ir.Value, float]]:
    """For noise of variance 1 on each element, and for noise as large as the element.

    What is zero has no size that it could be off by: the second is infinite.
    """
    gains: dict[ir.Value, float] = defaultdict(float)
    effects: dict[ir.Value, float] = defaultdict(float)
    shapes = {name: shape_of(value) for name, value in graph.outputs.items()}
    for run in runs:
        seeds = {
            name: (generator.integers(0, 2, shape) * 2 - 1)
            / math.sqrt(powers[name] * math.prod(shape) * len(shapes))
            for name, shape in shapes.items()
        }
        for value, numbers, derivative in gradients(graph, run(), seeds):
            gains[value] += _power(derivative) / len(runs)
            if peaks is not None:
                peak = float(np.abs(derivative).max(initial=0.0)) ** 2
                peaks[value] = max(peaks.get(value, 0.0), peak)
            effect = _power(derivative * numbers) if numbers.any() else math.inf
            effects[value] += effect / len(runs)
    return gains, effects


def _power(array: Array) -> float:
    return float(np.sum(np.square(array, dtype=np.float64)))


def _variance(output: Sequence[Array]) -> float:
    """Variance of normal noise as large as an output in the mean; 1 for one that is zero."""
    means = [float(np.mean(np.abs(value), dtype=np.float64)) for value in output]
    return normal_power(sum(means) / max(len(means), 1))


def normal_power(mean: float) -> float:
    """Mean square of normally distributed numbers of a mean magnitude; 1 for zeros."""
    return math.pi / 2 * mean**2 or 1.0


def _fitted(derivative: Array, shape: tuple[int, ...]) -> Array:
    """Summed over the axes along which an operand of `shape` was broadcast."""
    extra = tuple(range(derivative.ndim - len(shape)))
    total = derivative.sum(axis=extra)
    wide = tuple(axis for axis, extent in enumerate(shape) if extent != total.shape[axis])
    fitted: Array = total.sum(axis=wide, keepdims=True)
    return fitted


def _mul(op: ir.OpView, x: list[Array], y: Array, d: Array) -> list[Array]:
    return [_fitted(d * x[1], x[0].shape), _fitted(d * x[0], x[1].shape)]


def _sum(sign: int) -> Callable[[ir.OpView, list[Array], Array, Array], list[Array]]:
    return lambda op, x, y, d: [_fitted(d, x[0].shape), _fitted(sign * d, x[1].shape)]


def _matmul(op: ir.OpView, x: list[Array], y: Array, d: Array) -> list[Array]:
    a, b = x
    rows = a[None] if a.ndim == 1 else a
    columns = b[:, None] if b.ndim == 1 else b
    full = d[..., None, :] if a.ndim == 1 else d
    full = full[..., None] if b.ndim == 1 else full
    to_a = _fitted(np.matmul(full, columns.swapaxes(-1, -2)), rows.shape)
    to_b = _fitted(np.matmul(rows.swapaxes(-1, -2), full), columns.shape)
    return [to_a.reshape(a.shape), to_b.reshape(b.shape)]


def _conv(op: ir.OpView, x: list[Array], y: Array, d: Array) -> list[Array]:
    """Through the unrolled windows: W^T d is scattered back, d times the windows is for W."""
    image, w, *bias = x
    named: dict[str, Any] = attributes(op)
    groups, (channels, inner, *kernel) = named["groups"], w.shape
    spread = padded(image, named["pads_low"], named["pads_high"])
    flat_w = w.reshape(groups, channels // groups, -1)
    total, to_w = np.zeros_like(spread), np.zeros_like(flat_w)
    for images in image_groups(spread, math.prod(kernel) * math.prod(y.shape[2:])):
        part = y[images]
        views = [view.swapaxes(0, 1) for _, _, view in _views(spread[images], y, kernel, named)]
        columns = np.stack(views, axis=1).reshape(groups, flat_w.shape[2], -1)
        flat_d = d[images].swapaxes(0, 1).reshape(groups, channels // groups, -1)
        to_w += np.matmul(flat_d, columns.swapaxes(-1, -2))
        back = np.matmul(flat_w.swapaxes(-1, -2), flat_d)
        back = back.reshape(groups * inner, len(views), len(part), *y.shape[2:])
        for number, (_, _, view) in enumerate(_views(total[images], y, kernel, named)):
            view += back[:, number].swapaxes(0, 1)
    to_bias = [d.sum(axis=(0, 2, 3)) for _ in bias]
    return [_inside(total, image, named["pads_low"]), to_w.reshape(w.shape), *to_bias]


def _views(
    x: Array, y: Array, kernel: Sequence[int], named: Mapping[str, Any]
) -> Iterator[tuple[int, int, Array]]:
    out, size = (y.shape[2], y.shape[3]), (kernel[0], kernel[1])
    return shifted_views(x, out, size, named["strides"], named.get("dilations", (1, 1)))


def _inside(spread: Array, image: Array, low: Sequence[int]) -> Array:
    """The part of a padded image that is no padding."""
    height, width = image.shape[2:]
    return spread[:, :, low[0] : low[0] + height, low[1] : low[1] + width]


def _max_pool(op: ir.OpView, x: list[Array], y: Array, d: Array) -> list[Array]:
    """To the first maximum of each window."""
    named: dict[str, Any] = attributes(op)
    spread = padded(x[0], named["pads_low"], named["pads_high"], -np.inf)
    total, left = np.zeros_like(spread), np.ones(y.shape, bool)
    sources = _views(spread, y, named["kernel"], named)
    for (_, _, view), (_, _, goal) in zip(
        sources, _views(total, y, named["kernel"], named), strict=True
    ):
        taken = left & (view == y)
        goal += d * taken
        left &= ~taken
    return [_inside(total, x[0], named["pads_low"])]


def _sum_pool(op: ir.OpView, x: list[Array], y: Array, d: Array) -> list[Array]:
    named: dict[str, Any] = attributes(op)
    total = np.zeros_like(padded(x[0], named["pads_low"], named["pads_high"]))
    for _, _, goal in _views(total, y, named["kernel"], named):
        goal += d
    return [_inside(total, x[0], named["pads_low"])]


def _function(op: ir.OpView, x: list[Array], y: Array, d: Array) -> list[Array]:
    """By a difference, over a ten-thousandth of x or of 1e-3."""
    wide = np.asarray(x[0], np.float64)
    step = 1e-4 * np.maximum(np.abs(wide), 1e-3)
    sides = [apply(op, [wide + side * step], np.float64) for side in (1, -1)]
    return [d * (sides[0] - sides[1]) / (2 * step)]


def _softmax(op: ir.OpView, x: list[Array], y: Array, d: Array) -> list[Array]:
    axis: Any = attributes(op)["axis"]
    return [y * (d - (d * y).sum(axis=axis, keepdims=True))]


def _log_softmax(op: ir.OpView, x: list[Array], y: Array, d: Array) -> list[Array]:
    axis: Any = attributes(op)["axis"]
    return [d - np.exp(y) * d.sum(axis=axis, keepdims=True)]


def _kept(op: ir.OpView, x: Array, d: Array) -> Array:
    """What a reduction made, with the axes that it dropped."""
    axes = np.asarray(attributes(op)["axes"])
    return d.reshape([1 if axis in axes else extent for axis, extent in enumerate(x.shape)])


def _reduce_max(op: ir.OpView, x: list[Array], y: Array, d: Array) -> list[Array]:
    winners = x[0] == _kept(op, x[0], y)
    return [winners * _kept(op, x[0], d)]


def _transpose(op: ir.OpView, x: list[Array], y: Array, d: Array) -> list[Array]:
    return [d.transpose(np.argsort(np.asarray(attributes(op)["permutation"])))]


def _slice(op: ir.OpView, x: list[Array], y: Array, d: Array) -> list[Array]:
    total = np.zeros_like(x[0])
    slice_(y.shape, total, **dict[str, Any](attributes(op)))[...] += d
    return [total]


def _pad(op: ir.OpView, x: list[Array], y: Array, d: Array) -> list[Array]:
    low: Any = attributes(op)["low"]
    inside = tuple(slice(a, a + extent) for a, extent in zip(low, x[0].shape, strict=True))
    return [d[inside]]


def _concat(op: ir.OpView, x: list[Array], y: Array, d: Array) -> list[Array]:
    axis: Any = attributes(op)["axis"]
    ends = np.cumsum([part.shape[axis] for part in x])[:-1]
    return list(np.split(d, ends, axis=axis))


def _of(arithmetic: Arithmetic) -> list[type[ir.OpView]]:
    return [kind for kind in ops.OPERATIONS if ops.facts_of_kind(kind).arithmetic is arithmetic]


Back = Callable[[ir.OpView, list[Array], Array, Array], list[Array]]
BACK: Mapping[type[ir.OpView], Back] = {
    ops.Constant: lambda op, x, y, d: [],
    ops.Neg: lambda op, x, y, d: [-d],
    **dict.fromkeys(_of(Arithmetic.INTEGER), lambda op, x, y, d: [np.zeros_like(x[0])]),
    ops.Relu: lambda op, x, y, d: [d * (y > 0)],
    ops.Add: _sum(1),
    ops.Sub: _sum(-1),
    ops.Mul: _mul,
    ops.Maximum: lambda op, x, y, d: [_fitted(d * (part == y), part.shape) for part in x],
    ops.Matmul: _matmul,
    ops.Conv: _conv,
    ops.MaxPool: _max_pool,
    ops.SumPool: _sum_pool,
    **dict.fromkeys(_of(Arithmetic.FUNCTION), _function),
    ops.Softmax: _softmax,
    ops.LogSoftmax: _log_softmax,
    ops.ReduceSum: lambda op, x, y, d: [np.broadcast_to(_kept(op, x[0], d), x[0].shape)],
    ops.ReduceMax: _reduce_max,
    ops.Reshape: lambda op, x, y, d: [d.reshape(x[0].shape)],
    ops.Transpose: _transpose,
    ops.Slice: _slice,
    ops.Pad: _pad,
    ops.Expand: lambda op, x, y, d: [_fitted(d, x[0].shape)],
    ops.Concat: _concat,
}
