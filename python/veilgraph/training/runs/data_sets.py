"""A party's shares of all rows, which its owners shared once, and batches of them by row numbers.

Between runs a batch of shares goes out of the plan's states, and another one into them. Row numbers
are public, so each party does that by itself, and nothing is sent. The shares are in memory alone:
who goes on from a checkpoint shares the rows again.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from veilgraph.ir.errors import ResourceLimitError
from veilgraph.ir.training import Recipe
from veilgraph.plans import Plan
from veilgraph.runtime.encoding import Words, word_dtype
from veilgraph.training.batches import Order
from veilgraph.training.plan_steps import held_by


class DataSet:
    """One party's shares of all rows.

    Attributes:
        names: of the states that hold a batch; () where this party keeps none.
    """

    def __init__(self, plan: Plan, party: str, rows: Mapping[str, int]) -> None:
        """For so many rows, by owner."""
        held, whose = held_by(plan), Recipe.of(plan.manifest.options).batch
        parts = [part for part in plan.party(party).states if part.name in held]
        self.names = tuple({part.name for part in parts})
        self._owners = {part.key: whose.owner(held[part.name]) for part in parts}
        try:
            self._words = {
                part.key: np.zeros(
                    (rows[self._owners[part.key]], *part.shape[1:]), word_dtype(part.ring_bits)
                )
                for part in parts
            }
        except MemoryError as error:
            raise ResourceLimitError(
                f"Shares of all {sum(rows.values())} rows do not fit into {party}'s memory.",
                "Ask whether these numbers are right; without share_once no rows are kept.",
            ) from error

    def take(self, order: Order, words: Mapping[str, Words]) -> None:
        """Keeps a batch that was just shared, by `Share.key`."""
        for key, every in self._words.items():
            every[order[self._owners[key]]] = words[key]

    def batch(self, order: Order) -> dict[str, Words]:
        """The shares of these rows, by `Share.key`."""
        return {key: every[order[self._owners[key]]] for key, every in self._words.items()}
