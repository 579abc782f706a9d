"""The same model in every suite, by who has the weights, with errors of several sizes, or by what
protocols are chosen, side by side: who is trusted with what, and what it costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import veilgraph
from veilgraph.ir.errors import AccuracyError, UnsupportedError
from veilgraph.ir.plan.tables import PUBLIC, QUESTIONS, SHARED, WEIGHTS
from veilgraph.ir.roles import DEALER
from veilgraph.measuring.pricing import computing_parties, predict
from veilgraph.plans import Plan
from veilgraph.reports import units
from veilgraph.reports.tables import Table
from veilgraph.reports.units import counted
from veilgraph.targets.suites import SUITES
from veilgraph.targets.target import DEFAULT_PARTIES
from veilgraph.targets.variants import Goal

ROLES = "roles"  # a protection that not every suite has
NETWORKS = ("lan", "wan")
MORE_NETWORKS = ("lan", "metro", "wan")  # where protocols are chosen by the network
MOST_COMPUTING = 3  # parties that a suite of any number is shown with


@dataclass(frozen=True)
class Candidate:
    """A suite with some parties, and the model's plan there.

    `told` is what sets it apart, for people; `apart` the same as JSON, where nothing else says it.
    """

    suite: str
    computing: int
    told: str
    plan: Plan
    apart: Mapping[str, Any] = field(default_factory=dict)

    def values(self, networks: Sequence[str] = NETWORKS) -> dict[str, Any]:
        """As JSON, with seconds predicted on each of `networks`."""
        cost = self.plan.cost()
        predicted = {name: predict(self.plan, name) for name in networks}
        return {
            "suite": self.suite,
            "computing_parties": self.computing,
            "dealer": bool(self.plan.manifest.named(DEALER)),
            "trust": SUITES[self.suite].security.threshold,
            "weights_owner": self.plan.manifest.owners[WEIGHTS],
            "encoding": self.plan.manifest.encoding,
            "rounds": cost.online.rounds,
            "sent_bytes": {
                "setup": cost.setup.total_bytes,
                "offline": cost.offline.total_bytes,
                "online": cost.online.total_bytes,
            },
            "online_seconds": {name: p.online_seconds for name, p in predicted.items()},
            "offline_seconds": {name: p.offline_seconds for name, p in predicted.items()},
            **self.apart,
        }


def compare_suites(model: str | Path, **options: Any) -> list[Candidate]:
    """Compiles a model for every suite that protects, with two and three computing parties.

    Args:
        options: of `compile`, but for suite, parties and dealer; suites are left out that don't
            have the protection of weights asked for.

    Raises:
        UnsupportedError: no suite candidates what the model needs; those that lack some are left
            out.
    """
    found: list[Candidate] = []
    refused: UnsupportedError | None = None
    roles = options.get("protect_weights") == ROLES
    for suite in SUITES.values():
        fewest, most = suite.security.parties
        for computing in range(fewest, min(most, MOST_COMPUTING) + 1):
            if suite.needs_consent or (roles and not suite.safe_role):
                continue
            try:
                plan, _ = veilgraph.compile(
                    model,
                    suite=suite.name,
                    parties=DEFAULT_PARTIES[:computing],
                    dealer=DEALER.name if suite.security.provider == DEALER else None,
                    **options,
                )
            except UnsupportedError as error:
                refused = error
                continue
            found.append(Candidate(suite.name, computing, suite.security.threshold, plan))
    if refused and not found:
        raise refused
    return found


def compare_owners(
    model: str | Path, owners: Mapping[str, str] | None = None, **options: Any
) -> list[Candidate]:
    """Compiles a model with weights of one party, with shared ones, and with public ones.

    Args:
        owners: of the inputs; and of the weights, where they are private.
        options: of `compile`.
    """
    found = []
    nobody = {SHARED: "no party: shared from files", PUBLIC: "everyone"}
    for chosen in ({}, {WEIGHTS: SHARED}, {WEIGHTS: PUBLIC}):
        plan, _ = veilgraph.compile(model, owners={**(owners or {}), **chosen}, **options)
        who = plan.manifest.owners[WEIGHTS]
        told = nobody.get(who, who)
        found.append(Candidate(plan.manifest.suite, computing_parties(plan), told, plan))
    return found


def compare_protections(model: str | Path, **options: Any) -> list[Candidate]:
    """Compiles a model without protection of its weights beyond rounded outputs, with fixed roles
    where the suite has a safe one, and with exact rounding.

    Args:
        options: of `compile`, but for protect_weights.
    """
    found = []
    for protection in ("none", ROLES, "exact"):
        suite = SUITES[options.get("suite", "rep3")]
        if protection == ROLES and not suite.safe_role:
            continue
        plan, _ = veilgraph.compile(model, protect_weights=protection, **options)
        questions = _questions(plan)
        apart = {"protection": protection, "questions": questions}
        told = f"{protection}: {'; '.join(questions)}"
        computing = computing_parties(plan)
        found.append(Candidate(plan.manifest.suite, computing, told, plan, apart))
    return found


def _questions(plan: Plan) -> list[str]:
    """What equal questions tell each receiver, or why they tell nobody anything."""
    if plan.manifest.owners[WEIGHTS] == PUBLIC:
        return ["the weights are public"]
    told = [d.why for d in plan.manifest.disclosures if d.what in QUESTIONS]
    return told or ["nobody receives numbers who does not have the weights"]


def compare_errors(model: str | Path, allowed: Sequence[float], **options: Any) -> list[Candidate]:
    """Compiles a model for each of the errors allowed, the largest first.

    Args:
        options: of `compile`, but for max_error; samples among them.

    Raises:
        AccuracyError: not even the largest can be held; smaller ones are then left out.
    """
    found: list[Candidate] = []
    for error in sorted(allowed, reverse=True):
        try:
            plan, _ = veilgraph.compile(model, max_error=error, **options)
        except AccuracyError:
            if not found:
                raise
            break
        sentence = plan.manifest.encoding
        chosen, measured = sentence.split("; ")[0], sentence.split(", ")[-1]
        told = f"{error:g} allowed, {measured}; {chosen}"
        found.append(Candidate(plan.manifest.suite, computing_parties(plan), told, plan))
    return found


def compare_protocols(model: str | Path, network: str = "lan", **options: Any) -> list[Candidate]:
    """Compiles a model with the protocols that are fastest on each of several networks, with those
    that send least, and with those of the fewest rounds.

    Args:
        network: one network more, if it is none of these.
        options: of `compile`, but for goal.
    """
    networks = dict.fromkeys((*MORE_NETWORKS, network))
    goals = [*((Goal.AUTO, each) for each in networks)]
    goals += [(Goal.LEAST_BYTES, network), (Goal.FEWEST_ROUNDS, network)]
    found = []
    for goal, each in goals:
        plan, _ = veilgraph.compile(model, goal=goal.value, network=each, **options)
        apart = {"goal": goal.value, "network": each, "protocols": _protocols(plan)}
        named = f"{goal.value} for {Path(each).stem}" if goal is Goal.AUTO else goal.value
        told = f"{named}: {', '.join(apart['protocols'])}"
        found.append(Candidate(plan.manifest.suite, computing_parties(plan), told, plan, apart))
    return found


def _protocols(plan: Plan) -> list[str]:
    """What was chosen, and for how many layers."""
    found = Counter(layer.protocol for layer in plan.layers if layer.protocol)
    return [f"{name} ({counted(count, 'layer')})" for name, count in found.most_common()] or [
        "no choice"
    ]


def table(
    candidates: list[Candidate],
    networks: Sequence[str] = NETWORKS,
    heading: str = "who may be curious",
) -> Table:
    """For people, with seconds predicted as `inspect` does; a network of a file has its name.

    Args:
        heading: of what sets the candidates apart.
    """
    rows = []
    for candidate in candidates:
        values: Mapping[str, Any] = candidate.values(networks)
        dealer = " and a dealer" if values["dealer"] else ""
        seconds = [
            units.seconds(values[f"{phase}_seconds"][network])
            for network in networks
            for phase in ("online", "offline")
        ]
        sent = [units.size(values["sent_bytes"][phase]) for phase in ("online", "offline", "setup")]
        parties = f"{candidate.computing}{dealer}"
        rows.append((candidate.suite, parties, values["rounds"], *sent, *seconds, candidate.told))
    names = [Path(network).stem for network in networks]
    timed = "".join(f"#{name} online|#{name} offline|" for name in names)
    sizes = "#sent online|#offline|#setup, once"
    return Table.of(f"suite|parties|#rounds|{sizes}|{timed}{heading}", rows)
