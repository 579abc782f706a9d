"""A rehearsal: some steps in float32, on rows that whoever compiles may see.

It says where parameters, gradients and activations lie while the model trains, and how much
gradients differ from batch to batch. Rounding in secret is unbiased, so it is noise beside that:
the error that a step is allowed follows from a share of it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from torch_mlir import ir

from veilgraph.ir.batch_owners import BatchOwners
from veilgraph.ir.errors import AccuracyError
from veilgraph.ir.graph.program import Graph, name_of
from veilgraph.ir.meaning.onnx_runtime import OnnxProgram
from veilgraph.ir.secret.types import RangeSource, RealRange
from veilgraph.ir.training import LOSS, LOSS_SUM, Noise, Schedule, mean_shares
from veilgraph.passes.graph.approximate import Approximate
from veilgraph.passes.graph.fold_batch_norm import FoldBatchNorm
from veilgraph.passes.graph.fold_constants import FoldConstants
from veilgraph.passes.graph.fold_divisors import FoldDivisors
from veilgraph.passes.graph.normalize_by_sums import NormalizeBySums
from veilgraph.passes.graph.recognize_activations import RecognizeActivations
from veilgraph.passes.graph.share_comparisons import ShareComparisons
from veilgraph.passes.graph.training.programs import Training
from veilgraph.passes.ranges.calibrate import Extremes, Key, Reach, ends_of, outward, rooms
from veilgraph.training.batches import orders
from veilgraph.training.masks import drawn

Array = npt.NDArray[np.float32]
MOST_KEPT = 1 << 27  # bytes of steps that are kept to calibrate with
FEWEST_KEPT = 4  # steps
BATCHES = 4  # that are compared in a step
FARTHEST = 8.0  # standard deviations of noise that fit; its sampler would give 10^-15 of it beyond
TINY = float(np.finfo(np.float32).tiny)  # a mean square that is told from zero
LEAST_ERROR = 0.005  # of updates, whatever batches say


@dataclass(frozen=True)
class Rehearsed:
    """What a rehearsal found.

    Attributes:
        samples: of each input of a step, states among them, some steps on a new first axis. The
            first, the last, and those between come first.
        ranges: where states lay in all steps.
        reached: where all that a step is given and computes lay, in the steps of the samples and
            in all; rows whether they were in one or not. Of gradients the samples tell little: one
            row that is taken for another class makes a large one.
        losses: the mean loss of each step.
        allowed: the mean error of updates, relative to their mean size, that rounding may cause:
            of the one whose batches differ least.
        tolerances: how many times as much others may be off by, by output.
        variances: that rounding may add to an update, by the parameter that it is of.
        parameters: after the last step, by name.
    """

    samples: Mapping[str, Array]
    ranges: Mapping[str, RealRange]
    reached: Mapping[Key, Reach] = field(repr=False)
    losses: Sequence[float]
    allowed: float
    tolerances: Mapping[str, float]
    variances: Mapping[str, float]
    parameters: Mapping[str, Array] = field(repr=False)


def rehearse(
    training: Training,
    rows: Mapping[str, Array],
    rate: Schedule,
    steps: int,
    max_noise: float,
    seed: int = 0,
    noise: Noise | None = None,
    parties: int = 1,
) -> Rehearsed:
    """Trains in float32, in ONNX Runtime.

    Args:
        rows: a data set of each input, as many rows of each.
        rate: the learning rate by the number of a step.
        max_noise: what rounding may add to the variance of a parameter's gradient, as a share of
            what it has between batches.
        seed: of the order of rows.
        noise: what each of so many parties adds a part of.

    Raises:
        AccuracyError: a state that is not finite after some step.
    """
    run = FloatRun(training, rows, seed, noise, parties)
    kept = _Kept(run.bytes_a_step, steps)
    found: list[tuple[list[float], list[float]]] = []
    rates = max(map(rate, range(steps)))
    for number in range(steps):
        given = run.given(number, rate)
        if number in measured_steps(steps):
            found.append(run.noise(given))
        kept.add(number, given)
        run.step(number, given, is_kept=number in kept)
    between, size = (np.array(each) for each in zip(*found, strict=True))
    errors = np.sqrt(max_noise * between.sum(axis=0) / size.sum(axis=0))
    errors = errors.clip(LEAST_ERROR)
    outputs = (training.updates[name] for name in training.moved)
    variances = (max_noise * between.mean(axis=0)).tolist()
    tolerances = dict(zip(outputs, map(float, errors / errors.min()), strict=True))
    return Rehearsed(
        _as_given(training, rows, kept.samples()),
        run.ranges() | _held(training, rows) | _noises(training, noise, parties, rates),
        _as_reached(training, rows, run.reached()),
        run.losses,
        float(errors.min()),
        {name: tolerance for name, tolerance in tolerances.items() if tolerance > 1.0},
        dict(zip(training.moved, variances, strict=True)),
        {name: run.states[name] for name in training.begun},
    )


def measured_steps(steps: int) -> set[int]:
    """Those of a run in which batches are compared: the first, a quarter, the middle, the last.

    A plan's errors are measured there too.
    """
    last = steps - 1
    return {0, last // 4, last // 2, last}


def _as_given(
    training: Training, rows: Mapping[str, Array], samples: Mapping[str, Array]
) -> dict[str, Array]:
    """Samples of a step's inputs, rows as their owners give them."""
    others = {name: x for name, x in samples.items() if name not in rows}
    return others | training.batch.split({name: samples[name] for name in rows}, axis=1)


def _as_reached(
    training: Training, rows: Mapping[str, Array], reached: Mapping[Key, Reach]
) -> dict[Key, Reach]:
    """The same of where inputs lay: the rows of each owner may lie wherever rows do."""
    found = dict(reached)
    for name in rows:
        if (known := found.pop(("input", name), None)) is not None:
            found |= {("input", part): known for part in training.batch.parts(name)}
    return found


def _held(training: Training, rows: Mapping[str, Array]) -> dict[str, RealRange]:
    """Where the states lie that hold rows."""
    parts = {part: x for name, x in rows.items() for part in training.batch.parts(name)}
    every = {held: parts[name] for name, held in training.held.items()}
    return {held: _known(float(x.min()), float(x.max())) for held, x in every.items()}


def _noises(
    training: Training, noise: Noise | None, parties: int, rate: float
) -> dict[str, RealRange]:
    """Where what all parties add together lies; farther out it is never, as good as."""
    if noise is None:
        return {}
    bound = FARTHEST * rate * noise.spread * math.sqrt(parties / noise.honest)
    return dict.fromkeys(training.noises.values(), _known(-bound, bound))


def in_float(graph: Graph) -> Graph:
    """`graph` as ONNX Runtime runs it, changed in place.

    It is changed as the compiler changes it before it is calibrated (passes/pipeline.py), in all
    that is no matter of samples: what a name stands for there, it stands for here.
    """
    graph = RecognizeActivations().run(FoldConstants().run(graph))
    graph = FoldConstants().run(FoldBatchNorm().run(graph))
    graph = NormalizeBySums().run(Approximate().run(graph))
    graph = FoldConstants().run(FoldDivisors().run(graph))
    return ShareComparisons().run(graph)


class FloatRun:
    """A model on its way, in float32, in ONNX Runtime.

    Attributes:
        states: by name, as they are before the next step.
        losses: the mean loss of each step so far.
    """

    def __init__(
        self,
        training: Training,
        rows: Mapping[str, Array],
        seed: int,
        noise: Noise | None = None,
        parties: int = 1,
    ) -> None:
        training = replace(training, share_once=False, batch=BatchOwners())
        self._training, self._rows = training, rows
        graph = in_float(training.step(reveals_loss=True))
        self._program, self._outputs = OnnxProgram(graph), graph.outputs
        weights = training.forward.weights
        self.states: dict[str, Array] = {n: weights[n] for n in training.begun}
        self.states |= {n: np.zeros(shape, np.float32) for n, shape in training.from_zero.items()}
        count = min(map(len, rows.values()))
        self._orders = orders(count, training.rows, seed)
        self._others = orders(count, training.rows, seed + 1)
        self._seed, self._drawn = seed, 0
        self._parts, self._noise = parties, noise
        self._normal = np.random.default_rng(seed)  # in the clear, so nothing rests on it
        self._kept = defaultdict[Key, Extremes](Extremes)  # of samples
        self._rest = defaultdict[Key, Extremes](Extremes)  # of the rest, states at both ends too
        self.losses: list[float] = []
        _add(self._rest, "input", {**rows, **self.states})

    @property
    def bytes_a_step(self) -> int:
        batch = sum(x[: self._training.rows].nbytes for x in self._rows.values())
        masks = sum(4 * math.prod(shape) for _, shape in self._training.masks.values())
        return batch + masks + sum(x.nbytes for x in self.states.values())

    def given(self, number: int, rate: Schedule) -> dict[str, Array]:
        """All inputs of the next step."""
        order, training = next(self._orders), self._training
        rates = rate(number), rate(max(number - 1, 0))
        factors = training.optimizer.values(*rates, training.rows, number)
        factors |= mean_shares(training.shares, number)
        numbers = {name: np.array(factor, np.float32) for name, factor in factors.items()}
        rows = {name: x[order] for name, x in self._rows.items()}
        return rows | numbers | self._masks() | self._noises(rates[0]) | self.states

    def _noises(self, rate: float) -> dict[str, Array]:
        """What all parties together add to updates."""
        if self._noise is None:
            return {}
        spread = rate * self._noise.spread * math.sqrt(self._parts / self._noise.honest)
        weights, found = self._training.forward.weights, {}
        for parameter, name in self._training.noises.items():
            drawn = self._normal.standard_normal(weights[parameter].shape)
            found[name] = (spread * drawn).astype(np.float32)
        return found

    def _masks(self) -> dict[str, Array]:
        """Of the next step, or of another batch for it: never twice the same."""
        self._drawn += 1
        return drawn(self._training.masks, f"rehearsed {self._seed}".encode(), self._drawn)

    def noise(self, given: Mapping[str, Array]) -> tuple[list[float], list[float]]:
        """Of each parameter's update, the variance between batches, and the mean square."""
        batches = [outputs for _, outputs in self.elsewhere(given)]
        noise, size = list[float](), list[float]()
        for name in self._training.moved:
            each = np.stack([b[self._training.updates[name]] for b in batches]).astype(np.float64)
            noise.append(float(each.var(axis=0, ddof=1).mean()))
            size.append(max(float((each**2).mean()), TINY))
        return noise, size

    def elsewhere(
        self, given: Mapping[str, Array]
    ) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
        """The same step on other batches: all its inputs, and what is made of them."""
        for _ in range(BATCHES):
            order = next(self._others)
            other = {name: x[order] for name, x in self._rows.items()}
            inputs = {**given, **other, **self._masks()}
            yield inputs, self._outputs_of(self._program.run(inputs))

    def step(self, number: int, given: Mapping[str, Array], *, is_kept: bool = False) -> None:
        """Takes step `number`, which may be one of the samples.

        Raises:
            AccuracyError: a state is then not finite.
        """
        values = self._program.run(given)
        found = self._outputs_of(values)
        self.losses.append(float(found[LOSS].item()))
        self.states = {name: found[after] for name, after in self._training.states.items()}
        for name, state in self.states.items():
            if not np.isfinite(state).all():
                raise AccuracyError(
                    f"State `{name}` is not finite after step {number + 1} in float32.",
                    "Take a smaller learning rate: nothing trains in secret that does not so.",
                )
        extremes = self._kept if is_kept else self._rest
        _add(extremes, "input", given)
        self._add_computed(extremes, values)
        _add(self._rest, "input", self.states)
        every = self._training.loss_every
        if every and (number + 1) % every == 0:
            self.states[LOSS_SUM] = np.zeros_like(self.states[LOSS_SUM])

    def _add_computed(
        self, extremes: Mapping[Key, Extremes], values: Mapping[ir.Value, Array]
    ) -> None:
        """Those of operations: once of a value and of all that has its elements."""
        ends, sources = dict[ir.Value, tuple[float, float]](), self._program.sources
        for op in self._program.graph.operations:
            (value,) = op.operation.results
            source = sources.get(value, value)
            if source not in ends:
                ends[source] = ends_of(values[source])
            extremes["operation", name_of(op)].extend(*ends[source])

    def _outputs_of(self, values: Mapping[ir.Value, Array]) -> dict[str, Array]:
        return {name: values[value] for name, value in self._outputs.items()}

    def ranges(self) -> dict[str, RealRange]:
        """Of states in all steps. What goes with a gradient of zero has room for roundings."""
        found = {name: self._of_all(("input", name)).range() for name in self.states}
        room = rooms({name: found[name].bound for name in self._training.kept})
        return {
            name: _known(
                min(known.low, 0.0) - room.get(name, 0.0),
                max(known.high, 0.0) + room.get(name, 0.0),
            )
            for name, known in found.items()
        }

    def reached(self) -> dict[Key, Reach]:
        """Of a step's inputs and operations."""
        return {
            key: Reach(seen.range(), self._of_all(key).range())
            for key, seen in self._kept.items()
            if seen.is_finite and self._rest[key].is_finite
        }

    def _of_all(self, key: Key) -> Extremes:
        return self._kept[key] | self._rest[key]


def _add(extremes: Mapping[Key, Extremes], role: str, arrays: Mapping[str, Array]) -> None:
    for name, x in arrays.items():
        extremes[role, name].add(x)


def _known(low: float, high: float) -> RealRange:
    return RealRange(*outward(low, high), RangeSource.CALIBRATED)


class _Kept:
    """Some steps' inputs, as evenly spread as memory allows, the first and the last among them."""

    def __init__(self, bytes_a_step: int, steps: int) -> None:
        count = max(min(FEWEST_KEPT, steps), min(steps, MOST_KEPT // max(bytes_a_step, 1)))
        self._numbers = set(np.linspace(0, steps - 1, count).round().astype(int).tolist())
        self._found: list[Mapping[str, Array]] = []

    def __contains__(self, number: int) -> bool:
        return number in self._numbers

    def add(self, number: int, given: Mapping[str, Array]) -> None:
        if number in self:
            self._found.append(given)

    def samples(self) -> dict[str, Array]:
        found, last = self._found, len(self._found) - 1
        first = list(dict.fromkeys((0, last, last // 2, last // 4)))
        order = first + [i for i in range(len(found)) if i not in first]
        return {name: np.stack([found[i][name] for i in order]) for name in found[0]}
