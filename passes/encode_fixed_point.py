"""From real numbers to integers modulo 2^K: chooses the ring and every scale, graph to secret.

Plain on purpose: one truncation after each product, every value at its stored scale. What is lazy
about truncations is in merge_truncations.py; the scales are chosen for what it makes of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.errors import AccuracyError, UsageError
from veilgraph.ir.graph import Graph, defining, name_of
from veilgraph.ir.secret import Argument, SecretProgram
from veilgraph.ir.secret_types import MAX_RING_BITS, Encoding, RealRange, Tensor
from veilgraph.passes.fixed_point_ops import Encoder
from veilgraph.passes.infer_visibility import Visibility
from veilgraph.passes.ranges import Ranges, Statistics
from veilgraph.passes.scale_drafts import Budget
from veilgraph.passes.scale_structure import analyse
from veilgraph.passes.scales import Scales, choose_scales

RINGS = (32, 40, 64)  # that `auto` chooses from
FORESIGHT = 0.5  # of the tolerance: measured errors were up to 1.8 times the predicted ones
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
        ring_bits: width of every ring, a multiple of 8 up to 64; None chooses the least of 32, 40
            and 64 whose predicted error is within the tolerance, 64 where ranges are unknown.
        frac_bits: of every stored value and every weight; None chooses them one by one.
        margin: values may be this many times larger than calibrated.
        goal: error of the outputs relative to their size below which bits are not worth their cost.
        tolerance: error that the choice of a ring accepts. ENCODING.md: under 0.5% the classes of
            all images tried agreed or nearly did; at 1.5% one in 16 differed.
    """

    ring_bits: int | None = None
    frac_bits: int | None = None
    margin: float = 2.0
    goal: float = 1e-4
    tolerance: float = 5e-3

    def run(self, graph: Graph, visibility: Visibility, ranges: Ranges) -> SecretProgram:
        """The program in fixed point.

        Raises:
            UsageError: a ring, a margin or a number of fraction bits that makes no sense.
            AccuracyError: a value doesn't fit, or rounding would drown the answer.
        """
        self._check_options()
        statistics = ranges.of(graph)
        budget, scales = self._choose(graph, statistics)
        arguments = list(_arguments(graph, visibility, statistics, scales, budget))
        program = SecretProgram.create(
            graph.module.context,
            arguments,
            dict(graph.weights),
            _sentence(ranges, budget, scales),
            self.margin,
        )
        program.finish(Encoder(graph, program, statistics, scales, budget.ring_bits).encode())
        return program

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
        if self.margin < 1:
            raise UsageError(f"A margin of {self.margin} can't be used.", "Take 1 or more.")

    def _choose(
        self, graph: Graph, statistics: Mapping[ir.Value, Statistics]
    ) -> tuple[Budget, Scales]:
        """The ring and the scales: as asked, or the narrowest ring that is good enough."""
        structure = analyse(graph)
        known = all(value in statistics for value in graph.inputs.values())
        rings = (self.ring_bits,) if self.ring_bits else RINGS if known else (MAX_RING_BITS,)
        for ring_bits in rings:
            budget = Budget(ring_bits, self.margin, self.goal, self.frac_bits)
            scales = choose_scales(graph, structure, statistics, budget)
            if not scales.misfits and scales.error <= FORESIGHT * self.tolerance:
                break
        for value in scales.misfits:
            raise _misfit(value, statistics[value], budget)
        if known and self.frac_bits is None and scales.error > UNUSABLE:
            raise _too_coarse(scales, budget)
        return budget, scales


def _misfit(value: ir.Value, known: Statistics, budget: Budget) -> AccuracyError:
    reach = known.range.reach(budget.margin)
    return AccuracyError(
        f"The values of {_name(value)!r} reach {reach:.4g}, margin included, which doesn't fit "
        f"{budget.ring_bits} bits with {budget.frac_bits} fraction bits for each factor.",
        "Take fewer fraction bits, a wider ring (--ring 64), or leave the choice to --calibrate.",
    )


def _too_coarse(scales: Scales, budget: Budget) -> AccuracyError:
    assert scales.loudest is not None
    return AccuracyError(
        f"In a ring of {budget.ring_bits} bits rounding would change the outputs by "
        f"{scales.error:.0%} of their size, most of it at {_name(scales.loudest)!r}.",
        "Take a wider ring: --ring 64, or --ring auto.",
    )


def _name(value: ir.Value) -> str:
    op = defining(value)
    return name_of(op) if op is not None else str(value.location.name_str)


def _sentence(ranges: Ranges, budget: Budget, scales: Scales) -> str:
    """How the numbers were chosen, for the manifest."""
    bits = (
        f"{budget.frac_bits} fraction bits for every value"
        if budget.frac_bits is not None
        else "fraction bits value by value"
    )
    sentence = f"ring of {budget.ring_bits} bits, {bits}; {ranges.origin}"
    if not any(role == "input" for role, _ in ranges.known):
        return f"{sentence}; magnitudes of sums may reach 2^{budget.ring_bits - 2} units"
    return f"{sentence}, margin {budget.margin:g}; predicted relative error {scales.error:.1e}"


def _arguments(
    graph: Graph,
    visibility: Visibility,
    statistics: Mapping[ir.Value, Statistics],
    scales: Scales,
    budget: Budget,
) -> Iterator[Argument]:
    for role, named in (("input", graph.inputs), ("weight", graph.parameters)):
        for name, value in named.items():
            secrecy = visibility.secrecy(name)
            encoding = Encoding(budget.ring_bits, scales.stored[value], secrecy)
            known = statistics.get(value)
            declared = known.range if known else RealRange.assumed(encoding)
            tensor = Tensor(shape_of(value), encoding)
            yield Argument(name, role, visibility.owners[name], tensor, declared)
