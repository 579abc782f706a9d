"""`veilgraph doctor`: what this machine has and lacks."""

from __future__ import annotations

import click

from veilgraph.commands import arguments
from veilgraph.diagnosis import diagnose
from veilgraph.tables import Table, show, show_json

EPILOG = """\b
Example, what is missing, for a script:
  veilgraph doctor --json
"""


@click.command("doctor", epilog=EPILOG)
@arguments.json_option
def command(as_json: bool) -> None:
    """Look at processor, kernels, memory, TLS and packages; say what to do about what is missing.

    Nothing is changed, and nothing leaves this machine.
    """
    findings = diagnose()
    if as_json:
        show_json({"findings": [{**vars(found), "ok": found.is_ok} for found in findings]})
        return
    rows = [("ok" if f.is_ok else "warn", f.what, f.found, f.advice) for f in findings]
    show(Table.of("|what|found|what to do", rows))
