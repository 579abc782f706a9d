"""`veilgraph reveal`: the parties' files of an answer, put together at the client."""

from __future__ import annotations

from pathlib import Path

import click

from veilgraph.commands import arguments, outputs
from veilgraph.commands.files import check_destination
from veilgraph.plans import Plan
from veilgraph.reports.tables import show, show_json
from veilgraph.serving import offline
from veilgraph.verification.receipts import place

EPILOG = """\b
Example, with a file of each party:
  patient$ veilgraph reveal digits.plan --config patient.yaml patient.*.answer
"""


@click.command("reveal", epilog=EPILOG)
@click.argument("plan_file", metavar="PLAN", type=arguments.PATH)
@click.argument("files", metavar="FILE...", type=arguments.PATH, nargs=-1, required=True)
@arguments.config_option
@arguments.output_option
@arguments.role_option
@click.option(
    "--sharing",
    metavar="ID",
    help="The sharing that answers must be to, as `share` told it; else whoever keeps the files "
    "may give those of an older one.",
)
@arguments.receipts_option
@arguments.json_option
def command(
    plan_file: Path,
    files: tuple[Path, ...],
    config_file: Path,
    destinations: arguments.Files,
    role: str | None,
    sharing: str | None,
    folder: Path | None,
    as_json: bool,
) -> None:
    """Put FILEs that `veilgraph answer` wrote for this client together, one of each party."""
    plan = Plan.load(plan_file)
    client = offline.role_of(plan, role)
    paths = arguments.by_name("--output", destinations)
    arguments.require_known("--output", paths, [each.name for each in plan.party(client).outputs])
    for path in paths.values():
        check_destination(path, plan_file, config_file, *files, is_printed=True)
    if folder is not None:
        check_destination(folder / "receipt", config_file)
    found = offline.reveal(plan_file, config_file, files, role=client, sharing=sharing)
    if folder is not None:
        for party, receipt in found.receipts.items():
            place(receipt, folder / f"{party}.receipt")
    if as_json:
        show_json({"plan": plan.digest, "outputs": outputs.values(found.outputs, paths, plan)})
        return
    show(*outputs.lines(found.outputs, paths, plan) or [f"{client} receives no output."])
