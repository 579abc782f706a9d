"""Ranges that need no samples: those of operations whose operands say nothing about them."""

from __future__ import annotations

from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, name_of

Bounds = tuple[float, float]


def declared_bounds(graph: Graph) -> dict[str, Bounds]:
    """The bounds of softmaxes, by name: samples where one number wins show no others."""
    bounds = ops.facts_of_kind(ops.Softmax).bounds
    assert bounds is not None
    return {name_of(op): bounds for op in graph.operations if isinstance(op, ops.Softmax)}
