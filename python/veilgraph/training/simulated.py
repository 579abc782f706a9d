"""Training with all parties in this process, which shows what a plan does and protects nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import UsageError
from veilgraph.ir.roles import given_by
from veilgraph.ir.training import (
    AUDIT,
    CORRECT,
    EVALUATE,
    LOSS,
    REVEAL,
    SHARE,
    START,
    STEP,
    Rate,
    Recipe,
)
from veilgraph.plans import Plan
from veilgraph.runtime.discrete_gaussian import Sampler
from veilgraph.runtime.party import Party
from veilgraph.runtime.simulate import simulate_many
from veilgraph.training.batches import Order, RowOrder, picked
from veilgraph.training.masks import drawn
from veilgraph.training.noise.noises import parts_of, require_stated
from veilgraph.training.plan_steps import (
    Batches,
    inputs_of,
    require_inside,
    rows_entry,
    rows_of,
    step_bytes,
)
from veilgraph.training.runs.asked import rate_of, require_seed
from veilgraph.training.runs.data_sets import DataSet
from veilgraph.training.runs.evaluations import (
    Evaluation,
    nothing_counted,
    require_evaluated,
)

Array = npt.NDArray[np.float32]
Arrays = Mapping[str, npt.ArrayLike]
Owned = Arrays | Mapping[str, Arrays]  # rows by input, or of each owner


@dataclass(frozen=True)
class Trained:
    """What parties were told in a simulated run.

    Attributes:
        losses: of each step, or the mean of several, where somebody receives it.
        parameters: at the end, by name, where somebody receives them.
        outputs: of each batch of rows that were evaluated, by name.
        step_bytes: what all parties sent in each step, offline and online.
        correct: how many answers of the rows that were evaluated are their labels', where somebody
            receives it.
    """

    losses: list[float]
    parameters: dict[str, Array]
    outputs: list[dict[str, Array]]
    step_bytes: int
    correct: int | None = None


def simulate_training(
    plan: Plan,
    weights: Arrays,
    data: Owned,
    *,
    rate: Rate,
    epochs: int = 1,
    steps: int | None = None,
    evaluate: Owned | None = None,
    seed: int = 0,
) -> Trained:
    """Trains with all parties in this process, which shows what it does and protects nothing.

    Args:
        weights: the parameters as they begin, which `compile_training` returned.
        data: rows of every input of a step, as for `compile_training`. Where a batch has rows of
            several owners, those of each, by owner.
        rate: the learning rate, or a function of the number of a step.
        epochs: how often each row is taken; what no batch is left for is not.
        steps: in place of epochs.
        evaluate: rows of the model's inputs, to evaluate at the end where the plan tells somebody.
            By owner, as `data`.
        seed: of the order of rows, and of the masks of dropouts.

    Raises:
        UsageError: a plan that does not train, or rows that do not fit it.
        AccuracyError: rows outside of what the rehearsal saw, margin included; or a state that is
            outside of its bounds at the end, where the plan has an audit.
    """
    require_seed(seed)
    recipe = Recipe.of(plan.manifest.options)
    require_stated(plan, recipe)
    rows = rows_of_all(plan, rows_entry(plan), recipe, data)
    batches = Batches.of(plan, _order(recipe, rows, seed), rate_of(rate))
    count = batches.count(epochs, steps)
    batches.require_rates(0, count)
    batches.require_room(0, count)
    runs: list[tuple[str, dict[str, Any]]] = [(START, {})]
    orders: list[Order] = [{}]
    if rows_entry(plan) == SHARE:
        orders += batches.order.shared()
        runs += [(SHARE, picked(rows, order, recipe.batch)) for order in orders[1:]]
        rows = {}
    samplers = {who: Sampler() for who in plan.manifest.computing}
    for number, (order, factors) in enumerate(batches.steps(0, count)):
        given: dict[str, Any] = picked(rows, order, recipe.batch) | factors
        for name, mask in drawn(recipe.masks, simulated_id(seed), number).items():
            given |= {given_by(name, who): mask for who in plan.manifest.computing}
        for who, sampler in samplers.items():
            own = inputs_of(plan, STEP, who)
            given |= parts_of(recipe, own, who, batches.noise_rate(number), sampler)
        runs.append((STEP, given))
        orders.append(order)
        if recipe.tells_loss(number + 1):
            runs.append((LOSS, {}))
            orders.append({})
    runs += [(AUDIT, {})] if AUDIT in plan.manifest.entries else []
    evaluation = None
    if evaluate is not None:
        require_evaluated(plan)
        evaluated = rows_of_all(plan, EVALUATE, recipe, evaluate)
        evaluation = Evaluation.of(recipe, _counts(recipe, evaluated))
        for number, batch in enumerate(evaluation.batches(evaluated)):
            given = dict(batch)
            for who in plan.manifest.computing:
                given |= evaluation.counted(plan, who, number)
            runs.append((EVALUATE, given))
        if CORRECT in plan.manifest.entries:
            evaluation.require_counted()
            runs.append((CORRECT, {}))
    if REVEAL in plan.manifest.entries:
        runs.append((REVEAL, {}))
    entries = [entry for entry, _ in runs]
    shares = {name: DataSet(plan, name, batches.order.rows) for name in plan.programs}

    def move(party: Party, number: int) -> None:
        """Rows that were shared out of the states, and the next batch into them."""
        own = shares[party.program.party]
        if number and entries[number - 1] == SHARE:
            own.take(orders[number - 1], party.state(own.names))
        if entries[number] == STEP:
            party.put_state(own.batch(orders[number]))
        elif entries[number] == EVALUATE != entries[number - 1]:
            party.put_state(nothing_counted(plan, party.program.party))

    answer = simulate_many(plan, weights, [given for _, given in runs], entries=entries, ahead=move)
    told = list(zip(entries, (run.outputs for run in answer.runs), strict=True))
    for outputs in (outputs for entry, outputs in told if entry == AUDIT):
        require_inside(outputs, count, None)
    return Trained(
        [float(outputs[LOSS].item()) for entry, outputs in told if LOSS in outputs],
        recipe.named({n: x for e, given in told for n, x in given.items() if e == REVEAL}, count),
        [evaluation.kept(x, i) for i, x in enumerate(x for e, x in told if e == EVALUATE)]
        if evaluation
        else [],
        step_bytes(plan),
        next((int(x[CORRECT].item()) for _, x in told if CORRECT in x), None),
    )


def simulated_id(seed: int) -> bytes:
    """In place of a session's id: masks are drawn by it."""
    return f"simulated {seed}".encode()


def rows_of_all(plan: Plan, entry: str, recipe: Recipe, given: Any) -> dict[str, Array]:
    """Rows of every input of an entry; by owner, where owners have rows of their own.

    Raises:
        UsageError, AccuracyError: as `rows_of`.
    """
    if not recipe.batch.rows:
        return rows_of(plan, entry, recipe, given)
    owners, found = ", ".join(recipe.batch.rows), dict[str, Array]()
    if not isinstance(given, Mapping):
        raise UsageError("Rows have no names.", "Give the rows of each owner, by owner.")
    if given.keys() != recipe.batch.rows.keys():
        raise UsageError(
            f"Rows are given of {', '.join(given) or 'nobody'}, and a batch has those of {owners}.",
            "Give the rows of each, by owner.",
        )
    for who, own in given.items():
        if not isinstance(own, Mapping):
            raise UsageError(f"Rows of {who} have no names.", "Give an array an input.")
        found |= rows_of(plan, entry, recipe, own, who)
    return found


def _order(recipe: Recipe, rows: Mapping[str, Array], seed: int) -> RowOrder:
    """By which they are taken: each owner has an order of its own."""
    return RowOrder.public(_counts(recipe, rows), recipe.taken, seed)


def _counts(recipe: Recipe, rows: Mapping[str, Array]) -> dict[str, int]:
    """How many rows there are, by owner."""
    return {recipe.batch.owner(name): len(x) for name, x in rows.items()}
