"""A real function at the secret level: one that a building block of the suite fits to a range.

What may be far out is clipped first. A function with a singularity takes what is nearer to it than
the domain for the domain's end, chosen behind the fitted function or where the operand is brought
near 1 (singularities.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
from torch_mlir import ir

from veilgraph.ir.errors import AccuracyError
from veilgraph.ir.meaning.integers import encode
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.ops import Stated
from veilgraph.ir.secret.types import RangeSource, RealRange
from veilgraph.passes.encode.builder import (
    aligned,
    between,
    clipped_function,
    fitted_function,
    public,
    step,
)
from veilgraph.passes.encode.functions.catalogue import (
    MOST_OF_HEADROOM,
    Ends,
    clips_of,
    interval_of,
)
from veilgraph.passes.encode.functions.singularities import FUZZY_BITS, Normalized
from veilgraph.passes.ranges.value_ranges import ValueRange
from veilgraph.targets.functions.catalogue import FUNCTIONS, TURNING, Domain, Tail
from veilgraph.targets.functions.function_block import FIT_UNITS, Fitted, Fitter, Wanted

PROVEN = RangeSource.PROVEN


@dataclass(frozen=True)
class FunctionCall:
    """One function on one operand.

    Attributes:
        name: of the function, with its form where it has several.
        known: where the operand lies.
        in_bits, out_bits: fraction bits of operand and result.
        margin: how many times larger than calibrated values may be.
        interval: where the operand can be, whatever its range says.
        fit: finds a form, in the suite's building blocks.
        fit_units: what it may be off by, in units of the result's last place; that of functions
            with a singularity is within FIT_UNITS.
    """

    name: str
    known: RealRange
    interval: ValueRange
    in_bits: int
    out_bits: int
    ring_bits: int
    margin: float
    fit: Fitter
    fit_units: float = FIT_UNITS

    def build(self, x: ir.Value, declared: RealRange, layer: str) -> ir.Value:
        """The result, of range `declared`, at the current place.

        Raises:
            AccuracyError: no form is close enough on the operand's range.
        """
        if self.name in TURNING:
            magnitude = self.known.magnitude(self.margin)
            fitted = self.fit(self._wanted(-magnitude, magnitude, FIT_UNITS))
            assert fitted is not None, "a turn has a form, however large its angle"
            return fitted_function(x, fitted, declared, self.out_bits)
        function = FUNCTIONS[self.name]
        if function.domain is Domain.POSITIVE:
            found = self._near_singularity(x, declared)
            if found is None:
                raise self._too_wide(layer, *self._usual)
            return found
        for clip in clips_of(function, self._usual, self._ends, self.out_bits):
            y = self._clipped(x, clip, declared)
            if y is not None:
                return y
        raise self._too_wide(layer, *self._usual)

    def _clipped(self, x: ir.Value, clip: Ends, declared: RealRange) -> ir.Value | None:
        """The function, clipped; None where no form is close enough in between."""
        if FUNCTIONS[self.name].tail is Tail.LINE:
            return self._between_lines(x, clip, declared)
        fitted = self._fit_between(clip)
        if fitted is None:
            return None
        y = fitted_function(x, fitted, declared, self.out_bits)
        return self._or_ends(x, y, clip, declared)

    def _between_lines(self, x: ir.Value, clip: Ends, declared: RealRange) -> ir.Value | None:
        """0 far below and x far above: what was clipped above is added again."""
        (least, most), (low, high) = clip, self._ends
        inner = max(low, least), min(high, most)
        fitted = self._fit(*inner)
        if fitted is None:
            return None
        if math.isinf(least):
            return fitted_function(x, fitted, declared, self.out_bits)
        above = self._over(x, most)
        raised = self._shifted(self._over(x, least), least, self._between(least, math.inf))
        x = step(secret_ops.Sub, [raised, above], self._between(least, most))
        y = fitted_function(x, fitted, declared, self.out_bits)
        tail = aligned(above, self.out_bits, self._between(0.0, math.inf))
        return step(secret_ops.Add, [y, tail], declared)

    def _fit_between(self, clip: Ends) -> Fitted | None:
        """On where the operand can be, or to the clip and what comparisons may miss it by."""
        (least, most), (low, high) = clip, self._ends
        if math.isfinite(least):
            low = least - self._missed(least)
        if math.isfinite(most):
            high = most + self._missed(most)
        return self._fit(low, high)

    def _fit(self, low: float, high: float) -> Fitted | None:
        """At a singularity as exact as ever: an inverse is a large factor of what follows."""
        has_singularity = FUNCTIONS[self.name].domain is Domain.POSITIVE
        return self.fit(self._wanted(low, high, FIT_UNITS if has_singularity else self.fit_units))

    def _wanted(self, low: float, high: float, units: float) -> Wanted:
        error = math.ldexp(units, -self.out_bits)
        return Wanted(self.name, low, high, self.in_bits, self.out_bits, self.ring_bits, error)

    @property
    def _usual(self) -> Ends:
        """Where the operand lies, margin included."""
        return interval_of(FUNCTIONS[self.name], self.known, self.margin)

    @property
    def _ends(self) -> Ends:
        """Where it can be."""
        low, high = self._usual
        return min(low, self.interval.low), max(high, self.interval.high)

    def _near_singularity(self, x: ir.Value, declared: RealRange) -> ir.Value | None:
        """On numbers of one sign, brought near 1 where no form does alone.

        An operand that can be nearer to the singularity than the domain, or beyond it, counts as
        the domain's end there. At the other end the domain goes as far as operands can be, or
        counts for what is beyond it.

        Returns:
            None where there is no approximation.
        """
        known = self.known
        if known.high < 0 and self.name == "reciprocal":
            interval = replace(self.interval, low=-self.interval.high, high=-self.interval.low)
            mirrored = replace(self, known=_mirrored(known), interval=interval)
            y = mirrored._near_singularity(
                step(secret_ops.Neg, [x], mirrored.known), _mirrored(declared)
            )
            return None if y is None else step(secret_ops.Neg, [y], declared)
        low, high = self._usual
        if not (low > 0 and math.isfinite(high)):
            return None
        lowest, highest = low, high
        if known.source is RangeSource.CALIBRATED:
            whole_bits = math.floor(math.log2((1 + self.margin) * known.high)) + 1
            if (more := self.in_bits + whole_bits - (self.ring_bits - 2)) > 0:
                x = step(secret_ops.Truncate, [x], known, bits=more)
                return replace(self, in_bits=self.in_bits - more)._near_singularity(x, declared)
            headroom = MOST_OF_HEADROOM * math.ldexp(1.0, self.ring_bits - 2 - self.in_bits)
            highest = max(high, min(self.interval.high, headroom))
            if self.interval.low < (low + known.low) / 2:
                low = math.ldexp(math.ceil(math.ldexp(low, self.in_bits)), -self.in_bits)
                high, highest = max(low, high), max(low, highest)
                lowest = min(-self.margin * known.high, max(self.interval.low, high - headroom))
        return self._on_domain(x, (low, high), (lowest, highest), declared)

    def _on_domain(
        self, x: ir.Value, domain: Ends, ends: Ends, declared: RealRange
    ) -> ir.Value | None:
        """
        Args:
            domain: where the function holds at the least.
            ends: where operands can be.
        """
        (low, high), (lowest, highest) = domain, ends
        bits = self.in_bits, self.out_bits, self.ring_bits
        headroom = MOST_OF_HEADROOM * math.ldexp(1.0, self.ring_bits - 2 - self.in_bits)
        call = replace(self, interval=ValueRange(lowest, highest, headroom))
        for most in (highest, high) if high - lowest <= headroom else (highest,):
            clip = low if lowest < low else -math.inf, most if most < highest else math.inf
            if (fitted := call._fit_between(clip)) is not None:
                return call._or_end(x, fitted, clip, declared)
        calls = [Normalized(self.name, low, end, *bits, self.fit, ends) for end in (highest, high)]
        near = next((c for c in calls if c.dropped_bits <= calls[-1].dropped_bits), calls[-1])
        if near.fitted() is None:
            return None
        return aligned(near.build(x), self.out_bits, declared)

    def _missed(self, end: float) -> float:
        """How far beyond an end a comparison with it may take a number to be within."""
        return math.ldexp(1.0, self._dropped_bits(end) - self.in_bits)

    def _dropped_bits(self, end: float) -> int:
        """A sixteenth of the end; of a domain around zero, a sixteenth."""
        if FUNCTIONS[self.name].domain is not Domain.POSITIVE:
            return max(0, self.in_bits - FUZZY_BITS)
        return max(0, self._integer(end).bit_length() - 1 - FUZZY_BITS)

    def _integer(self, end: float) -> int:
        return round(math.ldexp(end, self.in_bits))

    def _or_end(self, x: ir.Value, fitted: Fitted, clip: Ends, declared: RealRange) -> ir.Value:
        """The function, or that of the clip's end; of a low one by the same opening of x."""
        low, high = clip
        if math.isfinite(low) and not math.isfinite(high):
            edge, dropped_bits = self._integer(low), self._dropped_bits(low)
            ends = edge, self._at(low), self._moved(low).bound, dropped_bits
            y = clipped_function(x, fitted, declared, self.out_bits, *ends)
            if y is not None:
                return y
        y = fitted_function(x, fitted, declared, self.out_bits)
        return self._or_ends(x, y, clip, declared)

    def _or_ends(self, x: ir.Value, y: ir.Value, clip: Ends, declared: RealRange) -> ir.Value:
        """y, or the function at an end of the clip where x is beyond it, whatever y is there.

            f(low) + [x >= low] (y - f(low))                                    with a low end
            f(high) - [x <= high] (f(high) - f(low))
                    + ([x >= low] + [x <= high] - 1) (y - f(low))               with both

        Comparisons do not wait for y, where a clip of x would be waited for.
        """
        found = [
            (compare(x, end), self._at(end))
            for compare, end in zip((self._at_least, self._at_most), clip, strict=True)
            if math.isfinite(end)
        ]
        if not found:
            return y
        (inside, start), (last, end) = found[0], found[-1]
        magnitude, moved = declared.magnitude(self.margin), math.ldexp(start, -self.out_bits)
        rises = between((-magnitude - moved, magnitude - moved))
        rise = step(secret_ops.Sub, [y, self._public(start)], rises)
        beyond = self._public(end)
        if len(found) > 1:
            both = step(secret_ops.Add, [inside, last], between((0, 2)))
            one = public(1, 0, self.ring_bits)
            inside = step(secret_ops.Sub, [both, one], between((0, 1)))
            jump = between((0, math.ldexp(start - end, -self.out_bits)))
            back = step(secret_ops.Mul, [last, self._public(start - end)], jump)
            beyond = step(secret_ops.Add, [back, beyond], declared)
        kept = step(secret_ops.Mul, [rise, inside], rises)
        return step(secret_ops.Add, [kept, beyond], declared)

    def _at(self, end: float) -> int:
        """The function there, with the result's fraction bits."""
        return round(math.ldexp(float(FUNCTIONS[self.name].value(Decimal(end))), self.out_bits))

    def _public(self, integer: int) -> ir.Value:
        return public(integer, self.out_bits, self.ring_bits)

    def _at_least(self, x: ir.Value, end: float) -> ir.Value:
        return self._is_positive(self._shifted(x, -end, self._moved(end)), end)

    def _at_most(self, x: ir.Value, end: float) -> ir.Value:
        moved = self._moved(end)
        below = RealRange(-moved.high, -moved.low, moved.source)
        return self._is_positive(step(secret_ops.Neg, [self._shifted(x, -end, moved)], below), end)

    def _is_positive(self, difference: ir.Value, end: float) -> ir.Value:
        window: dict[str, Any] = {
            "window_bits": self.ring_bits - 1,
            "dropped_bits": self._dropped_bits(end),
        }
        return step(secret_ops.Step, [difference], between((0, 1)), **window)

    def _moved(self, end: float) -> RealRange:
        """Where the operand less an end can be."""
        return self._between(-math.inf, math.inf, -end)

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

    def _between(self, low: float, high: float, shift: float = 0.0) -> RealRange:
        """Where the operand can be, clipped, then shifted; an unknown range stays unknown.

        What its sums cannot hold is left out, so that one waits for its truncation as the operand
        does. What is left of a margin by a clip is no multiple of what is left of the range.
        """
        if self.known.source is RangeSource.ASSUMED:
            return self.known
        headroom = self.interval.headroom * MOST_OF_HEADROOM
        usual = [end + shift for end in self.known.widened(self.margin)]
        least = min(usual[0], max(self._ends[0] + shift, -headroom))
        most = max(usual[1], min(self._ends[1] + shift, headroom))
        return between(min(max(end, low + shift), high + shift) for end in (least, most))

    def _over(self, x: ir.Value, bound: float) -> ir.Value:
        """max(x - bound, 0)."""
        moved = self._shifted(x, -bound, self._moved(bound))
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
