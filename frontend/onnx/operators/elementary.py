"""ONNX operators of a few sums, products, comparisons and functions, written out as those."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper

from veilgraph.frontend.lowering.operands import Unsupported
from veilgraph.frontend.onnx.nodes import Shape, Steps

MOST_POWER = 16


def hardmax(s: Steps) -> list[NodeProto]:
    """1 at the first maximum along the axis, 0 elsewhere."""
    axis = s.attribute("axis", -1) % len(s.shape(0))
    best = s("ArgMax", s.operand(0), axis=axis, keepdims=1)
    return s.finish(s("Cast", _hits(s, best, axis, s.shape(0)), to=TensorProto.FLOAT))


def _hits(s: Steps, indices: str, axis: int, shape: Shape) -> str:
    """Where the place along an axis is the index, of which there is one there."""
    column = [-1 if i == axis else 1 for i in range(len(shape))]
    places = np.arange(shape[axis]).reshape(column)
    return s("Equal", indices, s.numbers(places, np.int64))


def _one_hot(s: Steps, indices: str, axis: int, depth: int, shape: Shape) -> str:
    """[index = place] along a new axis, as numbers; -1 is the last place. `shape` has the axis."""
    dtype = _numpy(s.facts.elements[indices])
    wide = s("Unsqueeze", indices, s.integers(axis))
    column = [-1 if i == axis else 1 for i in range(len(shape))]
    places = np.arange(depth).reshape(column)
    last = [places - depth] if not np.issubdtype(dtype, np.unsignedinteger) else []
    hits = [s("Equal", wide, s.numbers(p, dtype)) for p in (places, *last)]
    return s("Cast", s("Or", *hits) if last else hits[0], to=TensorProto.FLOAT)


def one_hot(s: Steps) -> list[NodeProto]:
    """OneHot(indices, depth, [off, on]): off + (on - off) [index = place]."""
    depth = int(s.public(1, "extent").reshape(-1)[0])
    result = s.result_shape()
    axis = s.attribute("axis", -1) % len(result)
    hot = _one_hot(s, s.operand(0), axis, depth, result)
    values = s.public(2, "values").astype(np.float64)
    y = s.plus(s.times(hot, values[1] - values[0]), values[0])
    return s.finish(_as(s, y, s.element(2)))


def _as(s: Steps, x: str, element: int) -> str:
    """Whole float32 numbers as the type that a node promises."""
    return x if element == TensorProto.FLOAT else s("Cast", x, to=element)


def gather(s: Steps) -> list[NodeProto]:
    """Gather of secret indices: the product of one-hot rows with the data."""
    if s.known(1) is not None or s.operand(1) not in s.facts.secret:
        return [s.node]
    shape, indices = s.shape(0), s.shape(1)
    axis = s.attribute("axis", 0) % len(shape)
    hot = _one_hot(s, s.operand(1), len(indices), shape[axis], (*indices, shape[axis]))
    rest = [extent for i, extent in enumerate(shape) if i != axis]
    order = [axis, *(i for i in range(len(shape)) if i != axis)]
    table = s.reshape(s("Transpose", s.operand(0), perm=order), (shape[axis], prod(rest)))
    rows = s("MatMul", s.reshape(hot, (prod(indices), shape[axis])), table)
    apart = s.reshape(rows, (*indices, *rest))
    count = len(indices)
    places = [*range(count, count + axis), *range(count), *range(count + axis, count + len(rest))]
    return s.finish(_as(s, s("Transpose", apart, perm=places), s.element(0)))


def gather_elements(s: Steps) -> list[NodeProto]:
    """GatherElements of secret indices: one-hot rows times the data along the axis, added up."""
    if s.known(1) is not None or s.operand(1) not in s.facts.secret:
        return [s.node]
    shape, indices = s.shape(0), s.shape(1)
    axis = s.attribute("axis", 0) % len(shape)
    if (*shape[:axis], *shape[axis + 1 :]) != (*indices[:axis], *indices[axis + 1 :]):
        raise Unsupported("Its secret indices are of a part of the data alone.", "Slice before it.")
    hot = _one_hot(s, s.operand(1), len(indices), shape[axis], (*indices, shape[axis]))
    order = [i for i in range(len(shape)) if i != axis]
    moved = s("Transpose", s.operand(0), perm=[*order, axis])
    rows = s.reshape(moved, (*shape[:axis], 1, *shape[axis + 1 :], shape[axis]))
    found = s("ReduceSum", s("Mul", hot, rows), s.integers(len(shape)), keepdims=0)
    return s.finish(_as(s, found, s.element(0)))


def trilu(s: Steps) -> list[NodeProto]:
    """The upper or lower triangle: times ones and zeros."""
    rows, columns = s.shape(0)[-2:]
    shift = int(s.public(1, "diagonal").reshape(-1)[0]) if s.operand(1) else 0
    ones = np.ones((rows, columns), np.float32)
    mask = np.triu(ones, shift) if s.attribute("upper", 1) else np.tril(ones, shift)
    x = s.operand(0)
    if s.element(0) == TensorProto.FLOAT:
        return s.finish(s("Mul", x, s.numbers(mask)))
    kept = s("Mul", s("Cast", x, to=TensorProto.FLOAT), s.numbers(mask))
    return s.finish(s("Cast", kept, to=s.element(0)))


def cumulative_product(s: Steps) -> list[NodeProto]:
    """Products of the first 1, 2, 3... elements, in about log n multiplications of all."""
    x, shape = s.operand(0), s.shape(0)
    axis = int(s.public(1, "axis").reshape(-1)[0]) % len(shape)
    size, reverse = shape[axis], s.attribute("reverse", 0)
    x = _turned(s, x, axis) if reverse else x
    if s.attribute("exclusive", 0):
        x = _behind(s, x, axis, 1, shape)
    reach = 1
    while reach < size:
        x = s("Mul", x, _behind(s, x, axis, reach, shape))
        reach *= 2
    return s.finish(_turned(s, x, axis) if reverse else x)


def _turned(s: Steps, x: str, axis: int) -> str:
    return s.slice(x, axis, -1, -(1 << 30), -1)


def _behind(s: Steps, x: str, axis: int, by: int, shape: Shape) -> str:
    """x moved by some places along an axis, ones before it."""
    low = [by if i == axis else 0 for i in range(len(shape))]
    kept = s.slice(x, axis, 0, shape[axis] - by)
    one = s.numbers(1, _numpy(s.element(0)))
    return s("Pad", kept, s.integers(*low, *(0,) * len(shape)), one)


def _numpy(element: int) -> type[np.generic]:
    dtype: type[np.generic] = helper.tensor_dtype_to_np_dtype(element).type
    return dtype


def reduce_product(s: Steps) -> list[NodeProto]:
    """A tree of products over the axes, laid side by side."""
    shape = s.shape(0)
    axes = _axes(s)
    rest = [i for i in range(len(shape)) if i not in axes]
    x = s("Transpose", s.operand(0), perm=[*rest, *axes])
    size = prod(shape[i] for i in axes)
    x = s.reshape(x, (*(shape[i] for i in rest), size))
    last = len(rest)
    while size > 1:
        half = size // 2
        parts = [s("Mul", s.slice(x, last, 0, half), s.slice(x, last, half, 2 * half))]
        if size % 2:
            parts.append(s.slice(x, last, 2 * half, size))
        x = s("Concat", *parts, axis=last) if len(parts) > 1 else parts[0]
        size = half + size % 2
    return s.finish(s.reshape(x, s.result_shape()))


def _axes(s: Steps) -> list[int]:
    """The axes that a reduction names, all of them where it names none."""
    rank = len(s.shape(0))
    given = s.public(1, "axes").reshape(-1).tolist() if s.operand(1) else s.attribute("axes", [])
    return sorted(int(axis) % rank for axis in given) or list(range(rank))


def einsum(s: Steps) -> list[NodeProto]:
    """A single number is itself; torch-mlir never ends on it."""
    alone = len(s.node.input) == 1 and not s.shape(0)
    return s.finish(s.operand(0)) if alone else [s.node]


def log_sum_exp(s: Steps) -> list[NodeProto]:
    """m + ln(sum of e^(x - m)), m the maximum, so that no exponential overflows."""
    x, axes = s.operand(0), s.integers(*_axes(s))
    largest = s("ReduceMax", x, axes, keepdims=1)
    total = s("ReduceSum", s("Exp", s("Sub", x, largest)), axes, keepdims=1)
    return s.finish(s.reshape(s("Add", s("Log", total), largest), s.result_shape()))


def power(s: Steps) -> list[NodeProto]:
    """x to whole known powers by squaring, each power where it is asked for; else e^(y ln x)."""
    exponents = s.known(1)
    if exponents is None or (exponents.size > 1 and (exponents % 1).any()):
        return s.finish(s("Exp", s("Mul", s("Log", s.operand(0)), s.operand(1))))
    asked = sorted({float(e) for e in exponents.reshape(-1)})
    whole = all(e.is_integer() and 0 <= e <= MOST_POWER for e in asked)
    if not whole or (len(asked) == 1 and asked[0] <= 4 and s.element(0) == TensorProto.FLOAT):
        return [s.node]
    x, total = s.operand(0), ""
    if s.element(0) != TensorProto.FLOAT:
        x = s("Cast", x, to=TensorProto.FLOAT)
    powers = {1: x}
    for exponent in asked:
        value = _raised(s, powers, int(exponent))
        if len(asked) > 1:
            value = s("Mul", value, s.numbers(exponents == exponent))
        total = s("Add", total, value) if total else value
    if prod(s.result_shape()) != prod(s.shape(0)):
        total = s("Expand", total, s.integers(*s.result_shape()))
    return s.finish(_as(s, total, s.element(0)) if total != s.operand(0) else s("Identity", total))


def _raised(s: Steps, powers: dict[int, str], exponent: int) -> str:
    """x to a power, noted with those on its way."""
    if exponent == 0:
        return s.numbers(1.0)
    if exponent not in powers:
        half, rest = _raised(s, powers, exponent // 2), exponent % 2
        square = powers.setdefault(exponent - rest, "") or s("Mul", half, half)
        powers[exponent - rest] = square
        if rest:
            powers[exponent] = s("Mul", square, powers[1])
    return powers[exponent]


def lp_normalization(s: Steps) -> list[NodeProto]:
    """x over the sum of its magnitudes along the axis, or over the root of the sum of squares."""
    p, x = s.attribute("p", 2), s.operand(0)
    axes = s.integers(s.attribute("axis", -1))
    if p not in (1, 2):
        raise Unsupported(f"The norm of order {p} isn't supported, only 1 and 2.")
    size = s("ReduceL1" if p == 1 else "ReduceL2", x, axes, keepdims=1)
    return s.finish(s("Div", x, size))


def pad(s: Steps) -> list[NodeProto]:
    """Padding with what is there: reflected, repeated at the edges, or wrapped around."""
    mode = s.attribute("mode", "constant")
    if mode == "constant":
        return [s.node]
    shape = s.shape(0)
    pads = [int(v) for v in s.public(1, "extents")]
    axes = [int(v) % len(shape) for v in s.public(3, "axes")] if s.operand(3) else range(len(shape))
    y = s.operand(0)
    for i, axis in enumerate(axes):
        places = np.arange(-pads[i], shape[axis] + pads[len(pads) // 2 + i])
        if len(places) != shape[axis] or pads[i]:
            chosen = _inside(places, shape[axis], mode)
            y = s("Gather", y, s.integers(*map(int, chosen)), axis=axis)
    return s.finish(y)


def _inside(places: NDArray[np.int64], extent: int, mode: str) -> NDArray[np.int64]:
    """The places from which those outside an axis are taken."""
    if mode == "edge":
        return places.clip(0, extent - 1)
    if mode == "wrap":
        return places % extent
    if mode != "reflect":
        raise Unsupported(f"Padding of mode {mode} isn't supported.")
    period = max(2 * (extent - 1), 1)
    folded = places % period
    return np.minimum(folded, period - folded) if extent > 1 else places * 0


def space_to_depth(s: Steps) -> list[NodeProto]:
    """Blocks of an image as channels, by place in the block and then channel, or the reverse."""
    if s.attribute("mode", "DCR") == "DCR":
        return [s.node]
    n, c, h, w = s.shape(0)
    block = s.attribute("blocksize", 1)
    apart = s.reshape(s.operand(0), (n, c, h // block, block, w // block, block))
    moved = s("Transpose", apart, perm=[0, 1, 3, 5, 2, 4])
    return s.finish(s.reshape(moved, s.result_shape()))


def mean_variance_normalization(s: Steps) -> list[NodeProto]:
    """(x - mean) / deviation over the axes."""
    x, axes = s.operand(0), s.integers(*s.attribute("axes", [0, 2, 3]))
    centred = s("Sub", x, s("ReduceMean", x, axes, keepdims=1))
    variance = s("ReduceMean", s("Mul", centred, centred), axes, keepdims=1)
    return s.finish(s("Div", centred, s("Sqrt", s.plus(variance, 1e-9))))


def group_normalization(s: Steps) -> list[NodeProto]:
    """Each group of channels normalised by itself, then scaled and shifted by channel."""
    shape, groups = s.shape(0), s.attribute("num_groups", 1)
    x = s.reshape(s.operand(0), (shape[0], groups, -1))
    centred = s("Sub", x, s("ReduceMean", x, s.integers(2), keepdims=1))
    variance = s("ReduceMean", s("Mul", centred, centred), s.integers(2), keepdims=1)
    root = s("Sqrt", s.plus(variance, s.attribute("epsilon", 1e-5)))
    y = s.reshape(s("Div", centred, root), shape)
    column = (1, shape[1], *(1,) * (len(shape) - 2))
    scale, bias = (_per_channel(s, index, groups, column) for index in (1, 2))
    return s.finish(s("Add", s("Mul", y, scale), bias))


def _per_channel(s: Steps, index: int, groups: int, column: Shape) -> str:
    """A number a channel; up to opset 20 there was one a group."""
    x = s.operand(index)
    if s.shape(index)[0] == groups != column[1]:
        wide = s("Expand", s.reshape(x, (groups, 1)), s.integers(groups, column[1] // groups))
        return s.reshape(wide, column)
    return s.reshape(x, column)


def softsign(s: Steps) -> list[NodeProto]:
    """x / (1 + |x|)."""
    x = s.operand(0)
    return s.finish(s("Div", x, s.plus(s("Abs", x), 1.0)))


def shrink(s: Steps) -> list[NodeProto]:
    """x + bias below -lambd, x - bias above lambd, 0 between."""
    x, bound, bias = s.operand(0), s.attribute("lambd", 0.5), s.attribute("bias", 0.0)
    high = s("Cast", s("Greater", x, s.numbers(bound)), to=TensorProto.FLOAT)
    low = s("Cast", s("Less", x, s.numbers(-bound)), to=TensorProto.FLOAT)
    kept = s("Mul", x, s("Add", high, low))
    return s.finish(s("Add", kept, s.times(s("Sub", low, high), bias)) if bias else kept)


def swish(s: Steps) -> list[NodeProto]:
    """x sigmoid(alpha x)."""
    x = s.operand(0)
    return s.finish(s("Mul", x, s("Sigmoid", s.times(x, s.attribute("alpha", 1.0)))))


def gated_swish(s: Steps) -> list[NodeProto]:
    """SwiGLU(a, b): a sigmoid(alpha a) b."""
    a = s.operand(0)
    gate = s("Sigmoid", s.times(a, s.attribute("alpha", 1.0)))
    return s.finish(s("Mul", s("Mul", a, gate), s.operand(1)))


def hyperbolic_sine(s: Steps) -> list[NodeProto]:
    """(e^x - e^-x) / 2."""
    x = s.operand(0)
    return s.finish(s.times(s("Sub", s("Exp", x), s("Exp", s("Neg", x))), 0.5))


def hyperbolic_cosine(s: Steps) -> list[NodeProto]:
    """(e^x + e^-x) / 2."""
    x = s.operand(0)
    return s.finish(s.times(s("Add", s("Exp", x), s("Exp", s("Neg", x))), 0.5))


def inverse_hyperbolic_sine(s: Steps) -> list[NodeProto]:
    """sign(x) ln(|x| + sqrt(x^2 + 1))."""
    x = s.operand(0)
    root = s("Sqrt", s.plus(s("Mul", x, x), 1.0))
    return s.finish(s("Mul", s("Sign", x), s("Log", s("Add", s("Abs", x), root))))


def inverse_hyperbolic_cosine(s: Steps) -> list[NodeProto]:
    """ln(x + sqrt(x^2 - 1)), x at least 1."""
    x = s.operand(0)
    root = s("Sqrt", s.plus(s("Mul", x, x), -1.0))
    return s.finish(s("Log", s("Add", x, root)))


def inverse_hyperbolic_tangent(s: Steps) -> list[NodeProto]:
    """(ln(1 + x) - ln(1 - x)) / 2, x between -1 and 1."""
    x = s.operand(0)
    below = s.plus(s.times(x, -1.0), 1.0)
    return s.finish(s.times(s("Sub", s("Log", s.plus(x, 1.0)), s("Log", below)), 0.5))


def leaky_by_channel(s: Steps) -> list[NodeProto]:
    """PRelu: a plain vector of slopes lies along the last axis."""
    slopes, shape = s.shape(1), s.shape(0)
    if len(slopes) != 1 or len(shape) < 3 or slopes[0] != shape[-1]:
        return [s.node]
    wide = s.reshape(s.operand(1), (*(1,) * (len(shape) - 1), slopes[0]))
    return s.finish(s("PRelu", s.operand(0), wide))
