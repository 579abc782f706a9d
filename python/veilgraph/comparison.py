"""The same model in every suite, side by side: who is trusted with what, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import veilgraph
from veilgraph import units
from veilgraph.plans import Plan
from veilgraph.pricing import predict
from veilgraph.tables import Table
from veilgraph.targets.suites import SUITES
from veilgraph.targets.target import DEFAULT_PARTIES

DEALER = "dealer"
NETWORKS = ("lan", "wan")
MOST_COMPUTING = 3  # parties that a suite of any number is shown with


@dataclass(frozen=True)
class Candidate:
    """A suite with some parties, and the model's plan there."""

    suite: str
    computing: int
    trust: str
    plan: Plan

    def values(self) -> dict[str, Any]:
        """As JSON."""
        cost = self.plan.cost()
        return {
            "suite": self.suite,
            "computing_parties": self.computing,
            "dealer": bool(self.plan.manifest.dealer),
            "trust": self.trust,
            "rounds": cost.online.rounds,
            "sent_bytes": {"offline": cost.offline.total_bytes, "online": cost.online.total_bytes},
            "online_seconds": {n: predict(self.plan, n).online_seconds for n in NETWORKS},
            "offline_seconds": {n: predict(self.plan, n).offline_seconds for n in NETWORKS},
        }


def compare_suites(model: str | Path, **options: Any) -> list[Candidate]:
    """Compiles a model for every suite that protects, with two and three computing parties.

    Args:
        options: of `compile`, but for suite, parties and dealer.
    """
    found = []
    for suite in SUITES.values():
        fewest, most = suite.security.parties
        for computing in range(fewest, min(most, MOST_COMPUTING) + 1):
            if suite.needs_consent:
                continue
            plan, _ = veilgraph.compile(
                model,
                suite=suite.name,
                parties=DEFAULT_PARTIES[:computing],
                dealer=DEALER if suite.security.dealer else None,
                **options,
            )
            found.append(Candidate(suite.name, computing, suite.security.threshold, plan))
    return found


def table(candidates: list[Candidate]) -> Table:
    """For people, with seconds predicted as `inspect` does."""
    rows = []
    for candidate in candidates:
        values: Mapping[str, Any] = candidate.values()
        dealer = " and a dealer" if values["dealer"] else ""
        seconds = [
            units.seconds(values[f"{phase}_seconds"][network])
            for network in NETWORKS
            for phase in ("online", "offline")
        ]
        sent = [units.size(values["sent_bytes"][phase]) for phase in ("online", "offline")]
        parties = f"{candidate.computing}{dealer}"
        rows.append((candidate.suite, parties, values["rounds"], *sent, *seconds, candidate.trust))
    return Table.of(
        "suite|parties|#rounds|#sent online|#offline|#lan online|#lan offline|#wan online|"
        "#wan offline|who may be curious",
        rows,
    )
