"""How many fraction bits every value is stored with: ENCODING.md's algorithm, one ring a plan.

For products of activations x (stored with s bits) and weights w, whose sum has S bits:

    S   the most for which every value of the unit fits: reach 2^S < 2^(K-2)
    s   where the noise of rounding x and that of rounding w balance,
        4^s = sqrt((a / 6) / (b 4^-S / 12)), and no more than the goal needs
    S - s bits for w

with a and b as in sensitivities.py. Logarithms are rounded to 1/64 bit before they are compared, so
that every CPU chooses alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from torch_mlir import ir

from veilgraph.ir.attributes import element_count, shape_of
from veilgraph.ir.graph import Graph, kind_of
from veilgraph.passes.ranges import Statistics
from veilgraph.passes.scale_structure import NONLINEAR, Product, Structure

UNKNOWN_BITS = 16  # of fraction, where nothing is known about a value
TRUNCATION_NOISE = 1 / 6  # variance of rounding at random, in units of the last place squared
ROUNDING_NOISE = 1 / 12  # of rounding to the nearest
LOG_STEPS = 64


@dataclass(frozen=True)
class Budget:
    """What a plan may use, and what it aims at.

    Attributes:
        ring_bits: the width K of every ring.
        margin: how many times larger than calibrated a value may be.
        goal: error of the outputs, relative to their size, below which comparisons need no more
            bits.
        frac_bits: of every stored value and every weight, where the user fixes them.
    """

    ring_bits: int
    margin: float
    goal: float
    frac_bits: int | None = None

    def room(self, known: Statistics) -> int:
        """The most fraction bits with which a value fits a truncation: reach 2^S < 2^(K-2)."""
        reach = known.range.reach(self.margin) or 1.0
        return self.ring_bits - 2 - math.floor(_steady(math.log2(reach)) + 1)


@dataclass(frozen=True)
class Scales:
    """Fraction bits of what a plan stores.

    Attributes:
        stored: of every value that isn't pending, and of what a pending one is truncated to.
        wide: of pending values, the most for which they fit; missing where nothing is known.
    """

    stored: Mapping[ir.Value, int]
    wide: Mapping[ir.Value, int]


@dataclass
class _Draft:
    """What is known about a class of values that share a scale."""

    cap: int | None = None
    noise: float = 0.0  # that storing with 0 bits would cause
    spoil: float = 0.0  # that weights with -s bits cause where the class is multiplied: times 4^s
    compared: int = 0  # elements that are compared
    unknown: bool = False

    def limit(self, bits: int) -> None:
        self.cap = bits if self.cap is None else min(self.cap, bits)


def choose_scales(
    graph: Graph,
    structure: Structure,
    statistics: Mapping[ir.Value, Statistics],
    gains: Mapping[ir.Value, float],
    budget: Budget,
) -> Scales:
    """The scales of a program.

    Args:
        statistics: of the values of which anything is known.
        gains: what noise on each value does to the outputs (sensitivities.py).
    """
    wide = _wide(structure, statistics, budget)
    drafts = _drafts(graph, structure, statistics, wide, gains, budget)
    price = _price(drafts.values(), budget.goal)
    classes = {root: _frac_bits(draft, price, budget) for root, draft in drafts.items()}
    if budget.frac_bits is None:
        _fit_products(structure, wide, classes)
    stored = {v: classes[structure.stored.root(v)] for v in _activations(graph, structure)}
    stored |= _weights(graph, structure, statistics, wide, stored, budget)
    return Scales(stored, wide)
