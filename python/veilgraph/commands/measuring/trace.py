"""`veilgraph trace`: the traces of all parties on one time line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from veilgraph.commands import arguments
from veilgraph.commands.files import check_destination, replacing
from veilgraph.ir.errors import UsageError
from veilgraph.reports import units
from veilgraph.reports.merged_traces import merged
from veilgraph.reports.tables import Table, show, show_json

MOST_BYTES = 1 << 28
EPILOG = """\b
Example, after each party ran with --trace:
  alice$ veilgraph trace alice.json bob.json carol.json -o all.json
"""


@click.command("trace", epilog=EPILOG)
@click.argument("files", metavar="FILE.json...", type=arguments.PATH, nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    "destination",
    type=arguments.PATH,
    metavar="FILE.json",
    required=True,
    help="Where all of them go; https://ui.perfetto.dev shows it.",
)
@arguments.json_option
def command(files: tuple[Path, ...], destination: Path, as_json: bool) -> None:
    """Put traces that parties wrote with `run --trace` on one time line.

    Hosts' clocks differ. They are moved so that no message is received before it was sent, and the
    table says by how much, and how far that may be wrong.
    """
    check_destination(destination, *files)
    found = merged([_read(file) for file in files])
    with replacing(destination) as content:
        content.write(json.dumps(found.trace).encode())
    if as_json:
        show_json({"file": str(destination), **found.in_seconds()})
        return
    rows = [
        (party, units.seconds(abs(by) / 1e6), units.seconds(found.uncertain[party] / 1e6))
        for party, by in found.moved.items()
    ]
    show(Table.of("party|#clock moved by|#to within", rows), f"{destination} has all of them.")


def _read(file: Path) -> Any:
    try:
        with file.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise UsageError(f"{file} is too long for a trace.", "`run --trace` writes one.")
        return json.loads(content)
    except OSError as error:
        raise UsageError(f"{file} can't be read: {error.strerror}.", "Check the path.") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is no trace.", "`run --trace FILE.json` writes one.") from error
