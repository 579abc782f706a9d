"""`veilgraph verify`: hold a plan to its program and its suite, at the host that will run it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from veilgraph.commands import arguments
from veilgraph.ir.errors import SecurityAbort
from veilgraph.plans import Plan
from veilgraph.reports import text as reports
from veilgraph.reports.tables import progress, show, show_json
from veilgraph.runtime.session.config import Config
from veilgraph.runtime.session.public_keys import text_of
from veilgraph.verification.consent import require_consent
from veilgraph.verification.findings import Verified
from veilgraph.verification.signatures import require_signer, signature_file, signer_of
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
    "once; a plan that its `consent` does not cover is refused.",
)
@click.option(
    "--signed-by",
    "wanted",
    type=arguments.public_key,
    metavar="KEY",
    help="Refuse PLAN unless PLAN.sig is by this public key, as `cert author` shows it.",
)
@arguments.json_option
def command(plan_file: Path, config_file: Path | None, wanted: bytes | None, as_json: bool) -> None:
    """Hold PLAN to its program and its suite, and show what it reveals to whom.

    The program's text is read, its masks are checked against all who may collude in the suite, its
    outputs against their receivers, and it is lowered again: every party's tables must come out
    byte for byte. Nothing that PLAN's author says is believed. Needs no model, weights or compiler.

    PLAN.sig, if it is there, says who signed PLAN; one that does not fit is refused.

    What the numbers mean is not verified: an output may be any function of what it depends on.
    """
    plan = Plan.load(plan_file)
    config = None if config_file is None else Config.load(config_file)
    file = signature_file(plan_file)
    signed_by = signer_of(plan, file)
    if wanted is not None:
        require_signer(signed_by, wanted, file)
    with progress("verifying"):
        found = verify(plan)
    refusal = None
    if config is not None:
        record(found, config.state_dir)
        refusal = _refusal(plan, found, config, file)
    authors = config.authors if config is not None else {}
    if as_json:
        told = {"signed_by": None if signed_by is None else text_of(signed_by)}
        show_json({**asdict(found), **told, "refused": refusal and refusal.message})
    else:
        show(*reports.verified(found, signed_by, authors), *reports.revealed(found))
    if refusal is not None:
        refusal.is_reported = True
        raise refusal


def _refusal(plan: Plan, found: Verified, config: Config, signature: Path) -> SecurityAbort | None:
    """Why the party's configuration does not consent to a plan that holds."""
    try:
        require_consent(plan, found, config, signature)
    except SecurityAbort as error:
        return error
    return None
