"""Runs of a plan that trains: all parties in this process, or one party of a session.

Every party does the same: the parameters begin, then batch after batch is a run of the entry
`step`. The order of rows and the learning rates are public, and alike at all parties.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.ir.training import (
    EVALUATE,
    LOSS,
    REVEAL,
    START,
    STEP,
    Rate,
    Recipe,
    schedule,
)
from veilgraph.plans import Plan
from veilgraph.runtime.simulate import simulate_many
from veilgraph.session import Session
from veilgraph.training.plan_steps import Batches, inputs_of, rows_of, step_bytes

Array = npt.NDArray[np.float32]
Arrays = Mapping[str, npt.ArrayLike]
OTHER_RATE = 2.0**-10  # relative: what a factor is off by as it is encoded


@dataclass(frozen=True)
class Trained:
    """What parties were told in a simulated run.

    Attributes:
        losses: of each step, where somebody receives it.
        parameters: at the end, by name, where somebody receives them.
        outputs: of each evaluation, by name.
        step_bytes: what all parties sent in each step, offline and online.
    """

    losses: list[float]
    parameters: dict[str, Array]
    outputs: list[dict[str, Array]]
    step_bytes: int


def simulate_training(
    plan: Plan,
    weights: Arrays,
    data: Arrays,
    *,
    rate: Rate,
    epochs: int = 1,
    steps: int | None = None,
    evaluate: Arrays | None = None,
    seed: int = 0,
) -> Trained:
    """Trains with all parties in this process, which shows what it does and protects nothing.

    Args:
        weights: the parameters as they begin, which `compile_training` returned.
        data: rows of every input of a step, as for `compile_training`.
        rate: the learning rate, or a function of the number of a step.
        epochs: how often each row is taken; what no batch is left for is not.
        steps: in place of epochs.
        evaluate: rows of the model's inputs, to evaluate at the end where the plan tells somebody;
            what fills no batch is left out.
        seed: of the order of rows.

    Raises:
        UsageError: a plan that does not train, or rows that do not fit it.
        AccuracyError: rows outside of what the rehearsal saw, margin included.
    """
    recipe = Recipe.of(plan.manifest.options)
    rows = rows_of(plan, STEP, recipe, data)
    batches = Batches.of(plan, min(map(len, rows.values())), schedule(rate), seed)
    count = batches.count(epochs, steps)
    batches.require_rates(0, count)
    runs: list[tuple[str, dict[str, Any]]] = [(START, {})]
    for order, factors in batches.steps(0, count):
        runs.append((STEP, {name: x[order] for name, x in rows.items()} | factors))
    evaluations = list(_evaluations(plan, recipe, evaluate)) if evaluate is not None else []
    runs += [(EVALUATE, batch) for batch in evaluations]
    if REVEAL in plan.manifest.entries:
        runs.append((REVEAL, {}))
    entries = [entry for entry, _ in runs]
    answer = simulate_many(plan, weights, [given for _, given in runs], entries=entries)
    told = list(zip(entries, (run.outputs for run in answer.runs), strict=True))
    return Trained(
        [float(outputs[LOSS].item()) for entry, outputs in told if LOSS in outputs],
        {n: x for entry, outputs in told for n, x in outputs.items() if entry == REVEAL},
        [dict(outputs) for entry, outputs in told if entry == EVALUATE],
        step_bytes(plan),
    )


def _evaluations(plan: Plan, recipe: Recipe, given: Arrays) -> Iterator[dict[str, Array]]:
    """Batches of rows to evaluate, in order."""
    if EVALUATE not in plan.manifest.entries:
        raise UsageError(
            "This plan evaluates nothing: nobody receives an output of the model.",
            "Compile it with `reveal` of an output of the model.",
        )
    rows = rows_of(plan, EVALUATE, recipe, given)
    for start in range(0, min(map(len, rows.values())) - recipe.rows + 1, recipe.rows):
        yield {name: x[start : start + recipe.rows] for name, x in rows.items()}


class Trainer:
    """One party of a run that trains, in a `Session` of its own.

    All parties call the same methods in the same order. Nothing is told to a party that the plan
    does not name as a receiver.

    Args:
        plan: a plan, or the path of model.plan.
        party: this party's name.
        config: path of this party's parties.yaml.
        data: rows of this party's own inputs of a step; as many at every party that has some, and
            row i of each belongs together.
        rows: how many rows there are; needed at a party that has none.
        weights: as for `Session`: the parameters as they begin, at their owner.
        resume: a file that `save` wrote; training goes on from there.
        seed: of the order of rows, the same at all parties; public.
        options: as for `Session`.

    Raises:
        UsageError: a plan that does not train, rows that do not fit it, or what `Session` refuses.
        SecurityAbort: a plan that keeps a rate from this party, or what `Session` refuses.
        AccuracyError: rows outside of what the rehearsal saw, margin included; before any is sent.
    """

    def __init__(
        self,
        plan: Plan | str | Path,
        party: str,
        config: str | Path,
        *,
        data: Arrays | None = None,
        rows: int | None = None,
        weights: Any = None,
        resume: str | Path | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        self.plan = plan if isinstance(plan, Plan) else Plan.load(plan)
        self.recipe, self.party = Recipe.of(self.plan.manifest.options), party
        self._require_told()
        self._data = rows_of(self.plan, STEP, self.recipe, data or {}, party)
        self._rows, self._seed = self._count(rows), seed
        self._started = resume is not None
        self.session = Session(self.plan, party, config, weights=weights, resume=resume, **options)

    def _require_told(self) -> None:
        """SecurityAbort where a factor is kept from this party, which computes with it."""
        if self.party not in self.plan.manifest.computing:
            return
        number = self.plan.manifest.entries.index(STEP)
        told = {t.name for t in self.plan.party(self.party).outputs if t.entry == number}
        told |= {tensor.name for tensor in inputs_of(self.plan, STEP, self.party)}
        if hidden := [name for name in self.recipe.optimizer.factors if name not in told]:
            raise SecurityAbort(
                f"This plan does not tell {self.party} what {hidden[0]} is in a step.",
                "Take one that compile_training made: it tells every party that computes.",
            )

    def _count(self, rows: int | None) -> int:
        own = min(map(len, self._data.values()), default=rows)
        if own is None:
            raise UsageError(
                f"{self.party} has no rows, and was not told how many there are.",
                "Give `rows`, the number that the others have.",
            )
        if rows not in (None, own):
            raise UsageError(
                f"There are {rows} rows, and {self.party} has {own}.", "Give a row of each example."
            )
        if own < self.recipe.rows:
            raise UsageError(
                f"There are {own} rows, and a step takes {self.recipe.rows}.",
                "Give more, or compile for a smaller batch.",
            )
        return own

    def fit(
        self,
        *,
        rate: Rate,
        epochs: int = 1,
        steps: int | None = None,
        first: int = 0,
        on_step: Callable[[int, float | None], None] | None = None,
    ) -> list[float]:
        """Trains together with all parties; with step 0 the parameters begin, unless it resumes.

        Args:
            rate: the learning rate, or a function of the number of a step; alike at all parties.
            epochs: how often each row is taken; what no batch is left for is not.
            steps: in place of epochs.
            first: the number of the first step, where steps went before: rows and rates go on. A
                party that keeps nothing has no file to resume from, and gives it all the same.
            on_step: called after each step with its number, and its loss where this party
                receives it.

        Returns:
            The loss of each step; [] where this party receives none.

        Raises:
            UsageError: a rate that is none or that the plan's encoding loses, or what `Session.run`
                refuses.
            SecurityAbort: another party trains with another rate, or with other rows: another
                number of them, seed, first step or number of steps.
        """
        batches = Batches.of(self.plan, self._rows, schedule(rate), self._seed)
        count = batches.count(epochs, steps)
        batches.require_rates(first, count)
        self._require_alike(batches.facts(first, count))
        if not (self._started or first):
            self.session.run({}, START)
        self._started = True
        own = {tensor.name for tensor in inputs_of(self.plan, STEP, self.party)}
        losses: list[float] = []
        for number, (order, factors) in enumerate(batches.steps(first, count), first):
            given: dict[str, Any] = {name: x[order] for name, x in self._data.items()}
            given |= {name: number for name, number in factors.items() if name in own}
            told = self.session.run(given, STEP)
            self._check_factors(factors, told)
            loss = float(told[LOSS].item()) if LOSS in told else None
            losses += [] if loss is None else [loss]
            if on_step is not None:
                on_step(number, loss)
        return losses

    def _require_alike(self, facts: Mapping[str, str]) -> None:
        """Rows that do not belong together train a model of noise, and nobody would see it."""
        for peer, fact in self.session.differing(facts):
            raise SecurityAbort(
                f"{peer} trains with another {fact} than {self.party}.",
                "Agree on the rows, --seed, --first and --epochs: they are alike at every party.",
            )

    def _check_factors(self, expected: Mapping[str, float], told: Mapping[str, Array]) -> None:
        for name, number in expected.items():
            if name not in told:
                continue
            found = float(told[name].item())
            unit = 2.0 ** -next(t for t in self.session.outputs if t.name == name).frac_bits
            if not math.isclose(found, number, rel_tol=OTHER_RATE, abs_tol=2 * unit):
                raise SecurityAbort(
                    f"This step was made with {name} {found:.6g}, and {self.party} expects "
                    f"{number:.6g}.",
                    "Agree on rates, and on the number of the first step.",
                )

    def evaluate(self, data: Arrays | None = None, batches: int | None = None) -> dict[str, Array]:
        """The model's outputs for rows, batch after batch; {} where this party receives none.

        Args:
            data: rows of this party's own inputs of the model.
            batches: how many; needed at a party that has no rows.

        Raises:
            UsageError: a plan that tells nobody, or rows that do not fit it.
        """
        own = inputs_of(self.plan, EVALUATE, self.party) if EVALUATE in self._entries else []
        given = list(_evaluations(self.plan, self.recipe, data)) if own and data else []
        if EVALUATE not in self._entries:
            list(_evaluations(self.plan, self.recipe, {}))  # says why
        count = len(given) if own else batches
        if not count:
            raise UsageError(
                f"{self.party} has nothing to evaluate.",
                f"Give rows of its inputs, {self.recipe.rows} or more, or the number of batches.",
            )
        found = [self.session.run(given[i] if own else {}, EVALUATE) for i in range(count)]
        return {name: np.concatenate([each[name] for each in found]) for name in found[0]}

    def reveal(self) -> dict[str, Array]:
        """The parameters, by name, at a party that receives them; {} at others.

        Raises:
            UsageError: a plan that tells nobody.
        """
        if REVEAL not in self._entries:
            raise UsageError(
                "This plan reveals its parameters to nobody.",
                "Compile it with `reveal` of `parameters`.",
            )
        return self.session.run({}, REVEAL)

    @property
    def an_epoch(self) -> int:
        """Steps that take each row once; what fills no batch is not taken."""
        return self._rows // self.recipe.rows

    @property
    def _entries(self) -> tuple[str, ...]:
        return tuple(self.plan.manifest.entries)

    def save(self, path: str | Path) -> None:
        """Writes this party's parts of all states, encrypted; as `Session.save_state`."""
        self.session.save_state(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.session.__exit__(kind, error, trace)
