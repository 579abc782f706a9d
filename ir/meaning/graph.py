"""What each operation of the graph level computes, in NumPy, and an evaluator of whole programs.

Convolutions are matrix products over unrolled windows (BLAS does the work), depthwise ones and
pools are sums over shifted views: a ResNet-50 at 224 x 224 takes well under a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from torch_mlir import ir

from veilgraph.ir.attributes import Shape, shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, attributes, name_of

Array = NDArray[Any]
Pair = tuple[int, int]
Observer = Callable[[str, Array], None]

UNROLLED_BYTES = 4 << 20  # of windows at a time: more would leave the cache, and claim new pages


def evaluate(
    graph: Graph,
    inputs: Mapping[str, Array],
    observe: Observer | None = None,
    dtype: DTypeLike = np.float32,
) -> dict[str, Array]:
    """Runs the program on one set of inputs.

    Args:
        graph: the program.
        inputs: one array an input, of the input's shape.
        observe: called with the name of each operation (`name_of`, unique in a program) and its
            value, in program order; the value must not be changed, nor kept without need.
        dtype: what to compute in, float32 or float64.

    Returns:
        The outputs by name.

    Raises:
        ValueError: an input is missing, unknown or of another shape.
    """
    shapes = {name: shape_of(value) for name, value in graph.inputs.items()}
    given = {name: np.shape(array) for name, array in inputs.items()}
    if shapes != given:
        raise ValueError(f"inputs {given}, but the program takes {shapes}")
    known = {value: graph.weights[name] for name, value in graph.parameters.items()}
    known |= {value: inputs[name] for name, value in graph.inputs.items()}
    values = {value: np.asarray(array, dtype=dtype) for value, array in known.items()}
    outputs = graph.outputs
    left = {value: sum(1 for _ in value.uses) for value in values}
    for op in graph.operations:
        result = op.operation.results[0]
        values[result] = apply(op, [values[v] for v in op.operation.operands], dtype)
        left[result] = sum(1 for _ in result.uses)
        if observe is not None:
            observe(name_of(op), values[result])
        for operand in op.operation.operands:
            left[operand] -= 1
            if not left[operand]:
                del values[operand]
    return {name: values[value] for name, value in outputs.items()}


def apply(op: ir.OpView, operands: Sequence[Array], dtype: DTypeLike = np.float32) -> Array:
    """The value of one operation for the values of its operands."""
    result = shape_of(op.operation.results[0])
    value = MEANING[type(op)](result, *operands, **attributes(op))
    return np.asarray(value, dtype=dtype)


def gelu(x: Array, approximate: str) -> Array:
    """x Phi(x), or with "tanh" the usual approximation of it (Hendrycks and Gimpel, 2016)."""
    if approximate == "tanh":
        phi = 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    else:
        phi = 0.5 * (1 + erf(x / math.sqrt(2)))
    return np.multiply(x, phi)


def erf(x: Array) -> Array:
    """The error function; NumPy has none, so the standard library's, element by element."""
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x), dtype=x.dtype)


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x), without overflow: (1 + tanh(x / 2)) / 2."""
    y: Array = 0.5 * (1 + np.tanh(0.5 * x))
    return y


def hardsigmoid(x: Array) -> Array:
    """min(max(x + 3, 0), 6) / 6."""
    y: Array = np.clip(x + 3, 0, 6) / 6
    return y


def log_softmax(x: Array, axis: int) -> Array:
    """x - max - ln(sum of e^(x - max)) along `axis`."""
    shifted = x - x.max(axis=axis, keepdims=True)
    y: Array = shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
    return y


def batch_norm(
    x: Array,
    gamma: Array,
    beta: Array,
    mean: Array,
    variance: Array,
    epsilon: float,
    **training: float,
) -> Array:
    """x scaled and shifted by channel, the second axis; how a norm trains means nothing here."""
    scale = gamma / np.sqrt(variance + epsilon)
    tail = (1,) * (x.ndim - 2)
    shift = beta - mean * scale
    return x * scale.reshape(-1, *tail) + shift.reshape(-1, *tail)


def shifted_views(
    x: Array, out: Pair, kernel: Pair, strides: Pair, dilations: Pair
) -> Iterator[tuple[int, int, Array]]:
    """For each place (i, j) in the window: what lies there for every output, [N, C, *out]."""
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            top, left = i * dilations[0], j * dilations[1]
            rows = slice(top, top + (out[0] - 1) * strides[0] + 1, strides[0])
            columns = slice(left, left + (out[1] - 1) * strides[1] + 1, strides[1])
            yield i, j, x[:, :, rows, columns]


def padded(x: Array, low: Pair, high: Pair, value: float = 0.0) -> Array:
    """x [N, C, H, W] with `value` around its images."""
    if not any((*low, *high)):
        return x
    widths = [(0, 0), (0, 0), (low[0], high[0]), (low[1], high[1])]
    return np.pad(x, widths, constant_values=value)


def conv(
    result: Shape,
    x: Array,
    w: Array,
    bias: Array | None = None,
    *,
    strides: Pair,
    pads_low: Pair,
    pads_high: Pair,
    dilations: Pair,
    groups: int,
) -> Array:
    """The convolution of `graph.conv`; `result` is its shape."""
    x = padded(x, pads_low, pads_high)
    out: Pair = (result[2], result[3])
    if groups == x.shape[1] == w.shape[0]:
        y = _depthwise(x, w, out, strides, dilations)
    else:
        y = _unrolled(x, w, out, strides, dilations, groups)
    return y if bias is None else y + bias[:, None, None]


def _depthwise(x: Array, w: Array, out: Pair, strides: Pair, dilations: Pair) -> Array:
    kernel: Pair = (w.shape[2], w.shape[3])
    y = np.zeros((x.shape[0], w.shape[0], *out), dtype=x.dtype)
    for i, j, view in shifted_views(x, out, kernel, strides, dilations):
        y += view * w[:, 0, i, j, None, None]
    return y


def _unrolled(x: Array, w: Array, out: Pair, strides: Pair, dilations: Pair, groups: int) -> Array:
    """w [G, O/G, I kh kw] times the windows [G, I kh kw, N H' W'], for a few images at a time."""
    channels_out, channels_in, *kernel = w.shape
    flat = w.reshape(groups, channels_out // groups, channels_in * kernel[0] * kernel[1])
    y = np.empty((x.shape[0], channels_out, *out), dtype=np.result_type(w, x))
    for images in image_groups(x, math.prod(kernel) * math.prod(out)):
        part = x[images]
        columns = np.empty((x.shape[1], *kernel, len(part), *out), dtype=x.dtype)
        for i, j, view in shifted_views(part, out, (kernel[0], kernel[1]), strides, dilations):
            columns[:, i, j] = view.swapaxes(0, 1)
        found = np.matmul(flat, columns.reshape(groups, flat.shape[2], -1))
        y[images] = found.reshape(channels_out, len(part), *out).swapaxes(0, 1)
    return y


def image_groups(x: Array, elements: int) -> Iterator[slice]:
    """Images of x [N, C, H, W] whose unrolled windows stay in cache, `elements` a channel each."""
    count = max(1, UNROLLED_BYTES // max(1, x.shape[1] * elements * x.itemsize))
    return (slice(first, first + count) for first in range(0, len(x), count))


def max_pool(
    result: Shape,
    x: Array,
    kernel: Pair,
    strides: Pair,
    pads_low: Pair,
    pads_high: Pair,
    dilations: Pair,
) -> Array:
    """The maximum of every window; padding is minus infinity."""
    x = padded(x, pads_low, pads_high, -np.inf)
    y = np.full(result, -np.inf, dtype=x.dtype)
    for _, _, view in shifted_views(x, (result[2], result[3]), kernel, strides, dilations):
        np.maximum(y, view, out=y)
    return y


def avg_pool(
    result: Shape,
    x: Array,
    kernel: Pair,
    strides: Pair,
    pads_low: Pair,
    pads_high: Pair,
    count_include_pad: bool,
) -> Array:
    """The mean of every window over the kernel's size, or over what is no padding."""
    total = _window_sums(padded(x, pads_low, pads_high), result, kernel, strides)
    if count_include_pad:
        return total / (kernel[0] * kernel[1])
    ones = padded(np.ones((1, 1, *x.shape[2:]), dtype=x.dtype), pads_low, pads_high)
    return total / _window_sums(ones, (1, 1, *result[2:]), kernel, strides)


def sum_pool(
    result: Shape, x: Array, kernel: Pair, strides: Pair, pads_low: Pair, pads_high: Pair
) -> Array:
    """The sum of every window; padding is zero."""
    return _window_sums(padded(x, pads_low, pads_high), result, kernel, strides)


def _window_sums(x: Array, result: Shape, kernel: Pair, strides: Pair) -> Array:
    if result[2:] == (1, 1):
        whole: Array = np.sum(x[:, :, : kernel[0], : kernel[1]], axis=(2, 3), keepdims=True)
        return whole
    y = np.zeros((*x.shape[:2], *result[2:]), dtype=x.dtype)
    for _, _, view in shifted_views(x, (result[2], result[3]), kernel, strides, (1, 1)):
        y += view
    return y


def slice_(result: Shape, x: Array, starts: Sequence[int], steps: Sequence[int]) -> Array:
    """Element i along an axis is element start + i * step of x."""
    ends = [start + count * step for count, start, step in zip(result, starts, steps, strict=True)]
    # A backward slice that reaches element 0 ends at -1, which Python would read as the last one.
    stops = [None if end < 0 else end for end in ends]
    return x[tuple(map(slice, starts, stops, steps))]


def pad(result: Shape, x: Array, low: Sequence[int], high: Sequence[int], value: float) -> Array:
    """x with `value` around it."""
    return np.pad(x, list(zip(low, high, strict=True)), constant_values=value)


def one_hot(x: Array, depth: int, wraps: bool) -> Array:
    """1 at the place that x says, of `depth` on a new last axis."""
    places, wide = np.arange(depth), x[..., None]
    from_end = (wide == places - depth) & wraps
    rows: Array = ((wide == places) | from_end).astype(x.dtype)
    return rows


def _plain(function: Callable[..., Array]) -> Callable[..., Array]:
    """`function`, for an operation whose result's shape follows from its operands."""
    return lambda result, *operands, **named: function(*operands, **named)


MEANING: Mapping[type[ir.OpView], Callable[..., Array]] = {
    ops.Constant: _plain(lambda value: value),
    ops.Neg: _plain(np.negative),
    ops.Abs: _plain(np.abs),
    ops.Sign: _plain(np.sign),
    ops.Atan: _plain(np.arctan),
    ops.Floor: _plain(np.floor),
    ops.Round: _plain(np.rint),
    ops.Step: _plain(lambda x: np.where(x >= 0, 1, 0)),
    ops.OneHot: _plain(one_hot),
    ops.Relu: _plain(lambda x: np.maximum(x, 0)),
    ops.Exp: _plain(np.exp),
    ops.Log: _plain(np.log),
    ops.Sqrt: _plain(np.sqrt),
    ops.Rsqrt: _plain(lambda x: 1 / np.sqrt(x)),
    ops.Reciprocal: _plain(np.reciprocal),
    ops.Sigmoid: _plain(sigmoid),
    ops.Tanh: _plain(np.tanh),
    ops.Erf: _plain(erf),
    ops.Sin: _plain(np.sin),
    ops.Cos: _plain(np.cos),
    ops.Softplus: _plain(lambda x: np.logaddexp(x, 0)),
    ops.Silu: _plain(lambda x: x * sigmoid(x)),
    ops.HardSigmoid: _plain(hardsigmoid),
    ops.HardSwish: _plain(lambda x: x * hardsigmoid(x)),
    ops.Gelu: _plain(gelu),
    ops.LeakyRelu: _plain(lambda x, alpha: np.where(x > 0, x, alpha * x)),
    ops.Clip: _plain(lambda x, min, max: np.clip(x, min, max)),
    ops.Add: _plain(np.add),
    ops.Sub: _plain(np.subtract),
    ops.Mul: _plain(np.multiply),
    ops.Div: _plain(np.divide),
    ops.Maximum: _plain(np.maximum),
    ops.Minimum: _plain(np.minimum),
    ops.Matmul: _plain(np.matmul),
    ops.Conv: conv,
    ops.MaxPool: max_pool,
    ops.AvgPool: avg_pool,
    ops.SumPool: sum_pool,
    ops.ReduceSum: _plain(lambda x, axes, keepdims: x.sum(axis=axes, keepdims=keepdims)),
    ops.ReduceMean: _plain(lambda x, axes, keepdims: x.mean(axis=axes, keepdims=keepdims)),
    ops.ReduceMax: _plain(lambda x, axes, keepdims: x.max(axis=axes, keepdims=keepdims)),
    ops.BatchNorm: _plain(batch_norm),
    ops.Softmax: _plain(lambda x, axis: np.exp(log_softmax(x, axis))),
    ops.LogSoftmax: _plain(log_softmax),
    ops.Reshape: lambda result, x: x.reshape(result),
    ops.Transpose: _plain(lambda x, permutation: x.transpose(permutation)),
    ops.Slice: slice_,
    ops.Pad: pad,
    ops.Expand: lambda result, x: np.broadcast_to(x, result),
    ops.Concat: _plain(lambda *values, axis: np.concatenate(values, axis=axis)),
}
