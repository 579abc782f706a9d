"""The narrowest rings with which a program is exact enough: ENCODING.md, steps 7 and 8.

All units begin on the lowest rung. As long as the predicted error is above the goal, the unit is
raised, by one rung or two, that takes most of the error away for the bytes it costs:

    unit      A    B    C      error   to send
    rings     24   24   24     1.4%    11.0 MB
              24   32   24     0.5%    11.9 MB
              32   32   24     0.2%    12.5 MB

Then rungs that the goal doesn't need are given back. Where many units make little difference each,
one ring for all, with what isn't needed given back, may cost less: the cheaper of the two is taken.
Units whose noise nothing predicts (a softmax's powers) are in that one ring at the least, integers
in rings that hold them, and those around a real function no more than a rung below that one ring:
derivatives say less of what noise does there. Where there are integer parts or truth values they
are in the widest.
Windows of 18 to 20 bits snap to 17 where the goal allows: a carry tree over 16 bits has a level
less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from torch_mlir import ir

from veilgraph.passes.rings import RUNGS
from veilgraph.passes.scale_drafts import Draft, room
from veilgraph.passes.scales import ScaleProblem, Trial
from veilgraph.passes.traffic import Traffic

LARGEST_STEP = 2  # rungs
WIDEST = len(RUNGS)  # rungs above any ring
SNAPPED_BITS = 17  # of a window: 16 are compared, in 8 digits
WIDEST_TO_SNAP = 20
NEARLY_FREE = 1.05  # times the error, that snapping may cost where the goal is missed anyway


@dataclass(frozen=True)
class Offer:
    """A unit's next ring, and how much noise that takes away for each bit it sends more."""

    ring_bits: int
    worth: float


@dataclass(frozen=True)
class Escalation:
    """Chooses rings, the least bytes first.

    Attributes:
        noise: the square of the relative error that the outputs may have, by prediction.
        spare: rungs that units whose noise nothing predicts get beyond what others need.
        around_functions: rungs that units around real functions get beyond one ring for all, at
            the least; below 0 they may be narrower.
    """

    problem: ScaleProblem
    traffic: Traffic
    noise: float
    spare: int = 0
    around_functions: int = WIDEST

    def run(self) -> Trial:
        """The rings and scales found; those of the widest rings where even these miss the goal."""
        ring_bits = self.problem.narrowest_ring(self.noise)
        least = self._least(ring_bits)
        even = {unit: max(ring_bits, floor) for unit, floor in least.items()}
        starts = [self._raised(least), self.problem.attempt(even)]
        found = [self._trimmed(trial, least) for trial in starts if trial.noise <= self.noise]
        return min(found or starts, key=self.traffic.bits if found else lambda trial: trial.noise)

    def _least(self, ring_bits: int) -> dict[ir.Value, int]:
        """The narrowest ring that each unit may be in."""
        readers = self.problem.readers
        least = self.problem.one_ring(RUNGS[0])
        for root, draft in self.problem.drafts.items():
            floor = self._floor(draft, ring_bits)
            for unit in (*readers.of[root], *readers.makers.get(root, ())):
                least[unit] = max(least[unit], floor)
        return least

    def _floor(self, draft: Draft, ring_bits: int) -> int:
        """What a class asks of the units around it.

        Args:
            ring_bits: the one ring that is enough for all.
        """
        floors = [_holding(draft)]
        if draft.steep:
            floors.append(_above(ring_bits, self.spare))
        if draft.waves:
            floors.append(_above(ring_bits, self.spare + self.around_functions))
        return max(floors)

    def _raised(self, least: Mapping[ir.Value, int]) -> Trial:
        neighbours = self.problem.readers.neighbours()
        trial = self.problem.attempt(least)
        offers: dict[ir.Value, Offer] = {}
        stale: Iterable[ir.Value] = neighbours
        while trial.noise > self.noise:
            bits = self.traffic.bits(trial)
            for unit in stale:
                offers[unit] = max(self._offers(unit, trial, bits), key=lambda offer: offer.worth)
            best = max(offers, key=lambda unit: offers[unit].worth)
            if offers[best].worth > 0:
                units = {**trial.units, best: offers[best].ring_bits}
                stale = neighbours[best]
            elif min(trial.units.values()) < RUNGS[-1]:
                # No unit alone makes a difference: two that meet in a sum hide behind each other.
                units = {unit: _above(ring_bits, 1) for unit, ring_bits in trial.units.items()}
                stale = neighbours
            else:
                break
            trial = self.problem.attempt(units)
        return trial

    def _offers(self, unit: ir.Value, trial: Trial, bits: float) -> Iterator[Offer]:
        """What raising a unit would do; nothing, where it is in the widest ring."""
        yield Offer(trial.units[unit], 0.0)
        for step in range(1, LARGEST_STEP + 1):
            ring_bits = _above(trial.units[unit], step)
            raised = self.problem.attempt({**trial.units, unit: ring_bits})
            removed, more = trial.noise - raised.noise, self.traffic.bits(raised) - bits
            if removed > 0:
                yield Offer(ring_bits, removed / more if more > 0 else math.inf)

    def _trimmed(self, trial: Trial, least: Mapping[ir.Value, int]) -> Trial:
        """Without the rungs that turn out not to be needed, the costliest first."""
        bits = self.traffic.bits(trial)
        while True:
            free = [unit for unit in least if trial.units[unit] > least[unit]]
            sent = {unit: self.traffic.bits(self._lowered(trial, unit)) for unit in free}
            before = bits
            for unit in sorted(sent, key=lambda unit: sent[unit]):
                low = self._lowered(trial, unit)
                if low.noise <= self.noise and (less := self.traffic.bits(low)) < bits:
                    trial, bits = low, less
            if bits == before:
                return trial

    def _lowered(self, trial: Trial, unit: ir.Value) -> Trial:
        ring_bits = RUNGS[RUNGS.index(trial.units[unit]) - 1]
        return self.problem.attempt({**trial.units, unit: ring_bits})


def _above(ring_bits: int, steps: int) -> int:
    """The rung so many steps higher, or the last one; the first, where steps lead below it."""
    return RUNGS[min(max(RUNGS.index(ring_bits) + steps, 0), len(RUNGS) - 1)]


def _holding(draft: Draft) -> int:
    """The narrowest ring that a value fits to its last integer, where it may be one.

    What is known to be an integer has no fewer bits, and where noise seems to do nothing a
    comparison or an integer part follows, which may need all.
    """
    if (draft.noise and not draft.integral) or draft.whole_bits is None:
        return RUNGS[0]
    fitting = (bits for bits in RUNGS if room(bits, draft.whole_bits or 0) >= 0)
    return next(fitting, RUNGS[-1])


def snapped(problem: ScaleProblem, traffic: Traffic, trial: Trial, noise: float) -> Trial:
    """The trial with smaller windows where they have a bit or three more than a full tree takes.

    Args:
        noise: that the outputs may have; NEARLY_FREE times as much as they have in any case.
    """
    allowed = max(noise, NEARLY_FREE**2 * trial.noise)
    most: dict[ir.Value, int] = {}
    bits = traffic.bits(trial)
    for root, excess in _to_snap(traffic.window_bits(trial)):
        limits = {**most, root: trial.scales[root] - excess}
        tried = problem.attempt(trial.units, limits)
        if tried.noise <= allowed and (less := traffic.bits(tried)) < bits:
            most, bits = limits, less
    return problem.attempt(trial.units, most)


def _to_snap(windows: Mapping[ir.Value, int]) -> list[tuple[ir.Value, int]]:
    """Classes and their windows' excess bits, the smallest excess first."""
    excess = {root: bits - SNAPPED_BITS for root, bits in windows.items()}
    found = [(r, n) for r, n in excess.items() if 0 < n <= WIDEST_TO_SNAP - SNAPPED_BITS]
    return sorted(found, key=lambda pair: pair[1])
