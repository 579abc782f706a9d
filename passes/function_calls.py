"""A real function at the secret level: a sum of waves on the range of its operand.

What may be far out is clipped first, or, for a function with a pole, brought near 1
(normalized_functions.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from torch_mlir import ir

from veilgraph.ir import secret_ops
from veilgraph.ir.errors import AccuracyError
from veilgraph.ir.meaning.integers import encode
from veilgraph.ir.secret_ops import Stated
from veilgraph.ir.secret_types import MAX_RING_BITS, RangeSource, RealRange
from veilgraph.ir.waves import FINE_BITS, Waves, tables
from veilgraph.passes.normalized_functions import Normalized
from veilgraph.passes.real_functions import (
    FUNCTIONS,
    TURNING,
    Domain,
    Tail,
    clip_of,
    interval_of,
    turning,
    waves_of,
)
from veilgraph.passes.secret_steps import aligned, step

PROVEN = RangeSource.PROVEN
UNIT = RealRange(-1.0, 1.0, PROVEN)


@dataclass(frozen=True)
class FunctionCall:
    """One function on one operand.

    Attributes:
        name: of the function, with its form where it has several.
        known: where the operand lies.
        in_bits, out_bits: fraction bits of operand and result.
        margin: how many times larger than calibrated values may be.
    """

    name: str
    known: RealRange
    in_bits: int
    out_bits: int
    ring_bits: int
    margin: float

    def build(self, x: ir.Value, declared: RealRange, layer: str) -> ir.Value:
        """The result, of range `declared`, at the current place.

        Raises:
            AccuracyError: no sum of waves is close enough on the operand's range.
        """
        if self.name in TURNING:
            reach = self.known.reach(self.margin)
            waves = turning(self.name, reach, self.in_bits, self.out_bits, self.ring_bits)
            return self._waves(x, waves, declared, self.out_bits)
        function = FUNCTIONS[self.name]
        low, high = interval_of(function, self.known, self.margin)
        least, most = clip_of(function, low, high, self.out_bits)
        inner = max(low, least), min(high, most)
        found = waves_of(self.name, *inner, self.in_bits, self.out_bits, self.ring_bits)
        if found is None and function.domain is Domain.POSITIVE:
            return self._normalized(x, low, high, declared, layer)
        if found is None:
            raise self._too_wide(layer, *inner)
        clipped, above = self._clipped(x, least, most)
        y = self._waves(clipped, found, declared, self.out_bits)
        if above is None or function.tail is not Tail.LINE:
            return y
        tail = aligned(above, self.out_bits, self._between(0.0, math.inf))
        return step(secret_ops.Add, [y, tail], declared)

    def _normalized(
        self, x: ir.Value, low: float, high: float, declared: RealRange, layer: str
    ) -> ir.Value:
        """On a range so wide that the operand is brought near 1; 1/x of negative numbers too."""
        negative = high < 0 and self.name == "reciprocal"
        least, most = (-high, -low) if negative else (low, high)
        if not (least > 0 and math.isfinite(most)):
            raise self._too_wide(layer, low, high)
        call = Normalized(self.name, least, most, self.in_bits, self.out_bits, self.ring_bits)
        if call.waves() is None:
            raise self._too_wide(layer, low, high)
        if negative:
            x = step(secret_ops.Neg, [x], RealRange(least, most, PROVEN))
        y = aligned(call.build(x, self._waves), self.out_bits, declared)
        return step(secret_ops.Neg, [y], declared) if negative else y

    def _too_wide(self, layer: str, low: float, high: float) -> AccuracyError:
        if not (math.isfinite(low) and math.isfinite(high)):
            return AccuracyError(
                f"Nothing is known of the numbers whose {self.name} {layer!r} takes.",
                "Give samples with --calibrate.",
            )
        return AccuracyError(
            f"{layer!r} takes the {self.name} of numbers from {low:.4g} to {high:.4g}, margin "
            f"included, for which there is no approximation of {self.out_bits} fraction bits.",
            "Bring them nearer together, away from zero where the function has no value there, "
            "or take fewer fraction bits.",
        )

    def _waves(self, x: ir.Value, waves: Waves, declared: RealRange, frac_bits: int) -> ir.Value:
        stated = Stated((), FINE_BITS, MAX_RING_BITS)
        public = [
            secret_ops.Constant.build(range=UNIT, stated=stated, value=table)
            for table in tables(waves.window_bits)
        ]
        named = waves.attributes() | {"bits": waves.frac_bits - frac_bits}
        return step(secret_ops.MaskedFunction, [x, *public], declared, **named)

    def _clipped(self, x: ir.Value, least: float, most: float) -> tuple[ir.Value, ir.Value | None]:
        """x between the bounds, by a comparison each; and how far it was above."""
        above = self._over(x, most) if math.isfinite(most) else None
        if math.isfinite(least):
            x = self._shifted(self._over(x, least), least, self._between(least, math.inf))
        if above is not None:
            within = self._between(least, most)
            x = step(secret_ops.Sub, [x, above], within)
        return x, above

    def _between(self, low: float, high: float, shift: float = 0.0) -> RealRange:
        """The operand's range and its margin clipped, then shifted; an unknown one stays unknown.

        What is left of a margin by a clip is no multiple of what is left of the range.
        """
        known = self.known
        if known.source is RangeSource.ASSUMED:
            return known
        ends = known.widened(self.margin)
        least, most = (min(max(end, low), high) + shift for end in ends)
        return RealRange(least, most, PROVEN)

    def _over(self, x: ir.Value, bound: float) -> ir.Value:
        """max(x - bound, 0)."""
        moved = self._shifted(x, -bound, self._between(-math.inf, math.inf, -bound))
        positive = self._between(bound, math.inf, -bound)
        return step(
            secret_ops.Relu, [moved], positive, window_bits=self.ring_bits - 1, dropped_bits=0
        )

    def _shifted(self, x: ir.Value, by: float, declared: RealRange) -> ir.Value:
        integer = encode(np.asarray(by), self.in_bits, self.ring_bits)
        number = RealRange(by, by, PROVEN)
        stated = Stated((), self.in_bits, self.ring_bits)
        addend = secret_ops.Constant.build(range=number, stated=stated, value=integer)
        return step(secret_ops.Add, [x, addend], declared)
