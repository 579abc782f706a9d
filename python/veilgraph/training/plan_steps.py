"""What the steps of a plan that trains take, send and tell, and which rows go into which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import floor

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import AccuracyError, SecurityAbort, UsageError
from veilgraph.ir.plan.tables import UNSAVED, Phase, Tensor
from veilgraph.ir.training import (
    BEGUN,
    CORRECT_SUM,
    EVALUATE,
    HELD,
    OVERFLOW,
    SHARE,
    STEP,
    STEP_SIZE,
    Recipe,
    Schedule,
    mean_shares,
)
from veilgraph.plans import Plan
from veilgraph.runtime import encoding
from veilgraph.training.batches import Array, Order, RowOrder, checked
from veilgraph.training.runs.asked import require_count

LEAST_UNITS = 1 / 16  # of a public factor: it is told as one unit in one step of so many
GOLDEN = (5**0.5 - 1) / 2  # its multiples modulo 1 lie evenly, however many they are


@dataclass(frozen=True)
class Batches:
    """The steps of a run: their rows and their factors.

    Attributes:
        units: of each public factor, what its encoding is a multiple of.
        most: of each, as much as the plan takes.
    """

    recipe: Recipe
    units: Mapping[str, float]
    most: Mapping[str, float]
    order: RowOrder
    rate: Schedule

    @staticmethod
    def of(plan: Plan, order: RowOrder, rate: Schedule) -> Batches:
        """The steps of this plan."""
        recipe = Recipe.of(plan.manifest.options)
        given = {tensor.name: tensor for tensor in inputs_of(plan, STEP)}
        units = {name: 2.0 ** -given[name].frac_bits for name in recipe.announced}
        most = {name: given[name].high for name in recipe.announced}
        return Batches(recipe, units, most, order, rate)

    def count(self, epochs: int, steps: int | None = None) -> int:
        """Steps of so many epochs, of which no batch is left for some rows; or `steps`.

        Raises:
            UsageError: none.
        """
        if steps is not None:
            return require_count(steps, "Training for {} steps")
        return require_count(epochs, "Training for {} epochs") * self.order.an_epoch

    def steps(self, first: int, count: int) -> Iterator[tuple[Order, dict[str, float]]]:
        """Row numbers and public factors, as they are told, of `count` steps from `first` on."""
        for number, rows in enumerate(self.order.steps(first, count), first):
            yield rows, self.told(number)

    def told(self, number: int) -> dict[str, float]:
        """The public factors of one step in whole units, up or down, so that means are right.

        A rate of 6.4 units that was 6 in each step would train by 6% less. It is 7 in two steps of
        five here, by the number of the step alone: all parties find the same, and the mean of any
        steps in a row is off by less than two units over their number (golden ratio's multiples,
        Weyl 1916).
        """
        up = (0.5 + number * GOLDEN) % 1  # of the first step, to the nearest
        units = self.units
        return {n: floor(x / units[n] + up) * units[n] for n, x in self.factors(number).items()}

    def noise_rate(self, number: int) -> float:
        """The rate by which a step's gradient is multiplied as it is told, and so its noise too.

        By the rate that was asked for, a step that is told one unit in place of less would have
        less noise than its gradient is hidden by.
        """
        return self.told(number)[STEP_SIZE] * self.recipe.rows

    def factors(self, number: int) -> dict[str, float]:
        """The public factors of one step."""
        rate, before = self.rate(number), self.rate(max(number - 1, 0))
        found = self.recipe.optimizer.values(rate, before, self.recipe.rows, number)
        return found | mean_shares(self.recipe.shares, number)

    def facts(self, first: int, count: int) -> dict[str, str]:
        """What all parties must have alike, so that their rows belong together; public.

        An order that its owner alone has is no such fact.
        """
        order = self.order
        numbers = next(order.steps(0, 1)).items() if order.is_public else ()
        return {
            "number of rows": str(order.rows),
            "seed": str(order.seeds) if order.is_public else "",
            "first step": str(first),
            "number of steps": str(count),
            # NumPy's version may change it.
            "order of rows": str({who: rows.tolist() for who, rows in numbers}),
        }

    def require_rates(self, first: int, count: int) -> None:
        """UsageError where a factor of these steps is lost as the plan encodes it."""
        for number in range(first, first + count):
            for name, factor in self.factors(number).items():
                unit = self.units[name]
                if 0 < abs(factor) < LEAST_UNITS * unit:
                    raise UsageError(
                        f"The rate {self.rate(number):.4g} of step {number} is too small for this "
                        f"plan: {name} is {factor:.4g}, and would be {unit:.4g} in one step of "
                        f"{unit / abs(factor):.0f} and 0 in the others.",
                        "Compile with this rate too: the rehearsal takes a function of the step.",
                    )

    def require_room(self, first: int, count: int) -> None:
        """UsageError where a factor of these steps is more than the plan takes.

        A rehearsal goes on beyond that: it tells which values leave their ranges.
        """
        for number in range(first, first + count):
            for name, told in self.told(number).items():
                if told > self.most[name]:
                    raise self._too_large(number, name)

    def _too_large(self, number: int, name: str) -> UsageError:
        factor = self.factors(number)[name]
        rate, before = self.rate(number), self.rate(max(number - 1, 0))
        after = "" if rate == before else f", after {before:.4g},"
        return UsageError(
            f"The rate {rate:.4g} of step {number}{after} is too large for this plan: {name} is "
            f"{factor:.4g}, and may be {self.most[name]:.4g}.",
            "Train with smaller rates, or compile with these too: the rehearsal takes a function "
            "of the step.",
        )


def inputs_of(plan: Plan, entry: str, party: str | None = None) -> list[Tensor]:
    """What parties, or one, give to an entry."""
    number = plan.manifest.entries.index(entry)
    return [
        tensor
        for name, program in plan.programs.items()
        for tensor in program.inputs
        if tensor.entry == number and party in (None, name)
    ]


def rows_entry(plan: Plan) -> str:
    """The entry that takes rows to train on: a step, or what shares them once."""
    return SHARE if SHARE in plan.manifest.entries else STEP


def held_by(plan: Plan) -> dict[str, str]:
    """Of states that hold a batch of rows, the input that gave them; {} where steps take rows."""
    given = inputs_of(plan, SHARE) if rows_entry(plan) == SHARE else []
    return {f"{tensor.name}{HELD}": tensor.name for tensor in given}


def require_saved(plan: Plan) -> None:
    """SecurityAbort for a plan that keeps anything but rows and counts out of checkpoints."""
    unsaved = plan.manifest.options.get(UNSAVED) or ()
    if not (isinstance(unsaved, list | tuple) and {*unsaved} <= {*held_by(plan), CORRECT_SUM}):
        raise SecurityAbort(
            "The plan leaves parameters out of checkpoints.",
            "Don't run it: ask who compiled it for another.",
        )


def shapes_of(inputs: list[Tensor], recipe: Recipe) -> dict[str, tuple[int, ...]]:
    """Those of whole batches of rows, by input of the model; of public inputs, none."""
    whole, found = recipe.batch.whole, dict[str, tuple[int, ...]]()
    for tensor in (tensor for tensor in inputs if recipe.is_row(tensor.name)):
        rows, *others = tensor.shape
        before = found.get(whole(tensor.name), (0,))[0]
        found[whole(tensor.name)] = (before + rows, *others)
    return found


def rows_of(
    plan: Plan,
    entry: str,
    recipe: Recipe,
    given: Mapping[str, npt.ArrayLike],
    party: str | None = None,
) -> dict[str, Array]:
    """Rows of what parties, or one, give to an entry, batch after batch, by the plan's inputs.

    All are looked at before the first is sent: the order of rows is public, so a party that stops
    at a batch tells in which rows a number is out of range.

    Raises:
        UsageError: no mapping, or as `checked`.
        AccuracyError: a number outside of what the rehearsal saw, margin included.
    """
    if not isinstance(given, Mapping):
        whose = f" of {party}" if party else ""
        raise UsageError(f"Rows{whose} have no names.", "Give an array an input, by name.")
    inputs = [each for each in inputs_of(plan, entry, party) if recipe.is_row(each.name)]
    shapes = shapes_of(inputs, recipe)
    labels = replace(recipe.labels, decide=entry == EVALUATE)
    rows = checked(given, shapes, labels, fill=entry != EVALUATE)
    found = {}
    for tensor in inputs:
        name = recipe.batch.whole(tensor.name)
        _require_in_range(rows[name], replace(tensor, name=name))
        found[tensor.name] = rows[name]
    return found


def unread_weights(plan: Plan, party: str) -> dict[str, Array] | None:
    """In place of weights that a party owns, all of which are what `start` alone reads.

    Who goes on from a checkpoint has the states that these became. Frozen weights became none. What
    parties have of them was masked by draws of one session, which no other may use, so each session
    shares them anew. None where the party brings no weights.

    Raises:
        UsageError: some are frozen, or the party loads its shares of them.
    """
    program = plan.party(party)
    own, begun = program.weights, {f"{name}{BEGUN}" for name in plan.manifest.states}
    brought = dict.fromkeys(t.name for t in (*own, *program.shares))
    frozen = [name for name in brought if name not in begun]
    if frozen:
        others = f" and {len(frozen) - 1} more" if len(frozen) > 1 else ""
        raise UsageError(
            f"{party} goes on from a checkpoint without weights that are frozen: `{frozen[0]}`"
            f"{others}.",
            "Give --weights as before the first step: a checkpoint holds what is trained.",
        )
    if program.shares:
        raise UsageError(
            f"{party} goes on from a checkpoint without its shares of the weights.",
            f"Give model.{party}.shares with --weights, as before the first step.",
        )
    if not own:
        return None
    return {t.name: np.full(t.shape, np.clip(0, t.low, t.high), np.float32) for t in own}


def require_own(
    plan: Plan, entry: str, recipe: Recipe, given: Mapping[str, npt.ArrayLike], party: str
) -> None:
    """UsageError for rows of what is no input of this party."""
    own = [each.name for each in inputs_of(plan, entry, party) if recipe.is_row(each.name)]
    names = [recipe.batch.whole(name) for name in own]
    if others := [name for name in given if name not in names]:
        has = f"{party} has rows of {', '.join(f'`{name}`' for name in names)} here."
        raise UsageError(
            f"Rows of `{others[0]}` are given, and {party} owns no such input of `{entry}`.",
            has if names else f"{party} has no rows here.",
        )


def _require_in_range(rows: Array, tensor: Tensor) -> None:
    """AccuracyError for the first row with a number that the rehearsal does not allow."""
    flat = rows.reshape(len(rows), -1)
    if tensor.frac_bits == 0 and (parted := (flat != np.floor(flat)).any(axis=1)).any():
        raise UsageError(
            f"Row {int(np.flatnonzero(parted)[0])} of `{tensor.name}` holds a number that is not "
            "whole.",
            "Whole numbers are taken here, as places in a table are.",
        )
    outside = (flat < tensor.low) | (flat > tensor.high)
    if not outside.any():
        encoding.checked(rows, replace(tensor, shape=rows.shape))
        return
    row = int(np.flatnonzero(outside.any(axis=1))[0])
    raise AccuracyError(
        f"Row {row} of `{tensor.name}` holds a number outside the range "
        f"[{tensor.low:.6g}, {tensor.high:.6g}] that the rehearsal allows.",
        "Leave the row out or scale it, or compile with rows like it.",
    )


def step_bytes(plan: Plan) -> int:
    """What all parties send in a step, offline and online."""
    number, phases = plan.manifest.entries.index(STEP), (Phase.OFFLINE, Phase.ONLINE)
    return sum(sum(plan.sent_bytes(phase, number).values()) for phase in phases)


def require_inside(told: Mapping[str, npt.ArrayLike], step: int, saved: int | None) -> None:
    """Raises AccuracyError where an audit told that a state left its bounds.

    Args:
        told: what a run of the entry told this party: nothing where it receives nothing.
        step: how many steps were done before it.
        saved: after how many of them this party has a checkpoint; None where it has none.
    """
    if OVERFLOW not in told or not np.any(told[OVERFLOW]):
        return
    stands = "" if saved is None else f" The checkpoint after step {saved} stands."
    raise AccuracyError(
        f"After step {step} a parameter, or what goes with one, is outside of its bounds.{stands}",
        "Compile again, rehearsed with this rate on rows like these, or with a smaller rate.",
    )
