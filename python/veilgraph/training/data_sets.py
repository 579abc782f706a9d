"""A party's shares of all rows, which its owners shared once, and batches of them by row numbers.

Between runs a batch of shares goes out of the plan's states, and another one into them. Row numbers
are public, so each party does that by itself, and nothing is sent. The shares are in memory alone:
who goes on from a checkpoint shares the rows again.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from veilgraph.plans import Plan
from veilgraph.runtime.encoding import Words, word_dtype
from veilgraph.training.plan_steps import held_by


class DataSet:
    """One party's shares of `rows` rows.

    Attributes:
        names: of the states that hold a batch; () where this party keeps none.
    """

    def __init__(self, plan: Plan, party: str, rows: int) -> None:
        held = set(held_by(plan))
        parts = [part for part in plan.party(party).states if part.name in held]
        self.names = tuple({part.name for part in parts})
        self._words = {
            part.key: np.zeros((rows, *part.shape[1:]), word_dtype(part.ring_bits))
            for part in parts
        }

    def take(self, rows: npt.NDArray[np.int64], words: Mapping[str, Words]) -> None:
        """Keeps a batch that was just shared, by `Share.key`."""
        for key, every in self._words.items():
            every[rows] = words[key]

    def batch(self, rows: npt.NDArray[np.int64]) -> dict[str, Words]:
        """The shares of these rows, by `Share.key`."""
        return {key: every[rows] for key, every in self._words.items()}
