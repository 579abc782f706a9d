"""`veilgraph ops`: the ONNX operators that can be compiled."""

from __future__ import annotations

import click

from veilgraph.commands import arguments
from veilgraph.operators import OPERATORS, find
from veilgraph.reports.tables import Table, show, show_json

EPILOG = """\b
Example, what a convolution may look like:
  veilgraph ops Conv
"""


@click.command("ops", epilog=EPILOG)
@click.argument("name", required=False)
@arguments.json_option
def command(name: str | None, as_json: bool) -> None:
    """List the ONNX operators that can be compiled, or say of one, NAME, in which forms.

    A model with others is refused by `compile`, which names every such node and a way out.
    """
    chosen = OPERATORS if name is None else (find(name),)
    if as_json:
        show_json({"operators": [vars(operator) for operator in chosen]})
        return
    rows = [(operator.name, operator.forms, operator.becomes) for operator in chosen]
    show(Table.of("operator|forms|what it costs the parties", rows))
