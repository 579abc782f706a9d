"""Derivatives of what works element by element: sums, products, what compares, real functions.

What compares has one comparison, forwards and backwards: `step` of the number that the forward
operation compares (of x and not of x - 0, and of a - b for a maximum of two), or that it is
compared as where `approximate` rewrites it. So a tie belongs to the side that x >= 0 chooses: the
derivative at zero is 1 for a ReLU, and of two equal numbers the first is the maximum. PyTorch says
0 and one half: another comparison each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import attributes
from veilgraph.passes.graph.approximate import shifted
from veilgraph.passes.graph.derivatives.algebra import (
    Rule,
    Rules,
    Values,
    fitted,
    product,
    scaled,
    summed,
)
from veilgraph.passes.graph.public_factors import constant


def neg(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    return [scaled(d, -1.0)]


def add(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    return [fitted(d, shape_of(each)) for each in x]


def sub(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    return [fitted(d, shape_of(x[0])), scaled(fitted(d, shape_of(x[1])), -1.0)]


def mul(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    return [fitted(product(d, other), shape_of(own)) for own, other in (x, (x[1], x[0]))]


def div(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    """d / b, and of b that times -y."""
    share = ops.Div.build(d, x[1])
    to_divisor = scaled(fitted(product(share, y), shape_of(x[1])), -1.0)
    return [fitted(share, shape_of(x[0])), to_divisor]


def relu(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    return [product(d, ops.Step.build(x[0]))]


def abs_(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    """d (2 [x >= 0] - 1)."""
    kept = product(d, ops.Step.build(x[0]))
    return [ops.Sub.build(scaled(kept, 2.0), d)]


def leaky_relu(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    """alpha d + (1 - alpha) d [x >= 0]."""
    named: dict[str, Any] = attributes(op)
    alpha = named["alpha"]
    kept = product(d, ops.Step.build(x[0]))
    return [ops.Add.build(scaled(d, alpha), scaled(kept, 1 - alpha))]


def clip(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    """d ([x >= low] - [x >= high])."""
    named: dict[str, Any] = attributes(op)
    low, high = named["min"], named["max"]
    if math.isinf(low):
        if math.isinf(high):
            return [d]
        above = ops.Step.build(ops.Sub.build(x[0], constant(high, x[0])))
        return [ops.Sub.build(d, product(d, above))]
    inside = ops.Step.build(shifted(x[0], -low))
    if not math.isinf(high):
        inside = ops.Sub.build(inside, ops.Step.build(shifted(x[0], -high)))
    return [product(d, inside)]


def hard_sigmoid(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    return [scaled(product(d, _on_slope(x[0])), 1 / 6)]


def hard_swish(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    """hardsigmoid(x) + x / 6 on its slope."""
    slope = scaled(product(x[0], _on_slope(x[0])), 1 / 6)
    return [product(d, ops.Add.build(ops.HardSigmoid.build(x[0]), slope))]


def _on_slope(x: ir.Value) -> ir.Value:
    """Where -3 <= x < 3."""
    return ops.Sub.build(*(ops.Step.build(shifted(x, number)) for number in (3.0, -3.0)))


def maximum(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    first = product(d, ops.Step.build(ops.Sub.build(*x)))
    return _divided(x, d, first)


def minimum(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    """a - relu(a - b): of two equal numbers the second is the minimum."""
    second = product(d, ops.Step.build(ops.Sub.build(*x)))
    to_second, to_first = _divided((x[1], x[0]), d, second)
    return [to_first, to_second]


def _divided(x: Values, d: ir.Value, first: ir.Value) -> Values:
    """What one operand gets of d; the other gets the rest."""
    rest = ops.Sub.build(d, first)
    return [fitted(first, shape_of(x[0])), fitted(rest, shape_of(x[1]))]


def of_slope(slope: Callable[[ir.Value, ir.Value], ir.Value]) -> Rule:
    """The rule of a real function of one number, whose slope follows from x and y."""

    def rule(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
        return [product(d, slope(x[0], y))]

    return rule


def square(x: ir.Value) -> ir.Value:
    return ops.Mul.build(x, x)


def one_minus(x: ir.Value) -> ir.Value:
    return ops.Sub.build(constant(1.0, x), x)


def sigmoid_slope(x: ir.Value, y: ir.Value) -> ir.Value:
    """y - y^2."""
    return ops.Sub.build(y, square(y))


def tanh_slope(x: ir.Value, y: ir.Value) -> ir.Value:
    """1 - y^2."""
    return one_minus(square(y))


def sqrt_slope(x: ir.Value, y: ir.Value) -> ir.Value:
    """x^(-1/2) / 2."""
    return scaled(ops.Rsqrt.build(x), 0.5)


def rsqrt_slope(x: ir.Value, y: ir.Value) -> ir.Value:
    """-y^3 / 2."""
    return scaled(ops.Mul.build(y, square(y)), -0.5)


def reciprocal_slope(x: ir.Value, y: ir.Value) -> ir.Value:
    """-y^2."""
    return scaled(square(y), -1.0)


def erf_slope(x: ir.Value, y: ir.Value) -> ir.Value:
    """2 / sqrt(pi) e^(-x^2)."""
    return scaled(ops.Exp.build(scaled(square(x), -1.0)), 2 / math.sqrt(math.pi))


def cos_slope(x: ir.Value, y: ir.Value) -> ir.Value:
    return scaled(ops.Sin.build(x), -1.0)


def atan_slope(x: ir.Value, y: ir.Value) -> ir.Value:
    """1 / (1 + x^2)."""
    return ops.Reciprocal.build(ops.Add.build(square(x), constant(1.0, x)))


def silu_slope(x: ir.Value, y: ir.Value) -> ir.Value:
    """s + y (1 - s), s the sigmoid of x."""
    s = ops.Sigmoid.build(x)
    return ops.Add.build(s, ops.Mul.build(y, one_minus(s)))


def gelu(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    named: dict[str, Any] = attributes(op)
    slope = _gelu_tanh_slope if named["approximate"] == "tanh" else _gelu_slope
    return [product(d, slope(x[0]))]


def _gelu_slope(x: ir.Value) -> ir.Value:
    """Phi(x) + x phi(x), Phi the normal distribution and phi its density."""
    bell = ops.Exp.build(scaled(square(x), -0.5))
    density = scaled(bell, 1 / math.sqrt(2 * math.pi))
    half = scaled(ops.Erf.build(scaled(x, 1 / math.sqrt(2))), 0.5)
    distribution = ops.Add.build(half, constant(0.5, x))
    return ops.Add.build(distribution, ops.Mul.build(x, density))


def _gelu_tanh_slope(x: ir.Value) -> ir.Value:
    """(1 + t) / 2 + x (1 - t^2) u' / 2, where t = tanh u, u = sqrt(2 / pi) (x + 0.044715 x^3)."""
    root = math.sqrt(2 / math.pi)
    squared = square(x)
    grown = ops.Add.build(scaled(squared, root * 0.044715), constant(root, x))
    t = ops.Tanh.build(ops.Mul.build(x, grown))
    steep = ops.Add.build(scaled(squared, 1.5 * root * 0.044715), constant(0.5 * root, x))
    bend = ops.Mul.build(ops.Mul.build(x, steep), one_minus(square(t)))
    return ops.Add.build(ops.Add.build(scaled(t, 0.5), constant(0.5, x)), bend)


def softmax(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    """y (d - sum of d y)."""
    named: dict[str, Any] = attributes(op)
    mean = summed(product(d, y), (named["axis"],))
    return [ops.Mul.build(y, ops.Sub.build(d, mean))]


def log_softmax(op: ir.OpView, x: Values, y: ir.Value, d: ir.Value) -> Values:
    """d - softmax(x) sum of d."""
    named: dict[str, Any] = attributes(op)
    shares = ops.Softmax.build(x[0], axis=named["axis"])
    return [ops.Sub.build(d, product(shares, summed(d, (named["axis"],))))]


RULES: Rules = {
    ops.Neg: neg,
    ops.Abs: abs_,
    ops.Relu: relu,
    ops.LeakyRelu: leaky_relu,
    ops.Clip: clip,
    ops.HardSigmoid: hard_sigmoid,
    ops.HardSwish: hard_swish,
    ops.Add: add,
    ops.Sub: sub,
    ops.Mul: mul,
    ops.Div: div,
    ops.Maximum: maximum,
    ops.Minimum: minimum,
    ops.Exp: of_slope(lambda x, y: y),
    ops.Log: of_slope(lambda x, y: ops.Reciprocal.build(x)),
    ops.Sqrt: of_slope(sqrt_slope),
    ops.Rsqrt: of_slope(rsqrt_slope),
    ops.Reciprocal: of_slope(reciprocal_slope),
    ops.Sigmoid: of_slope(sigmoid_slope),
    ops.Tanh: of_slope(tanh_slope),
    ops.Erf: of_slope(erf_slope),
    ops.Sin: of_slope(lambda x, y: ops.Cos.build(x)),
    ops.Cos: of_slope(cos_slope),
    ops.Atan: of_slope(atan_slope),
    ops.Softplus: of_slope(lambda x, y: ops.Sigmoid.build(x)),
    ops.Silu: of_slope(silu_slope),
    ops.Gelu: gelu,
    ops.Softmax: softmax,
    ops.LogSoftmax: log_softmax,
}
