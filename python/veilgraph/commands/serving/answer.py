"""`veilgraph answer`: one party's part in an inference on files of clients that are offline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from veilgraph.commands import arguments
from veilgraph.commands.files import check_destination
from veilgraph.reports.tables import progress, show
from veilgraph.serving import offline

EPILOG = """\b
Example, three hosts, each with the file that the client gave it:
  alice$ veilgraph answer digits.plan --party alice --config alice.yaml patient.alice.share
  bob$   veilgraph answer digits.plan --party bob --config bob.yaml patient.bob.share \\
             --weights digits.weights
  carol$ veilgraph answer digits.plan --party carol --config carol.yaml patient.carol.share
"""


@click.command("answer", epilog=EPILOG)
@click.argument("plan_file", metavar="PLAN", type=arguments.PATH)
@click.argument("files", metavar="[FILE]...", type=arguments.PATH, nargs=-1)
@arguments.party_option
@arguments.config_option
@click.option(
    "--weights",
    type=arguments.PATH,
    metavar="FILE",
    help="model.weights at their owner's, or model.PARTY.shares where no party has them.",
)
@click.option(
    "--folder",
    type=arguments.PATH,
    default=Path(),
    metavar="DIR",
    help="Where the files for the clients go.  [default: here]",
)
@arguments.trust_author_option
@arguments.device_option
@arguments.threads_option
def command(
    plan_file: Path,
    files: tuple[Path, ...],
    party: str,
    config_file: Path,
    folder: Path,
    **options: Any,
) -> None:
    """Run PLAN once on FILEs that `veilgraph share` wrote for this party, one of each client.

    The other parties run it at the same time, on theirs. What goes to each client is written as
    ROLE.PARTY.answer, encrypted to the certificate that signed its FILE. me.clients in parties.yaml
    says whose files are taken. A FILE is used once.
    """
    check_destination(folder / "answer", plan_file, config_file)
    with progress("waiting for the other parties"):
        written = offline.answer(plan_file, party, config_file, files, folder, **options)
    show(*(f"{path} is for {role}, and for nobody else." for role, path in written.items()))
