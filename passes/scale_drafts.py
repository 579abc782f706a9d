"""What bears on the scale of each class of stored values: room, noise, products, comparisons."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch_mlir import ir

from veilgraph.ir.attributes import element_count, shape_of
from veilgraph.ir.graph import Graph, kind_of
from veilgraph.passes.public_numbers import number_of
from veilgraph.passes.ranges import Statistics
from veilgraph.passes.scale_structure import NONLINEAR, Product, Structure

UNKNOWN_BITS = 16  # of fraction, where nothing is known about a value
STEEP_BITS = 24  # where its range is known, but not what noise on it does: as float32 has
TRUNCATION_NOISE = 1 / 6  # variance of rounding at random, in units of the last place squared
ROUNDING_NOISE = 1 / 12  # of rounding to the nearest
LOG_STEPS = 64
EXACT_STEPS = 16  # constants that are multiples of 1/16 are stored exactly


def steady(logarithm: float) -> float:
    """To 1/64 bit: what differs in its last digits only becomes the same."""
    return round(logarithm * LOG_STEPS) / LOG_STEPS


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
        return self.ring_bits - 2 - (math.floor(steady(math.log2(reach))) + 1)


@dataclass
class Draft:
    """What bears on the scale s of one class.

    Attributes:
        cap: the most bits that fit.
        noise: what storing with 0 bits would do to the outputs: times 4^-s.
        spoil: what weights left with -s bits would do where the class is multiplied: times 4^s.
        compared: how many elements are compared.
        half: half of the accumulators' bits where it is multiplied.
        steep: whether it isn't known what noise on it does; as where it seems to do nothing.
        unknown: whether it is multiplied without its range, or the product's, being known.
        integral: whether it holds integers alone.
    """

    cap: int | None = None
    noise: float = 0.0
    spoil: float = 0.0
    compared: int = 0
    half: int | None = None
    steep: bool = False
    unknown: bool = False
    integral: bool = False

    def limit(self, bits: int) -> None:
        """No more than `bits`."""
        self.cap = bits if self.cap is None else min(self.cap, bits)

    def frac_bits(self, budget: Budget, compared: int) -> int:
        """The scale, when `compared` elements share the goal's error by their number."""
        if self.integral:
            return 0
        if budget.frac_bits is not None:
            return budget.frac_bits
        if self.unknown or self.cap is None:
            return UNKNOWN_BITS if self.cap is None else min(UNKNOWN_BITS, self.cap)
        options = [self.cap, STEEP_BITS] if self.steep or not self.noise else [self.cap]
        if self.noise and self.spoil and not self.steep:
            options.append(math.floor(steady(math.log2(self.noise / self.spoil) / 4)))
        elif self.half is not None:
            options.append(self.half)
        if self.noise and self.compared and not self.steep:
            share = budget.goal**2 / 4 * self.compared / compared
            options.append(math.ceil(steady(math.log2(self.noise / share) / 2)))
        return min(options)


def activations(graph: Graph, structure: Structure) -> Iterator[ir.Value]:
    """Inputs and results, but for weights and constants, in program order."""
    yield from graph.inputs.values()
    results = (op.operation.results[0] for op in graph.operations)
    yield from (value for value in results if value not in structure.adaptable)


@dataclass
class Drafts:
    """Gathers the drafts of all classes of activations.

    Attributes:
        statistics: of the values of which anything is known.
        wide: of pending values, the most bits for which they fit.
    """

    graph: Graph
    structure: Structure
    statistics: Mapping[ir.Value, Statistics]
    wide: Mapping[ir.Value, int]
    budget: Budget

    def gather(self) -> dict[ir.Value, Draft]:
        """The drafts by their class's root."""
        drafts: dict[ir.Value, Draft] = {}
        structure = self.structure

        def of(value: ir.Value) -> Draft:
            return drafts.setdefault(structure.stored.root(value), Draft())

        for value in activations(self.graph, structure):
            self._add_member(of(value), value)
            of(value).integral |= value in structure.integral
        for op in self.graph.operations:
            if kind_of(op) in NONLINEAR:
                self._add_comparison(of(op.operation.results[0]), op)
        for total, value in structure.residuals:
            if total in self.wide:
                of(value).limit(self.wide[total])
        for target, value in structure.offsets:
            if target not in structure.pending:
                of(target).noise += ROUNDING_NOISE * self._constant_gain(value)
        for product in structure.products:
            for number, value in enumerate((product.x, product.y)):
                if value not in structure.adaptable:
                    self._add_product(of(value), product, number)
        return drafts

    def _add_comparison(self, draft: Draft, op: ir.OpView) -> None:
        operands = list(op.operation.operands)
        draft.compared += element_count(shape_of(operands[0]))
        if kind_of(op) != "relu":
            for value in operands:
                if value in self.statistics:
                    # Maxima compare differences, which reach twice as far.
                    draft.limit(self.budget.room(self.statistics[value]) - 1)

    def _constant_gain(self, value: ir.Value) -> float:
        """The gain of a public constant that isn't exact with a few fraction bits, else 0."""
        number, known = number_of(value), self.statistics.get(value)
        if number is None or known is None or (number * EXACT_STEPS).is_integer():
            return 0.0
        return known.gain or 0.0

    def _add_member(self, draft: Draft, value: ir.Value) -> None:
        known = self.statistics.get(value)
        if known is None:
            return
        draft.limit(self.budget.room(known))
        if known.gain is None:
            draft.steep = True
        elif isinstance(value, ir.BlockArgument):
            draft.noise += ROUNDING_NOISE * known.gain
        elif value in self.structure.pending and self._is_truncated(value):
            draft.noise += TRUNCATION_NOISE * known.gain

    def _is_truncated(self, value: ir.Value) -> bool:
        """Whether some step needs the stored form of a pending value."""
        multiplied = {product.result for product in self.structure.products}
        users = [use.owner for use in value.uses]
        results = [user.results[0] for user in users if user.operation.name != "func.return"]
        return any(r in multiplied or r not in self.structure.pending for r in results)

    def _add_product(self, draft: Draft, product: Product, number: int) -> None:
        value, partner = (product.x, product.y)[number], (product.x, product.y)[1 - number]
        if value not in self.statistics or product.result not in self.wide:
            draft.unknown = True
            return
        bits = self.wide[product.result]
        if value == partner:
            draft.limit(bits // 2)
            return
        draft.half = bits // 2 if draft.half is None else min(draft.half, bits // 2)
        if partner in self.statistics:
            noise = ROUNDING_NOISE if partner in self.structure.adaptable else TRUNCATION_NOISE
            draft.spoil += noise * (self.statistics[partner].gain or 0.0) * 4.0**-bits
