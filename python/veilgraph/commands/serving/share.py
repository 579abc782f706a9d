"""`veilgraph share`: a client's inputs as files, one a party, for clients that are offline."""

from __future__ import annotations

from pathlib import Path

import click

from veilgraph.commands import arguments
from veilgraph.commands.files import check_destination, read_inputs
from veilgraph.plans import Plan
from veilgraph.reports.tables import show
from veilgraph.serving import offline

EPILOG = """\b
Example, for parties that run on the files when it suits them:
  patient$ veilgraph share digits.plan --config patient.yaml --input image=@image.npy
"""


@click.command("share", epilog=EPILOG)
@click.argument("plan_file", metavar="PLAN", type=arguments.PATH)
@arguments.config_option
@arguments.input_option
@arguments.role_option
@arguments.others_option
@click.option(
    "--folder",
    type=arguments.PATH,
    default=Path(),
    metavar="DIR",
    help="Where the files go.  [default: here]",
)
def command(
    plan_file: Path,
    config_file: Path,
    sources: arguments.Files,
    role: str | None,
    others: tuple[tuple[str, str], ...],
    folder: Path,
) -> None:
    """Write a client's inputs of PLAN as ROLE.PARTY.share, each encrypted to its party.

    One file says nothing of the input, and is good for one inference. Each party runs on its own
    with `veilgraph answer`; `veilgraph reveal` puts together what they give back.
    """
    given, pinned = arguments.by_name("--input", sources), arguments.by_name("--with", others)
    check_destination(folder / "share", plan_file, config_file)
    plan = Plan.load(plan_file)
    client = offline.role_of(plan, role)
    inputs = read_inputs(given, plan.party(client).inputs)
    written = offline.share(plan_file, config_file, inputs, folder, role=client, others=pinned)
    show(*(f"{path} is for {party}, and for nobody else." for party, path in written.items()))
    number = offline.sharing_of(next(iter(written.values())))
    show(f"To take answers to this alone: reveal --sharing {number}")
