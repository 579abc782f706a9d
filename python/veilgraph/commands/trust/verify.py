"""`veilgraph verify`: hold a plan to its program and its suite, at the host that will run it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from veilgraph.commands import arguments
from veilgraph.plans import Plan
from veilgraph.reports import text as reports
from veilgraph.reports.tables import progress, show, show_json
from veilgraph.runtime.session.config import Config
from veilgraph.verification.verified_plans import record
from veilgraph.verification.verify import verify

EPILOG = """\b
Example, before a party takes part in a plan that another one compiled:
  veilgraph verify digits.plan
"""


@click.command("verify", epilog=EPILOG)
@click.argument("plan_file", metavar="PLAN", type=arguments.PATH)
@click.option(
    "--config",
    "config_file",
    type=arguments.PATH,
    metavar="FILE",
    help="A party's parties.yaml: what holds is recorded in its state_dir, and `run` goes on at "
    "once.",
)
@arguments.json_option
def command(plan_file: Path, config_file: Path | None, as_json: bool) -> None:
    """Hold PLAN to its program and its suite, and show what it reveals to whom.

    The program's text is read, its masks are checked against all who may collude in the suite, its
    outputs against their receivers, and it is lowered again: every party's tables must come out
    byte for byte. Nothing that PLAN's author says is believed. Needs no model, weights or compiler.

    What the numbers mean is not verified: an output may be any function of what it depends on.
    """
    plan = Plan.load(plan_file)
    config = None if config_file is None else Config.load(config_file)
    with progress("verifying"):
        found = verify(plan)
    if config is not None:
        record(plan, config.state_dir)
    if as_json:
        show_json(asdict(found))
        return
    show(*reports.verified(found), *reports.revealed(found))
