"""Who is told what by a program that a test wrote: all that it tells was asked for."""

from __future__ import annotations

from veilgraph.ir.party import ops
from veilgraph.ir.party.program import Program


def asked(program: Program) -> dict[str, set[int]]:
    """The parties of each output of the program."""
    found: dict[str, set[int]] = {}
    for node in program.nodes:
        if node.op is ops.OUTPUT:
            found.setdefault(node["name"], set()).add(node.party)
    return found
