"""The narrowest rings with which a program is exact enough: docs/encoding.md, steps 7 and 8.

All accumulators begin in the narrowest candidate width. As long as the predicted error is above the
goal, the accumulator is raised, by one width or two, that takes most of the error away for the
bytes it costs:

    accumulator      A    B    C      error   to send
    rings     24   24   24     1.4%    11.0 MB
              24   32   24     0.5%    11.9 MB
              32   32   24     0.2%    12.5 MB

Then widths that the goal doesn't need are given back. Where many accumulators make little
difference each, one ring for all, with what isn't needed given back, may cost less: the cheaper of
the two is taken. In a step of training accumulators are raised then in exchange for others: in the
ring of a late layer the velocities of its weights are sent, and these are many.

Accumulators whose noise nothing predicts (a softmax's powers) are in that one ring at the least,
integers in rings that hold them, and those around a real function no more than a width below that
one ring: derivatives say less of what noise does there. Where there are integer parts or truth
values they are in the widest. Windows of 18 to 20 bits snap to 17 where the goal allows: 16 bits
are compared in four digits of four, and each bit more doubles a digit's dealt bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from torch_mlir import ir

from veilgraph.passes.encode.scales.constraints import ScaleConstraint, headroom
from veilgraph.passes.encode.scales.cost_model import CommunicationCost
from veilgraph.passes.encode.scales.fraction_bits import ScaleProblem, Trial
from veilgraph.passes.encode.scales.ring_widths import CANDIDATE_WIDTHS

LARGEST_STEP = 2  # widths
MOST_EXCHANGED = 16  # accumulators that are tried for each that is raised in exchange
WIDEST = len(CANDIDATE_WIDTHS)  # widths above any ring
SNAPPED_BITS = 17  # of a window: 16 are compared, in 4 digits
WIDEST_TO_SNAP = 20
NEARLY_FREE = 1.05  # times the error, that snapping may cost where the goal is missed anyway


@dataclass(frozen=True)
class CandidateStep:
    """An accumulator's next ring, and how much noise that takes away for each bit it sends more."""

    ring_bits: int
    worth: float


@dataclass(frozen=True)
class Priced:
    """A trial, and the bits of all that it sends (`CommunicationCost.each`)."""

    trial: Trial
    each: Sequence[float]

    @cached_property
    def bits(self) -> float:
        return sum(self.each)


@dataclass(frozen=True)
class WidthSearch:
    """Chooses rings, the least bytes first.

    Attributes:
        noise: the square of the relative error that the outputs may have, by prediction. spare:
            widths that accumulators whose noise nothing predicts get beyond what others need.
            around_functions: widths that accumulators around real functions get beyond one ring for
            all, at
            the least; below 0 they may be narrower.
    """

    problem: ScaleProblem
    communication: CommunicationCost
    noise: float
    spare: int = 0
    around_functions: int = WIDEST

    def run(self) -> Trial:
        """The rings and scales found; those of the widest rings where even these miss the goal."""
        ring_bits = self.problem.narrowest_ring(self.noise)
        least = self._least(ring_bits)
        even = {accumulator: max(ring_bits, floor) for accumulator, floor in least.items()}
        starts = [self._raised(least), self._priced(even)]
        enough = [priced for priced in starts if priced.trial.noise <= self.noise]
        found = [self._trimmed(priced, least) for priced in enough]
        if found:
            best = min(found, key=lambda priced: priced.bits)
            return (self._exchanged(best, least) if self.problem.budget.trains else best).trial
        return min((priced.trial for priced in starts), key=lambda trial: trial.noise)

    def _priced(self, accumulators: Mapping[ir.Value, int]) -> Priced:
        trial = self.problem.attempt(accumulators)
        return Priced(trial, self.communication.each(trial))

    def _changed(self, priced: Priced, accumulator: ir.Value, ring_bits: int) -> Priced:
        """With one accumulator in another ring."""
        trial = self.problem.changed(priced.trial, accumulator, ring_bits)
        return Priced(trial, self.communication.each_changed(priced.each, trial, accumulator))

    def _least(self, ring_bits: int) -> dict[ir.Value, int]:
        """The narrowest ring that each accumulator may be in."""
        readers = self.problem.readers
        least = self.problem.one_ring(CANDIDATE_WIDTHS[0])
        for root, constraint in self.problem.constraints.items():
            around = (*readers.of[root], *readers.makers.get(root, ()))
            floors = [(around, self._floor(constraint, ring_bits))]
            if constraint.wants_ring:
                widest = _above(ring_bits, self.spare + self.around_functions)
                floors.append((readers.around_function(root), widest))
            for accumulators, floor in floors:
                for accumulator in accumulators:
                    least[accumulator] = max(least[accumulator], floor)
        return least

    def _floor(self, constraint: ScaleConstraint, ring_bits: int) -> int:
        """What a class asks of the accumulators around it, real functions apart.

        Args:
            ring_bits: the one ring that is enough for all.
        """
        holding = _holding(constraint)
        return max(holding, _above(ring_bits, self.spare)) if constraint.unknown_gain else holding

    def _raised(self, least: Mapping[ir.Value, int]) -> Priced:
        neighbours = self.problem.readers.neighbours()
        now = self._priced(least)
        candidates: dict[ir.Value, CandidateStep] = {}
        stale: Iterable[ir.Value] = neighbours
        while now.trial.noise > self.noise:
            for accumulator in stale:
                candidates[accumulator] = max(
                    self._candidates(accumulator, now), key=lambda candidate: candidate.worth
                )
            best = max(candidates, key=lambda accumulator: candidates[accumulator].worth)
            if candidates[best].worth > 0:
                now = self._changed(now, best, candidates[best].ring_bits)
                stale = neighbours[best]
            elif min(now.trial.accumulators.values()) < CANDIDATE_WIDTHS[-1]:
                # No accumulator alone makes a difference: two that meet in a sum hide behind each
                # other.
                accumulators = {
                    accumulator: _above(ring_bits, 1)
                    for accumulator, ring_bits in now.trial.accumulators.items()
                }
                now, stale = self._priced(accumulators), neighbours
            else:
                break
        return now

    def _candidates(self, accumulator: ir.Value, now: Priced) -> Iterator[CandidateStep]:
        """What raising an accumulator would do; nothing, where it is in the widest ring."""
        yield CandidateStep(now.trial.accumulators[accumulator], 0.0)
        for step in range(1, LARGEST_STEP + 1):
            ring_bits = _above(now.trial.accumulators[accumulator], step)
            raised = self._changed(now, accumulator, ring_bits)
            removed, more = now.trial.noise - raised.trial.noise, raised.bits - now.bits
            if removed > 0:
                yield CandidateStep(ring_bits, removed / more if more > 0 else math.inf)

    def _trimmed(self, now: Priced, least: Mapping[ir.Value, int]) -> Priced:
        """Without the widths that turn out not to be needed, the costliest first."""
        while True:
            before = now
            rings = now.trial.accumulators
            free = [accumulator for accumulator in least if rings[accumulator] > least[accumulator]]
            sent, is_better = dict[ir.Value, float](), dict[ir.Value, bool]()
            for accumulator in free:
                low = self._lowered(now, accumulator)
                sent[accumulator] = low.bits
                is_better[accumulator] = self._is_better(low, now)
            for accumulator in sorted(sent, key=lambda accumulator: sent[accumulator]):
                if now is before and not is_better[accumulator]:
                    continue  # as it was found above
                low = self._lowered(now, accumulator)
                if self._is_better(low, now):
                    now = low
            if now is before:
                return now

    def _is_better(self, low: Priced, now: Priced) -> bool:
        return low.trial.noise <= self.noise and low.bits < now.bits

    def _exchanged(self, now: Priced, least: Mapping[ir.Value, int]) -> Priced:
        """With accumulators raised, the most noise for the bits first, where more is given back.

        A step of training runs a thousand times: that is worth the seconds that this takes.
        """
        while True:
            best = {a: max(self._candidates(a, now), key=lambda c: c.worth) for a in least}
            order = sorted(best, key=lambda a: best[a].worth, reverse=True)[:MOST_EXCHANGED]
            for accumulator in order:
                if best[accumulator].worth <= 0:
                    return now
                raised = self._changed(now, accumulator, best[accumulator].ring_bits)
                tried = self._trimmed(raised, least)
                if tried.bits < now.bits:
                    now = tried
                    break
            else:
                return now

    def _lowered(self, now: Priced, accumulator: ir.Value) -> Priced:
        place = CANDIDATE_WIDTHS.index(now.trial.accumulators[accumulator])
        return self._changed(now, accumulator, CANDIDATE_WIDTHS[place - 1])


def _above(ring_bits: int, steps: int) -> int:
    """The width so many steps higher, or the last one; the first, where steps lead below it."""
    return CANDIDATE_WIDTHS[
        min(max(CANDIDATE_WIDTHS.index(ring_bits) + steps, 0), len(CANDIDATE_WIDTHS) - 1)
    ]


def _holding(constraint: ScaleConstraint) -> int:
    """The narrowest ring that a value fits to its last integer, where it may be one.

    What is known to be an integer has no fewer bits, and where noise seems to do nothing a
    comparison or an integer part follows, which may need all.
    """
    if (constraint.noise and not constraint.integral) or constraint.whole_bits is None:
        return CANDIDATE_WIDTHS[0]
    fitting = (bits for bits in CANDIDATE_WIDTHS if headroom(bits, constraint.whole_bits or 0) >= 0)
    return next(fitting, CANDIDATE_WIDTHS[-1])


def snapped(
    problem: ScaleProblem, communication: CommunicationCost, trial: Trial, noise: float
) -> Trial:
    """The trial with smaller windows where they have a bit or three more than a full tree takes.

    Args:
        noise: that the outputs may have; NEARLY_FREE times as much as they have in any case.
    """
    allowed = max(noise, NEARLY_FREE**2 * trial.noise)
    most: dict[ir.Value, int] = {}
    bits = communication.bits(trial)
    for root, excess in _to_snap(communication.window_bits(trial)):
        limits = {**most, root: trial.scales[root] - excess}
        tried = problem.attempt(trial.accumulators, limits)
        if tried.noise <= allowed and (less := communication.bits(tried)) < bits:
            most, bits = limits, less
    return problem.attempt(trial.accumulators, most)


def _to_snap(windows: Mapping[ir.Value, int]) -> list[tuple[ir.Value, int]]:
    """Classes and their windows' excess bits, the smallest excess first."""
    excess = {root: bits - SNAPPED_BITS for root, bits in windows.items()}
    found = [(r, n) for r, n in excess.items() if 0 < n <= WIDEST_TO_SNAP - SNAPPED_BITS]
    return sorted(found, key=lambda pair: pair[1])
