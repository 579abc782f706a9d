"""Bounds that operations declare of themselves, because of what they mean.

A pass that rewrites a function knows things that interval arithmetic can't find: e^(x - max x) lies
in [0, 1]. It declares them on the function, by operation name: `graph.bounds = {"name" = [0, 1]}`.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch_mlir import ir

from veilgraph.ir.graph import Graph, name_of

ATTRIBUTE = "graph.bounds"
Bounds = tuple[float, float]


def declared_bounds(graph: Graph) -> dict[str, Bounds]:
    """The bounds of those operations that declare them and still exist."""
    declared = graph.function.attributes
    if ATTRIBUTE not in declared:
        return {}
    known = {entry.name: tuple(entry.attr) for entry in declared[ATTRIBUTE]}
    names = [name_of(op) for op in graph.operations]
    return {name: known[name] for name in names if name in known}


def declare_bounds(graph: Graph, bounds: Mapping[str, Bounds]) -> None:
    """Adds bounds to those declared before."""
    merged = declared_bounds(graph) | dict(bounds)
    with graph.module.context:
        entries = {name: ir.DenseF64ArrayAttr.get(list(pair)) for name, pair in merged.items()}
        graph.function.attributes[ATTRIBUTE] = ir.DictAttr.get(entries)
