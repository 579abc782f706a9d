"""Interval arithmetic over the graph level, element by element, through the weights' values.

Every operation here is one of three: monotone in each operand (relu, pools, maxima, sums, layout),
bilinear (products, matmul, convolution), or a difference. In float64: what rounding may add is
far below the slack that proven ranges are given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch_mlir import ir

from veilgraph.ir.graph import Graph, attributes, kind_of, name_of
from veilgraph.ir.legality import FUNCTIONS, ROW_FUNCTIONS
from veilgraph.ir.meaning.graph import apply

Floats = NDArray[np.float64]
HOLLOWS = {"gelu": -0.171, "silu": -0.279}  # their least values, rounded down
BILINEAR = ("mul", "matmul", "conv")


@dataclass(frozen=True)
class Interval:
    """Every element lies in [low, high]."""

    low: Floats
    high: Floats

    @staticmethod
    def between(low: ArrayLike, high: ArrayLike) -> Interval:
        return Interval(np.asarray(low, np.float64), np.asarray(high, np.float64))

    @property
    def center(self) -> Floats:
        return (self.low + self.high) / 2

    @property
    def radius(self) -> Floats:
        return (self.high - self.low) / 2

    def within(self, low: float, high: float) -> Interval:
        """The part of the interval that lies in [low, high]."""
        return Interval(self.low.clip(low, high), self.high.clip(low, high))


def propagate(
    graph: Graph,
    inputs: Mapping[str, Interval],
    bounds: Mapping[str, tuple[float, float]],
) -> Iterator[tuple[str, Interval]]:
    """The interval of every operation by name, in program order.

    Args:
        inputs: the interval of each input.
        bounds: what is known of operations besides, by name.
    """
    known = {value: inputs[name] for name, value in graph.inputs.items()}
    for name, value in graph.parameters.items():
        known[value] = Interval.between(graph.weights[name], graph.weights[name])
    left = {value: sum(1 for _ in value.uses) for value in known}
    for op in graph.operations:
        operands = list(op.operation.operands)
        result = op.operation.results[0]
        interval = _through(op, [known[value] for value in operands])
        limits = bounds.get(name_of(op), (-np.inf, np.inf))
        known[result] = interval.within(*limits)
        left[result] = sum(1 for _ in result.uses)
        yield name_of(op), known[result]
        for value in operands:
            left[value] -= 1
            if not left[value]:
                del known[value]


def _through(op: ir.OpView, operands: Sequence[Interval]) -> Interval:
    kind = kind_of(op)

    def run(*arrays: Floats) -> Floats:
        return apply(op, arrays, np.float64)

    if kind in FUNCTIONS:
        return _function(kind, run, *operands)
    if kind in ROW_FUNCTIONS:
        return _softmax(op, *operands)
    if kind in BILINEAR:
        return _bilinear(run, operands)
    if kind in ("sub", "neg"):
        *first, last = operands
        flipped = [*first, Interval(last.high, last.low)]
        return _monotone(run, flipped)
    return _monotone(run, operands)


def _function(kind: str, run: Callable[..., Floats], x: Interval) -> Interval:
    """Monotone functions, and those with one hollow, whose depth is known."""
    if kind in ("sin", "cos"):
        ones = np.ones_like(x.low)
        return Interval(-ones, ones)
    ends = run(x.low), run(x.high)
    low, high = np.minimum(*ends), np.maximum(*ends)
    return Interval(np.minimum(low, HOLLOWS.get(kind, np.inf)), high)


def _softmax(op: ir.OpView, x: Interval) -> Interval:
    """An element is largest where it is as large, and all others of its row as small, as can be."""
    axis: Any = attributes(op)["axis"]

    def logarithm(own: Floats, others: Floats) -> Floats:
        most = others.max(axis=axis, keepdims=True)
        powers = np.exp(others - most)
        rest = np.maximum(powers.sum(axis=axis, keepdims=True) - powers, 0)
        with np.errstate(divide="ignore"):  # a row of one element has no others
            found: Floats = -np.logaddexp(0, np.log(rest) + most - own)
        return found

    ends = logarithm(x.low, x.high), logarithm(x.high, x.low)
    return Interval(*(map(np.exp, ends) if kind_of(op) == "softmax" else ends))


def _monotone(run: Callable[..., Floats], operands: Sequence[Interval]) -> Interval:
    return Interval(run(*(x.low for x in operands)), run(*(x.high for x in operands)))


def _bilinear(run: Callable[..., Floats], operands: Sequence[Interval]) -> Interval:
    """(c1 + r1)(c2 + r2) lies within |c1| r2 + r1 |c2| + r1 r2 of c1 c2; a bias is added."""
    x, y, *bias = operands
    center = run(x.center, y.center, *(b.center for b in bias))
    zeros = [np.zeros_like(b.center) for b in bias]
    radius = run(x.radius, np.abs(y.center) + y.radius, *zeros)
    if np.any(y.radius):
        radius = radius + run(np.abs(x.center), y.radius, *zeros)
    for b in bias:
        extra = b.radius[:, None, None] if center.ndim == 4 else b.radius
        radius = radius + extra
    return Interval(center - radius, center + radius)
