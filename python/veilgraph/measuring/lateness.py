"""Whether links did in a run what the network says that its plan was compiled for."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from veilgraph.ir.plan.plan import Plan as AnyPlan
from veilgraph.ir.plan.tables import Phase
from veilgraph.plans import Plan
from veilgraph.reports import units
from veilgraph.runtime.transcript import Transcript

LOG = logging.getLogger("veilgraph.service")
_RUNS = 16  # of which the median counts
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

    @property
    def sentence(self) -> str:
        """What they took, and what to do."""
        return (
            f"Links took {units.seconds(self.measured)} an inference online, and `{self.network}`, "
            f"which the plan was compiled for, takes {units.seconds(self.predicted)}: `veilgraph "
            "doctor --config FILE --write-network FILE` measures them for `compile --network`."
        )


class Lateness:
    """Looks at the links of a service that goes on: a warning a model when they become late."""

    def __init__(self) -> None:
        self._runs: dict[str, list[Transcript]] = {}
        self._late: set[str] = set()

    def ran(self, model: str, plan: AnyPlan, transcript: Transcript) -> None:
        """An inference of a model has ended here."""
        runs = self._runs.setdefault(model, [])
        runs.append(transcript)
        if len(runs) < _RUNS:
            return
        links = LinkSeconds.of(Plan.of(plan), runs)
        runs.clear()
        if links.is_late and model not in self._late:
            LOG.warning("%s: %s", model, links.sentence)
        (self._late.add if links.is_late else self._late.discard)(model)
