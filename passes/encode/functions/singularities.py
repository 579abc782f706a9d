"""Functions with a singularity on a wide range of one sign: the operand is brought near 1 first.

    m_i = [x >= 4^i l],   0 < i < I,  l = 4^k <= x < 4^I l     one batch of comparisons
    w = 4^(I-1-i), v = x w / (4^(I-1) l)    where 4^i l <= x < 4^(i+1) l, so that v is in [1, 4)
    ln x = ln v + ln (4^i l),  x^a = v^a (4^i l)^a             a = -1, -1/2, 1/2

w and (4^i l)^a are sums of the m_i times public integers, and so is ln (4^i l): x w needs no
truncation, and f(v) takes it as it is. A comparison may take a number for
larger than it is by a sixteenth: v is then in [15/16, 4), where f(v) holds, and the bits below
are not compared. Where an operand may lie below the domain, the same batch compares it with the
domain's low end, which takes its place: w = 0, and v is that of the end. Rounds in `rep3`: 3 and
those of the merges for a comparison, 3 for f(v), and 2 for the truncation of the product (none for
the logarithm); see suites/rep3.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.types import RealRange
from veilgraph.passes.encode.builder import between, chosen, fitted_function, public, step
from veilgraph.passes.encode.functions.catalogue import Ends
from veilgraph.targets.functions.function_block import FIT_UNITS, Fitted, Fitter, Wanted

EXPONENTS = {"reciprocal": -1.0, "rsqrt": -0.5, "sqrt": 0.5}
SINGULARITIES = frozenset(("log", *EXPONENTS))
STEP_BITS = 2  # of a factor from one threshold to the next
FUZZY_BITS = 4  # a threshold may be missed by a 16th of it
NEAR_ONE = (1 - 2.0**-FUZZY_BITS, 2.0**STEP_BITS * (1 + 2.0**-FUZZY_BITS))
MOST_INTERVALS = 24
MOST_PRECISION = 22  # bits after the point of f(v)
LEAST_PRECISION = 6
GUARD_BITS = 2
WINDOW_ROOM = 3  # bits of a window above the fraction bits of v, at the least


@dataclass(frozen=True)
class Normalized:
    """log, sqrt, rsqrt or reciprocal of numbers from `low` to `high`, 0 < low.

    Attributes:
        in_bits, out_bits: fraction bits of operand and result.
        ring_bits: of the operand, and of the result.
        fit: finds a form, in the suite's building blocks.
        ends: the smallest and the largest operand there may be; what is below `low` counts as
            `low`, and what is above `high` as `high`.
    """

    name: str
    low: float
    high: float
    in_bits: int
    out_bits: int
    ring_bits: int
    fit: Fitter
    ends: Ends = (math.inf, -math.inf)

    @property
    def is_clipped(self) -> bool:
        """Whether an operand may be below the domain."""
        return self.ends[0] < self.low

    @property
    def is_topped(self) -> bool:
        """Whether one may be above it."""
        return self.ends[1] > self.high

    @property
    def least_bits(self) -> int:
        """log2 of l: even, so that the root of a power of 4 is a power of 2."""
        return 2 * math.floor(math.log2(self.low) / 2)

    @property
    def intervals(self) -> int:
        """I."""
        return max(1, math.ceil((math.log2(self.high) - self.least_bits) / STEP_BITS))

    @property
    def dropped_bits(self) -> int:
        """Bits of the operand for which its product with w, or a comparison, has no room."""
        least = max(0, self._normal_bits(self.in_bits) - (self.ring_bits - 2 - WINDOW_ROOM))
        dropped = itertools.count(least)
        return next(bits for bits in dropped if replace(self, in_bits=self.in_bits - bits)._fits)

    @property
    def _fits(self) -> bool:
        """Whether the ring has room for the comparisons; see secret/choose_comparison.py."""
        if not self._thresholds:
            return True
        widened = self._differences.widened(margin=1.0)  # theirs is in them
        low, high = (math.ldexp(end, self.in_bits) for end in widened)
        magnitude = max(-math.floor(low), math.ceil(high) + (1 << self._fuzzy_bits))
        return magnitude <= 1 << (self.ring_bits - 2)

    def _normal_bits(self, in_bits: int) -> int:
        """Fraction bits of v."""
        return in_bits + self.least_bits + STEP_BITS * (self.intervals - 1)

    @property
    def powers(self) -> list[int]:
        """log2 of (4^i l)^a for each i; of the logarithm none."""
        if self.name == "log":
            return [0]
        exponent = EXPONENTS[self.name]
        return [round(exponent * (self.least_bits + STEP_BITS * i)) for i in range(self.intervals)]

    @property
    def precision(self) -> int:
        """Fraction bits of f(v): as many as its largest product needs, and the ring holds."""
        highest, lowest = max(self.powers), min(self.powers)
        headroom = self.ring_bits - 2 - GUARD_BITS - (highest - lowest)
        if self.name == "log":
            return min(self.out_bits, headroom)
        return min(
            max(self.out_bits + highest + GUARD_BITS, LEAST_PRECISION), MOST_PRECISION, headroom
        )

    def fitted(self) -> Fitted | None:
        """f near 1; None where the range is too wide for the ring, or for a batch."""
        if self.intervals > MOST_INTERVALS or self.precision < LEAST_PRECISION:
            return None
        bits = self._normal_bits(self.in_bits - self.dropped_bits)
        if bits < self.precision // 2 or self.in_bits - self.dropped_bits < -self.least_bits - 1:
            return None
        error = math.ldexp(FIT_UNITS, -self.precision)
        wanted = Wanted(self.name, *NEAR_ONE, bits, self.precision, self.ring_bits, error)
        return self.fit(wanted)

    def build(self, x: ir.Value) -> ir.Value:
        """The result at the current place, with any fraction bits; `fitted` is there."""
        fitted = self.fitted()
        assert fitted is not None, "whoever builds has asked whether there is a form"
        if self.dropped_bits:
            x = step(secret_ops.Truncate, [x], self._range(), bits=self.dropped_bits)
            fewer = replace(self, in_bits=self.in_bits - self.dropped_bits)
            return fewer.build(x)
        above = self._compared(x)
        count = self.intervals
        factors = [1 << STEP_BITS * (count - 1 - i) for i in range(count)]
        widened = self._chosen(above, factors, 0, below=0, beyond=0)
        product = step(secret_ops.Mul, [x, widened], self._normal_range())
        if self.is_clipped or self.is_topped:
            instead = self._chosen(
                above, [0] * count, self.in_bits, below=self._end * factors[0], beyond=self._top
            )
            product = step(secret_ops.Add, [product, instead], self._normal_range())
        bits = self._normal_bits(self.in_bits)
        near = between(NEAR_ONE)
        v = step(secret_ops.Reinterpret, [product], near, bits)
        if self.name == "log":
            y = fitted_function(v, fitted, between(map(math.log, NEAR_ONE)), self.precision)
            return self._plus_logarithm(y, above)
        return self._times_power(v, fitted, above)

    @property
    def _end(self) -> int:
        """The domain's low end, encoded."""
        return math.ceil(math.ldexp(self.low, self.in_bits))

    @property
    def _top(self) -> int:
        """Its high end."""
        return math.floor(math.ldexp(self.high, self.in_bits))

    def _range(self) -> RealRange:
        return between((self.low, self.high, *(end for end in self.ends if math.isfinite(end))))

    def _normal_range(self) -> RealRange:
        """Of x w."""
        factor = 2.0 ** (self.least_bits + STEP_BITS * (self.intervals - 1))
        return between(end * factor for end in NEAR_ONE)

    @property
    def _thresholds(self) -> list[int]:
        """What operands are compared with, encoded, the least first."""
        between_intervals = [
            round(math.ldexp(1, self.in_bits + self.least_bits + STEP_BITS * i))
            for i in range(1, self.intervals)
        ]
        below = [self._end] if self.is_clipped else []
        above = [self._top] if self.is_topped else []
        return [*below, *between_intervals, *above]

    @property
    def _fuzzy_bits(self) -> int:
        """Bits that are not compared: a threshold may be missed by a 16th of the least."""
        if self.is_clipped:
            return max(0, self._end.bit_length() - 1 - FUZZY_BITS)
        return max(0, self.in_bits + self.least_bits + STEP_BITS - FUZZY_BITS)

    @property
    def _differences(self) -> RealRange:
        """Of an operand and a threshold."""
        least, most = (math.ldexp(self._thresholds[end], -self.in_bits) for end in (0, -1))
        return between((self._range().low - most, self._range().high - least))

    def _compared(self, x: ir.Value) -> ir.Value | None:
        """m_i on a new last axis, integers; None where there is no threshold."""
        if not self._thresholds:
            return None
        column = step(secret_ops.Reshape, [x], self._range(), shape=(*shape_of(x), 1))
        limits = public(self._thresholds, self.in_bits, self.ring_bits)
        difference = step(secret_ops.Sub, [column, limits], self._differences)
        window: dict[str, Any] = {
            "window_bits": self.ring_bits - 1,
            "dropped_bits": self._fuzzy_bits,
        }
        return step(secret_ops.Step, [difference], between((0, 1)), **window)

    def _chosen(
        self,
        above: ir.Value | None,
        numbers: Sequence[int],
        frac_bits: int,
        below: int | None = None,
        beyond: int | None = None,
    ) -> ir.Value:
        """The number of the interval that the operand is in.

        Args:
            below: of an operand below the domain; the first interval's unless told.
            beyond: of one above it; the last interval's unless told.
        """
        if self.is_clipped:
            numbers = [numbers[0] if below is None else below, *numbers]
        if self.is_topped:
            numbers = [*numbers, numbers[-1] if beyond is None else beyond]
        return chosen(above, numbers, frac_bits, self.ring_bits)

    def _plus_logarithm(self, y: ir.Value, above: ir.Value | None) -> ir.Value:
        bits = self.precision
        logarithms = [
            round(math.ldexp(math.log(2) * (self.least_bits + STEP_BITS * i), bits))
            for i in range(self.intervals)
        ]
        ends = between(map(math.log, (self.low * NEAR_ONE[0], self.high)))
        return step(secret_ops.Add, [y, self._chosen(above, logarithms, bits)], ends, bits)

    def _times_power(self, v: ir.Value, fitted: Fitted, above: ir.Value | None) -> ir.Value:
        exponent, lowest = EXPONENTS[self.name], min(self.powers)
        near = between(end**exponent for end in NEAR_ONE)
        y = fitted_function(v, fitted, near, self.precision)
        ends = between(end**exponent for end in (self.low, self.high))
        power = self._chosen(above, [1 << (bits - lowest) for bits in self.powers], 0)
        scaled = between(math.ldexp(end, -lowest) for end in (ends.low, ends.high))
        product = step(secret_ops.Mul, [y, power], scaled, self.precision)
        return step(secret_ops.Reinterpret, [product], ends, self.precision - lowest)
