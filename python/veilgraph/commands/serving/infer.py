"""`veilgraph infer`: asks a service, as a client who computes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from veilgraph.commands import arguments, outputs
from veilgraph.commands.files import check_destination, read_batches
from veilgraph.reports.tables import show, show_json
from veilgraph.serving.client import Client
from veilgraph.verification.receipts import place

EPILOG = """\b
Example, a patient's image, of which no party learns anything:
  patient$ veilgraph infer digits --config patient.yaml --input image=@image.npy
Example, a plan of two clients, who agreed on a meeting between them:
  patient$ veilgraph infer scan --config patient.yaml --role patient --with doctor=doctor.crt \\
               --meeting 5f0c9a4e27d1b863 --input image=@image.npy
"""


@click.command("infer", epilog=EPILOG)
@click.argument("model", metavar="MODEL")
@arguments.config_option
@arguments.input_option
@arguments.output_option
@arguments.role_option
@click.option(
    "--meeting",
    metavar="TEXT",
    help="That the clients of a plan agreed on for one request; nobody else may know it.",
)
@click.option(
    "--rows",
    type=click.IntRange(1),
    metavar="N",
    help="How many the others bring, where this role gives no input.",
)
@arguments.others_option
@arguments.receipts_option
@click.option("--plan", metavar="DIGEST", help="The plan that it must be; refused if another is.")
@arguments.timeout_option
@arguments.json_option
def command(
    model: str,
    config_file: Path,
    sources: arguments.Files,
    destinations: arguments.Files,
    role: str | None,
    meeting: str | None,
    rows: int | None,
    others: tuple[tuple[str, str], ...],
    folder: Path | None,
    plan: str | None,
    timeout_seconds: float | None,
    as_json: bool,
) -> None:
    """Ask the parties of a service for one inference of MODEL, as NAME or NAME/VERSION.

    The client's parties.yaml lists the parties with their certificates, and under `me` the client's
    own name, key and certificate. Every party must serve the same plan, and know the client.
    A table in a file may have any number of rows: it is asked in batches, a request each.
    Where a plan has several clients each asks with its own role, and all name one meeting.
    """
    given = arguments.by_name("--input", sources)
    paths = arguments.by_name("--output", destinations)
    for path in paths.values():
        check_destination(path, config_file, *given.values(), is_printed=True)
    if folder is not None:
        check_destination(folder / "receipt", config_file)
    options: dict[str, Any] = {"others": arguments.by_name("--with", others), "role": role}
    options |= {"plan": plan, "timeout_seconds": timeout_seconds, "receipts": folder is not None}
    with Client(model, config_file, **options) as client:
        arguments.require_known("--output", paths, [tensor.name for tensor in client.outputs])
        if client.inputs:
            batches = read_batches(given, client.inputs, client.inputs, client.outputs)
            found = batches.joined(
                [
                    client.run(own, meeting=_meeting(meeting, number), rows=rows)
                    for number, own in enumerate(batches.inputs)
                ]
            )
        else:
            arguments.require_known("--input", given, [])
            found = client.run({}, meeting=meeting, rows=rows)
        if folder is not None:
            for party, receipt in client.receipts.items():
                place(receipt, folder / f"{party}.receipt")
        if as_json:
            answer = {"outputs": outputs.values(found, paths, client)}
            show_json({"plan": client.plan, **answer})
            return
        show(*outputs.lines(found, paths, client))


def _meeting(agreed: str | None, number: int) -> str | None:
    """Of a batch, by its number: a request each, and each has a meeting of its own."""
    return agreed if agreed is None or number == 0 else f"{agreed}/{number}"
