"""A real function at the secret level: a sum of waves on the range of its operand.

What may be far out is clipped first. A function with a pole takes what is nearer to it than the
domain for the domain's end, chosen behind the waves or where the operand is brought near 1
(normalized_functions.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
from torch_mlir import ir

from veilgraph.ir import secret_ops
from veilgraph.ir.errors import AccuracyError
from veilgraph.ir.meaning.integers import encode
from veilgraph.ir.secret_ops import Stated
from veilgraph.ir.secret_types import MAX_RING_BITS, RangeSource, RealRange
from veilgraph.ir.waves import FINE_BITS, Waves, tables
from veilgraph.passes.normalized_functions import FUZZY_BITS, Normalized
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
from veilgraph.passes.secret_steps import aligned, between, public, step

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
        if function.domain is Domain.POSITIVE:
            found = self._with_pole(x, declared)
            if found is None:
                raise self._too_wide(layer, low, high)
            return found
        least, most = clip_of(function, low, high, self.out_bits)
        inner = max(low, least), min(high, most)
        sums = waves_of(self.name, *inner, self.in_bits, self.out_bits, self.ring_bits)
        if sums is None:
            raise self._too_wide(layer, *inner)
        clipped, above = self._clipped(x, least, most)
        y = self._waves(clipped, sums, declared, self.out_bits)
        if above is None or function.tail is not Tail.LINE:
            return y
        tail = aligned(above, self.out_bits, self._between(0.0, math.inf))
        return step(secret_ops.Add, [y, tail], declared)

    def _with_pole(self, x: ir.Value, declared: RealRange) -> ir.Value | None:
        """On numbers of one sign, brought near 1 where waves alone do not do.

        Where samples showed the range, an operand nearer to the pole than the domain, or beyond it,
        counts as the domain's end. At the other end the domain ends where the margin does, and what
        is proven stays inside.

        Returns:
            None where there is no approximation.
        """
        known = self.known
        if known.high < 0 and self.name == "reciprocal":
            mirrored = replace(self, known=_mirrored(known))
            y = mirrored._with_pole(step(secret_ops.Neg, [x], mirrored.known), _mirrored(declared))
            return None if y is None else step(secret_ops.Neg, [y], declared)
        low, high = interval_of(FUNCTIONS[self.name], known, self.margin)
        if not (low > 0 and math.isfinite(high)):
            return None
        lowest = low
        if known.source is RangeSource.CALIBRATED:
            whole_bits = math.floor(math.log2((1 + self.margin) * known.high)) + 1
            if (more := self.in_bits + whole_bits - (self.ring_bits - 2)) > 0:
                x = step(secret_ops.Truncate, [x], known, bits=more)
                return replace(self, in_bits=self.in_bits - more)._with_pole(x, declared)
            low = math.ldexp(math.ceil(math.ldexp(low, self.in_bits)), -self.in_bits)
            high, lowest = max(low, high), -self.margin * known.high
        least = low if lowest == low else low * (1 - 2.0**-FUZZY_BITS)
        waves = waves_of(self.name, least, high, self.in_bits, self.out_bits, self.ring_bits)
        if waves is not None:
            y = self._waves(x, waves, declared, self.out_bits)
            return y if lowest == low else self._from_end(x, y, low, lowest, declared)
        bits = self.in_bits, self.out_bits, self.ring_bits
        call = Normalized(self.name, low, high, *bits, lowest)
        if call.waves() is None:
            return None
        return aligned(call.build(x, self._waves), self.out_bits, declared)

    def _from_end(
        self, x: ir.Value, y: ir.Value, low: float, lowest: float, declared: RealRange
    ) -> ir.Value:
        """f(low) + [x >= low] (y - f(low)): what is below counts as `low`, whatever y is there.

        The comparison does not wait for y, where a clip of x would be waited for. It may take a
        number for larger than it is by a sixteenth.

        Args:
            lowest: the smallest x there may be.
        """
        end = int(math.ldexp(low, self.in_bits))
        ends = RealRange(lowest - low, self.margin * self.known.high - low, PROVEN)
        dropped = max(0, end.bit_length() - 1 - FUZZY_BITS)
        window: dict[str, Any] = {"window_bits": self.ring_bits - 1, "dropped_bits": dropped}
        within = step(secret_ops.Step, [self._shifted(x, -low, ends)], between((0, 1)), **window)
        value = round(math.ldexp(float(FUNCTIONS[self.name].value(Decimal(low))), self.out_bits))
        at_end = public(value, self.out_bits, self.ring_bits)
        reach, moved = declared.reach(self.margin), math.ldexp(value, -self.out_bits)
        rises = between((-reach - moved, reach - moved))
        rise = step(secret_ops.Sub, [y, at_end], rises)
        kept = step(secret_ops.Mul, [rise, within], rises)
        return step(secret_ops.Add, [kept, at_end], declared)

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


def _mirrored(known: RealRange) -> RealRange:
    return RealRange(-known.high, -known.low, known.source)
