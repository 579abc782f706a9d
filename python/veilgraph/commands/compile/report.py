"""What `veilgraph compile` says of a plan that it has made."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

from veilgraph.checks.kept_ranges import ranges_file
from veilgraph.commands.compile.profile import Profile
from veilgraph.ir.plan.tables import DERIVATIVES, PUBLIC, QUESTIONS, SHARED, WEIGHTS
from veilgraph.measuring.pricing import predict
from veilgraph.plans import Plan
from veilgraph.reports.tables import show, show_json
from veilgraph.reports.text import costs, plan_values
from veilgraph.reports.units import size


def ownership(plan: Plan) -> str:
    """Who owns and receives what: some of it is a default that nobody spelled out."""
    manifest = plan.manifest
    nobody = {PUBLIC: "are public", SHARED: "are shared from files"}
    owned = [
        f"{name} {nobody[who]}" if who in nobody else f"{who} owns {name}"
        for name, who in manifest.owners.items()
    ]
    received = [
        f"{' and '.join(who)} {'receives' if len(who) == 1 else 'receive'} {n}"
        for n, who in manifest.receivers.items()
    ]
    return f"{'; '.join([*owned, *received])}. --parties, --owner and --reveal change this."


def uncalibrated(plan: Plan) -> str:
    """What a plan without samples costs, by its own counts, and what samples would do."""
    cost, bits = plan.cost(), plan.manifest.ring_bits
    sent = cost.offline.total_bytes + cost.online.total_bytes
    return (
        f"No samples were given, so nothing is known of ranges: rings have {bits} bits, and an "
        f"inference sends {size(sent)}. Give --calibrate FILE.npz: with rings of {bits // 2} bits, "
        f"which samples mostly allow, that is about {size(sent / 2)}; and it is known then for "
        "which inputs the plan holds."
    )


def left_unprotected(plan: Plan) -> str:
    """What --protect-weights does not do, where it was asked for."""
    manifest = plan.manifest
    chosen = str(manifest.options["protect_weights"])
    receiving = {who for names in manifest.receivers.values() for who in names}
    asking = len(receiving - {manifest.owners[WEIGHTS]})
    if chosen == "roles" and asking != 1:
        return (
            "--protect-weights roles changed nothing: it is for one receiver who does not have the "
            f"weights, and there are {asking or 'none'}."
        )
    known = [d.to for d in manifest.disclosures if d.what == DERIVATIVES]
    if chosen == "none" or not known:
        return ""
    return (
        f"--protect-weights {chosen} leaves {' and '.join(known)} thresholds to know: those of "
        "functions of a masked opening (GELU, softmax), which stay rounded at random."
    )


def report(
    plan: Plan,
    destination: Path,
    weights_file: Path,
    shares: list[Path],
    profile: Profile | None,
    as_json: bool,
) -> None:
    """Its costs and encoding, where its files are and for whom, and what each pass took."""
    predicted = predict(plan)
    if as_json:
        files = {
            "plan": destination,
            "weights": weights_file,
            "ranges": ranges_file(destination),
        }
        told = {what: str(file) for what, file in files.items()}
        passes = {} if profile is None else {"profile": [asdict(row) for row in profile.rows]}
        said = {**told, "shares": list(map(str, shares)), **plan_values(plan, predicted)}
        show_json({**said, **passes})
        return
    kept = _kept(plan.manifest.owners[WEIGHTS], weights_file, shares)
    questions = [d.why for d in plan.manifest.disclosures if d.what in QUESTIONS]
    show(
        f"Encoding: {plan.manifest.encoding}.",
        *_measured_on_few(plan),
        costs(predicted),
        *(f"{sentence}." for sentence in questions),
        f"{destination} is for every party; {kept}.",
        f"{ranges_file(destination)} has exact ranges, and stays here (mode 0600).",
        *([] if profile is None else [profile.table()]),
    )


def _measured_on_few(plan: Plan) -> list[str]:
    """Why the error was measured on some of the samples alone, where it was."""
    found = re.search(r"on the first (\d+) of (\d+) samples", plan.manifest.encoding)
    if found is None:
        return []
    return [
        f"Exact integers are slow, so {found[1]} samples are measured here; `check` measures on "
        f"all {found[2]}, layer by layer."
    ]


def _kept(owner: str, weights_file: Path, shares: list[Path]) -> str:
    """Whose the files are that hold weights."""
    if owner == PUBLIC:
        return f"{weights_file} holds them as real numbers, for `check`"
    if owner == SHARED:
        *others, last = map(str, shares)
        named = f"{', '.join(others)} and {last}" if others else last
        return (
            f"{named}: one each, for the party it is named after; {weights_file} stays here, for "
            "`check` (mode 0600 all)"
        )
    return f"{weights_file} is {owner}'s alone (mode 0600)"
