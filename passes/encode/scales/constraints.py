"""What bears on the scale of each class of stored values: headroom, noise, products, comparisons.

Gathered once for a program; rings are tried on it (fraction_bits.py, width_search.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from torch_mlir import ir

from veilgraph.ir.attributes import element_count, shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.facts import Arithmetic
from veilgraph.ir.graph.program import Graph, users
from veilgraph.passes.encode.scales.accumulators import Product, Structure
from veilgraph.passes.graph.public_factors import number_of
from veilgraph.passes.ranges.calibrate import Statistics

UNKNOWN_BITS = 16  # of fraction, where nothing is known about a value
LEAST_SIGNIFICANT = 8  # bits of the largest value, where they fit
LEAST_FRACTION = 8  # of functions, where they fit
MOST_FRACTION = 20  # of functions: more terms than more bits would take are not worth it
MIN_FRACTION = -64  # none
RATE_SIGNIFICANT = 8  # bits of the smallest rate are enough: it is off by 1/512 then
ROW_FRACTION = 12  # of a softmax: samples where one number wins hide what noise does elsewhere
INVERSE_SIGNIFICANT = 14  # bits of the least inverse, for it multiplies the largest numbers
UNKNOWN_GAIN_BITS = 24  # where its range is known, but not what noise on it does: as float32 has
SIGN_GUARD = 8  # bits of a ReLU's sign beyond those of its value: it masks derivatives whole
WIDE = 48  # bits of a ring: inputs that comparisons alone read take each bit above these
TRUNCATION_NOISE = 1 / 6  # variance of rounding at random, in units of the last place squared
FUNCTION_NOISE = 1 / 4  # truncation, and a Fourier series that is half a unit off
ROUNDING_NOISE = 1 / 12  # of rounding to the nearest
LOG_STEPS = 64
EXACT_STEPS = 16  # constants that are multiples of 1/16 are stored exactly


def steady(logarithm: float) -> float:
    """To 1/64 bit: what differs in its last digits only becomes the same."""
    return round(logarithm * LOG_STEPS) / LOG_STEPS


@dataclass(frozen=True)
class Budget:
    """What a plan aims at, whatever its rings are.

    Attributes:
        margin: how many times larger than calibrated a value may be.
        goal: error of the outputs, relative to their size, below which comparisons need no more
            bits.
        frac_bits: of every stored value and every weight, where the user fixes them.
        trains: whether derivatives are computed: signs mask them.
        rates: inputs that are public rates, by name.
        mask_weight: how many times as much the noise counts of what leads to a mask of derivatives.
    """

    margin: float
    goal: float
    frac_bits: int | None = None
    trains: bool = False
    rates: tuple[str, ...] = ()
    mask_weight: float = 1.0

    def whole_bits(self, known: Statistics) -> int:
        """The least b with which every such value stays below 2^b, margin included."""
        magnitude = known.range.magnitude(self.margin) or 1.0
        return math.floor(steady(math.log2(magnitude))) + 1

    def headroom(self, known: Statistics, ring_bits: int) -> int:
        """The most fraction bits with which a value fits a truncation: reach 2^S < 2^(k-2)."""
        return headroom(ring_bits, self.whole_bits(known))


def headroom(ring_bits: int, whole_bits: int) -> int:
    """Fraction bits left in a ring where values below 2^whole_bits are to be truncated."""
    return ring_bits - 2 - whole_bits


@dataclass(frozen=True)
class NoiseGain:
    """What rounding does to what a class is multiplied by: `noise` times 4^(s - S).

    Attributes:
        accumulator: root of the accumulator with S bits.
        weights: whether it is weights that are rounded, and not another class's own noise.
    """

    noise: float
    accumulator: ir.Value
    weights: bool


@dataclass
class ScaleConstraint:
    """What bears on the scale s of one class, whatever the rings are.

    Attributes:
        whole_bits: of its largest value, where anything is known.
        within: roots of accumulators that have to hold it.
        squared: roots of those in which it is multiplied by itself.
        multiplied: roots of those in which it is multiplied by another.
        noise: what storing with 0 bits would do to the outputs: times 4^-s. It has the weight of
            what leads to masks.
        noise_gains: what its bits cost others.
        compared: how many elements are compared.
        unknown_gain: whether it isn't known what noise on it does; as where it seems to do nothing.
        unknown: whether it is multiplied without its range, or the product's, being known.
        integral: whether it holds integers alone.
        most: bits that are enough, if that is known.
        least: bits that are needed, whatever the samples say, where there is headroom.
        of_function: whether a real function takes or makes it, or an integer part is taken of it.
        wants_ring: whether it has to be in a wide ring: a Fourier series needs one. So does what an
            integer part is taken of: no derivative says what noise does there.
        signs: whether a comparison asks for signs, which say nothing of how near to zero they are.
        signed: how many elements are multiplied by their own sign, as in a ReLU.
        computed: whether products make some of it; else it is given, moved and compared.
        masks: whether it leads to a comparison in a program that trains: noise on it turns masks of
            derivatives over, which no derivative says.
    """

    whole_bits: int | None = None
    within: set[ir.Value] = field(default_factory=set)
    squared: set[ir.Value] = field(default_factory=set)
    multiplied: set[ir.Value] = field(default_factory=set)
    noise: float = 0.0
    noise_gains: list[NoiseGain] = field(default_factory=list)
    compared: int = 0
    unknown_gain: bool = False
    unknown: bool = False
    integral: bool = False
    most: int | None = None
    least: int = MIN_FRACTION
    of_function: bool = False
    wants_ring: bool = False
    signs: bool = False
    signed: int = 0
    computed: bool = False
    masks: bool = False

    @property
    def accumulators(self) -> set[ir.Value]:
        """Roots of those whose S bears on the scale."""
        return (
            self.within | self.squared | self.multiplied | {s.accumulator for s in self.noise_gains}
        )

    def reaches(self, whole_bits: int) -> None:
        """Some value of the class needs so many bits before the point."""
        self.whole_bits = (
            whole_bits if self.whole_bits is None else max(self.whole_bits, whole_bits)
        )

    def cap(self, ring_bits: int, wide: Mapping[ir.Value, int]) -> int | None:
        """The most bits that fit."""
        limits = [wide[accumulator] for accumulator in self.within]
        limits += [wide[accumulator] // 2 for accumulator in self.squared]
        if self.whole_bits is not None:
            limits.append(headroom(ring_bits, self.whole_bits))
        if self.most is not None:
            limits.append(self.most)
        return min(limits, default=None)

    def frac_bits(
        self, budget: Budget, compared: int, ring_bits: int, wide: Mapping[ir.Value, int]
    ) -> int:
        """The scale, when `compared` elements share the goal's error by their number.

        Args:
            ring_bits: the class's.
            wide: S of accumulators, by root.
        """
        if self.integral:
            return 0
        if budget.frac_bits is not None:
            return budget.frac_bits
        cap = self.cap(ring_bits, wide)
        if self.unknown or cap is None:
            return UNKNOWN_BITS if cap is None else min(UNKNOWN_BITS, cap)
        options = [cap]
        if self.unknown_gain or not self.noise:
            options.append(UNKNOWN_GAIN_BITS + self._finer(ring_bits))
        noise_gain = self.noise_gain(wide, weights_alone=False)
        if self.noise and noise_gain and not self.unknown_gain:
            options.append(math.floor(steady(math.log2(self.noise / noise_gain) / 4)))
        elif self.multiplied:
            options.append(min(wide[accumulator] for accumulator in self.multiplied) // 2)
        if self.noise and self.compared and not self.unknown_gain:
            options.append(self._for_goal(budget, self.compared, compared))
        return max(min(options), min(max(self.least, self.significant), cap))

    def _finer(self, ring_bits: int) -> int:
        """More bits in the widest rings, of inputs that comparisons alone read.

        Float32 is finer near zero, and a tree's threshold lies between two numbers as near as that.
        """
        else_read = self.noise_gains or self.multiplied or self.squared or self.of_function
        given_alone = self.signs and not (self.computed or else_read)
        return max(0, ring_bits - WIDE) if given_alone else 0

    @property
    def significant(self) -> int:
        """Bits that it has at least: what seems to do nothing on the samples may do so by chance.

        A function may be flat there, or noise cancel in all directions that were tried.
        """
        significant = LEAST_SIGNIFICANT - (self.whole_bits or 0)
        return max(significant, LEAST_FRACTION) if self.of_function else significant

    def _for_goal(self, budget: Budget, own: int, compared: int) -> int:
        """The bits with which the noise of `own` elements of so many is in their part of the goal's
        error."""
        share = budget.goal**2 / 4 * own / compared
        return math.ceil(steady(math.log2(self.noise / share) / 2))

    def sign_bits(self, budget: Budget, compared: int) -> int | None:
        """The fraction bits that a ReLU's sign has to look at; None where nothing says so.

        Those that the goal needs of its product, and SIGN_GUARD more; enough for the largest number
        to have LEAST_SIGNIFICANT bits.

        Args:
            compared: elements that share the goal's error, these too.
        """
        is_known = self.signed and self.noise and not (self.unknown_gain or self.unknown)
        if not is_known or budget.frac_bits is not None:
            return None
        bits = self._for_goal(budget, self.signed, compared) + SIGN_GUARD
        return max(bits, LEAST_SIGNIFICANT - (self.whole_bits or 0))

    def noise_gain(self, wide: Mapping[ir.Value, int], weights_alone: bool) -> float:
        """What others' rounding does to the outputs: times 4^s."""
        each = (s for s in self.noise_gains if s.weights or not weights_alone)
        return sum(s.noise * 4.0 ** -wide[s.accumulator] for s in each)


def _rate_bits(known: Statistics) -> int:
    """Fraction bits that are enough for a rate, whose smallest value says so."""
    smallest = max(known.range.low, 0.0) or known.range.magnitude(1.0)
    return RATE_SIGNIFICANT - math.frexp(smallest)[1]


def is_of_relu(op: ops.Step, *, trains: bool) -> bool:
    """Whether a sign is that of a ReLU: it multiplies its own operand.

    It is read for nothing else but the products that mask derivatives, where a program trains: what
    picks other numbers is wrong by all of them where the sign is.
    """
    (x,), readers = op.operation.operands, users(op.operation.results[0])
    products = [each for each in readers if isinstance(each, ops.Mul)]
    own = [each for each in products if x in each.operation.operands]
    return bool(own) and len(own if not trains else products) == len(readers)


def _leading_to_masks(graph: Graph) -> set[ir.Value]:
    """All that a comparison is computed from, but states: a step is computed for these as they are
    kept.
    """
    found: set[ir.Value] = set()
    for op in reversed(graph.operations):
        compares = isinstance(op, ops.Step) or ops.facts_of(op).arithmetic is Arithmetic.COMPARISON
        if compares or op.operation.results[0] in found:
            found.update(op.operation.operands)
    return found - {graph.inputs[name] for name in graph.states}


def activations(graph: Graph, structure: Structure) -> Iterator[ir.Value]:
    """Inputs, weights that are integers, and results, but for weights and constants, in order."""
    yield from graph.inputs.values()
    yield from (value for value in graph.parameters.values() if value in structure.integral)
    results = (op.operation.results[0] for op in graph.operations)
    yield from (value for value in results if value not in structure.adaptable)


def accumulator_bits(
    structure: Structure, statistics: Mapping[ir.Value, Statistics], budget: Budget
) -> dict[ir.Value, int]:
    """Bits before the point of each accumulator's largest value, by root, where anything is
    known.
    """
    found: dict[ir.Value, int] = {}
    for value in structure.deferred:
        if value in statistics:
            root, bits = structure.accumulators.root(value), budget.whole_bits(statistics[value])
            found[root] = max(found.get(root, bits), bits)
    return found


@dataclass
class ConstraintAnalysis:
    """Gathers the constraints of all classes of activations.

    Attributes:
        statistics: of the values of which anything is known.
        accumulators: bits before the point of accumulators, by root.
    """

    graph: Graph
    structure: Structure
    statistics: Mapping[ir.Value, Statistics]
    accumulators: Mapping[ir.Value, int]
    budget: Budget

    def gather(self) -> dict[ir.Value, ScaleConstraint]:
        """The constraints by their class's root."""
        constraints: dict[ir.Value, ScaleConstraint] = {}
        structure = self.structure

        def of(value: ir.Value) -> ScaleConstraint:
            return constraints.setdefault(structure.stored.root(value), ScaleConstraint())

        for value in activations(self.graph, structure):
            self._add_member(of(value), value)
            of(value).integral |= value in structure.integral
            of(value).masks |= value in self._masking
        for op in self.graph.operations:
            facts = ops.facts_of(op)
            if facts.arithmetic is Arithmetic.COMPARISON:
                self._add_comparison(of(op.operation.results[0]), op)
            elif isinstance(op, ops.Step):
                self._add_step(of(op.operation.operands[0]), op)
            elif isinstance(op, ops.IntegerPart):
                constraint = of(op.operation.operands[0])
                constraint.of_function = constraint.wants_ring = True
            elif facts.is_real_function:
                for value in (*op.operation.operands, op.operation.results[0]):
                    constraint = of(value)
                    constraint.most, constraint.of_function = MOST_FRACTION, True
                    is_made = value == op.operation.results[0]
                    constraint.wants_ring |= is_made or not structure.lifts(op)
                    if facts.arithmetic is Arithmetic.ROW_FUNCTION:
                        constraint.least = max(constraint.least, ROW_FRACTION)
                    constraint.compared += element_count(shape_of(value))
                if isinstance(op, ops.Inverse):
                    self._add_inverse(of(op.operation.results[0]), op.operation.results[0])
        for total, value in structure.residuals:
            self._hold(of(value), total)
        for target, value in structure.offsets:
            if target not in structure.deferred:
                of(target).noise += ROUNDING_NOISE * self._constant_gain(value)
        for product in structure.products:
            for number, value in enumerate((product.x, product.y)):
                if value not in structure.adaptable:
                    self._add_product(of(value), product, number)
        for constraint in constraints.values():
            constraint.noise *= self.budget.mask_weight if constraint.masks else 1.0
        return constraints

    def _add_step(self, constraint: ScaleConstraint, op: ir.OpView) -> None:
        (x,) = op.operation.operands
        constraint.signs = True
        if is_of_relu(op, trains=self.budget.trains):
            constraint.signed += element_count(shape_of(x))

    def _add_inverse(self, constraint: ScaleConstraint, inverse: ir.Value) -> None:
        known = self.statistics.get(inverse)
        smallest = 0.0 if known is None else max(known.range.low, -known.range.high)
        if smallest > 0:
            bits = INVERSE_SIGNIFICANT - math.floor(math.log2(smallest))
            constraint.least = max(constraint.least, bits)

    def _hold(self, constraint: ScaleConstraint, deferred: ir.Value) -> None:
        """The class fits the accumulator that `deferred` is in."""
        root = self.structure.accumulators.root(deferred)
        if root in self.accumulators:
            constraint.within.add(root)

    def _add_comparison(self, constraint: ScaleConstraint, op: ir.OpView) -> None:
        operands = list(op.operation.operands)
        constraint.compared += element_count(shape_of(operands[0]))
        if not isinstance(op, ops.Relu):
            for value in operands:
                if value in self.statistics:
                    # Maxima compare differences, which reach twice as far.
                    constraint.reaches(self.budget.whole_bits(self.statistics[value]) + 1)

    def _constant_gain(self, value: ir.Value) -> float:
        """The gain of a public constant that isn't exact with a few fraction bits, else 0."""
        number, known = number_of(value), self.statistics.get(value)
        if number is None or known is None or (number * EXACT_STEPS).is_integer():
            return 0.0
        return known.gain or 0.0

    def _add_member(self, constraint: ScaleConstraint, value: ir.Value) -> None:
        known = self.statistics.get(value)
        constraint.computed |= value in self.structure.deferred
        if known is None:
            return
        constraint.reaches(self.budget.whole_bits(known))
        if value in self.structure.deferred:
            self._hold(constraint, value)
        if value in self._rates:
            constraint.most = _rate_bits(known)
        if known.gain is None:
            constraint.unknown_gain = True
        elif isinstance(value, ir.BlockArgument):
            is_exact = value in self.structure.integral
            constraint.noise += 0.0 if is_exact else ROUNDING_NOISE * known.gain
        elif value in self.structure.deferred and self._is_truncated(value):
            constraint.noise += TRUNCATION_NOISE * known.gain
        elif ops.facts_of(value.owner.opview).is_real_function:
            constraint.noise += FUNCTION_NOISE * known.gain

    def _is_truncated(self, value: ir.Value) -> bool:
        """Whether some step needs the stored form of a deferred value."""
        users = [use.owner for use in value.uses]
        results = [user.results[0] for user in users if user.operation.name != "func.return"]
        return any(r in self._products or r not in self.structure.deferred for r in results)

    @cached_property
    def _masking(self) -> set[ir.Value]:
        return _leading_to_masks(self.graph) if self.budget.trains else set()

    @cached_property
    def _rates(self) -> frozenset[ir.Value]:
        named = self.graph.inputs
        return frozenset(named[name] for name in self.budget.rates if name in named)

    @cached_property
    def _products(self) -> frozenset[ir.Value]:
        return frozenset(product.result for product in self.structure.products)

    def _add_product(self, constraint: ScaleConstraint, product: Product, number: int) -> None:
        value, partner = (product.x, product.y)[number], (product.x, product.y)[1 - number]
        root = self.structure.accumulators.root(product.result)
        if value not in self.statistics or root not in self.accumulators:
            constraint.unknown = True
            return
        if value == partner:
            constraint.squared.add(root)
            return
        constraint.multiplied.add(root)
        if partner in self.statistics:
            weights = partner in self.structure.adaptable
            noise = ROUNDING_NOISE if weights else TRUNCATION_NOISE
            gain = self.statistics[partner].gain or 0.0
            gain *= self.budget.mask_weight if partner in self._masking else 1.0
            constraint.noise_gains.append(NoiseGain(noise * gain, root, weights))
