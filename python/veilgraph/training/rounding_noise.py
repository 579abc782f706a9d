"""What rounding in secret adds to how updates differ between batches: `max_noise` as it is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from veilgraph.passes.graph.training.programs import Training
from veilgraph.training.rehearsal import Array, FloatRun

Tried = Callable[[Mapping[str, Array]], Mapping[str, Array]]  # a step's inputs; what states become


@dataclass
class RoundingNoise:
    """Of some steps, parameter by parameter, squares of single elements in the mean.

    Attributes:
        between: the variance of updates between batches, in float32.
        added: squares of what the plan's integers are away from float32, on the same batches, with
            rates as they are told.
        steps: the shares of each step alone, by its number.
    """

    training: Training
    between: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    added: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    steps: dict[int, dict[str, float]] = field(default_factory=dict)

    def add(self, number: int, real: FloatRun, given: Mapping[str, Array], tried: Tried) -> None:
        """Compares a step on other batches, from the states among `given`.

        What a parameter becomes less by is compared, and not what it becomes: of an update that is
        small beside its parameter float32 has no more than a few bits there.
        """
        updates, moved = self.training.updates, self.training.moved
        each: dict[str, list[Array]] = {name: [] for name in moved}
        added = dict.fromkeys(moved, 0.0)
        for batch, outputs in real.elsewhere(given):
            found = tried(batch)
            for name in moved:
                taken = given[name].astype(np.float64) - found[name]
                added[name] += float(np.square(taken - outputs[updates[name]]).mean())
                each[name].append(outputs[updates[name]])
        between = {name: _variance(batches) for name, batches in each.items()}
        self.steps[number] = _shares(added, between)
        for name in moved:
            self.added[name] += added[name]
            self.between[name] += between[name]

    @property
    def shares(self) -> dict[str, float]:
        """What all steps added, as a share of what is between batches, where these differ."""
        return _shares(self.added, self.between)


def _variance(batches: Sequence[Array]) -> float:
    """Of single elements in the mean, once for each batch."""
    spread = np.stack(batches).astype(np.float64).var(axis=0, ddof=1).mean()
    return len(batches) * float(spread)


def _shares(added: Mapping[str, float], between: Mapping[str, float]) -> dict[str, float]:
    return {name: added[name] / x for name, x in between.items() if x > 0}
