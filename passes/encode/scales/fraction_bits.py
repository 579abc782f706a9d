"""How many fraction bits every value is stored with, in given rings: docs/encoding.md.

For products of activations x (stored with s bits) and weights w, whose sum has S bits in Z_2^k:

    S   the most for which every value of the accumulator fits: reach 2^S < 2^(k-2)
    s   where the noise of rounding x and that of rounding w balance,
        4^s = sqrt((a / 6) / (b 4^-S / 12)), and no more than the goal needs
    S - s bits for w

with a and b from derivatives (noise_gains.py), and what bears on s gathered in constraints.py. The
scales of weights and constants follow from those of what they meet (weights.py).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from torch_mlir import ir

from veilgraph.ir.graph.dialect import GraphOp
from veilgraph.ir.graph.ops import Step, facts_of
from veilgraph.ir.graph.program import Graph, users
from veilgraph.ir.plan.checks import MOST_FRAC_BITS
from veilgraph.passes.encode.scales.accumulators import Structure, Ties, analyse
from veilgraph.passes.encode.scales.constraints import (
    ROUNDING_NOISE,
    Budget,
    ConstraintAnalysis,
    ScaleConstraint,
    accumulator_bits,
    activations,
    headroom,
    is_of_relu,
)
from veilgraph.passes.encode.scales.ring_widths import (
    CANDIDATE_WIDTHS,
    Readers,
    Rings,
    find_readers,
)
from veilgraph.passes.encode.scales.weights import WeightScales
from veilgraph.passes.graph.public_factors import is_copy
from veilgraph.passes.ranges.calibrate import Statistics

NONE: Mapping[ir.Value, int] = {}


@dataclass(frozen=True)
class Trial:
    """Rings tried on a program.

    Attributes:
        accumulators: the ring of each accumulator, by root.
        classes: that of each class of stored values, by root.
        wide: fraction bits S of accumulators, by root, where anything is known.
        scales: fraction bits s of classes of activations, by root.
        limits: classes that may have no more bits than this.
        unfitted: the scales before bits were taken from the operands of products.
        noises: what each class adds to the square of the outputs' predicted error, relative to
            their size; of what leads to masks with its weight.
        noise: their sum.
    """

    accumulators: Mapping[ir.Value, int]
    classes: Mapping[ir.Value, int]
    wide: Mapping[ir.Value, int]
    scales: Mapping[ir.Value, int]
    limits: Mapping[ir.Value, int]
    unfitted: Mapping[ir.Value, int]
    noises: Mapping[ir.Value, float]

    @cached_property
    def noise(self) -> float:
        return sum(self.noises.values())


@dataclass(frozen=True)
class Fitted:
    """A product of activations, by roots.

    Attributes:
        x, y: of its operands' classes.
        accumulator: of what it is summed in.
        given: of the classes of inputs that are added there, as they are, and of copies of inputs.
    """

    x: ir.Value
    y: ir.Value
    accumulator: ir.Value
    given: tuple[ir.Value, ...]


@dataclass(frozen=True)
class Reach:
    """What the ring of one accumulator bears on, by root.

    Attributes:
        wide: accumulators, whose S it says.
        classes: those whose ring it is, or may be.
        constraints: those whose unfitted scale depends on one of both.
        scaled: those whose scale or noise may be another.
        products: whose operands are fitted again, in program order.
    """

    wide: Sequence[ir.Value]
    classes: Sequence[ir.Value]
    constraints: Sequence[ir.Value]
    scaled: Sequence[ir.Value]
    products: Sequence[Fitted]


@dataclass(frozen=True)
class ScaleProblem:
    """What scales depend on but for rings, gathered once for a program.

    Attributes:
        statistics: of the values of which anything is known; of the weights always.
        accumulators: bits before the point of accumulators, by root.
        constraints: by the root of classes of activations.
        rings: of each accumulator in `accumulators`, the root of its ring class.
    """

    graph: Graph
    structure: Structure
    statistics: Mapping[ir.Value, Statistics]
    budget: Budget
    readers: Readers
    accumulators: Mapping[ir.Value, int]
    constraints: Mapping[ir.Value, ScaleConstraint]
    rings: Mapping[ir.Value, ir.Value] = field(default_factory=dict)

    @staticmethod
    def of(graph: Graph, statistics: Mapping[ir.Value, Statistics], budget: Budget) -> ScaleProblem:
        """The problem of a program in the vocabulary that `encode_fixed_point` takes."""
        structure = analyse(graph)
        accumulators = accumulator_bits(structure, statistics, budget)
        constraints = ConstraintAnalysis(
            graph, structure, statistics, accumulators, budget
        ).gather()
        rings = {root: structure.rings.root(root) for root in accumulators}
        readers = find_readers(graph, structure, trains=budget.trains)
        return ScaleProblem(
            graph, structure, statistics, budget, readers, accumulators, constraints, rings
        )

    def one_ring(self, ring_bits: int) -> dict[ir.Value, int]:
        """The same width for all accumulators."""
        return dict.fromkeys(self.readers.accumulators, ring_bits)

    def narrowest_ring(self, noise: float) -> int:
        """The ring that is enough for all accumulators, with so much noise; the widest if none
        is.
        """
        enough = (k for k in CANDIDATE_WIDTHS if self.attempt(self.one_ring(k)).noise <= noise)
        return next(enough, CANDIDATE_WIDTHS[-1])

    def attempt(
        self, accumulators: Mapping[ir.Value, int], most: Mapping[ir.Value, int] = NONE
    ) -> Trial:
        """The best scales in these rings, and the error that they are predicted to cause.

        Args:
            most: classes that may have no more bits than this.
        """
        classes = self.readers.widths(accumulators)
        wide = {root: self._wide(root, accumulators) for root in self.accumulators}
        unfitted = {root: self._unfitted(root, classes, wide, most) for root in self.constraints}
        scales = dict(unfitted)
        self._fit(self.products, wide, scales)
        noises = {root: self._noise(root, wide, scales) for root in self.constraints}
        return Trial(accumulators, classes, wide, scales, most, unfitted, noises)

    def changed(self, trial: Trial, accumulator: ir.Value, ring_bits: int) -> Trial:
        """What `attempt` makes of a trial where one accumulator is in another ring."""
        reach = self.reach[accumulator]
        accumulators = {**trial.accumulators, accumulator: ring_bits}
        classes, wide = dict(trial.classes), dict(trial.wide)
        unfitted, scales, noises = dict(trial.unfitted), dict(trial.scales), dict(trial.noises)
        for root in reach.classes:
            classes[root] = self.readers.width(root, accumulators)
        for root in reach.wide:
            wide[root] = self._wide(root, accumulators)
        for root in reach.constraints:
            unfitted[root] = self._unfitted(root, classes, wide, trial.limits)
        for root in reach.scaled:
            scales[root] = unfitted[root]
        self._fit(reach.products, wide, scales)
        for root in reach.scaled:
            noises[root] = self._noise(root, wide, scales)
        return Trial(accumulators, classes, wide, scales, trial.limits, unfitted, noises)

    def _wide(self, root: ir.Value, accumulators: Mapping[ir.Value, int]) -> int:
        room = headroom(accumulators[self.rings[root]], self.accumulators[root])
        return min(room, MOST_FRAC_BITS)

    def _unfitted(
        self,
        root: ir.Value,
        classes: Mapping[ir.Value, int],
        wide: Mapping[ir.Value, int],
        most: Mapping[ir.Value, int],
    ) -> int:
        bits = self.constraints[root].frac_bits(self.budget, self.compared, classes[root], wide)
        return min(bits, most.get(root, MOST_FRAC_BITS))

    def _noise(
        self, root: ir.Value, wide: Mapping[ir.Value, int], scales: Mapping[ir.Value, int]
    ) -> float:
        """What a class adds to the square of the error."""
        constraint, scale = self.constraints[root], scales[root]
        gain = constraint.noise_gain(wide, weights_alone=True)
        return constraint.noise * 4.0**-scale + gain * 4.0**scale

    def _fit(
        self,
        products: Sequence[Fitted],
        wide: Mapping[ir.Value, int],
        scales: dict[ir.Value, int],
    ) -> None:
        """Takes bits from operands of products of activations until the results fit.

        What is given, or a copy of that, and is added to products, has no more bits than the finest
        of them: nothing has to be truncated, or shifted up, for it.
        """
        finest: dict[ir.Value, int] = {}
        for product in products:
            excess = max(0, scales[product.x] + scales[product.y] - wide[product.accumulator])
            self._take(product.x, product.y, excess, scales)
        for product in products:
            met = scales[product.x] + scales[product.y]
            finest[product.accumulator] = max(finest.get(product.accumulator, met), met)
        for product in products:
            for root in product.given:
                scales[root] = min(scales[root], finest[product.accumulator])

    def _take(self, x: ir.Value, y: ir.Value, bits: int, scales: dict[ir.Value, int]) -> None:
        """From two classes of factors, by roots: in a step of training from the one whose rounding
        bears less on the outputs, else from both alike.
        """
        noise = {root: self.constraints[root].noise for root in (x, y)}
        if x == y or not self.budget.trains or not all(noise.values()):
            scales[x] -= (bits + 1) // 2
            scales[y] -= bits // 2 if x != y else 0
            return
        for _ in range(bits):
            spare = [r for r in (x, y) if scales[r] > self.constraints[r].significant]
            less = min(spare or (x, y), key=lambda root: noise[root] * 4.0 ** -scales[root])
            scales[less] -= 1

    def sign_bits(self, root: ir.Value) -> int | None:
        """The fraction bits that signs of a class look at; None where nothing says so."""
        return self.constraints[root].sign_bits(self.budget, self.compared + self._signed)

    @cached_property
    def compared(self) -> int:
        """How many elements are compared."""
        return sum(constraint.compared for constraint in self.constraints.values())

    @cached_property
    def _signed(self) -> int:
        return sum(constraint.signed for constraint in self.constraints.values())

    @cached_property
    def products(self) -> tuple[Fitted, ...]:
        """Those whose operands' bits have to fit their result; none where the user fixes bits."""
        structure = self.structure
        if self.budget.frac_bits is not None:
            return ()
        given: dict[ir.Value, dict[ir.Value, None]] = defaultdict(dict)
        for total, value in structure.residuals:
            if isinstance(value, ir.BlockArgument) or is_copy(value):
                given[structure.accumulators.root(total)][structure.stored.root(value)] = None
        found = []
        for product in structure.products:
            adapts = product.x in structure.adaptable or product.y in structure.adaptable
            accumulator = structure.accumulators.root(product.result)
            if not adapts and accumulator in self.accumulators:
                x, y = structure.stored.root(product.x), structure.stored.root(product.y)
                found.append(Fitted(x, y, accumulator, tuple(given[accumulator])))
        return tuple(found)

    @cached_property
    def reach(self) -> Mapping[ir.Value, Reach]:
        """Of each accumulator."""
        wide, classes = defaultdict(list), defaultdict(list)
        for root, ring in self.rings.items():
            wide[ring].append(root)
        for root, readers in self.readers.of.items():
            for accumulator in readers:
                classes[accumulator].append(root)
        readers_of_wide: dict[ir.Value, dict[ir.Value, None]] = defaultdict(dict)
        for root, constraint in self.constraints.items():
            for accumulator in constraint.accumulators:
                readers_of_wide[accumulator][root] = None
        together = _together(self.products)
        return {
            a: self._reach(wide[a], classes[a], readers_of_wide, together)
            for a in self.readers.accumulators
        }

    def _reach(
        self,
        wide: Sequence[ir.Value],
        classes: Sequence[ir.Value],
        readers_of_wide: Mapping[ir.Value, Mapping[ir.Value, None]],
        together: Ties,
    ) -> Reach:
        """Of an accumulator that is the ring of these accumulators, and that reads these classes.

        Args:
            readers_of_wide: the classes whose unfitted scale depends on an accumulator's S.
            together: classes whose scales products fit to each other.
        """
        found = dict.fromkeys(root for root in classes if root in self.constraints)
        for root in wide:
            found.update(readers_of_wide.get(root, {}))
        groups = {together.root(root) for root in found}
        groups |= {together.root(p.x) for p in self.products if p.accumulator in wide}
        products = [p for p in self.products if together.root(p.x) in groups]
        scaled = [*found, *(root for p in products for root in (p.x, p.y, *p.given))]
        return Reach(wide, classes, list(found), list(dict.fromkeys(scaled)), products)


def _together(products: Sequence[Fitted]) -> Ties:
    """Classes that are operands of one product, or added to it, share a group."""
    ties = Ties()
    for product in products:
        for root in (product.y, *product.given):
            ties.tie(product.x, root)
    return ties


@dataclass(frozen=True)
class Scales:
    """Rings and fraction bits of what a plan stores.

    Attributes:
        rings: of every value.
        stored: of every value that isn't deferred, and of what a deferred one is truncated to.
        wide: of deferred values, the most for which they fit, where their range is known.
        signs: of signs of ReLUs, the fraction bits that they are taken of, where fewer are enough.
        error: the outputs' predicted error, relative to their size.
        mask_error: that part of it which comes of what leads to masks of derivatives.
        dominant: the value whose class adds most of it.
        infeasible: values that don't fit their ring.
        trains: whether the program computes derivatives.
    """

    rings: Rings
    stored: Mapping[ir.Value, int]
    wide: Mapping[ir.Value, int]
    signs: Mapping[ir.Value, int]
    error: float
    mask_error: float
    dominant: ir.Value | None
    infeasible: tuple[ir.Value, ...]
    trains: bool = False

    def filled(self, value: ir.Value) -> int:
        """The fraction bits of a deferred value that a real function reads in a step of training,
        at the least.

        A function holds wherever the ring holds its operand: the less room there is beyond the
        operand's range, the fewer terms it has. A shift up costs nothing. No other value of a step
        has more room than its margin.
        """
        if not self.trains:
            return 0
        readers = [op for op in users(value) if isinstance(op, GraphOp)]
        is_read = any(facts_of(op).is_real_function for op in readers)
        return self.wide.get(value, 0) if is_read else 0


def choose_scales(problem: ScaleProblem, trial: Trial) -> Scales:
    """The scales of every single value, in the rings of a trial."""
    structure, statistics, budget = problem.structure, problem.statistics, problem.budget
    rings = Rings.of_accumulators(structure, problem.readers, trial.accumulators)
    roots = {value: structure.accumulators.root(value) for value in structure.deferred}
    wide = {value: trial.wide[root] for value, root in roots.items() if root in trial.wide}
    stored = {
        v: trial.scales[structure.stored.root(v)] for v in activations(problem.graph, structure)
    }
    weights = WeightScales(problem.graph, structure, statistics, wide, stored, rings, budget)
    stored |= weights.choose()
    constraints = problem.constraints
    noises = {
        root: d.noise / (budget.mask_weight if d.masks else 1.0) * 4.0 ** -trial.scales[root]
        for root, d in constraints.items()
    }
    of_masks = sum(noises[root] for root, d in constraints.items() if d.masks)
    for value in problem.graph.parameters.values():
        if value in structure.integral:
            continue  # exact
        noises[value] = ROUNDING_NOISE * (statistics[value].gain or 0.0) * 4.0 ** -stored[value]
    dominant = max(noises, key=lambda value: noises[value], default=None)
    infeasible = tuple(_infeasible(problem, rings, stored))
    signs = dict(_sign_bits(problem))
    error = math.sqrt(sum(noises.values()))
    mask_error = math.sqrt(of_masks)
    return Scales(
        rings, stored, wide, signs, error, mask_error, dominant, infeasible, budget.trains
    )


def _sign_bits(problem: ScaleProblem) -> Iterator[tuple[ir.Value, int]]:
    """Signs of ReLUs, and the fraction bits of their operand that they are taken of."""
    for op in problem.graph.operations:
        if isinstance(op, Step) and is_of_relu(op, trains=problem.budget.trains):
            x = op.operation.operands[0]
            bits = problem.sign_bits(problem.structure.stored.root(x))
            if bits is not None:
                yield op.operation.results[0], bits


def _infeasible(
    problem: ScaleProblem, rings: Rings, stored: Mapping[ir.Value, int]
) -> Iterator[ir.Value]:
    """Products, then values, that have more fraction bits than they have headroom for."""
    products = problem.structure.products
    scales = [(p.result, stored[p.x] + stored[p.y], rings.of(p.result)) for p in products]
    scales += [(value, bits, rings.stored(value)) for value, bits in stored.items()]
    for value, bits, ring_bits in scales:
        known = problem.statistics.get(value)
        if known is not None and bits > problem.budget.headroom(known, ring_bits):
            yield value
