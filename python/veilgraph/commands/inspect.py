"""`veilgraph inspect`: what a plan costs, layer by layer, and who learns what."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date
from pathlib import Path

import click

from veilgraph.checks.kept_ranges import ranges_file, with_ranges
from veilgraph.commands import arguments
from veilgraph.commands.files import check_destination
from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.measuring.pricing import predict
from veilgraph.plans import Plan
from veilgraph.reports import text as reports
from veilgraph.reports.differences import Compared, differences, shown
from veilgraph.reports.html import Subject, write_report
from veilgraph.reports.layer_graph import LayerGraph
from veilgraph.reports.listing import listing
from veilgraph.reports.tables import show, show_json, show_text
from veilgraph.runtime.session.public_keys import text_of
from veilgraph.runtime.simulate import entry_of
from veilgraph.verification.signatures import signature_file, signer_of
from veilgraph.verification.verify import verify

LEVELS = ("graph", "secret", "party", "plan")
EPILOG = """\b
Example, what a new version of a plan reveals and costs otherwise:
  veilgraph inspect --diff digits.plan new.plan
\b
Example, where the time goes between two continents:
  veilgraph inspect digits.plan --layers --network wan
"""


@click.command("inspect", epilog=EPILOG)
@click.argument("plan_file", metavar="PLAN", type=arguments.PATH)
@click.option("--layers", "want_layers", is_flag=True, help="Show each layer and what it costs.")
@click.option("--wide", is_flag=True, help="Keep tables as tables, however wide they are.")
@click.option(
    "--reveals",
    "want_reveals",
    is_flag=True,
    help="Verify the plan, and show who learns what from it.",
)
@click.option(
    "--diff",
    "old_file",
    type=arguments.PATH,
    metavar="OLD",
    help="Verify PLAN and an older one, and show what changed in what is revealed, to whom, in "
    "rings, parties and cost.",
)
@click.option("--ir", "level", type=click.Choice(LEVELS), help="Print the program of one level.")
@click.option(
    "--html",
    "report",
    type=arguments.PATH,
    metavar="FILE",
    help="Write a page with all of this, and the ranges and histograms that `compile` kept beside "
    "PLAN, for a browser; no other site is asked for anything.",
)
@click.option(
    "--entry", metavar="NAME", help="Which of the plan's entries to price.  [default: the first]"
)
@arguments.network_option
@arguments.json_option
def command(
    plan_file: Path,
    want_layers: bool,
    wide: bool,
    want_reveals: bool,
    old_file: Path | None,
    level: str | None,
    report: Path | None,
    entry: str | None,
    network: str | None,
    as_json: bool,
) -> None:
    """Show what PLAN computes, for whom, at what cost, and who learns what from it.

    Counts are of all parties together. A layer's seconds are as if it ran alone; independent
    layers may share rounds.
    """
    if old_file is not None:
        if want_layers or want_reveals or level is not None or report is not None:
            raise UsageError(
                "--diff shows what changed, and nothing else.",
                "Leave out --layers, --reveals, --ir and --html.",
            )
        _show_differences(old_file, plan_file, network, wide, as_json)
        return
    plan = with_ranges(Plan.load(plan_file), ranges_file(plan_file))
    signed_by = signer_of(plan, signature_file(plan_file))
    verified = verify(plan) if want_reveals else None
    text = None if level is None else ir_text(plan, level)
    number = entry_of(plan, entry)
    predicted = predict(plan, network, entry=number)
    if report is not None:
        check_destination(report, plan_file, ranges_file(plan_file))
        subject = Subject(plan_file.name, plan.model_name, date.today())
        write_report(report, plan, predicted, verified=verified, subject=subject)
    if as_json:
        content = reports.plan_values(plan, predicted, number)
        content["signed_by"] = None if signed_by is None else text_of(signed_by)
        graph = LayerGraph.of(plan, number)
        content["layers"] = [reports.layer_values(price, graph) for price in predicted.layers]
        content["disclosures"] = [vars(found) for found in reports.disclosures(plan)]
        if verified is not None:
            content["verified"] = asdict(verified)
        show_json(content if text is None else {**content, "ir": text})
        return
    if text is not None:
        show_text(text)
    if want_layers:
        told = (reports.ranges(plan), reports.assumptions(predicted))
        show(reports.layers(predicted, whole=wide), *told, wide=wide)
    if verified is not None:
        show(*reports.reveals(plan, verified), wide=wide)
    if report is not None:
        show(f"{report} is a page for a browser.")
    elif not (text is not None or want_layers or want_reveals):
        show(*reports.summary(plan, predicted, number, signed_by), reports.assumptions(predicted))


def _show_differences(
    old_file: Path, new_file: Path, network: str | None, wide: bool, as_json: bool
) -> None:
    old, new = _compared(old_file), _compared(new_file)
    found = differences(old, new, network)
    is_same = old.plan.digest == new.plan.digest
    if as_json:
        digests = {"old_digest": old.plan.digest, "new_digest": new.plan.digest}
        show_json({**digests, "changed": [vars(each) for each in found]})
        return
    show(*shown(found, is_same), wide=wide)


def _compared(file: Path) -> Compared:
    """A plan that holds, with what was found; SecurityAbort names the file of one that doesn't."""
    plan = Plan.load(file)
    signer_of(plan, signature_file(file))
    try:
        return Compared(plan, verify(plan))
    except SecurityAbort as error:
        raise SecurityAbort(f"{file}: {error.message}", error.hint) from error


def ir_text(plan: Plan, level: str) -> str:
    """The program of one level; UsageError if the plan does not carry it."""
    if level == "plan":
        return listing(plan)
    if level not in plan.ir:
        known = ", ".join([*plan.ir, "plan"])
        raise UsageError(f"This plan carries no text of level {level}.", f"It has: {known}.")
    return plan.ir[level]
