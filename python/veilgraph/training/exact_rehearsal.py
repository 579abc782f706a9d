"""A plan that trains, in exact integers and in the clear, beside float32.

The integers are those of the parties, truncations rounding at random as their protocols do: what
the plan's rings and scales do to training is seen before anybody trains in secret. Whoever
rehearses sees all rows, so it is for rows that their owner may use so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.checks.checking import joined, outside
from veilgraph.checks.kept_ranges import ranges_file, with_ranges
from veilgraph.checks.plan_programs import PlanPrograms
from veilgraph.commands.files import read_archive
from veilgraph.compilation.models import Model
from veilgraph.compilation.native_products import NativeProducts
from veilgraph.ir.errors import AccuracyError, UsageError
from veilgraph.ir.meaning.onnx_runtime import OnnxProgram
from veilgraph.ir.meaning.secret import Excursion, evaluate
from veilgraph.ir.training import (
    CORRECT_SUM,
    LABELS,
    LOSS,
    LOSS_SUM,
    START,
    STEP,
    Rate,
    Recipe,
    Schedule,
    schedule,
)
from veilgraph.library import (
    AnyArrays,
    AnyPlan,
    AnyWeights,
    opened_arrays,
    opened_plan,
    opened_weights,
)
from veilgraph.measuring.pricing import predict
from veilgraph.passes.graph.training.checks import require_trainable
from veilgraph.passes.graph.training.programs import Training
from veilgraph.plans import Plan
from veilgraph.reports import units
from veilgraph.training.batches import RowOrder, checked
from veilgraph.training.models import judged_by
from veilgraph.training.noise.sensitivity import Sensitivity, sensitivity_of
from veilgraph.training.plan_steps import (
    Batches,
    held_by,
    inputs_of,
    rows_entry,
    shapes_of,
    step_bytes,
)
from veilgraph.training.rehearsal import FloatRun, in_float, measured_steps
from veilgraph.training.rounding_noise import RoundingNoise

Array = npt.NDArray[Any]
Tell = Callable[[str], None]
ALIKE = 2.0**-6  # of a parameter's largest, by how much it may begin elsewhere than the model's


@dataclass(frozen=True)
class Judged:
    """What a model does on rows.

    Attributes:
        loss: the mean.
        right: decisions that are the labels'.
        decisions: 0 where the loss is of no decisions.
    """

    loss: float
    right: int
    decisions: int

    def __str__(self) -> str:
        if self.decisions:
            return units.percent(self.right / self.decisions)
        return f"loss {units.real(self.loss)}"


@dataclass(frozen=True)
class Rehearsal:
    """A plan's training beside float32's, from the same start on the same rows.

    Attributes:
        steps: that were taken.
        epochs: after each, what float32 made of the test rows and what the plan made.
        excursions: values of the plan that left their range.
        step_bytes: what all parties send in a step, offline and online.
        network: that `seconds` are predicted for.
        told_steps: how many steps these seconds are of.
        rounding_noise: of each parameter what the plan added to the variance of its updates, as a
            share of what that is between batches: what `max_noise` bounds. In four steps together,
            from where the plan had come.
        rounding_steps: the same of each of these steps alone, by its number. Where gradients are
            much smaller than in the others, as on a plateau, it is more.
        sensitivity: of all steps, with noise where gradients are shortened; None where nothing is
            known of it.
    """

    steps: int
    epochs: list[tuple[Judged, Judged]]
    excursions: list[Excursion]
    step_bytes: int
    network: str
    seconds: float
    told_steps: int
    rounding_noise: Mapping[str, float] = field(repr=False)
    rounding_steps: Mapping[int, Mapping[str, float]] = field(repr=False)
    parameters: Mapping[str, Array] = field(repr=False)
    sensitivity: Sensitivity | None = None

    @property
    def noise_line(self) -> str:
        """What noise has to hide; "" where nothing is known of that."""
        found = self.sensitivity
        if found is None:
            return ""
        return (
            f"Another row in place of one moves a step's mean gradient by {found.of_a_row:.4g} at "
            f"most, where no batch's is longer than {found.reach:.4g}."
        )

    @property
    def line(self) -> str:
        """By which a user decides."""
        real, fixed = self.epochs[-1]
        return (
            f"float {real}, fixed {fixed}, {units.size(self.step_bytes)} a step, "
            f"{units.duration(self.seconds)} on {self.network} for "
            f"{units.counted(self.told_steps, 'step')}"
        )

    @property
    def rounding_line(self) -> str:
        """Of the parameter to which rounding did most, in all measured steps and in one."""
        if not self.rounding_noise:
            return "All batches are alike: rounding can't be compared with them."
        name, most = max(self.rounding_noise.items(), key=lambda each: each[1])
        alone, step, other = max(
            (share, step, parameter)
            for step, shares in self.rounding_steps.items()
            for parameter, share in shares.items()
        )
        return (
            f"Rounding added {units.percent(most)} to the variance of the updates of `{name}`, "
            f"the most of {units.counted(len(self.rounding_noise), 'parameter')}; in step "
            f"{step + 1} alone {units.percent(alone)} to that of `{other}`."
        )

    def status(self) -> AccuracyError | None:
        """The error that the verb ends with: values that left their range."""
        if not self.excursions:
            return None
        return AccuracyError(
            ["Values left the range that the plan has for them.", *map(str, self.excursions)],
            "Compile with rows like these, as many steps, and the highest rate.",
        )


def rehearse(
    plan: AnyPlan,
    weights: AnyWeights,
    model: Model,
    data: AnyArrays | str | Path,
    *,
    rate: Rate,
    epochs: int = 1,
    loss: Callable[..., Any] | None = None,
    test: AnyArrays | str | Path | None = None,
    rows: int | None = None,
    network: str | None = None,
    seed: int = 0,
    progress: Tell = lambda doing: None,
) -> Rehearsal:
    """Trains by a plan's exact integers in the clear, and in float32.

    Args:
        plan: a plan that trains, or the path of model.plan; exact ranges beside it are read too.
        weights: the plan's own, by name, or the path of model.weights.
        model: what the plan was compiled from.
        data: rows as for `compile_training`: arrays, .npy files, or one .npz of all.
        rate: the learning rate, or a function of the number of a step.
        epochs: how often each row is taken; what no batch is left for is not.
        loss: what the plan was compiled with, where that was a function.
        test: other rows, by which both are judged; those of `data` if None.
        rows: how many rows the parties will train on, which the time is told for.
        network: that the time is told for; the plan's own if None.
        seed: of the order of rows.
        progress: called with what is being done.

    Returns:
        `line` says what came of it; `status()` is the error that the verb would end with, or None.

    Raises:
        UsageError: a plan that does not train, rows that do not fit it, another model, or no such
            network.
        AccuracyError: float32 that leaves its own range, or a number that no encoding holds.
    """
    found = opened_plan(plan)
    if isinstance(plan, str | Path):
        found = with_ranges(found, ranges_file(Path(plan)))
    recipe = Recipe.of(found.manifest.options)
    arrays = {n: np.asarray(w, np.float32) for n, w in opened_weights(found, weights).items()}
    shapes = shapes_of(inputs_of(found, rows_entry(found)), recipe)
    own = checked(_opened(data), shapes, recipe.labels)
    others = own if test is None else checked(_opened(test), shapes, recipe.labels)
    count = min(map(len, own.values()))
    batches = Batches.of(found, RowOrder.of_all(count, recipe.rows, seed), schedule(rate))
    steps = batches.count(epochs)
    batches.require_rates(0, steps)
    asked = RowOrder.of_all(_rows(rows, recipe, count), recipe.rows, seed)
    told = replace(batches, order=asked).count(epochs)
    number = found.manifest.entries.index(STEP)
    predicted = predict(found, network, entry=number)
    training = _training(recipe, model, own, loss)
    parties = len(found.manifest.computing)
    real = FloatRun(training, own, seed, recipe.noise, parties)
    fixed = _ExactRun(found, recipe, arrays)
    fixed.require_start(training.forward.weights)
    judge, clock, noise = _Judge(training, others), _Clock(steps, progress), RoundingNoise(training)
    judged = []
    for step in range(steps):
        clock.tell(step)
        given = real.given(step, batches.rate)
        factors = {name: np.array(x) for name, x in batches.told(step).items()}
        if step in measured_steps(steps):
            tried = partial(fixed.tried, factors, names=own)
            noise.add(step, real, {**given, **fixed.states}, tried)
        fixed.step({**given, **factors}, own)
        if recipe.tells_loss(step + 1):
            fixed.begin_sum()
        real.step(step, given)
        if (step + 1) % (steps // epochs) == 0:
            judged.append((judge.of(real.states), judge.of(fixed.states)))
    return Rehearsal(
        steps,
        judged,
        list(fixed.excursions.values()),
        step_bytes(found),
        predicted.network.name,
        predicted.setup_seconds + told * predicted.total_seconds,
        told,
        noise.shares,
        noise.steps,
        {name: fixed.states[name] for name in (*recipe.parameters, *recipe.statistics)},
        _sensitivity(found, batches.rate, steps),
    )


def _sensitivity(plan: Plan, rate: Schedule, steps: int) -> Sensitivity | None:
    """Of all rates: roundings are largest at the lowest, and numbers at the highest.

    A step of rate 0 takes no gradient.
    """
    rates = [given for given in map(rate, range(steps)) if given > 0]
    ends = {min(rates), max(rates)} if rates else set[float]()
    found = [each for given in ends if (each := sensitivity_of(plan, given)) is not None]
    return Sensitivity.worst(found) if found and len(found) == len(ends) else None


def _opened(given: AnyArrays | str | Path) -> Mapping[str, npt.ArrayLike]:
    return read_archive(Path(given)) if isinstance(given, str | Path) else opened_arrays(given)


def _rows(given: int | None, recipe: Recipe, own: int) -> int:
    if given is not None and given < recipe.rows:
        raise UsageError(
            f"There are {given} rows, and a step takes {recipe.rows}.",
            "Say how many the parties will train on.",
        )
    return own if given is None else given


def _training(
    recipe: Recipe,
    model: Model,
    rows: Mapping[str, Array],
    loss: Callable[..., Any] | None,
) -> Training:
    """How the model is trained, as the plan says; UsageError for another model."""
    graph, classes = judged_by(model, rows, recipe.rows, recipe.loss if loss is None else loss)
    if missing := [name for name in recipe.parameters if name not in graph.weights]:
        raise UsageError(
            f"The model has no parameter `{missing[0]}`, which the plan trains.",
            "Give the model that the plan was compiled from.",
        )
    kept = (*recipe.parameters, *recipe.statistics)
    frozen = tuple(name for name in graph.weights if name not in kept)
    noisy = recipe.noise is not None
    how = recipe.optimizer
    training = Training(
        graph,
        recipe.loss,
        how,
        frozen,
        recipe.clip_norm,
        is_noisy=noisy,
        weighted=recipe.weighted,
        classes=classes,
    )
    require_trainable(training)
    return training


class _ExactRun:
    """Steps in the integers of a plan.

    Attributes:
        states: by name, as they are before the next step.
        excursions: so far, by the name and the kind of the operation.
    """

    def __init__(
        self, plan: Plan, recipe: Recipe, weights: Mapping[str, npt.NDArray[np.float32]]
    ) -> None:
        start, self._step = (
            PlanPrograms.of(plan, weights, plan.manifest.entries.index(entry))
            for entry in (START, STEP)
        )
        _require_weights(start, self._step)
        self._held, self._batch = held_by(plan), recipe.batch
        others = {*self._held, CORRECT_SUM}  # that no step keeps
        every = plan.manifest.states.items()
        self._following = {name: after for name, after in every if name not in others}
        # Seeded, so that who rehearses again is told the same; nothing here is secret.
        self._rounding, self._products = np.random.default_rng(0), NativeProducts()
        self._others_rounding = np.random.default_rng(1)
        self.states: dict[str, Array] = {}
        self.excursions: dict[tuple[str, str], Excursion] = {}
        self._run(start, {})

    def require_start(self, weights: Mapping[str, npt.NDArray[np.float32]]) -> None:
        """UsageError unless the plan's parameters begin as these."""
        for name, state in self.states.items():
            if name not in weights:
                continue
            wanted = weights[name]
            is_alike = wanted.shape == state.shape and bool(
                np.all(np.abs(state - wanted) <= ALIKE * np.abs(wanted).max(initial=1e-30))
            )
            if not is_alike:
                raise UsageError(
                    f"Parameter `{name}` of the model is not what the plan begins with.",
                    "Give the model and the weights that the plan was compiled with.",
                )

    def step(self, given: Mapping[str, Array], names: Collection[str]) -> None:
        """One step on a batch and what is told of factors; states among `given` are not read.

        Args:
            names: of what is given as rows.
        """
        rows = self._batch.split({name: given[name] for name in names})
        if self._held:
            rows = {state: rows[name] for state, name in self._held.items()}
        public = {name: x for name, x in given.items() if name not in names}
        self._run(self._step, {**public, **rows, **self.states})

    def tried(
        self, factors: Mapping[str, Array], given: Mapping[str, Array], names: Collection[str]
    ) -> Mapping[str, Array]:
        """The states that such a step would leave, with factors as they are told in place of those
        given; it rounds by draws of its own.
        """
        states, rounding = dict(self.states), self._rounding
        self._rounding = self._others_rounding
        self.step({**given, **factors}, names)
        found, self.states, self._rounding = self.states, states, rounding
        return found

    def begin_sum(self) -> None:
        """Begins the sum of losses anew, as who is told their mean does."""
        self.states[LOSS_SUM] = np.zeros_like(self.states[LOSS_SUM])

    def _run(self, programs: PlanPrograms, given: Mapping[str, Array]) -> None:
        taken = (*programs.inputs, *programs.states)
        try:
            found = evaluate(programs.secret, given, self._rounding, products=self._products)
        except OverflowError as error:
            raise AccuracyError(
                f"A row or a parameter does not fit the plan's encoding: {error}.",
                "Compile with rows like these, or with a wider --ring.",
            ) from error
        known = [tensor for tensor in taken if tensor.name in given]  # not what all parties draw
        for each in (*outside(known, given), *found.excursions):
            key = each.name, each.op
            self.excursions[key] = joined(self.excursions.get(key), each)
        for name, after in self._following.items():
            self.states[name] = found.outputs[after]


def _require_weights(*programs: PlanPrograms) -> None:
    """UsageError where a program reads a weight that was not given."""
    for each in programs:
        for argument in each.secret.arguments:
            if argument.is_weight and argument.name not in each.secret.weights:
                raise UsageError(
                    f"There are no weights `{argument.name}`, which the plan begins with.",
                    "Give model.weights, which `compile` wrote beside the plan.",
                )


class _Judge:
    """A model on rows that it is not trained on, in float32; rows that fill no batch are not taken.

    Args:
        rows: of each input of the model, and labels where the loss takes some.
    """

    def __init__(self, training: Training, rows: Mapping[str, npt.NDArray[np.float32]]) -> None:
        graph = in_float(training.judgement())
        self._program, self._outputs = OnnxProgram(graph), graph.outputs
        self._training, self._rows = training, rows

    def of(self, states: Mapping[str, Array]) -> Judged:
        """By these parameters."""
        training, losses, right, decisions = self._training, list[float](), 0, 0
        parameters = {name: states[name].astype(np.float32) for name in training.begun}
        count = min(map(len, self._rows.values()))
        for start in range(0, count - training.rows + 1, training.rows):
            batch = {n: x[start : start + training.rows] for n, x in self._rows.items()}
            values = self._program.run({**batch, **parameters})
            losses.append(float(values[self._outputs[LOSS]].item()))
            if training.named is not None and training.named.takes_logits:
                z, y = values[self._outputs[training.output]], batch[LABELS]
                alike = (
                    z.argmax(1) == y.argmax(1) if training.named.by_row else (z >= 0) == (y >= 0.5)
                )
                right, decisions = right + int(alike.sum()), decisions + alike.size
        return Judged(float(np.mean(losses)), right, decisions)


class _Clock:
    """Tells which step is taken, and how long the others will take."""

    def __init__(self, steps: int, tell: Tell) -> None:
        self._steps, self._tell, self._start = steps, tell, time.monotonic()

    def tell(self, number: int) -> None:
        """Before step `number`."""
        passed = time.monotonic() - self._start
        left = (
            f", {units.duration(passed / number * (self._steps - number))} left" if number else ""
        )
        self._tell(f"step {number + 1} of {self._steps}{left}")
