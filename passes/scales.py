"""How many fraction bits every value is stored with: ENCODING.md's algorithm, one ring a plan.

For products of activations x (stored with s bits) and weights w, whose sum has S bits:

    S   the most for which every value of the unit fits: reach 2^S < 2^(K-2)
    s   where the noise of rounding x and that of rounding w balance,
        4^s = sqrt((a / 6) / (b 4^-S / 12)), and no more than the goal needs
    S - s bits for w

with a and b from derivatives (ranges.py), and what bears on s gathered in scale_drafts.py. The
scales of weights and constants follow from those of what they meet (weight_scales.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch_mlir import ir

from veilgraph.ir.graph import Graph
from veilgraph.passes.ranges import Statistics
from veilgraph.passes.scale_drafts import ROUNDING_NOISE, Budget, Drafts, activations
from veilgraph.passes.scale_structure import Structure
from veilgraph.passes.weight_scales import WeightScales


@dataclass(frozen=True)
class Scales:
    """Fraction bits of what a plan stores.

    Attributes:
        stored: of every value that isn't pending, and of what a pending one is truncated to.
        wide: of pending values, the most for which they fit, where their range is known.
        error: the outputs' predicted error, relative to their size.
        loudest: the value whose class adds most of it.
        misfits: values that don't fit the ring.
    """

    stored: Mapping[ir.Value, int]
    wide: Mapping[ir.Value, int]
    error: float
    loudest: ir.Value | None
    misfits: tuple[ir.Value, ...]


def choose_scales(
    graph: Graph,
    structure: Structure,
    statistics: Mapping[ir.Value, Statistics],
    budget: Budget,
) -> Scales:
    """The scales of a program.

    Args:
        statistics: of the values of which anything is known; of the weights always.
    """
    wide = _wide(structure, statistics, budget)
    drafts = Drafts(graph, structure, statistics, wide, budget).gather()
    compared = sum(draft.compared for draft in drafts.values())
    classes = {root: draft.frac_bits(budget, compared) for root, draft in drafts.items()}
    if budget.frac_bits is None:
        _fit_products(structure, wide, classes)
    stored = {v: classes[structure.stored.root(v)] for v in activations(graph, structure)}
    stored |= WeightScales(graph, structure, statistics, wide, stored, budget).choose()
    noises = {root: draft.noise * 4.0 ** -classes[root] for root, draft in drafts.items()}
    for value in graph.parameters.values():
        noises[value] = ROUNDING_NOISE * (statistics[value].gain or 0.0) * 4.0 ** -stored[value]
    loudest = max(noises, key=lambda value: noises[value], default=None)
    misfits = tuple(_misfits(structure, statistics, stored, budget))
    return Scales(stored, wide, math.sqrt(sum(noises.values())), loudest, misfits)


def _wide(
    structure: Structure, statistics: Mapping[ir.Value, Statistics], budget: Budget
) -> dict[ir.Value, int]:
    """For each pending value, the most bits for which all of its unit fits."""
    units: dict[ir.Value, int] = {}
    for value in structure.pending:
        if value in statistics:
            root, bits = structure.units.root(value), budget.room(statistics[value])
            units[root] = min(units.get(root, bits), bits)
    roots = {value: structure.units.root(value) for value in structure.pending}
    return {value: units[root] for value, root in roots.items() if root in units}


def _fit_products(
    structure: Structure, wide: Mapping[ir.Value, int], classes: dict[ir.Value, int]
) -> None:
    """Takes bits from both operands of a product of activations until the result fits."""
    for product in structure.products:
        adapts = product.x in structure.adaptable or product.y in structure.adaptable
        if adapts or product.result not in wide:
            continue
        x, y = structure.stored.root(product.x), structure.stored.root(product.y)
        excess = max(0, classes[x] + classes[y] - wide[product.result])
        classes[x] -= (excess + 1) // 2
        if x != y:
            classes[y] -= excess // 2


def _misfits(
    structure: Structure,
    statistics: Mapping[ir.Value, Statistics],
    stored: Mapping[ir.Value, int],
    budget: Budget,
) -> Iterator[ir.Value]:
    """Products, then values, that have more fraction bits than they have room for."""
    scales = [(p.result, stored[p.x] + stored[p.y]) for p in structure.products]
    for value, bits in (*scales, *stored.items()):
        if value in statistics and bits > budget.room(statistics[value]):
            yield value
