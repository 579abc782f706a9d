"""Which rows go into which runs of `evaluate`, and which of what they tell is of which row.

A run takes a whole batch. The last ones repeat a row where rows do not fill them, and what is told
of these is left out, so each row is evaluated once. How many rows there are is public.

Where correct answers are counted, each run adds to a sum that all parties keep in secret, of rows
that are no repetition. Which these are is public. The sum is told after the last run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from veilgraph.ir.batch_owners import ALL
from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.ir.roles import given_by
from veilgraph.ir.training import (
    CORRECT,
    CORRECT_SUM,
    COUNTED,
    EVALUATE,
    MOST_ANSWERS,
    Recipe,
)
from veilgraph.plans import Plan
from veilgraph.runtime.encoding import Words, word_dtype
from veilgraph.training.batches import Array
from veilgraph.training.plan_steps import inputs_of


@dataclass(frozen=True)
class Evaluation:
    """The runs that evaluate all rows.

    Attributes:
        rows: how many there are, by owner; under `ALL` where row i of each input is of one example.
    """

    recipe: Recipe
    rows: Mapping[str, int]

    @staticmethod
    def of(recipe: Recipe, told: Mapping[str, int]) -> Evaluation:
        """Of as many rows as each party says that it has.

        Raises:
            UsageError: parties that have another number, or an owner of a part of a batch, or all,
                that have none.
        """
        if recipe.batch.rows:
            counts = {who: told.get(who, 0) for who in recipe.batch.rows}
            for who, count in counts.items():
                if not count:
                    raise UsageError(f"{who} has no rows to evaluate.", "Each owner gives some.")
            return Evaluation(recipe, counts)
        having = {who: count for who, count in told.items() if count}
        if not having:
            raise UsageError(
                "Nobody gives rows to evaluate.", "Let who owns inputs of the model give some."
            )
        if len(set(having.values())) > 1:
            each = ", and ".join(f"{who} {count}" for who, count in having.items())
            raise UsageError(
                f"Rows to evaluate are unlike in number: {each}.", "Give a row of each example."
            )
        return Evaluation(recipe, {ALL: next(iter(having.values()))})

    @property
    def count(self) -> int:
        """Runs that take all rows."""
        return max(-(-rows // self.recipe.taken[who]) for who, rows in self.rows.items())

    def batches(self, rows: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
        """What each run takes of these inputs, which are those of all parties or of one."""
        owner = self.recipe.batch.owner
        for number in range(self.count):
            yield {
                name: x[np.minimum(self._numbers(owner(name), number), len(x) - 1)]
                for name, x in rows.items()
            }

    def kept(self, outputs: Mapping[str, Array], number: int) -> dict[str, Array]:
        """Of what a run told, that of rows; of outputs that have no row for each of these, all."""
        is_row = self._is_row(number)
        return {n: x[is_row] if x.shape[:1] == is_row.shape else x for n, x in outputs.items()}

    def require_counted(self) -> None:
        """UsageError for more answers than a sum of them has room for."""
        if self.answers > MOST_ANSWERS:
            raise UsageError(
                f"Correct ones of {self.answers} answers are to be counted, and {MOST_ANSWERS} "
                "can be at once.",
                "Evaluate fewer rows at once.",
            )

    @property
    def answers(self) -> int:
        """How many answers all rows have."""
        return sum(self.rows.values()) * self.recipe.answers

    def possible(self, told: Mapping[str, Array]) -> dict[str, Array]:
        """What was told, once it can be a number of correct answers."""
        found = float(told[CORRECT].item()) if CORRECT in told else 0.0
        if not (found.is_integer() and 0 <= found <= self.answers):
            raise SecurityAbort(
                f"Of {self.answers} answers {found:.6g} can't be correct.",
                "A party counted other rows, or labels that are no classes.",
            )
        return dict(told)

    def counted(self, plan: Plan, party: str, number: int) -> dict[str, Array]:
        """What a party says in a run of which rows count, where they are counted."""
        name = given_by(COUNTED, party)
        if all(tensor.name != name for tensor in inputs_of(plan, EVALUATE, party)):
            return {}
        return {name: self._is_row(number).astype(np.float32)}

    def _is_row(self, number: int) -> npt.NDArray[np.bool_]:
        """Which places of a run's batch have a row that no place before has."""
        owners = self.recipe.taken
        return np.concatenate([self._numbers(who, number) < self.rows[who] for who in owners])

    def _numbers(self, who: str, number: int) -> npt.NDArray[np.int64]:
        """Of an owner's rows in a run, with those that there are not."""
        taken = self.recipe.taken[who]
        return np.arange(number * taken, (number + 1) * taken)


def require_evaluated(plan: Plan) -> None:
    """UsageError for a plan that evaluates nothing."""
    if EVALUATE not in plan.manifest.entries:
        raise UsageError(
            "This plan evaluates nothing: nobody receives an output of the model.",
            "Compile it with `reveal` of an output of the model, or of `correct`.",
        )


def nothing_counted(plan: Plan, party: str) -> dict[str, Words]:
    """A party's parts of a sum of 0, by `Share.key`: no evaluation that broke off is counted."""
    return {
        part.key: np.zeros(part.shape, word_dtype(part.ring_bits))
        for part in plan.party(party).states
        if part.name == CORRECT_SUM
    }
