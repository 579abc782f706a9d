"""Whether links did in a run what the network says that its plan was compiled for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from veilgraph.ir.plan.tables import Phase
from veilgraph.plans import Plan
from veilgraph.runtime.transcript import Transcript

_FACTOR, _LEAST_SECONDS = 3.0, 0.1  # what clocks and busy hosts explain


@dataclass(frozen=True)
class LinkSeconds:
    """One party's seconds on links in an online phase, predicted and measured.

    Attributes:
        network: the one that the plan was compiled for.
        predicted: its seconds for the plan's rounds and bytes.
        measured: the party's, waiting for peers included; the median of its runs.
        computing: the same runs' seconds beside links. Peers compute about as long, and are waited
            for meanwhile.
    """

    network: str
    predicted: float
    measured: float
    computing: float

    @staticmethod
    def of(plan: Plan, transcripts: Sequence[Transcript], entry: int = 0) -> LinkSeconds:
        cost = plan.cost(entry=entry)
        records = [transcript.phases[Phase.ONLINE] for transcript in transcripts]
        return LinkSeconds(
            cost.network,
            cost.online.network_seconds,
            median(record.network_seconds for record in records),
            median(record.seconds - record.network_seconds for record in records),
        )

    @property
    def is_late(self) -> bool:
        """Whether links were slower than the network explains, and the peers' work besides."""
        late = self.measured - self.computing
        return late > _FACTOR * self.predicted and late > self.predicted + _LEAST_SECONDS
