"""From real numbers to integers modulo 2^K: chooses the ring and every scale, graph to secret.

Plain on purpose: one truncation after each product, every value at its stored scale. What is
deferred about truncations is in merge_truncations.py; the scales are chosen for what it makes of
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.errors import AccuracyError, UsageError
from veilgraph.ir.graph.facts import Arithmetic
from veilgraph.ir.graph.ops import LogSoftmax, facts_of
from veilgraph.ir.graph.program import Graph, defining, name_of
from veilgraph.ir.plan.tables import COMMON
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import Encoding, RealRange, Tensor
from veilgraph.ir.types import MAX_RING_BITS
from veilgraph.passes.encode.aim import Aim
from veilgraph.passes.encode.functions.softmax import SoftmaxCall
from veilgraph.passes.encode.rules import Encoder
from veilgraph.passes.encode.scales.constraints import Budget
from veilgraph.passes.encode.scales.cost_model import CommunicationCost, Tracer
from veilgraph.passes.encode.scales.fraction_bits import ScaleProblem, Scales, Trial, choose_scales
from veilgraph.passes.encode.scales.ring_widths import CANDIDATE_WIDTHS
from veilgraph.passes.encode.scales.width_search import WIDEST, WidthSearch, snapped
from veilgraph.passes.graph.infer_visibility import Visibility
from veilgraph.passes.ranges.calibrate import Ranges, Statistics
from veilgraph.passes.ranges.value_ranges import ValueRange, value_ranges
from veilgraph.targets.functions.function_block import FIT_UNITS, Fitter
from veilgraph.targets.target import Target
from veilgraph.targets.target import target as named_target

MAX_ERROR = 5e-3  # under 0.5% classes agreed, or nearly all did (docs/encoding.md)
AROUND_FUNCTIONS = -1  # widths beyond one ring for all, where derivatives choose
TARGET_SHARE_AROUND_FUNCTIONS = (
    0.5  # of the target: held-out errors were up to 2.5 times the predicted ones
)

FINE = 1e-4  # error below which bits are not worth their cost, in a ring that the user chose
SHOWN = 8  # layers that a sentence names
UNUSABLE = 0.1  # predicted error beyond which an answer says nothing


@dataclass(frozen=True)
class EncodeFixedPoint:
    """Encodes a graph.

    Before::

        %1 = matmul %x, %w
        %2 = add %1, %b
        %3 = relu %2

    After, with frac_bits = 8 (each line ends with the fraction bits of its result)::

        %1 = matmul %x, %w : 16
        %2 = truncate %1 {bits = 8} : 8
        %3 = scale %2 {factor = 256} : 16
        %4 = add %3, %b : 16
        %5 = truncate %4 {bits = 8} : 8
        %6 = relu %5 : 8

    Attributes:
        ring_bits: width of every ring, a multiple of 8 up to 64; None chooses a width for each
            accumulator, the least bytes with which the predicted error is within the target, and 64
            where ranges are unknown, or what noise does.
        frac_bits: of every stored value and every weight; None chooses them one by one.
        margin: values may be this many times larger than calibrated.
        max_error: mean error of the outputs, relative to their mean size, that is allowed; None
            allows MAX_ERROR where rings are chosen, and aims at FINE where one is given.
        aim: the share of `max_error` that the prediction must stay within, and what counts more.
        spare: widths of 8 bits that values get in addition whose noise nothing predicts.
        target: whose protocols are paid for.
        trusts_ranges: functions hold on ranges with their margin, and no further.
        fit_units: what fitted functions may be off by, in units of their result's last place.
        around_functions: widths of 8 bits that values around real functions get beyond one ring for
            all, at the least.
        trains: whether the program computes derivatives.
        rates: inputs that are public rates, by name.
        decisions: what the names of operations begin with that only decide by measured numbers.
    """

    ring_bits: int | None = None
    frac_bits: int | None = None
    margin: float = 2.0
    max_error: float | None = None
    aim: Aim = field(default_factory=Aim)
    spare: int = 0
    target: Target = field(default_factory=named_target)
    trusts_ranges: bool = False
    fit_units: float = FIT_UNITS
    around_functions: int = WIDEST
    trains: bool = False
    rates: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()

    def run(self, graph: Graph, visibility: Visibility, ranges: Ranges) -> SecretProgram:
        """The program in fixed point.

        Values around real functions are in no wider rings than they need where derivatives say
        what that is; in the widest, where a function holds in no narrower ring, or would there
        trust a range that it does not trust in the widest.

        Raises:
            UsageError: a ring, a margin or a number of fraction bits that makes no sense.
            AccuracyError: a value doesn't fit, or rounding would drown the answer.
        """
        self._check_options()
        if not self.narrows(graph, ranges):
            return self._encoded(graph, visibility, ranges)
        narrow = replace(
            self,
            around_functions=AROUND_FUNCTIONS,
            aim=replace(self.aim, share=TARGET_SHARE_AROUND_FUNCTIONS * self.aim.share),
        )
        try:
            program = narrow._encoded(graph, visibility, ranges)
        except AccuracyError:
            return self._encoded(graph, visibility, ranges)
        if program.trusting and not set(program.trusting) <= set(self._trusted(graph, ranges)):
            return self._encoded(graph, visibility, ranges)
        return program

    def narrows(self, graph: Graph, ranges: Ranges) -> bool:
        """Whether rings around real functions are a choice: there are some, and neither integer
        parts nor truth values before or behind them, of which no derivative says how many bits
        they need.

        Those of decisions apart: the numbers that these are made of are measured.
        """
        kept = [op for op in graph.operations if not name_of(op).startswith(self.decisions)]
        is_free = self.ring_bits is None and self.frac_bits is None
        has_functions = any(facts_of(op).is_real_function for op in kept)
        is_smooth = has_functions and not _meet(kept)
        return is_free and is_smooth and _is_known(graph, ranges.of(graph))

    def _encoded(self, graph: Graph, visibility: Visibility, ranges: Ranges) -> SecretProgram:
        statistics = ranges.of(graph)
        scales = self._choose(graph, statistics)
        intervals = value_ranges(graph, statistics, scales, self.margin)
        arguments = list(_arguments(graph, visibility, statistics, scales))
        program = SecretProgram.create(
            graph.module.context,
            arguments,
            dict(graph.weights),
            margin=self.margin,
            predicted_error=scales.error,
            mask_error=scales.mask_error,
        )
        guarded = {} if self.trusts_ranges else intervals
        fit = self.target.suite.fit
        encoder = Encoder(graph, program, statistics, scales, guarded, fit, self.fit_units)
        program.finish(encoder.encode())
        trusting = self._trusting(graph, statistics, scales, intervals)
        sentence = self._sentence(ranges, scales, _domains(graph, trusting))
        return replace(program, encoding=sentence, trusting=trusting)

    def _trusted(self, graph: Graph, ranges: Ranges) -> tuple[str, ...]:
        """What a program in these rings trusts; its functions are not fitted for that."""
        statistics = ranges.of(graph)
        scales = self._choose(graph, statistics)
        intervals = value_ranges(graph, statistics, scales, self.margin)
        return self._trusting(graph, statistics, scales, intervals)

    def _trusting(
        self,
        graph: Graph,
        statistics: Mapping[ir.Value, Statistics],
        scales: Scales,
        intervals: Mapping[ir.Value, ValueRange],
    ) -> tuple[str, ...]:
        """The real functions that do not hold wherever their operand can be, by name."""
        if self.trusts_ranges:
            return tuple(_leaving(graph, statistics, intervals, self.margin))
        fit = self.target.suite.fit
        return tuple(_beyond_segments(graph, statistics, scales, intervals, self.margin, fit))

    @property
    def goal(self) -> float:
        """The error that rings and scales are chosen for."""
        if self.max_error is not None:
            return self.aim.share * self.max_error
        return FINE if self.ring_bits else self.aim.share * MAX_ERROR

    def _check_options(self) -> None:
        ring, frac = self.ring_bits, self.frac_bits
        if ring is not None and (ring % 8 or not 16 <= ring <= MAX_RING_BITS):
            raise UsageError(
                f"A ring of {ring} bits can't be used.", "Take a multiple of 8 from 16 to 64."
            )
        if frac is not None and not 1 <= frac < (ring or MAX_RING_BITS) // 2 - 1:
            raise UsageError(
                f"{frac} fraction bits can't be used in a ring of {ring or MAX_RING_BITS} bits.",
                "A product has twice as many: take fewer than half of the ring's bits.",
            )
        if self.max_error is not None and not self.max_error > 0:
            raise UsageError(
                f"A largest error of {self.max_error} can't be held.",
                "Take a share of the outputs' size, like 0.001.",
            )
        if self.margin < 1:
            raise UsageError(f"A margin of {self.margin} can't be used.", "Take 1 or more.")

    def _choose(self, graph: Graph, statistics: Mapping[ir.Value, Statistics]) -> Scales:
        """Rings and scales: as asked, or the least bytes that are exact enough."""
        known = _is_known(graph, statistics)
        budget = Budget(
            self.margin, self.goal, self.frac_bits, self.trains, self.rates, self.aim.mask_weight
        )
        problem = ScaleProblem.of(graph, statistics, budget)
        scales = choose_scales(problem, self._trial(problem, known))
        for value in scales.infeasible:
            raise self._misfit(value, statistics[value], scales.rings.of(value))
        most = max(UNUSABLE, self.max_error or 0.0)
        if known and self.frac_bits is None and scales.error > most:
            raise _too_coarse(scales)
        return scales

    def _trial(self, problem: ScaleProblem, known: bool) -> Trial:
        if not known:
            return problem.attempt(problem.one_ring(self.ring_bits or MAX_RING_BITS))
        if self.frac_bits is not None:
            return self._narrowest(problem)
        communication = CommunicationCost(problem, Tracer(self.target))
        if self.ring_bits is not None:
            trial = problem.attempt(problem.one_ring(self.ring_bits))
        else:
            noise, least = self.goal**2, self.around_functions
            trial = WidthSearch(problem, communication, noise, self.spare, least).run()
        return snapped(problem, communication, trial, self.goal**2)

    def _narrowest(self, problem: ScaleProblem) -> Trial:
        """With the user's fraction bits: one ring for all, the first that they fit."""
        for ring_bits in (self.ring_bits,) if self.ring_bits else CANDIDATE_WIDTHS:
            trial = problem.attempt(problem.one_ring(ring_bits))
            if not choose_scales(problem, trial).infeasible:
                break
        return trial

    def _misfit(self, value: ir.Value, known: Statistics, ring_bits: int) -> AccuracyError:
        magnitude = known.range.magnitude(self.margin)
        return AccuracyError(
            f"The values of {_name(value)!r} reach {magnitude:.4g}, margin included, which doesn't "
            f"fit {ring_bits} bits with {self.frac_bits} fraction bits for each factor.",
            "Take fewer fraction bits, a wider ring (--ring 64), or leave the choice to "
            "--calibrate.",
        )

    def _sentence(self, ranges: Ranges, scales: Scales, domains: str) -> str:
        """How the numbers were chosen, for the manifest; `domains` is where functions hold."""
        rings = _listed(scales)
        bits = (
            f"{self.frac_bits} fraction bits for every value"
            if self.frac_bits is not None
            else "fraction bits value by value"
        )
        approximations = (
            ""
            if self.fit_units == FIT_UNITS
            else f", Fourier series within {self.fit_units:g} units"
        )
        sentence = f"{rings}, {bits}{approximations}{domains}; {ranges.origin}"
        if not any(role == "input" for role, _ in ranges.known):
            widest = max(scales.rings.accumulators.values(), default=MAX_RING_BITS)
            return f"{sentence}; magnitudes of sums may reach 2^{widest - 2} units"
        sentence = f"{sentence}, margin {self.margin:g}"
        predicted = f"{self._allowed()}predicted relative error {scales.error:.1e}"
        return f"{sentence}; {predicted}" if scales.error else sentence

    def _allowed(self) -> str:
        """The error that rings around real functions were chosen for, as a part of a sentence."""
        is_chosen = self.around_functions != WIDEST
        return f"{100 * (self.max_error or MAX_ERROR):.2g}% allowed, " if is_chosen else ""


def _meet(operations: Iterable[ir.OpView]) -> bool:
    """Whether a real function and an integer part or a truth value follow one from the other, or
    something follows from both: noise on the one says nothing of the other then.
    """
    of_functions, of_integers = set[ir.Value](), set[ir.Value]()
    for op in operations:
        facts, operands = facts_of(op), list(op.operation.operands)
        from_function = not of_functions.isdisjoint(operands)
        from_integer = not of_integers.isdisjoint(operands)
        from_function |= facts.is_real_function
        from_integer |= facts.is_integer_valued
        if from_function and from_integer:
            return True
        if from_function:
            of_functions.add(op.operation.results[0])
        if from_integer:
            of_integers.add(op.operation.results[0])
    return False


def _is_known(graph: Graph, statistics: Mapping[ir.Value, Statistics]) -> bool:
    """Whether it is known what noise does."""
    inputs = [statistics.get(value) for value in graph.inputs.values()]
    return all(found is not None and found.gain is not None for found in inputs)


def _leaving(
    graph: Graph,
    statistics: Mapping[ir.Value, Statistics],
    intervals: Mapping[ir.Value, ValueRange],
    margin: float,
) -> Iterator[str]:
    """The real functions whose operand can leave its range."""
    for op in graph.operations:
        if facts_of(op).is_real_function:
            (x,) = op.operation.operands
            if x in statistics and intervals[x].may_leave(statistics[x].range, margin):
                yield name_of(op)


def _beyond_segments(
    graph: Graph,
    statistics: Mapping[ir.Value, Statistics],
    scales: Scales,
    intervals: Mapping[ir.Value, ValueRange],
    margin: float,
    fit: Fitter,
) -> Iterator[str]:
    """The softmaxes whose operand can be where they have no segments."""
    for op in graph.operations:
        if facts_of(op).arithmetic is not Arithmetic.ROW_FUNCTION:
            continue
        (x,), y = op.operation.operands, op.operation.results[0]
        if x in statistics:
            known, bits = statistics[x].range, (scales.stored[x], scales.stored[y])
            ring_bits, logarithm = scales.rings.taken(op), isinstance(op, LogSoftmax)
            if SoftmaxCall(
                logarithm, known, intervals[x], *bits, ring_bits, margin, fit
            ).is_trusting:
                yield name_of(op)


def _domains(graph: Graph, trusting: Sequence[str]) -> str:
    """Where real functions hold, if there are any, as a part of a sentence."""
    if trusting:
        more = f" and {len(trusting) - SHOWN} more" if len(trusting) > SHOWN else ""
        return (
            "; trusted to stay in its calibrated range with its margin is what these real "
            f"functions take: {', '.join(trusting[:SHOWN])}{more}"
        )
    if any(facts_of(op).is_real_function for op in graph.operations):
        return "; real functions hold wherever rings hold what they take"
    return ""


def _listed(scales: Scales) -> str:
    """The rings in use: "ring of 32 bits", "rings of 24, 32 and 40 bits"."""
    found = sorted({*scales.rings.accumulators.values()})
    *most, last = map(str, found or [MAX_RING_BITS])
    return f"rings of {', '.join(most)} and {last} bits" if most else f"ring of {last} bits"


def _too_coarse(scales: Scales) -> AccuracyError:
    assert scales.dominant is not None
    widest = max(scales.rings.accumulators.values())
    return AccuracyError(
        f"In a ring of {widest} bits rounding would change the outputs by "
        f"{scales.error:.0%} of their size, most of it at {_name(scales.dominant)!r}.",
        "No ring is wider, and its numbers are of too different sizes: scale them in the model, or "
        "clip those that are large."
        if widest == MAX_RING_BITS
        else "Take a wider ring: --ring 64, or --ring auto.",
    )


def _name(value: ir.Value) -> str:
    op = defining(value)
    return name_of(op) if op is not None else str(value.location.name_str)


def _arguments(
    graph: Graph,
    visibility: Visibility,
    statistics: Mapping[ir.Value, Statistics],
    scales: Scales,
) -> Iterator[Argument]:
    for role, named in (("input", graph.inputs), ("weight", graph.parameters)):
        for name, value in named.items():
            secrecy = visibility.secrecy(name)
            # What every party knows is reduced to any ring for nothing.
            is_known = name in visibility.announced or visibility.owners[name] == COMMON
            ring_bits = MAX_RING_BITS if is_known else scales.rings.stored(value)
            encoding = Encoding(ring_bits, scales.stored[value], secrecy)
            known = statistics.get(value)
            declared = known.range if known else RealRange.assumed(encoding)
            tensor = Tensor(shape_of(value), encoding)
            kind = "state" if name in graph.states else role
            yield Argument(name, kind, visibility.owners[name], tensor, declared)
