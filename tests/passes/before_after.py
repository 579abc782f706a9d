"""The examples in a pass's docstring, and programs in the notation that they are written in."""

from __future__ import annotations

import inspect
import textwrap
from typing import Any

import numpy as np
from torch_mlir import ir

from veilgraph.ir.graph.program import Graph, kind_of
from veilgraph.ir.graph.program import attributes as graph_attributes
from veilgraph.ir.secret.dialect import attributes_of
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.ir.secret.types import Tensor

WINDOW = ("window_bits", "dropped_bits")


def example(a_pass: type, title: str) -> str:
    """The block under the line of the docstring that begins with `title` and ends with `::`."""
    lines = (inspect.getdoc(a_pass) or "").splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(title) and line[-2:] == "::")
    block: list[str] = []
    for line in lines[first + 1 :]:
        if line and not line.startswith(" "):
            break
        block.append(line)
    return textwrap.dedent("\n".join(block)).strip()


def listing(program: Graph | SecretProgram, windows: bool = False) -> str:
    """An operation a line: its kind, operands, attributes, and at the secret level its scale."""
    names = _argument_names(program)
    lines = []
    for number, op in enumerate(program.operations, 1):
        result = op.operation.results[0]
        names[result] = f"%{number}"
        operands = ", ".join(names[value] for value in op.operation.operands)
        named = _attributes(program, op, windows)
        shown = " {" + ", ".join(f"{n} = {named[n]}" for n in sorted(named)) + "}" if named else ""
        scale = "" if isinstance(program, Graph) else f" : {Tensor.of(result).encoding.frac_bits}"
        lines.append(f"%{number} = {kind_of(op)} {operands}".rstrip() + shown + scale)
    return "\n".join(lines)


def _argument_names(program: Graph | SecretProgram) -> dict[ir.Value, str]:
    if isinstance(program, Graph):
        named = program.inputs | program.parameters
        return {value: f"%{name}" for name, value in named.items()}
    arguments = zip(program.block.arguments, program.arguments, strict=True)
    return {value: f"%{argument.name}" for value, argument in arguments}


def _attributes(program: Graph | SecretProgram, op: ir.OpView, windows: bool) -> dict[str, Any]:
    named: dict[str, Any] = (
        dict(graph_attributes(op)) if isinstance(program, Graph) else attributes_of(op)
    )
    hidden = () if windows else WINDOW
    return {
        name: value
        for name, value in named.items()
        if name not in hidden and not isinstance(value, np.ndarray)
    }
