"""States while `check` goes through samples: as the plan keeps them, and as the model would."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.checks.plan_programs import PlanPrograms
from veilgraph.checks.reference_runs import Array, Feeds

Floats = npt.NDArray[np.float64]


class KeptStates:
    """What one sample's run leaves for the next one's, from zero.

    The plan's states go on from its own, rounded as they are, and the model's from the model's: a
    difference that grows from run to run is seen to grow.

    Args:
        following: of each state, the output that it is in the next run.
        samples: a state that they have is theirs in each run, and is not kept here.

    Attributes:
        plan, real: each state before the next sample.
    """

    def __init__(
        self, following: Mapping[str, str], programs: PlanPrograms, samples: Feeds
    ) -> None:
        own = [tensor for tensor in programs.states if tensor.name not in samples]
        self._following = {t.name: following[t.name] for t in own}
        self.plan: dict[str, Floats] = {t.name: np.zeros(t.shape) for t in own}
        self.real: dict[str, Array] = {t.name: np.zeros(t.shape, np.float32) for t in own}

    def go_on(self, plan: Mapping[str, Floats], real: Mapping[str, npt.NDArray[Any]]) -> None:
        """Takes the next values from what a run gave; an entry that gives none leaves them."""
        for name, after in self._following.items():
            if after in plan and after in real:
                self.plan[name] = plan[after]
                self.real[name] = np.asarray(real[after], np.float32)
