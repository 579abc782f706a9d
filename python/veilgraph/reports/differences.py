"""What changed between two plans that hold: what is revealed and to whom, rings, parties, cost.

All of it is computed from the plans' programs, save the error, which is their authors' word.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from veilgraph.ir.plan.tables import PUBLIC, SHARED, STATE, Phase
from veilgraph.measuring.pricing import Prediction, predict
from veilgraph.plans import Plan
from veilgraph.reports import units
from veilgraph.reports.tables import Table
from veilgraph.verification.findings import Revealed, Verified

NOTHING = "-"  # in place of what one of the plans does not have
_NOBODYS = {PUBLIC: "public", SHARED: "no party's, shared from files", STATE: "kept as shares"}


@dataclass(frozen=True)
class Difference:
    """One fact in which two plans differ; NOTHING where a plan has no such fact."""

    what: str
    old: str
    new: str


@dataclass(frozen=True)
class Compared:
    """A plan, and what was found of it."""

    plan: Plan
    found: Verified


def differences(old: Compared, new: Compared, network: str | None) -> list[Difference]:
    """The facts in which two plans differ, in the order in which they matter.

    Args:
        network: to price both on; each plan's own if None.
    """
    before, after = (dict(_facts(each, network)) for each in (old, new))
    names = dict.fromkeys([*before, *after])
    pairs = ((name, before.get(name, NOTHING), after.get(name, NOTHING)) for name in names)
    return [Difference(*pair) for pair in pairs if pair[1] != pair[2]]


def shown(found: list[Difference], is_same_plan: bool) -> list[Table | str]:
    """Differences for people."""
    if found:
        rows = [(each.what, each.old, each.new) for each in found]
        return [Table.of("changed|old|new", rows)]
    if is_same_plan:
        return ["Nothing changed: it is the same plan."]
    return [
        "Nothing changed in what is revealed, to whom, in rings, in parties or in cost.",
        "The digests differ: other numbers, names or words of the author's may be in the plans.",
    ]


def _facts(compared: Compared, network: str | None) -> Iterator[tuple[str, str]]:
    plan, found = compared.plan, compared.found
    yield from _revealed(found)
    for secret in found.secrets:
        owner = _NOBODYS.get(secret.owner, secret.owner)
        yield f"owner of {secret.name}", f"{owner}, {units.counted(secret.numbers, 'number')}"
    yield "suite", f"{found.suite}, {found.security}"
    roles = (f"{name} ({plan.manifest.roles[name]})" for name in plan.manifest.parties)
    yield "parties", ", ".join(roles)
    yield "may collude", "; ".join(" and ".join(group) for group in found.coalitions)
    yield "rings, in bits", ", ".join(map(str, found.rings))
    yield "error, as the author says", str(plan.manifest.options.get("max_error"))
    yield "lowering", str(found.lowering)
    yield "entries", ", ".join(plan.manifest.entries)
    on = predict(plan, network).network
    link = f"{units.size(on.bytes_per_second)}/s, {units.seconds(on.round_trip_seconds)} round trip"
    yield "network", f"{on.name}: {link}"
    for number, entry in enumerate(plan.manifest.entries):
        behind = f" of entry {entry}" if len(plan.manifest.entries) > 1 else ""
        yield from _cost(predict(plan, network, entry=number), behind)


def _revealed(found: Verified) -> Iterator[tuple[str, str]]:
    """Of each thing that is revealed: how much, to whom, computed from what."""
    by_name: dict[str, list[str]] = {}
    for each in found.revealed:
        by_name.setdefault(each.what, []).append(_learnt(each))
    for what, told in by_name.items():
        yield what, "; ".join(told)


def _learnt(each: Revealed) -> str:
    of = f", computed from {' and '.join(each.depends)}" if each.depends else ""
    return f"{units.counted(each.numbers, 'number')} to {' and '.join(sorted(each.to))}{of}"


def _cost(predicted: Prediction, behind: str) -> Iterator[tuple[str, str]]:
    cost = predicted.cost
    phases = {
        Phase.SETUP: (cost.setup, predicted.setup_seconds),
        Phase.OFFLINE: (cost.offline, predicted.offline_seconds),
        Phase.ONLINE: (cost.online, predicted.online_seconds),
    }
    for phase, (priced, seconds) in phases.items():
        name = f"{phase.name.lower()}{behind}"
        yield f"rounds, {name}", str(priced.rounds)
        yield f"bytes, {name}", str(priced.total_bytes)
        yield f"predicted seconds, {name}", units.seconds(seconds)
    memory = (f"{name} {units.size(count)}" for name, count in cost.peak_memory_bytes.items())
    yield f"memory{behind}", ", ".join(memory)
