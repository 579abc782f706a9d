"""The narrowest rings with which a program is exact enough: ENCODING.md, steps 7 and 8.

All units begin on the lowest rung. As long as the predicted error is above the goal, the unit is
raised, by one rung or two, that takes most of the error away for the bytes it costs:

    unit      A    B    C      error   to send
    rings     24   24   24     1.4%    11.0 MB
              24   32   24     0.5%    11.9 MB
              32   32   24     0.2%    12.5 MB

Then rungs that the goal doesn't need are given back, and windows of 18 to 20 bits snap to 17 where
the goal allows: a carry tree over 16 bits has a level less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from torch_mlir import ir

from veilgraph.passes.rings import RUNGS
from veilgraph.passes.scales import ScaleProblem, Trial
from veilgraph.passes.traffic import Traffic

LARGEST_STEP = 2  # rungs
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
        least: the narrowest ring that a unit may be in.
    """

    problem: ScaleProblem
    traffic: Traffic
    noise: float
    least: int = RUNGS[0]

    def run(self) -> Trial:
        """The rings and scales found; those of the widest rings where even these miss the goal."""
        trial = self._raised()
        return self._trimmed(trial) if trial.noise <= self.noise else trial

    def _raised(self) -> Trial:
        neighbours = self.problem.readers.neighbours()
        trial = self.problem.attempt(self.problem.one_ring(self.least))
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

    def _trimmed(self, trial: Trial) -> Trial:
        """Without the rungs that turned out not to be needed, the costliest first."""
        bits = self.traffic.bits(trial)
        lower = [
            self._lowered(trial, unit) for unit in trial.units if trial.units[unit] > self.least
        ]
        saved = {unit: bits - self.traffic.bits(low) for unit, low in lower}
        for unit in sorted(saved, key=lambda unit: -saved[unit]):
            _, low = self._lowered(trial, unit)
            if low.noise <= self.noise and self.traffic.bits(low) < self.traffic.bits(trial):
                trial = low
        return trial

    def _lowered(self, trial: Trial, unit: ir.Value) -> tuple[ir.Value, Trial]:
        ring_bits = RUNGS[RUNGS.index(trial.units[unit]) - 1]
        return unit, self.problem.attempt({**trial.units, unit: ring_bits})


def _above(ring_bits: int, steps: int) -> int:
    """The rung so many steps higher, or the last one."""
    return RUNGS[min(RUNGS.index(ring_bits) + steps, len(RUNGS) - 1)]


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
