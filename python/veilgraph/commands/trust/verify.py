"""`veilgraph verify`: hold a plan to its program and its suite, at the host that will run it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from veilgraph.commands import arguments
from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.plans import Plan
from veilgraph.reports import text as reports
from veilgraph.reports.tables import progress, show, show_json
from veilgraph.runtime.session.config import Config
from veilgraph.runtime.session.public_keys import text_of
from veilgraph.verification.consent import require_consent
from veilgraph.verification.findings import Verified
from veilgraph.verification.receipts import load_receipt, require_plan
from veilgraph.verification.signatures import require_signer, signature_file, signer_of
from veilgraph.verification.verified_plans import record
from veilgraph.verification.verify import verify

EPILOG = """\b
Example, before a party takes part in a plan that another one compiled:
  veilgraph verify digits.plan
"""


@click.command("verify", epilog=EPILOG)
@click.argument("plan_file", metavar="PLAN", type=arguments.PATH, required=False)
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
@click.option(
    "--receipt",
    "receipt_file",
    type=arguments.PATH,
    metavar="FILE",
    help="Check a receipt that `run --receipt` wrote, and with PLAN that it is of PLAN; PLAN "
    "itself is not verified then.",
)
@click.option(
    "--cert",
    "certificate_file",
    type=arguments.PATH,
    metavar="FILE",
    help="With --receipt, the certificate of the party whose receipt it is.",
)
@arguments.json_option
def command(
    plan_file: Path | None,
    config_file: Path | None,
    wanted: bytes | None,
    receipt_file: Path | None,
    certificate_file: Path | None,
    as_json: bool,
) -> None:
    """Hold PLAN to its program and its suite, and show what it reveals to whom.

    The program's text is read, its masks are checked against all who may collude in the suite, its
    outputs against their receivers, and it is lowered again: every party's tables must come out
    byte for byte. Nothing that PLAN's author says is believed. Needs no model, weights or compiler.

    PLAN.sig, if it is there, says who signed PLAN; one that does not fit is refused.

    What the numbers mean is not verified: an output may be any function of what it depends on.
    """
    if (receipt_file is None) != (certificate_file is None):
        raise UsageError("--receipt and --cert go together.", "Give both, or neither.")
    if receipt_file is not None and certificate_file is not None:
        if config_file is not None or wanted is not None:
            raise UsageError("A receipt needs no --config or --signed-by.", "Leave them out.")
        _show_receipt(receipt_file, certificate_file, plan_file, as_json)
        return
    if plan_file is None:
        raise UsageError("PLAN is missing.", "Name a plan, or a receipt: --receipt and --cert.")
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


def _show_receipt(file: Path, certificate: Path, plan_file: Path | None, as_json: bool) -> None:
    receipt = load_receipt(file, certificate)
    if plan_file is not None:
        require_plan(receipt, Plan.load(plan_file).digest)
    show_json(asdict(receipt)) if as_json else show(reports.receipt(receipt))


def _refusal(plan: Plan, found: Verified, config: Config, signature: Path) -> SecurityAbort | None:
    """Why the party's configuration does not consent to a plan that holds."""
    try:
        require_consent(plan, found, config, signature)
    except SecurityAbort as error:
        return error
    return None
