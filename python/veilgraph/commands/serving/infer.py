"""`veilgraph infer`: asks a service, as a client who computes nothing."""

from __future__ import annotations

from pathlib import Path

import click

from veilgraph.commands import arguments, outputs
from veilgraph.commands.files import check_destination, read_batches
from veilgraph.reports.tables import show, show_json
from veilgraph.serving.client import Client

EPILOG = """\b
Example, a patient's image, of which no party learns anything:
  patient$ veilgraph infer digits --config patient.yaml --input image=@image.npy
"""


@click.command("infer", epilog=EPILOG)
@click.argument("model", metavar="MODEL")
@arguments.config_option
@arguments.input_option
@arguments.output_option
@click.option("--plan", metavar="DIGEST", help="The plan that it must be; refused if another is.")
@arguments.timeout_option
@arguments.json_option
def command(
    model: str,
    config_file: Path,
    sources: arguments.Files,
    destinations: arguments.Files,
    plan: str | None,
    timeout_seconds: float | None,
    as_json: bool,
) -> None:
    """Ask the parties of a service for one inference of MODEL, as NAME or NAME/VERSION.

    The client's parties.yaml lists the parties with their certificates, and under `me` the client's
    own name, key and certificate. Every party must serve the same plan, and know the client.
    A table in a file may have any number of rows: it is asked in batches, a request each.
    """
    given = arguments.by_name("--input", sources)
    paths = arguments.by_name("--output", destinations)
    for path in paths.values():
        check_destination(path, config_file, *given.values(), is_printed=True)
    with Client(model, config_file, plan=plan, timeout_seconds=timeout_seconds) as client:
        arguments.require_known("--output", paths, [tensor.name for tensor in client.outputs])
        batches = read_batches(given, client.inputs, client.inputs, client.outputs)
        found = batches.joined([client.run(own) for own in batches.inputs])
        if as_json:
            answer = {"outputs": outputs.values(found, paths, client)}
            show_json({"plan": client.plan, **answer})
            return
        show(*outputs.lines(found, paths, client))
