"""What the steps of a plan that trains take and send, and which rows go into which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan.tables import Phase, Tensor
from veilgraph.ir.training import STEP, Recipe, Schedule
from veilgraph.plans import Plan
from veilgraph.training.batches import orders


@dataclass(frozen=True)
class Batches:
    """The steps of a run: their rows and their factors.

    Attributes:
        rows: of the data set.
        seed: of the order of rows.
    """

    recipe: Recipe
    rows: int
    rate: Schedule
    seed: int

    def count(self, epochs: int, steps: int | None = None) -> int:
        """Steps of so many epochs, of which no batch is left for some rows; or `steps`.

        Raises:
            UsageError: none.
        """
        found = epochs * (self.rows // self.recipe.rows) if steps is None else steps
        if found < 1:
            told = f"{epochs} epochs" if steps is None else f"{steps} steps"
            raise UsageError(f"Training for {told} makes no sense.", "Give 1 or more.")
        return found

    def steps(
        self, first: int, count: int
    ) -> Iterator[tuple[npt.NDArray[np.int64], dict[str, float]]]:
        """Row numbers and public factors of `count` steps from number `first` on."""
        order = orders(self.rows, self.recipe.rows, self.seed)
        for number, rows in enumerate(islice(order, first, first + count), first):
            rate, before = self.rate(number), self.rate(max(number - 1, 0))
            yield rows, self.recipe.optimizer.values(rate, before, self.recipe.rows, number)


def inputs_of(plan: Plan, entry: str, party: str | None = None) -> list[Tensor]:
    """What parties, or one, give to an entry."""
    number = plan.manifest.entries.index(entry)
    return [
        tensor
        for name, program in plan.programs.items()
        for tensor in program.inputs
        if tensor.entry == number and party in (None, name)
    ]


def shapes_of(inputs: list[Tensor], recipe: Recipe) -> dict[str, tuple[int, ...]]:
    """Those of rows; of inputs that are public factors, none."""
    factors = recipe.optimizer.factors
    return {t.name: tuple(t.shape) for t in inputs if t.name not in factors}


def step_bytes(plan: Plan) -> int:
    """What all parties send in a step, offline and online."""
    number, phases = plan.manifest.entries.index(STEP), (Phase.OFFLINE, Phase.ONLINE)
    return sum(sum(plan.sent_bytes(phase, number).values()) for phase in phases)
