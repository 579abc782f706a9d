"""Fraction bits of weights and constants: what the accumulators they meet leave for them.

A weight that is multiplied gets the bits of the accumulator that the activation hasn't; one that is
added or compared gets those of what it meets. One that is used in several places fits them all. One
that meets nothing, as a parameter that training begins with, gets those of its own size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch_mlir import ir

from veilgraph.ir.graph.facts import Arithmetic
from veilgraph.ir.graph.ops import facts_of
from veilgraph.ir.graph.program import Graph
from veilgraph.passes.encode.scales.accumulators import Structure
from veilgraph.passes.encode.scales.constraints import UNKNOWN_BITS, Budget, steady
from veilgraph.passes.encode.scales.ring_widths import Rings
from veilgraph.passes.ranges.calibrate import Statistics

MOST_EXTRA_BITS = 16  # for small weights, where nothing is known about what they meet


@dataclass(frozen=True)
class WeightScales:
    """Chooses them, the scales of activations given.

    Attributes:
        wide: of deferred values, the most bits for which they fit, where that is known.
        stored: the fraction bits of activations.
        rings: of all values.
    """

    graph: Graph
    structure: Structure
    statistics: Mapping[ir.Value, Statistics]
    wide: Mapping[ir.Value, int]
    stored: Mapping[ir.Value, int]
    rings: Rings
    budget: Budget

    def choose(self) -> dict[ir.Value, int]:
        """Fraction bits of every weight, constant and layout of one."""
        chosen: dict[ir.Value, int] = {}
        for root, bits in self._multiplied():
            chosen[root] = min(chosen.get(root, bits), bits)
        met = self._met(chosen)
        for target, value in self.structure.offsets:
            root = self.structure.stored.root(value)
            chosen[root] = min(chosen.get(root, met[target]), met[target])
        every = {value: self.structure.stored.root(value) for value in self._adaptable()}
        if self.budget.frac_bits is None:
            for root in every.values():
                headroom = self.budget.headroom(self.statistics[root], self.rings.stored(root))
                own = _significant(self.statistics[root])
                chosen[root] = min(chosen.get(root, own), headroom)
        return {value: chosen.get(root, UNKNOWN_BITS) for value, root in every.items()}

    def _adaptable(self) -> Iterator[ir.Value]:
        """Weights, constants and their layouts, in program order."""
        results = (op.operation.results[0] for op in self.graph.operations)
        for value in (*self.graph.parameters.values(), *results):
            if value in self.structure.adaptable:
                yield value

    def _multiplied(self) -> Iterator[tuple[ir.Value, int]]:
        """For each place where a class of weights is multiplied, the bits left there."""
        for product in self.structure.products:
            for x, w in ((product.x, product.y), (product.y, product.x)):
                if w in self.structure.adaptable and x in self.stored:
                    root = self.structure.stored.root(w)
                    yield root, self._left(product.result, self.stored[x], self.statistics[root])

    def _left(self, result: ir.Value, taken: int, weight: Statistics) -> int:
        if self.budget.frac_bits is not None:
            return self.budget.frac_bits
        if result in self.wide:
            return self.wide[result] - taken
        return _significant(weight)  # nothing is known of the sum

    def _met(self, chosen: Mapping[ir.Value, int]) -> dict[ir.Value, int]:
        """The scale at which each value can meet a weight: a deferred one's is its
        accumulator's.
        """
        alone = dict(self.stored)
        for value in self._adaptable():
            alone[value] = chosen.get(self.structure.stored.root(value), UNKNOWN_BITS)
        scales = dict(alone)
        for product in self.structure.products:
            scales[product.result] = alone[product.x] + alone[product.y]
        for result, operand, factor in self.structure.factors:
            bits = alone[operand] - factor.exponent
            scales[result] = min(bits, self.wide.get(result, bits))
        for op in self.graph.operations:
            result = op.operation.results[0]
            if facts_of(op).arithmetic is Arithmetic.SUM and result in self.structure.deferred:
                scales[result] = max(scales[v] for v in op.operation.operands if v in self.stored)
        return scales


def _significant(weight: Statistics) -> int:
    """Fraction bits with which small weights keep 16 significant ones, within reason."""
    magnitude = math.floor(steady(math.log2(weight.range.bound or 1.0)))
    return UNKNOWN_BITS + min(MOST_EXTRA_BITS, max(0, -1 - magnitude))
