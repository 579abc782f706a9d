"""Bounds that operations have because of what they mean, whatever their operands are."""

from __future__ import annotations

from collections.abc import Mapping

from veilgraph.ir.graph import Graph, kind_of, name_of

Bounds = tuple[float, float]
BOUNDS: Mapping[str, Bounds] = {"softmax": (0.0, 1.0)}


def declared_bounds(graph: Graph) -> dict[str, Bounds]:
    """The bounds of those operations that have some, by name."""
    return {name_of(op): BOUNDS[kind_of(op)] for op in graph.operations if kind_of(op) in BOUNDS}
