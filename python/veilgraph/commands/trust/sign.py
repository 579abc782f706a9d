"""`veilgraph sign`: an author vouches for a plan, in a line of text beside it."""

from __future__ import annotations

from pathlib import Path

import click

from veilgraph.commands import arguments
from veilgraph.plans import Plan
from veilgraph.reports.tables import show, show_json
from veilgraph.runtime.session.public_keys import text_of
from veilgraph.verification.signatures import sign, signature_file

EPILOG = """\b
Example, at the author's: a key that stays there, and a signature for all parties:
  veilgraph cert author author.key
  veilgraph sign digits.plan --key author.key
"""


@click.command("sign", epilog=EPILOG)
@click.argument("plan_file", metavar="PLAN", type=arguments.PATH)
@click.option(
    "--key",
    "key_file",
    type=arguments.PATH,
    required=True,
    metavar="FILE",
    help="The author's private key, which `cert author` made.",
)
@arguments.json_option
def command(plan_file: Path, key_file: Path, as_json: bool) -> None:
    """Sign PLAN as its author, into PLAN.sig, which goes to all parties with the plan.

    What is signed is the plan's digest, hence all that it says and does. Parties verify the plan
    all the same: a signature says who vouches for it, and whom to ask.
    """
    plan = Plan.load(plan_file)
    file = signature_file(plan_file)
    public_key = text_of(sign(plan, key_file, file))
    if as_json:
        show_json({"signature": str(file), "public_key": public_key, "digest": plan.digest})
        return
    show(
        f"{file} is for every party, beside the plan.",
        f"The plan's digest: {plan.digest}",
        f"Signed with the key: {public_key}",
    )
