"""Where the values of a program lie: seen on samples, or proven by interval arithmetic.

    calibrate:  x = [-1, 2], [0, 3]              ->  x in [-1, 3.08], mean square 3.5
    prove:      x in [-1, 3],  y = 2 x - 1       ->  y in [-3, 5]

Bounds are rounded outward to 1/16 bit (a factor of 2^(1/16)), mean squares to the nearest, so that
a plan doesn't depend on the last digits of a CPU's floating point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.graph import Graph, name_of
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.secret_types import RangeSource, RealRange
from veilgraph.passes.bounds import declared_bounds
from veilgraph.passes.intervals import Interval, propagate

Array = NDArray[np.float32]
STEPS = 16  # of rounding, a factor of two
SNAP = 1 / 64  # of a step: how far below a bound a value may stay unrounded


@dataclass(frozen=True)
class Statistics:
    """Where a value lies and the mean of its elements' squares."""

    range: RealRange
    mean_square: float


@dataclass(frozen=True)
class Ranges:
    """Statistics of a program's inputs and operations, by name; what isn't there is unknown."""

    inputs: Mapping[str, Statistics]
    operations: Mapping[str, Statistics]

    def of(self, graph: Graph) -> dict[ir.Value, Statistics]:
        """By value, the weights among them."""
        known = {v: weight_statistics(graph.weights[n]) for n, v in graph.parameters.items()}
        known |= {v: self.inputs[n] for n, v in graph.inputs.items() if n in self.inputs}
        for op in graph.operations:
            if (name := name_of(op)) in self.operations:
                known[op.operation.results[0]] = self.operations[name]
        return known


def assume(graph: Graph) -> Ranges:
    """Nothing is known but what operations declare by themselves."""
    return Ranges({}, {name: _statistics(b) for name, b in declared_bounds(graph).items()})


def calibrate(graph: Graph, samples: Mapping[str, Array]) -> Ranges:
    """Runs the program on each sample and keeps every value's extremes and mean square.

    Args:
        samples: one array an input, samples on a new first axis (passes/samples.py reads them).
    """
    seen: dict[str, _Seen] = {}
    given: dict[str, _Seen] = {}

    def observe(name: str, value: Array) -> None:
        seen.setdefault(name, _Seen()).add(value)

    for number in range(min(len(array) for array in samples.values())):
        sample = {name: array[number] for name, array in samples.items()}
        for name, value in sample.items():
            given.setdefault(name, _Seen()).add(value)
        evaluate(graph, sample, observe)
    operations = {name: s.statistics() for name, s in seen.items()}
    return Ranges(
        {name: s.statistics() for name, s in given.items()},
        operations | _tighter(operations, declared_bounds(graph)),
    )


def prove(graph: Graph, inputs: Mapping[str, tuple[float, float]]) -> Ranges:
    """Interval arithmetic from the inputs' declared ranges, through the weights' values."""
    start = {
        name: Interval.between(np.full(shape_of(value), low), np.full(shape_of(value), high))
        for name, value in graph.inputs.items()
        for low, high in (inputs[name],)
    }
    found = propagate(graph, start, declared_bounds(graph))
    return Ranges(
        {name: _bounded(interval) for name, interval in start.items()},
        {name: _bounded(interval) for name, interval in found},
    )


def weight_statistics(array: Array) -> Statistics:
    """Of a weight, whose values are known to the one who compiles."""
    seen = _Seen()
    seen.add(array)
    known = seen.statistics()
    return Statistics(
        RealRange(known.range.low, known.range.high, RangeSource.PROVEN), known.mean_square
    )


class _Seen:
    """Extremes and mean square of the arrays added so far."""

    def __init__(self) -> None:
        self.low = math.inf
        self.high = -math.inf
        self.squares = 0.0
        self.count = 0

    def add(self, value: Array) -> None:
        if value.size:
            self.low = min(self.low, float(value.min()))
            self.high = max(self.high, float(value.max()))
            self.squares += float(np.square(value, dtype=np.float64).sum())
            self.count += value.size

    def statistics(self) -> Statistics:
        if not self.count:
            return Statistics(RealRange(0.0, 0.0, RangeSource.CALIBRATED), 0.0)
        low, high = outward(self.low, self.high)
        mean_square = nearest(self.squares / self.count)
        return Statistics(RealRange(low, high, RangeSource.CALIBRATED), mean_square)


def _bounded(interval: Interval) -> Statistics:
    low, high = outward(float(interval.low.min()), float(interval.high.max()))
    center = (interval.low + interval.high) / 2
    radius = (interval.high - interval.low) / 2
    # As if every element were uniform in its interval.
    mean_square = nearest(float(np.mean(center**2 + radius**2 / 3)))
    return Statistics(RealRange(low, high, RangeSource.PROVEN), mean_square)


def _statistics(bounds: tuple[float, float]) -> Statistics:
    low, high = outward(*bounds)
    mean_square = nearest((low * low + low * high + high * high) / 3)
    return Statistics(RealRange(low, high, RangeSource.PROVEN), mean_square)


def _tighter(
    found: Mapping[str, Statistics], declared: Mapping[str, tuple[float, float]]
) -> dict[str, Statistics]:
    """What operations declare of themselves, with the mean squares found."""
    return {
        name: Statistics(_statistics(bounds).range, found[name].mean_square)
        for name, bounds in declared.items()
        if name in found
    }


def outward(low: float, high: float) -> tuple[float, float]:
    """The interval, widened to multiples of 1/16 bit."""
    return (
        -_step_up(-low) if low < 0 else _step_down(low),
        _step_up(high) if high > 0 else -_step_down(-high),
    )


def nearest(x: float) -> float:
    """A positive number to the nearest 1/16 bit; zero stays."""
    return 2.0 ** (round(math.log2(x) * STEPS) / STEPS) if x > 0 else 0.0


def _step_up(x: float) -> float:
    return float(2.0 ** (math.ceil(math.log2(x) * STEPS - SNAP) / STEPS)) if x > 0 else 0.0


def _step_down(x: float) -> float:
    return float(2.0 ** (math.floor(math.log2(x) * STEPS + SNAP) / STEPS)) if x > 0 else 0.0
