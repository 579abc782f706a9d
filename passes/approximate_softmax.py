"""Softmax by sums, products and comparisons.

    d = x - max x                          at most 0, so that no exponential overflows
    v = relu(1 + d / 64)                   0 from d = -64 on: e^-64 is nothing
    e = (a (v^3 + c v) + 2 a)^64           the cubic is e^(v-1), to second order at v = 1
    y = e / sum e                          the sum lies in [1, n]

a = 683/4096 is next to 1/6 and c = 1/a - 3 fits value and slope at v = 1, where the answers are
made. The softmax's absolute error is below 5e-4 for up to 30,000 classes, measured over normal
logits of deviation 0.1 to 10 and over rows of one winner among equals. For 1 / s the chords of the
hyperbola between 1, 2, 4, ... n, times 15/16, are within 6.25%,

    y0 = (15/16) (1 - sum_i 2^-(2i+1) (r_i - r_(i+1))),        r_i = relu(s - 2^i), r_0 = s - 1,

and Newton's y (2 - s y) squares that twice: 1.6e-5. The chords cost one comparison each, all at
once, on one number a row. Every factor is a small integer over a power of two: none needs a
truncation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil, log2
from typing import Any

from torch_mlir import ir

from veilgraph.ir import graph_ops as ops
from veilgraph.ir.attributes import shape_of
from veilgraph.ir.graph import Graph, attributes, name_of
from veilgraph.ir.graph_dialect import GraphOp
from veilgraph.passes.bounds import Bounds, declare_bounds
from veilgraph.passes.public_numbers import constant

SQUARINGS = 6
CUBIC = 683 / 4096
NEWTON_STEPS = 2
CHORD_SCALE = 15 / 16
SLACK = 1.07  # chords lie within 6.25% of 1 / s


def softmax(graph: Graph, op: ir.OpView) -> ir.Value:
    """Rewrites one softmax, before `op`; absolute error below 1e-3 in a ring of 64 bits."""
    (x,), named = op.operation.operands, dict[str, Any](attributes(op))
    steps = _Steps(name_of(op))
    axes: dict[str, Any] = {"axes": (named["axis"],), "keepdims": True}
    count = shape_of(x)[named["axis"]]
    largest = steps("max", ops.ReduceMax, x, **axes)
    powers = _exponential(steps, steps("shifted", ops.Sub, x, largest))
    total = steps("sum", ops.ReduceSum, powers, bounds=(0.99, count), **axes)
    inverse = _reciprocal(steps, total, count)
    y = steps("", ops.Mul, powers, inverse, bounds=(0.0, SLACK))
    declare_bounds(graph, steps.bounds)
    return y


class _Steps:
    """Builds operations named after one node (the last one like it), and notes their bounds."""

    def __init__(self, node: str) -> None:
        self._node = node
        self.bounds: dict[str, Bounds] = {}

    def __call__(
        self,
        name: str,
        kind: type[GraphOp],
        *operands: ir.Value,
        bounds: Bounds | None = None,
        **named: Any,
    ) -> ir.Value:
        with self.naming(name) as full:
            if bounds is not None:
                self.bounds[full] = bounds
            return kind.build(*operands, **named)

    @contextmanager
    def naming(self, name: str) -> Iterator[str]:
        full = f"{self._node}/{name}" if name else self._node
        with ir.Location.name(full):
            yield full

    def times(
        self, name: str, x: ir.Value, number: float, bounds: Bounds | None = None
    ) -> ir.Value:
        with self.naming(f"{name}.factor"):
            factor = constant(number, x)
        return self(name, ops.Mul, x, factor, bounds=bounds)

    def plus(self, name: str, x: ir.Value, number: float, bounds: Bounds | None = None) -> ir.Value:
        with self.naming(f"{name}.number"):
            addend = constant(number, x)
        return self(name, ops.Add, x, addend, bounds=bounds)


def _exponential(steps: _Steps, d: ir.Value) -> ir.Value:
    """e^d for d <= 0."""
    unit = (0.0, 1.0)
    raised = steps.plus("raised", steps.times("scaled", d, 2.0**-SQUARINGS), 1.0)
    v = steps("clipped", ops.Relu, raised, bounds=unit)
    square = steps("square", ops.Mul, v, v, bounds=unit)
    near = steps.plus("near", square, 1 / CUBIC - 3, bounds=(2.99, 4.0))
    cubic = steps.times("cubic", steps("cube", ops.Mul, v, near, bounds=(0.0, 4.0)), CUBIC, unit)
    power = steps.plus("power", cubic, 2 * CUBIC, bounds=unit)
    for number in range(SQUARINGS):
        power = steps(f"power.{2 << number}", ops.Mul, power, power, bounds=unit)
    return power


def _reciprocal(steps: _Steps, total: ir.Value, count: int) -> ir.Value:
    """1 / total for total in [1, count]."""
    pieces = max(1, ceil(log2(count)))
    above = [steps.plus("above.1", total, -1.0, (-0.01, count))]
    for i in range(1, pieces):
        over = steps.plus(f"over.{1 << i}", total, -float(1 << i), (-float(1 << i), count))
        above.append(steps(f"above.{1 << i}", ops.Relu, over, bounds=(0.0, count)))
    y = _chords(steps, above)
    for number in range(NEWTON_STEPS):
        product = steps(f"newton.{number}.product", ops.Mul, total, y, bounds=(0.0, SLACK))
        negated = steps(f"newton.{number}.negated", ops.Neg, product, bounds=(-SLACK, 0.0))
        rest = steps.plus(f"newton.{number}.rest", negated, 2.0, bounds=(0.0, 2.0))
        y = steps(f"newton.{number}", ops.Mul, y, rest, bounds=(0.0, SLACK))
    return y


def _chords(steps: _Steps, above: list[ir.Value]) -> ir.Value:
    """The first guess, from r_i = relu(total - 2^i)."""
    fallen: ir.Value | None = None
    for i, r in enumerate(above):
        width, slope = float(1 << i), CHORD_SCALE * 2.0 ** -(2 * i + 1)
        if i + 1 < len(above):
            r = steps(f"piece.{1 << i}", ops.Sub, r, above[i + 1], bounds=(0.0, width))
        drop = steps.times(f"drop.{1 << i}", r, slope, bounds=(0.0, width * slope))
        if fallen is not None:
            drop = steps(f"fallen.{1 << i}", ops.Add, fallen, drop, bounds=(0.0, 1.0))
        fallen = drop
    assert fallen is not None
    negated = steps("chords.negated", ops.Neg, fallen, bounds=(-1.0, 0.0))
    return steps.plus("chords", negated, CHORD_SCALE, bounds=(0.0, 1.0))
