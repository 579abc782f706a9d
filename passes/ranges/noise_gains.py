"""What noise on a value does to a program's outputs, by the backward pass run on samples.

The backward pass is the program's own derivatives (passes/graph/differentiate.py), made once and
run in ONNX Runtime. It takes the values of a forward run, whatever made them, and gives three
numbers a value: no derivative is kept.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, name_of
from veilgraph.ir.meaning.onnx_runtime import Draft, OnnxProgram, session
from veilgraph.passes.graph.derivatives.algebra import total
from veilgraph.passes.graph.differentiate import backward, write_out_maxima

Array = NDArray[Any]
Run = Callable[[], dict[ir.Value, Array]]
BLUR = 2.0**-8  # relative: as coarse as a number is that is stored with the fewest bits
PLACES, STRIDE = 1 << 16, 8191  # where values begin to read signs: no two of 65,536 at one place
FACTORS = "factors"
QUIET = 2.0**-16  # of the outputs' mean square
SIGNS = 16  # of outputs, at least, that tell of noise that seems to do nothing
COUNT = 3  # numbers of a slope
SMALLEST = 1e-30  # derivative that is told from zero
SURPRISING = 16  # times the gain: a factor of four in the derivative, two bits


@dataclass(frozen=True)
class Slope:
    """Of one value's derivative d, for one sample and one seed.

    Attributes:
        power: the sum of d^2.
        peak: the largest |d|.
        effect: the sum of (d x)^2, x the value; infinite where x is zero everywhere.
    """

    power: float
    peak: float
    effect: float


class BackwardPass:
    """The derivatives of a program's outputs by each of its values."""

    def __init__(self, graph: Graph) -> None:
        """Of operations that may be encoded; those without a derivative count as flat."""
        both = Graph.parse(graph.module.context, graph.text(), graph.weights)
        self._own = list(_values(graph).values())
        written = write_out_maxima(both, set(_values(both).values()))
        named = _values(both) | {(False, name): value for name, value in written.items()}
        values = [named[key] for key in _values(graph)]
        given = _seed_arguments(both)
        found = backward(both, _seeds(both, given), set(values), none_is_flat=True)
        draft = Draft(both, [v for v in values if not isinstance(v, ir.BlockArgument)])
        self._names = [draft.names[value] for value in values]
        self._seeds = [draft.names[value] for value in given]
        reached = [i for i, v in enumerate(values) if v in found and 0 not in shape_of(v)]
        numbers = [n for i in reached for n in _measured(draft, found[values[i]], values[i])]
        self._numbers = {
            self._own[i]: numbers[COUNT * place : COUNT * (place + 1)]
            for place, i in enumerate(reached)
        }
        self._session = session(draft.model(numbers=numbers))

    def run(
        self,
        values: Mapping[ir.Value, Array],
        seeds: Sequence[Array],
        wanted: Sequence[ir.Value] | None = None,
    ) -> list[tuple[ir.Value, Slope]]:
        """For each value that is wanted; what these do not need is not computed.

        Args:
            values: every value of a forward run.
            seeds: for each output, in order, what its derivative is multiplied by.
            wanted: of those that bear on an output; all of them if None.
        """
        wanted = list(self._numbers) if wanted is None else wanted
        each = zip(self._names, self._own, strict=True)
        feeds = {name: np.asarray(values[value], np.float32) for name, value in each}
        feeds |= {n: np.asarray(s, np.float32) for n, s in zip(self._seeds, seeds, strict=True)}
        names = [name for value in wanted for name in self._numbers[value]]
        options = onnxruntime.RunOptions()
        options.only_execute_path_to_fetches = True
        found = iter(self._session.run(names, feeds, options))
        slopes = []
        for value in wanted:
            peak, power, effect = (float(next(found)) for _ in range(COUNT))
            effect = effect * peak**2 if values[value].any() else math.inf
            slopes.append((value, Slope(power * peak**2, peak, effect)))
        return slopes


def _values(graph: Graph) -> dict[tuple[bool, str], ir.Value]:
    """Arguments and results of operations, by whether they are one and by name."""
    arguments = graph.inputs | graph.parameters
    found = {(True, name): value for name, value in arguments.items()}
    return found | {(False, name_of(op)): op.operation.results[0] for op in graph.operations}


def _seed_arguments(graph: Graph) -> list[ir.Value]:
    """New arguments, one for each output, of its shape."""
    word = "seed"
    while any(name.startswith(word) for name in graph.weights):
        word += "_"
    shapes = [shape_of(value) for value in graph.outputs.values()]
    seeds = {f"{word}{i}": np.zeros(shape, np.float32) for i, shape in enumerate(shapes)}
    return list(graph.add_weights(seeds).values())


def _seeds(graph: Graph, given: Sequence[ir.Value]) -> dict[ir.Value, ir.Value]:
    """What is given for each output; the sum for a value that is several outputs."""
    each: dict[ir.Value, list[ir.Value]] = defaultdict(list)
    for value, seed in zip(graph.outputs.values(), given, strict=True):
        each[value].append(seed)
    with graph.ahead_of_return("seed/"):
        return {value: total(seeds) for value, seeds in each.items()}


def _measured(draft: Draft, derivative: ir.Value, value: ir.Value) -> tuple[str, ...]:
    """The largest |d|, and the other two numbers of a slope for d over that.

    Squares of d itself may leave float32.
    """
    d = draft.names[derivative]
    peak = draft("ReduceMax", draft("Abs", d), keepdims=0)
    unit = draft("Div", d, draft("Max", peak, draft.numbers(SMALLEST)))
    moved = draft("Mul", unit, draft.names[value])
    return (
        peak,
        draft("ReduceSumSquare", unit, keepdims=0),
        draft("ReduceSumSquare", moved, keepdims=0),
    )


class _Blurred:
    """A program where each number is off by BLUR of itself, up or down, before others are computed
    from it.

    The signs of a run are one row, which each value reads from a place of its own on.
    """

    def __init__(self, program: OnnxProgram) -> None:
        self._program, self._values = program, list(_values(program.graph).values())
        self._places = {value: i * STRIDE % PLACES for i, value in enumerate(self._values)}
        self._length = PLACES + max((prod(shape_of(value)) for value in self._values), default=0)
        draft = Draft(program.graph, changed=self._blurred)
        self._given = draft.given
        draft.input(FACTORS, (self._length,))
        self._session = session(draft.model(self._values))

    def _blurred(self, draft: Draft, value: ir.Value) -> str:
        name, shape = draft.names[value], shape_of(value)
        if not isinstance(value, ir.BlockArgument) and ops.facts_of(value.owner.opview).selects:
            return name
        start = self._places[value]
        ends = (draft.integers([start]), draft.integers([start + prod(shape)]))
        factors = draft("Reshape", draft("Slice", FACTORS, *ends), draft.integers(shape))
        return draft("Mul", name, factors)

    def run(
        self, sample: Mapping[str, Array], generator: np.random.Generator
    ) -> dict[ir.Value, Array]:
        """Every value, for one array an input."""
        signs = generator.integers(0, 2, self._length, np.int8) * 2 - 1
        feeds = {self._given[v]: array for v, array in self._program.arguments(sample).items()}
        feeds[FACTORS] = (1 + np.float32(BLUR) * signs).astype(np.float32)
        return dict(zip(self._values, self._session.run(None, feeds), strict=True))


def noise_gains(
    program: OnnxProgram,
    samples: Sequence[Mapping[str, Array]],
    outputs: Sequence[Mapping[str, Array]],
    generator: np.random.Generator,
    peaks: dict[ir.Value, float] | None = None,
    sizes: Mapping[str, float] | None = None,
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
        sizes: root mean squares that the noise of some outputs is relative to, by name.
        peaks: takes, for each value, what noise of variance 1 on the one element does that bears
            most on the outputs, for the signs that were drawn.
    """
    graph, runs = program.graph, [partial(program.run, sample) for sample in samples]
    given = sizes or {}
    powers = [
        given[name] ** 2 or 1.0 if name in given else _variance([each[name] for each in outputs])
        for name in graph.outputs
    ]
    shapes = [shape_of(value) for value in graph.outputs.values()]
    back = BackwardPass(graph)
    gains, effects = _gains(back, shapes, runs, powers, generator, peaks=peaks)
    quiet = [value for value, effect in effects.items() if effect < QUIET]
    if quiet:
        draws = -(-SIGNS // sum(prod(shape) for shape in shapes))
        blurring = _Blurred(program)
        off = [partial(blurring.run, sample, generator) for sample in samples] * draws
        with np.errstate(all="ignore"):  # a root may leave its domain: that tells nothing
            blurred, _ = _gains(back, shapes, off, powers, generator, wanted=quiet)
        for value in quiet:
            if SURPRISING * gains[value] < blurred[value] < math.inf:
                gains[value] = blurred[value]
    return gains


def _gains(
    program: BackwardPass,
    shapes: Sequence[tuple[int, ...]],
    runs: Sequence[Run],
    powers: Sequence[float],
    generator: np.random.Generator,
    wanted: Sequence[ir.Value] | None = None,
    peaks: dict[ir.Value, float] | None = None,
) -> tuple[dict[ir.Value, float], dict[ir.Value, float]]:
    """For noise of variance 1 on each element of the values wanted, and for noise as large as the
    element.

    What is zero has no size that it could be off by: the second is infinite.
    """
    gains: dict[ir.Value, float] = defaultdict(float)
    effects: dict[ir.Value, float] = defaultdict(float)
    for run in runs:
        seeds = [
            (generator.integers(0, 2, shape) * 2 - 1) / math.sqrt(power * prod(shape) * len(shapes))
            for shape, power in zip(shapes, powers, strict=True)
        ]
        for value, slope in program.run(run(), seeds, wanted):
            gains[value] += slope.power / len(runs)
            if peaks is not None:
                peaks[value] = max(peaks.get(value, 0.0), slope.peak**2)
            effects[value] += slope.effect / len(runs)
    return gains, effects


def _variance(output: Sequence[Array]) -> float:
    """Variance of normal noise as large as an output in the mean; 1 for one that is zero."""
    means = [float(np.mean(np.abs(value), dtype=np.float64)) for value in output]
    return normal_power(sum(means) / max(len(means), 1))


def normal_power(mean: float) -> float:
    """Mean square of normally distributed numbers of a mean magnitude; 1 for zeros."""
    return math.pi / 2 * mean**2 or 1.0
