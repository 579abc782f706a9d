"""Real functions as sums, products, comparisons and functions of one number.

Exact. Functions of one number and softmax stay whole: they become `secret.function`s where their
operand's range and scale are known (passes/encode/functions: calls.py, softmax.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.errors import Offender, UnsupportedError
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.facts import Arithmetic
from veilgraph.ir.graph.program import Graph, attributes, kind_of, name_of
from veilgraph.passes.graph.public_factors import constant, number_of

MAX_PADDING = 1e6  # beyond it something like minus infinity is meant
BEFOREHAND = "Replace it in the model, or export the model without it."


@dataclass(frozen=True)
class Approximate:
    """Rewrites real functions; no options.

    Before::

        func.func @main(%x: tensor<1x3xf32> {graph.name = "x", graph.role = "input"})
            -> (tensor<1x3xf32> {graph.name = "y"}) {
          %0 = "graph.clip"(%x) {min = 0.0 : f64, max = 6.0 : f64}
              : (tensor<1x3xf32>) -> tensor<1x3xf32>
          return %0 : tensor<1x3xf32>
        }

    After::

        func.func @main(%x: tensor<1x3xf32> {graph.name = "x", graph.role = "input"})
            -> (tensor<1x3xf32> {graph.name = "y"}) {
          %0 = "graph.relu"(%x) : (tensor<1x3xf32>) -> tensor<1x3xf32>
          %1 = "graph.constant"() {value = dense<-6.0> : tensor<1x1xf32>} : () -> tensor<1x1xf32>
          %2 = "graph.add"(%x, %1) : (tensor<1x3xf32>, tensor<1x1xf32>) -> tensor<1x3xf32>
          %3 = "graph.relu"(%2) : (tensor<1x3xf32>) -> tensor<1x3xf32>
          %4 = "graph.sub"(%0, %3) : (tensor<1x3xf32>, tensor<1x3xf32>) -> tensor<1x3xf32>
          return %4 : tensor<1x3xf32>
        }
    """

    def run(self, graph: Graph) -> Graph:
        """`graph` itself, changed in place.

        Raises:
            UnsupportedError: functions that have no rewriting, all of them.
        """
        offenders = [_offender(op) for op in graph.operations if _is_unknown(op)]
        if offenders:
            raise UnsupportedError(offenders)
        for op in graph.operations:
            if (rewrite := REWRITES.get(type(op))) is not None:
                with graph.before(op):
                    rewritten = rewrite(graph, op)
                if rewritten is not None:
                    graph.replace(op, rewritten)
        graph.tidy()
        return graph


def _is_unknown(op: ir.OpView) -> bool:
    if isinstance(op, ops.Pad):
        return bool(abs(dict[str, Any](attributes(op))["value"]) > MAX_PADDING)
    is_rewritten = ops.facts_of(op).arithmetic is Arithmetic.REWRITTEN
    return is_rewritten and type(op) not in REWRITES


def _offender(op: ir.OpView) -> Offender:
    kind = kind_of(op)
    reason = "It has no approximation yet."
    source = f"a value of shape {list(shape_of(op.operation.results[0]))}"
    return Offender(name_of(op), kind, source, reason, BEFOREHAND)


def _clip(graph: Graph, op: ir.OpView) -> ir.Value:
    """low + relu(x - low) - relu(x - high), or high - relu(high - x)."""
    (x,), named = op.operation.operands, dict[str, Any](attributes(op))
    low, high = named["min"], named["max"]
    if math.isinf(low):
        return x if math.isinf(high) else _at_most(x, constant(high, x))
    above = shifted(ops.Relu.build(shifted(x, -low)), low)
    return above if math.isinf(high) else ops.Sub.build(above, ops.Relu.build(shifted(x, -high)))


def shifted(x: ir.Value, number: float) -> ir.Value:
    return x if number == 0 else ops.Add.build(x, constant(number, x))


def _at_most(x: ir.Value, most: ir.Value) -> ir.Value:
    """x - relu(x - most)."""
    return ops.Sub.build(x, ops.Relu.build(ops.Sub.build(x, most)))


def _minimum(graph: Graph, op: ir.OpView) -> ir.Value:
    return _at_most(*op.operation.operands)


def _absolute(graph: Graph, op: ir.OpView) -> ir.Value:
    """2 relu(x) - x."""
    (x,) = op.operation.operands
    return ops.Sub.build(ops.Mul.build(ops.Relu.build(x), constant(2.0, x)), x)


def _sign(graph: Graph, op: ir.OpView) -> ir.Value:
    """[x >= 0] - [-x >= 0]: zero at zero."""
    (x,) = op.operation.operands
    return ops.Sub.build(ops.Step.build(x), ops.Step.build(ops.Neg.build(x)))


def _leaky_relu(graph: Graph, op: ir.OpView) -> ir.Value:
    """alpha x + (1 - alpha) relu(x)."""
    (x,), named = op.operation.operands, dict[str, Any](attributes(op))
    alpha = named["alpha"]
    slope = ops.Mul.build(x, constant(alpha, x))
    return ops.Add.build(slope, ops.Mul.build(ops.Relu.build(x), constant(1 - alpha, x)))


def _hardsigmoid(graph: Graph, op: ir.OpView) -> ir.Value:
    """(relu(x + 3) - relu(x - 3)) / 6."""
    (x,) = op.operation.operands
    raised, lowered = (ops.Relu.build(shifted(x, number)) for number in (3.0, -3.0))
    return ops.Mul.build(ops.Sub.build(raised, lowered), constant(1 / 6, x))


def _hardswish(graph: Graph, op: ir.OpView) -> ir.Value:
    return ops.Mul.build(op.operation.operands[0], _hardsigmoid(graph, op))


def _divide(graph: Graph, op: ir.OpView) -> ir.Value:
    """x times 1 / y."""
    x, divisor = op.operation.operands
    number = number_of(divisor)
    inverse = constant(1 / number, x) if number else ops.Reciprocal.build(divisor)
    return ops.Mul.build(x, inverse)


def _pad(graph: Graph, op: ir.OpView) -> ir.Value | None:
    """Zeros around x - value, plus value."""
    (x,), named = op.operation.operands, dict[str, Any](attributes(op))
    value = named.pop("value")
    if value == 0:
        return None
    return shifted(ops.Pad.build(shifted(x, -value), value=0.0, **named), value)


REWRITES: Mapping[type[ir.OpView], Callable[[Graph, ir.OpView], ir.Value | None]] = {
    ops.Clip: _clip,
    ops.Minimum: _minimum,
    ops.Abs: _absolute,
    ops.Sign: _sign,
    ops.LeakyRelu: _leaky_relu,
    ops.HardSigmoid: _hardsigmoid,
    ops.HardSwish: _hardswish,
    ops.Div: _divide,
    ops.Pad: _pad,
}
