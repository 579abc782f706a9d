"""Where the values of a program lie, as samples show it.

    x = [-1, 2], [0, 3]              ->  x in [-1, 3.08]

Bounds are rounded outward to 1/16 bit (a factor of 2^(1/16)), gains to the nearest, so that a plan
doesn't depend on the last digits of a CPU's floating point.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch_mlir import ir

from veilgraph.ir.errors import AccuracyError
from veilgraph.ir.graph.ops import Constant
from veilgraph.ir.graph.program import Graph, attributes, name_of
from veilgraph.ir.meaning.onnx_runtime import OnnxProgram
from veilgraph.ir.plan.tables import Magnitudes
from veilgraph.ir.secret.types import RangeSource, RealRange
from veilgraph.passes import _native
from veilgraph.passes.ranges.magnitudes import MagnitudeCount, flat_float32
from veilgraph.passes.ranges.noise_gains import noise_gains
from veilgraph.passes.ranges.operator_bounds import declared_bounds

Array = NDArray[np.float32]
Key = tuple[str, str]
MOST_OUTPUTS = 4  # of samples, that are kept to compare with
GRADIENT_SAMPLES = 2  # enough: scales follow the fourth root of what they estimate
AGAIN = 2  # times the noise of rounding once to the nearest has a truncation, at random
STEPS = 16  # of rounding, a factor of two
SNAP = 1 / 64  # of a step: how far below a bound a value may stay unrounded
ALIKE = 1 / 8  # of a value's size: ends of its range that lie so near are the same
NOTHING = 2.0**-16  # of the median update: what a gradient of zero is in float32 is less
ROOM = 2.0**-8  # of it: an error of what is nothing is relative to that


@dataclass(frozen=True)
class Statistics:
    """Where a value lies, and what noise on it does.

    `gain` is the outputs' mean square error, relative to their mean square, for noise of variance 1
    on each element; None where it isn't known, or where a few samples don't tell. `peak` is the
    same of the one element that bears most on them.
    """

    range: RealRange
    gain: float | None = None
    peak: float = 0.0


@dataclass(frozen=True)
class Reach:
    """Where a value lay in the samples' runs, and in every run.

    Another program may say so, that has a value of the same name in another unit: a divisor is
    folded there, or a mask has another number for what is masked.
    """

    seen: RealRange
    every: RealRange

    def widened(self, own: RealRange) -> RealRange:
        """Where the value lies in every run, that was calibrated as `own`.

        It stays where it is if it is no multiple of what was seen.
        """
        unit = own.bound / self.seen.bound if self.seen.bound else 1.0
        ends = ((own.low, self.seen.low), (own.high, self.seen.high))
        if any(abs(mine - unit * seen) > ALIKE * own.bound for mine, seen in ends):
            return own
        low, high = min(own.low, unit * self.every.low), max(own.high, unit * self.every.high)
        return replace(own, low=low, high=high)


@dataclass(frozen=True)
class Ranges:
    """Statistics of inputs, weights and operations, by role ("operation" for those) and name.

    What isn't there is unknown. `origin` says how it was found, for people; `outputs` are those of
    the first samples, at most MOST_OUTPUTS; `magnitudes` are those of inputs and operations. Of
    `update_sizes`, outputs that are updates, an error is a root mean square, relative to that.
    """

    known: Mapping[Key, Statistics]
    origin: str
    outputs: Sequence[Mapping[str, Array]] = field(default=(), compare=False)
    magnitudes: Sequence[Magnitudes] = field(default=(), compare=False)
    update_sizes: Mapping[str, float] = field(default_factory=dict, compare=False)

    def without_gains(self) -> Ranges:
        """Where values lie, and nothing of what noise does."""
        return replace(self, known={key: Statistics(s.range) for key, s in self.known.items()})

    def stating(self, role: str, ranges: Mapping[str, RealRange]) -> Ranges:
        """The same, some values of a role lying elsewhere."""
        known = dict(self.known)
        for name, found in ranges.items():
            known[role, name] = replace(known.get((role, name), Statistics(found)), range=found)
        return replace(self, known=known)

    def reaching(self, reached: Mapping[Key, Reach]) -> Ranges:
        """The same, some values having lain elsewhere in other runs. What is proven stays."""
        known = dict(self.known)
        for key, reach in reached.items():
            own = known.get(key)
            if own is not None and own.range.source is RangeSource.CALIBRATED:
                known[key] = replace(own, range=reach.widened(own.range))
        return replace(self, known=known)

    def rounding_again(self, graph: Graph, updates: Mapping[str, str]) -> Ranges:
        """The same, some states rounded anew in each run, which is noise on their updates.

        Args:
            updates: of these states, the output that says what a run adds.
        """
        known, named = dict(self.known), {value: key for key, value in _values(graph).items()}
        for state, output in updates.items():
            update, own = known[named[graph.outputs[output]]], known["input", state]
            if own.gain is not None and update.gain is not None:
                gain = own.gain + AGAIN * update.gain
                known["input", state] = replace(own, gain=nearest(gain))
        return replace(self, known=known)

    def of(self, graph: Graph) -> dict[ir.Value, Statistics]:
        """By value; weights and constants, whose values are known, always among them."""
        found = {
            value: weight_statistics(graph.weights[name])
            for name, value in graph.parameters.items()
        }
        for op in graph.operations:
            if isinstance(op, Constant):
                value = np.asarray(attributes(op)["value"], np.float32)
                found[op.operation.results[0]] = weight_statistics(value)
        named = _values(graph)
        return found | {named[key]: known for key, known in self.known.items() if key in named}


def _values(graph: Graph) -> dict[Key, ir.Value]:
    named = {("input", name): value for name, value in graph.inputs.items()}
    named |= {("weight", name): value for name, value in graph.parameters.items()}
    return named | {("operation", name_of(o)): o.operation.results[0] for o in graph.operations}


def assume(graph: Graph) -> Ranges:
    """Nothing is known but what operations declare by themselves."""
    return Ranges(_declared(graph), "ranges are assumed: no samples were given")


def calibrate(
    graph: Graph,
    samples: Mapping[str, Array],
    at: Callable[[str], None] = lambda doing: None,
    updates: Collection[str] = (),
    tolerances: Mapping[str, float] = MappingProxyType({}),
) -> Ranges:
    """Runs the program on each sample, in ONNX Runtime, and keeps every value's extremes; gains
    from the first few.

    Args:
        samples: one array an input, samples on a new first axis (passes/ranges/samples.py reads
            them).
        at: told which sample is run.
        updates: outputs that say what a run adds to a state.
        tolerances: how many times as much some of these may be off by, by name; above 1.

    Raises:
        AccuracyError: a value is infinite, or no number.
    """
    seen: dict[Key, _Seen] = defaultdict(_Seen)
    outputs: list[dict[str, Array]] = []
    program = OnnxProgram(graph)
    count = min((len(array) for array in samples.values()), default=1)  # of no inputs, one run
    each = [{name: array[number] for name, array in samples.items()} for number in range(count)]
    for number, sample in enumerate(each, 1):
        at(f"sample {number} of {count}")
        for name, value in sample.items():
            seen["input", name].add(value)
        found = _run(program, sample, seen)
        if len(outputs) < MOST_OUTPUTS:
            outputs.append(found)
    sizes = _update_sizes(outputs, updates, tolerances)
    at("what noise on each value does")
    ranges = {key: extremes.range() for key, extremes in seen.items()}
    origin = f"ranges are calibrated on {count} sample{'s' if count > 1 else ''}"
    found_magnitudes = [statistic.magnitudes(name) for (_, name), statistic in seen.items()]
    return Ranges(
        _with_gains(graph, ranges, program, each[:GRADIENT_SAMPLES], outputs, sizes, updates),
        origin,
        outputs,
        [found for found in found_magnitudes if found is not None],
        sizes,
    )


def _update_sizes(
    outputs: Sequence[Mapping[str, NDArray[np.float32]]],
    updates: Collection[str],
    tolerances: Mapping[str, float],
) -> dict[str, float]:
    """What errors of updates are relative to: their root mean squares, or more.

    What rounding adds to a variance is a mean square. Gradients have few large elements, and a
    derivative behind a turned sign is off by all of itself: means of magnitudes say little of both.
    """
    sizes = {name: _root_mean_square([each[name] for each in outputs]) for name in updates}
    least = rooms(sizes)
    return {n: max(least.get(n, 0.0), tolerances.get(n, 1.0) * x) for n, x in sizes.items()}


def _root_mean_square(arrays: Sequence[Array]) -> float:
    """Over arrays of one shape."""
    squares = [float(np.square(x, dtype=np.float64).mean()) for x in arrays if x.size]
    return math.sqrt(sum(squares) / max(len(squares), 1))


def mean_sizes(outputs: Sequence[Mapping[str, NDArray[np.float32]]]) -> dict[str, float]:
    """Mean magnitudes by name, over samples."""
    return {
        name: float(np.mean([np.abs(each[name], dtype=np.float64).mean() for each in outputs]))
        for name in outputs[0]
        if outputs[0][name].size
    }


def rooms(sizes: Mapping[str, float]) -> dict[str, float]:
    """What roundings may make of those things that are nothing beside the others.

    Some gradients are zero whatever the rows: that of a key's bias in attention, which moves all
    scores of a row alike. Its size in float32 is that of a rounding, which no error can be held to.
    """
    middle = float(np.median([*sizes.values()])) if sizes else 0.0
    return {name: ROOM * middle for name, size in sizes.items() if size < NOTHING * middle}


def _run(
    program: OnnxProgram, sample: Mapping[str, Array], seen: MutableMapping[Key, _Seen]
) -> dict[str, Array]:
    """The outputs for a sample; what operations compute is seen, and let go.

    What has the elements of another value is seen with that.
    """
    values = program.run(sample)
    keys = {value: key for key, value in _values(program.graph).items()}
    for op in program.graph.operations:
        name, (value,) = name_of(op), op.operation.results
        source = keys[program.sources.get(value, value)]
        if source in seen and value in program.sources:
            seen["operation", name] = seen[source]
        else:
            seen["operation", name].add(values[value])
        if not seen["operation", name].is_finite:
            raise AccuracyError(
                f"The values of {name!r} are not finite on the samples.",
                "It may divide by zero, or take a root of a negative number: look at the samples.",
            )
    return {name: values[value] for name, value in program.graph.outputs.items()}


def _with_gains(
    graph: Graph,
    ranges: Mapping[Key, RealRange],
    program: OnnxProgram,
    samples: Sequence[Mapping[str, Array]],
    outputs: Sequence[Mapping[str, Array]],
    sizes: Mapping[str, float],
    updates: Collection[str],
) -> dict[Key, Statistics]:
    """Ranges with the noise gains found at some samples; weights are added, declared bounds win.

    A gain is a mean over outputs, and a step is as exact as the update that is off by most. So it
    is told for the updates that a value bears on, and not for all. The random signs that gains are
    estimated with are no secret, and the same every time.
    """
    found: dict[ir.Value, float] = {}
    generator = np.random.default_rng(0)
    gains = noise_gains(program, samples, outputs[: len(samples)], generator, found, sizes)
    moved = _updates_reached(graph, updates)
    for value in gains:
        gains[value] *= len(graph.outputs) / moved[value] if moved.get(value) else 1.0
    named = {key: nearest(gains[v]) for key, v in _values(graph).items() if v in gains}
    peaks = {key: found.get(v, 0.0) for key, v in _values(graph).items()}
    weights = {("weight", n): weight_statistics(graph.weights[n]).range for n in graph.parameters}
    every = {**ranges, **weights}
    bounds = {key: known.range for key, known in _declared(graph).items()}
    return {
        k: Statistics(known, named.get(k, 0.0), peaks.get(k, 0.0))
        for k, known in (every | bounds).items()
    }


def _updates_reached(graph: Graph, updates: Collection[str]) -> dict[ir.Value, int]:
    """How many of these outputs a value bears on, of those that bear on any."""
    found = dict.fromkeys(graph.outputs.values(), 0)
    for number, name in enumerate(updates):
        found[graph.outputs[name]] |= 1 << number
    for op in reversed(graph.operations):
        reached = found.get(op.operation.results[0], 0)
        for operand in op.operation.operands:
            found[operand] = found.get(operand, 0) | reached
    return {value: reached.bit_count() for value, reached in found.items() if reached}


def _declared(graph: Graph) -> dict[Key, Statistics]:
    return {
        ("operation", name): Statistics(RealRange(*outward(*bounds), RangeSource.PROVEN))
        for name, bounds in declared_bounds(graph).items()
    }


def weight_statistics(array: Array) -> Statistics:
    """Of a weight or constant, whose values are known to the one who compiles."""
    low, high = outward(float(array.min(initial=0)), float(array.max(initial=0)))
    return Statistics(RealRange(low, high, RangeSource.PROVEN))


def ends_of(value: NDArray[Any]) -> tuple[float, float]:
    """The least and the largest, of float32; no numbers if one of them is none."""
    low, high = _native.extremes(flat_float32(value))
    return low, high


class Extremes:
    """The least and the largest of the arrays added so far; not finite if one of them is not."""

    def __init__(self) -> None:
        self._low, self._high = math.inf, -math.inf

    @property
    def is_finite(self) -> bool:
        """Whether it is of numbers, or of none at all."""
        return self._low > self._high or all(map(math.isfinite, (self._low, self._high)))

    def add(self, value: NDArray[Any]) -> None:
        self.extend(*ends_of(value))

    def extend(self, low: float, high: float) -> None:
        """Adds what lies between, and reaches both."""
        self._low = float(np.minimum(self._low, low))  # these keep what is no number
        self._high = float(np.maximum(self._high, high))

    def __or__(self, other: Extremes) -> Extremes:
        """Of what was added to one of both."""
        found = Extremes()
        for each in (self, other):
            found.extend(each._low, each._high)
        return found

    def range(self) -> RealRange:
        """What was seen, widened to multiples of 1/16 bit; 0 if nothing was."""
        if self._low > self._high:
            return RealRange(0.0, 0.0, RangeSource.CALIBRATED)
        return RealRange(*outward(self._low, self._high), RangeSource.CALIBRATED)


class _Seen(Extremes):
    """Extremes of the arrays added so far, and their magnitudes."""

    def __init__(self) -> None:
        super().__init__()
        self._count = MagnitudeCount()

    def add(self, value: NDArray[Any]) -> None:
        self.extend(*self._count.add(value))

    def magnitudes(self, name: str) -> Magnitudes | None:
        return self._count.result(name)


def outward(low: float, high: float) -> tuple[float, float]:
    """The interval, widened to multiples of 1/16 bit."""
    return (
        -_step_up(-low) if low < 0 else _step_down(low),
        -_step_down(-high) if high < 0 else _step_up(high),
    )


def nearest(x: float) -> float:
    """A positive number to the nearest 1/16 bit; zero stays."""
    return 2.0 ** (round(math.log2(x) * STEPS) / STEPS) if x > 0 else 0.0


def _step_up(x: float) -> float:
    return float(2.0 ** (math.ceil(math.log2(x) * STEPS - SNAP) / STEPS)) if x > 0 else 0.0


def _step_down(x: float) -> float:
    return float(2.0 ** (math.floor(math.log2(x) * STEPS + SNAP) / STEPS)) if x > 0 else 0.0
