"""A model's graph reads the parts of its tables, each its owner's, in place of the whole ones."""

from __future__ import annotations

import numpy as np
from torch_mlir import ir

from veilgraph.compilation.parts import Parts, Places
from veilgraph.ir.attributes import shape_of
from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.plan.given import PLAIN


def take_apart(graph: Graph, parts: Parts) -> None:
    """Changes the graph in place.

    Raises:
        UsageError: an input that isn't there, or has not these columns.
    """
    for name in {**parts.of, **parts.columns}:
        if name not in parts.names:
            _require_columns(graph, name, len(parts.columns.get(name, ())))
    for name, columns in parts.of.items():
        value = graph.inputs[name]
        rows, _ = shape_of(value)
        given = graph.given.pop(name, PLAIN)
        width = given.shape(shape_of(value))[1]
        graph.given |= {part: given.of(at) for part, at in columns.items() if given != PLAIN}
        places = {part: given.places(at, width) for part, at in columns.items()}
        if name in graph.whole:
            graph.whole = {*graph.whole, *columns}
        added = graph.add_inputs({part: (rows, len(at)) for part, at in places.items()})
        with graph.at_start(name):
            joined = _in_order(ops.concat(list(added.values()), 1), places)
        graph.inputs[name].replace_all_uses_with(joined)
        graph.drop_input(name)
    if parts.of:
        graph.tidy()


def _require_columns(graph: Graph, name: str, count: int) -> None:
    if name not in graph.inputs:
        known = ", ".join(graph.inputs)
        raise UsageError(f"The model has no input `{name}`.", f"Its inputs are {known}.")
    shape = graph.given.get(name, PLAIN).shape(shape_of(graph.inputs[name]))
    if len(shape) != 2 or shape[1] != count:
        raise UsageError(
            f"Input `{name}` has shape {'x'.join(map(str, shape))}, and {count} columns are named.",
            "Name each column of [rows, columns] once, in the model's order.",
        )


def _in_order(joined: ir.Value, places: Places) -> ir.Value:
    """The columns of parts side by side, in the order that the model knows."""
    order = [at for part in places.values() for at in part]
    if order == sorted(order):
        return joined
    table = np.zeros((len(order), len(order)), np.float32)
    table[np.arange(len(order)), order] = 1
    return ops.Matmul.build(joined, ops.Constant.build(value=table))
