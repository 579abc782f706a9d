"""From torch-mlir's aten core to the graph level: one table, one row an operator.

A row reads the operands of one aten operation and builds graph operations for it, the one that
computes its result last; what it can't express it refuses with a reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from torch_mlir import ir

from veilgraph.frontend.lowering import comparisons, layout, windows
from veilgraph.frontend.lowering.comparisons import toward_zero
from veilgraph.frontend.lowering.operands import Aten, Unsupported, binary, number_of
from veilgraph.frontend.onnx.operators.elementary import MOST_POWER
from veilgraph.ir.attributes import Shape, shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import attributes, defining
from veilgraph.ir.plan.tables import MAX_RANK

Row = Callable[[Aten], ir.Value | tuple[ir.Value, ...]]  # a result, or all of several
INFINITY = math.inf
LEAST_THRESHOLD = 10  # of a softplus: it is a line beyond, which 2^-14 tells from the function


def unary(kind: type[ops.Unary]) -> Row:
    """An operation of one tensor."""
    return lambda a: kind.build(a.tensor(0))


def gelu(a: Aten) -> ir.Value:
    return ops.Gelu.build(a.tensor(0), approximate=a.text(1))


def leaky_relu(a: Aten) -> ir.Value:
    return ops.LeakyRelu.build(a.tensor(0), alpha=a.number(1))


def ceiling(a: Aten) -> ir.Value:
    """Minus the floor of minus x."""
    return ops.Neg.build(ops.Floor.build(ops.Neg.build(a.tensor(0))))


def add(a: Aten) -> ir.Value:
    """x + alpha y."""
    x, y = a.tensor(0), scaled(a.tensor(1), a.number(2))
    for value, other in ((x, y), (y, x)):
        if number_of(other) == 0 and shape_of(value) == a.shape:
            return value
    return binary(ops.Add, x, y, a.shape)


def sub(a: Aten) -> ir.Value:
    """x - alpha y."""
    return binary(ops.Sub, a.tensor(0), scaled(a.tensor(1), a.number(2)), a.shape)


def mul(a: Aten) -> ir.Value:
    return binary(ops.Mul, a.tensor(0), a.tensor(1), a.shape)


def div(a: Aten) -> ir.Value:
    """x / y; by a number it is a multiplication."""
    divisor = number_of(a.tensor(1))
    if divisor:
        return binary(ops.Mul, a.tensor(0), ops.constant(1 / divisor), a.shape)
    root = defining(a.tensor(1))
    if isinstance(root, ops.Sqrt):  # one opening in place of two
        return binary(ops.Mul, a.tensor(0), inverse(a.tensor(1)), a.shape)
    return binary(ops.Div, a.tensor(0), a.tensor(1), a.shape)


def reciprocal(a: Aten) -> ir.Value:
    """1 / x; of a root it is one function."""
    return inverse(a.tensor(0))


def inverse(x: ir.Value) -> ir.Value:
    """1 / x."""
    root = defining(x)
    if isinstance(root, ops.Sqrt):
        return ops.Rsqrt.build(root.operation.operands[0])
    return ops.Reciprocal.build(x)


def add_number(a: Aten) -> ir.Value:
    return ops.Add.build(a.tensor(0), ops.constant(a.number(1) * a.number(2)))


def sub_number(a: Aten) -> ir.Value:
    return ops.Add.build(a.tensor(0), ops.constant(-a.number(1) * a.number(2)))


def mul_number(a: Aten) -> ir.Value:
    return scaled(a.tensor(0), a.number(1))


def div_number(a: Aten) -> ir.Value:
    if not a.number(1):
        raise Unsupported("It divides by zero.")
    return scaled(a.tensor(0), 1 / a.number(1))


def scaled(x: ir.Value, factor: float) -> ir.Value:
    """factor times x."""
    return x if factor == 1 else ops.Mul.build(x, ops.constant(factor))


def maximum(a: Aten) -> ir.Value:
    """max(x, y); with a number it is a clip from below."""
    for x, bound in ((a.tensor(0), a.tensor(1)), (a.tensor(1), a.tensor(0))):
        number = number_of(bound)
        if number is not None and shape_of(x) == a.shape:
            return clipped(x, number, INFINITY)
    return binary(ops.Maximum, a.tensor(0), a.tensor(1), a.shape)


def minimum(a: Aten) -> ir.Value:
    """min(x, y); with a number it is a clip from above."""
    for x, bound in ((a.tensor(0), a.tensor(1)), (a.tensor(1), a.tensor(0))):
        number = number_of(bound)
        if number is not None and shape_of(x) == a.shape:
            return clipped(x, -INFINITY, number)
    for x, bound in ((a.tensor(0), a.tensor(1)), (a.tensor(1), a.tensor(0))):
        if defining(bound) is None and shape_of(x) == a.shape:
            return at_most(x, bound)
    return binary(ops.Minimum, a.tensor(0), a.tensor(1), a.shape)


def clamp(a: Aten) -> ir.Value:
    """min(max(x, low), high) for bounds of one number, or left out."""
    x, bounds = a.tensor(0), (a.optional(1), a.optional(2))
    ends = zip(bounds, (-INFINITY, INFINITY), strict=True)
    numbers = [end if bound is None else number_of(bound) for bound, end in ends]
    low, high = (None if n is None else float(n) for n in numbers)
    if low is not None and high is not None:
        return clipped(x, low, high)
    below = x if low == -INFINITY else ops.Maximum.build(x, bounds[0])
    return below if high == INFINITY else at_most(below, bounds[1])


def at_most(x: ir.Value, high: ir.Value) -> ir.Value:
    """min(x, high); of y = max(z, low) it is max(z, low) - max(z - high, 0), in the rounds of one.

    low is no larger than high there: where the owner has both, they are compared when weights are
    folded. Where bounds cross, the upper one wins.
    """
    op = defining(x)
    if not isinstance(op, ops.Relu | ops.Maximum):
        return ops.Minimum.build(x, high)
    z, low = (*op.operation.operands, ops.constant(0.0))[:2]
    if defining(low) is not None and number_of(low) is None:
        return ops.Minimum.build(x, high)
    above = ops.Maximum.build(z, ops.Minimum.build(low, high))
    return ops.Sub.build(above, ops.Relu.build(ops.Sub.build(z, high)))


def clipped(x: ir.Value, low: float, high: float) -> ir.Value:
    """x clipped, in one step with a clip just before where that is the same."""
    op = defining(x)
    if isinstance(op, ops.Clip | ops.Relu):
        before = attributes(op) or {"min": 0.0, "max": INFINITY}
        if low <= before["max"] and before["min"] <= high:
            x = op.operation.operands[0]
            low, high = max(low, before["min"]), min(high, before["max"])
    low = min(low, high)  # where bounds cross, the upper one wins
    if (low, high) == (0.0, INFINITY):
        return ops.Relu.build(x)
    return ops.Clip.build(x, min=float(low), max=float(high))


def power(a: Aten) -> ir.Value:
    """x to a known power."""
    return _power(a.tensor(0), a.number(1))


def _power(x: ir.Value, exponent: float) -> ir.Value:
    if exponent < 0:
        return inverse(_power(x, -exponent))
    if exponent in (1, 2, 3, 4):
        y = x
        for _ in range(int(exponent) - 1):
            y = ops.Mul.build(y, x)
        return y
    if exponent.is_integer() and 4 < exponent <= MOST_POWER:
        half = _power(x, exponent // 2)
        square = ops.Mul.build(half, half)
        return ops.Mul.build(square, x) if exponent % 2 else square
    if exponent == 0.5:
        return ops.Sqrt.build(x)
    if exponent in (0.25, 0.75):
        root = ops.Sqrt.build(x)
        fourth = ops.Sqrt.build(root)
        return fourth if exponent == 0.25 else ops.Mul.build(root, fourth)
    if exponent.is_integer() or not math.isfinite(exponent):
        most = f"up to {MOST_POWER} and fractions"
        raise Unsupported(f"The power {exponent:g} isn't supported, only {most}.")
    return ops.Exp.build(scaled(ops.Log.build(x), exponent))


def prelu(a: Aten) -> ir.Value:
    """max(x, 0) - slope max(-x, 0)."""
    x, slope = a.tensor(0), a.tensor(1)
    if shape_of(slope) == (1,):
        slope = ops.Reshape.build(slope, shape=())
    elif len(shape_of(slope)) == 1 and len(a.shape) > 2:
        # ONNX would count it along the last axis, PyTorch along the second.
        raise Unsupported("Its slopes are a plain vector.", "Give them the shape [C, 1, 1].")
    negative = ops.Relu.build(ops.Neg.build(x))
    return ops.Sub.build(ops.Relu.build(x), ops.Mul.build(slope, negative))


def elu(a: Aten) -> ir.Value:
    """scale (max(x, 0) + alpha (e^(input_scale min(x, 0)) - 1))."""
    x, alpha, scale, input_scale = a.tensor(0), a.number(1), a.number(2), a.number(3)
    tail = ops.Exp.build(scaled(clipped(x, -INFINITY, 0.0), input_scale))
    tail = scaled(ops.Add.build(tail, ops.constant(-1.0)), alpha)
    return scaled(ops.Add.build(ops.Relu.build(x), tail), scale)


def softplus(a: Aten) -> ir.Value:
    """ln(1 + e^x)."""
    if a.number(1) != 1:
        raise Unsupported("Softplus is supported with beta 1 only.")
    if a.number(2) < LEAST_THRESHOLD:
        raise Unsupported(f"Softplus is supported with thresholds of {LEAST_THRESHOLD} and more.")
    return ops.Softplus.build(a.tensor(0))


def mish(a: Aten) -> ir.Value:
    """x tanh(ln(1 + e^x))."""
    return ops.Mul.build(a.tensor(0), ops.Tanh.build(ops.Softplus.build(a.tensor(0))))


def matmul(a: Aten) -> ir.Value:
    """A product of any ranks; a vector is a row on the left, a column on the right."""
    x, y = a.tensor(0), a.tensor(1)
    if min(len(shape_of(x)), len(shape_of(y))) > 1:
        return ops.Matmul.build(x, y)
    if len(shape_of(x)) == 1:
        x = ops.Reshape.build(x, shape=(1, *shape_of(x)))
    if len(shape_of(y)) == 1:
        y = ops.Reshape.build(y, shape=(*shape_of(y), 1))
    return ops.Reshape.build(ops.Matmul.build(x, y), shape=a.shape)


def batch_norm(a: Aten) -> ir.Value:
    """aten.batch_norm(x, gamma, beta, mean, variance, training, momentum, epsilon, ...)."""
    if a.flag(5):
        raise Unsupported("It normalises by the batch's own statistics.", "Export for inference.")
    x, mean, variance = (a.tensor(index) for index in (0, 3, 4))
    affine = zip((a.optional(1), a.optional(2)), (1.0, 0.0), strict=True)
    gamma, beta = (_known(shape_of(mean), n) if v is None else v for v, n in affine)
    return ops.BatchNorm.build(x, gamma, beta, mean, variance, epsilon=a.number(7))


def _known(shape: Shape, number: float) -> ir.Value:
    return ops.Constant.build(value=np.full(shape, number, np.float32))


def instance_norm(a: Aten) -> ir.Value:
    """gamma (x - mean) / sqrt(variance + epsilon) + beta, statistics over each image's channel."""
    x, epsilon = a.tensor(0), a.number(7)
    if len(a.shape) < 3:
        raise Unsupported("It normalises over no axis.")
    axes = tuple(range(2, len(a.shape)))
    column = (a.shape[1], *(1 for _ in axes))
    gamma, beta = (ops.Reshape.build(a.tensor(index), shape=column) for index in (1, 2))
    centred = ops.Sub.build(x, ops.ReduceMean.build(x, axes=axes, keepdims=True))
    square = ops.Mul.build(centred, centred)
    variance = ops.ReduceMean.build(square, axes=axes, keepdims=True)
    scale = ops.Rsqrt.build(ops.Add.build(variance, ops.constant(epsilon)))
    return ops.Add.build(ops.Mul.build(ops.Mul.build(centred, scale), gamma), beta)


def along_axis(kind: type[ops.AlongAxis]) -> Row:
    """A softmax."""
    return lambda a: kind.build(a.tensor(0), axis=a.axis(1, len(a.shape)))


def reduction(kind: type[ops.Reduction]) -> Row:
    """aten.sum and aten.mean(x, axes, keepdim, ...)."""

    def row(a: Aten) -> ir.Value:
        x = a.tensor(0)
        return kind.build(x, axes=a.axes(1, len(shape_of(x))), keepdims=a.flag(2))

    return row


def reshape(a: Aten) -> ir.Value:
    """Any change of shape that keeps the order of elements."""
    x = a.tensor(0)
    op = defining(x)
    if isinstance(op, ops.Reshape):
        x = op.operation.operands[0]
    return x if shape_of(x) == a.shape else ops.Reshape.build(x, shape=a.shape)


def transpose(a: Aten) -> ir.Value:
    """aten.transpose.int(x, i, j)."""
    axes = list(range(len(a.shape)))
    i, j = a.axis(1, len(axes)), a.axis(2, len(axes))
    axes[i], axes[j] = j, i
    return _transposed(a.tensor(0), axes)


def permute(a: Aten) -> ir.Value:
    """aten.permute(x, axes)."""
    return _transposed(a.tensor(0), [axis % len(a.shape) for axis in a.integers(1)])


def _transposed(x: ir.Value, axes: list[int]) -> ir.Value:
    """x transposed, in one step with a transposition just before."""
    op = defining(x)
    if isinstance(op, ops.Transpose):
        before = attributes(op)["permutation"]
        x, axes = op.operation.operands[0], [before[axis] for axis in axes]
    if axes == sorted(axes):
        return x
    return ops.Transpose.build(x, permutation=tuple(axes))


def concat(a: Aten) -> ir.Value:
    """aten.cat(tensors, axis)."""
    values = a.tensors(0)
    return values[0] if len(values) == 1 else ops.concat(values, a.axis(1, len(a.shape)))


def slice_(a: Aten) -> ir.Value:
    """aten.slice.Tensor(x, axis, start, end, step); the result's type says the extent."""
    axis, start, step = a.axis(1, len(a.shape)), a.integer(2), a.integer(4)
    extent = shape_of(a.tensor(0))[axis]
    start = min(max(start + extent if start < 0 else start, 0), extent - (step < 0))
    return _slice(a, axis, start, step)


def _slice(a: Aten, axis: int, start: int, step: int) -> ir.Value:
    rank = len(a.shape)
    starts = tuple(start if i == axis else 0 for i in range(rank))
    steps = tuple(step if i == axis else 1 for i in range(rank))
    if a.shape == shape_of(a.tensor(0)) and step == 1:
        return a.tensor(0)
    return ops.Slice.build(a.tensor(0), shape=a.shape, starts=starts, steps=steps)


def pad(a: Aten) -> ir.Value:
    """aten.constant_pad_nd(x, [low, high] from the last axis on, value); negative ones crop."""
    x, given = a.tensor(0), a.integers(1)
    shape = shape_of(x)
    rest = (0,) * (len(shape) - len(given) // 2)
    low, high = rest + given[-2::-2], rest + given[::-2]
    if min(given) < 0:
        starts = tuple(max(-before, 0) for before in low)
        cropped = [s + min(b, 0) + min(c, 0) for s, b, c in zip(shape, low, high, strict=True)]
        x = ops.Slice.build(x, shape=tuple(cropped), starts=starts, steps=(1,) * len(shape))
        low, high = (tuple(max(p, 0) for p in pads) for pads in (low, high))
    return ops.Pad.build(x, low=low, high=high, value=a.number(2))


def expand(a: Aten) -> ir.Value:
    """aten.broadcast_to(x, shape)."""
    if shape_of(a.tensor(0)) == a.shape:
        return a.tensor(0)
    if len(a.shape) > MAX_RANK:
        return _expanded_by_axis(a.tensor(0), a.shape)
    return ops.Expand.build(a.tensor(0), shape=a.shape)


def _expanded_by_axis(x: ir.Value, wanted: Shape) -> ir.Value:
    """x broadcast one axis after another, what is before it and after it laid together."""
    made = [1] * (len(wanted) - len(shape_of(x))) + list(shape_of(x))
    op = defining(x)
    y = op.operation.operands[0] if isinstance(op, ops.Reshape) else x
    for axis, extent in enumerate(wanted):
        if made[axis] != extent:
            before, after = math.prod(made[:axis]), math.prod(made[axis + 1 :])
            y = ops.Reshape.build(y, shape=(before, 1, after))
            y = ops.Expand.build(y, shape=(before, extent, after))
            made[axis] = extent
    return ops.Reshape.build(y, shape=wanted)


ROWS: Mapping[str, Row] = {
    "torch.aten.relu": unary(ops.Relu),
    "torch.aten.abs": unary(ops.Abs),
    "torch.aten.neg": unary(ops.Neg),
    "torch.aten.exp": unary(ops.Exp),
    "torch.aten.log": unary(ops.Log),
    "torch.aten.sqrt": unary(ops.Sqrt),
    "torch.aten.rsqrt": unary(ops.Rsqrt),
    "torch.aten.reciprocal": reciprocal,
    "torch.aten.floor": unary(ops.Floor),
    "torch.aten.ceil": ceiling,
    "torch.aten.round": unary(ops.Round),
    "torch.aten.trunc": lambda a: toward_zero(a.tensor(0)),
    "torch.aten.atan": unary(ops.Atan),
    "torch.aten.sin": unary(ops.Sin),
    "torch.aten.cos": unary(ops.Cos),
    "torch.aten.sigmoid": unary(ops.Sigmoid),
    "torch.aten.tanh": unary(ops.Tanh),
    "torch.aten.erf": unary(ops.Erf),
    "torch.aten.sign": unary(ops.Sign),
    "torch.aten.silu": unary(ops.Silu),
    "torch.aten.hardswish": unary(ops.HardSwish),
    "torch.aten.hardsigmoid": unary(ops.HardSigmoid),
    "torch.aten.gelu": gelu,
    "torch.aten.leaky_relu": leaky_relu,
    "torch.aten.prelu": prelu,
    "torch.aten.elu": elu,
    "torch.aten.softplus": softplus,
    "torch.aten.mish": mish,
    "torch.aten.clamp.Tensor": clamp,
    "torch.aten.pow.Tensor_Scalar": power,
    "torch.aten.add.Tensor": add,
    "torch.aten.sub.Tensor": sub,
    "torch.aten.mul.Tensor": mul,
    "torch.aten.div.Tensor": div,
    "torch.aten.add.Scalar": add_number,
    "torch.aten.sub.Scalar": sub_number,
    "torch.aten.mul.Scalar": mul_number,
    "torch.aten.div.Scalar": div_number,
    "torch.aten.maximum": maximum,
    "torch.aten.minimum": minimum,
    "torch.aten.mm": matmul,
    "torch.aten.bmm": matmul,
    "torch.aten.matmul": matmul,
    "torch.aten.convolution": windows.convolution,
    "torch.aten.max_pool1d": windows.max_pool,
    "torch.aten.max_pool2d": windows.max_pool,
    "torch.aten.max_pool3d": windows.max_pool3d,
    "torch.aten.avg_pool1d": windows.avg_pool,
    "torch.aten.avg_pool2d": windows.avg_pool,
    "torch.aten.avg_pool3d": windows.avg_pool3d,
    "torch.aten.batch_norm": batch_norm,
    "torch.aten.instance_norm": instance_norm,
    "torch.aten.softmax.int": along_axis(ops.Softmax),
    "torch.aten.log_softmax.int": along_axis(ops.LogSoftmax),
    "torch.aten.sum.dim_IntList": reduction(ops.ReduceSum),
    "torch.aten.mean.dim": reduction(ops.ReduceMean),
    "torch.aten.view": reshape,
    "torch.aten.reshape": reshape,
    "torch.aten.flatten.using_ints": reshape,
    "torch.aten.squeeze": reshape,
    "torch.aten.squeeze.dim": reshape,
    "torch.aten.unsqueeze": reshape,
    "torch.prims.collapse": reshape,
    "torch.prims.split_dim": reshape,
    "torch.aten.transpose.int": transpose,
    "torch.aten.permute": permute,
    "torch.aten.cat": concat,
    "torch.aten.slice.Tensor": slice_,
    "torch.aten.index_select": layout.index_select,
    "torch.aten.gather": layout.gather,
    "torch.aten.flip": layout.flip,
    "torch.aten.cumsum": layout.running_sum,
    "torch.aten.constant_pad_nd": pad,
    "torch.aten.broadcast_to": expand,
    **comparisons.ROWS,
}
