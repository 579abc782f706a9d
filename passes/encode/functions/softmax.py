"""Softmax and log-softmax at the secret level, without a maximum.

    z = x - low                              in [0, D], D the width of the range of x
    U_b                                      the sums of e^z by segments b of z: one opening
    m_i = [sum_b U_b e^(H_b - a_i) >= 1]     a_i = ln n + i ln 4: one batch of comparisons a row
    S = sum_b U_b e^(H_b - a)                in [1, 4), a the a_i of the last m_i that is 1
    L = ln S + a                             a Fourier series, and a sum of the m_i
    softmax = e^(z - L),  log-softmax = z - L

U_b has the height e^(H_b) of its segment taken out. It is truncated twice, for the comparisons and
for S: what lies far above a_i counts as a constant there, so that the window of the comparison is
no wider than two segments and n; segments that can have no number when m_i says where S is count as
zero. A comparison may miss by three eighths, which the series for ln S allow. In `rep3`: 1 round
for U, 2 to truncate it, 6 for the comparisons, 3 for ln S and 3 for the last exponential.

Where nothing is known of x, or D is so large that there would be too many segments, z is
relu(x - max x + 24): e^-24 is nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.exponential import ExpSums
from veilgraph.ir.secret.types import RangeSource, RealRange, Tensor
from veilgraph.ir.types import MAX_RING_BITS
from veilgraph.passes.encode.builder import (
    aligned,
    between,
    chosen,
    fitted_function,
    public,
    step,
)
from veilgraph.passes.encode.functions.catalogue import MOST_OF_HEADROOM, RANGE_HEADROOM, Ends
from veilgraph.passes.ranges.value_ranges import ValueRange
from veilgraph.targets.functions.catalogue import EXP_BELOW_ONE, EXP_SUMS
from veilgraph.targets.functions.function_block import FIT_UNITS, Fitted, Fitter, Wanted
from veilgraph.targets.functions.segment_cuts import FUZZY_BITS, LOG2_E

STEP = 2 * math.log(2)  # from one threshold to the next
SLACK = 3 / 8  # what comparisons may miss by, in nats: three eighths of a number
NEAR = (math.exp(-SLACK), 4 * math.exp(SLACK))  # where S lies
LOG_HEADROOM = 1 / 16  # nats that an error of L may take z - L above 0
MOST_SPAN = 300.0  # nats: there are segments for the last exponential too
FALLEN = 24.0  # nats below a maximum that count
MOST_PRECISION = 15  # of L
FEWER = 2  # bits less where its exponential is taken: its error is then relative
MOST_POWER_PRECISION = 17
LEAST_PRECISION = 8
PROVEN = RangeSource.PROVEN


@dataclass(frozen=True)
class Summed:
    """What a softmax and a log-softmax of the same rows share.

    Attributes:
        z: the rows, from 0 up.
        unclipped: the same where z was clipped below a maximum.
        rows: how L was found.
        total: L, with `rows.out_bits`.
        wanted: `SoftmaxCall.wanted` of who asked for it.
    """

    z: ir.Value
    unclipped: ir.Value
    rows: _Rows
    total: ir.Value
    wanted: int


@dataclass(frozen=True)
class SoftmaxCall:
    """A softmax, or its logarithm, along the last axis.

    Attributes:
        known: where the operand lies.
        in_bits, out_bits: fraction bits of operand and result.
        ring_bits: of both.
        margin: how many times larger than calibrated values may be.
        interval: where the operand can be, whatever its range says.
        fit: finds forms, in the suite's building blocks.
    """

    logarithm: bool
    known: RealRange
    interval: ValueRange
    in_bits: int
    out_bits: int
    ring_bits: int
    margin: float
    fit: Fitter

    def summed(self, x: ir.Value) -> Summed:
        """L of the rows of x, at the current place."""
        low, high = self._ends
        rows = None if self.is_wide else _Rows.of(high - low, shape_of(x)[-1], self)
        if rows is None:
            return self._below_maximum(x)
        lowest = math.floor(math.ldexp(low, self.in_bits))
        span = between((0.0, high - low))
        z = step(secret_ops.Sub, [x, public(lowest, self.in_bits, self.ring_bits)], span)
        return Summed(z, z, rows, rows.build(z), self.wanted)

    def build(self, summed: Summed, declared: RealRange) -> ir.Value:
        """The result, of range `declared`, at the current place, with its fraction bits.

        Args:
            summed: what a call on the same operand made, with as many bits as are wanted here.
        """
        rows, bits = summed.rows, summed.rows.out_bits
        minuend = summed.unclipped if self.logarithm else summed.z
        least = -(rows.span + math.log(rows.terms) + LOG_HEADROOM)
        below = between((least, LOG_HEADROOM)) if minuend == summed.z else declared
        shifted = aligned(minuend, bits, RealRange.of(minuend.owner.opview))
        difference = step(secret_ops.Sub, [shifted, summed.total], below)
        if self.logarithm:
            return aligned(difference, self.out_bits, declared)
        return self._power(difference, bits, -least, declared)

    @property
    def wanted(self) -> int:
        """The bits of each term that the result asks for."""
        most = MOST_PRECISION if self.logarithm else MOST_PRECISION - FEWER
        return min(max(self.out_bits, LEAST_PRECISION) + 1, most)

    @property
    def is_wide(self) -> bool:
        """Whether there are no segments for where the operand can be: it takes a maximum first."""
        low, high = self._ends
        return self.known.source is RangeSource.ASSUMED or high - low > MOST_SPAN

    @property
    def _usual(self) -> Ends:
        return self.known.widened(self.margin)

    @property
    def _ends(self) -> Ends:
        """Where the operand can be; of a product no more than waits for its truncation."""
        low, high = self._usual
        least, most = min(low, self.interval.low), max(high, self.interval.high)
        if self.interval.is_linear:
            return least, most
        more = max(
            0.0,
            min(RANGE_HEADROOM * (high - low), MOST_OF_HEADROOM * self.interval.headroom)
            - (high - low),
        )
        below = min(low - least, max(more / 2, more - (most - high)))
        return low - below, min(most, high + more - below)

    @property
    def is_trusting(self) -> bool:
        """Whether the operand can be elsewhere still."""
        if self.known.source is RangeSource.ASSUMED:
            return False
        return self._ends[0] > self.interval.low or self._ends[1] < self.interval.high

    def _below_maximum(self, x: ir.Value) -> Summed:
        """By the maximum, of which numbers far below it are nothing."""
        window: dict[str, Any] = {"window_bits": self.ring_bits - 1, "dropped_bits": 0}
        last: dict[str, Any] = {"axes": (len(shape_of(x)) - 1,), "keepdims": True}
        most = step(secret_ops.ReduceMax, [x], self.known, **last, **window)
        fallen = replace(self.known, high=FALLEN)
        if self.known.source is not RangeSource.ASSUMED:
            low, high = self._ends
            fallen = between((low - high, FALLEN))
        difference = step(secret_ops.Sub, [x, most], fallen)
        offset = public(round(math.ldexp(FALLEN, self.in_bits)), self.in_bits, self.ring_bits)
        raised = step(secret_ops.Add, [difference, offset], fallen)
        z = step(secret_ops.Relu, [raised], between((0.0, FALLEN)), **window)
        rows = _Rows.of(FALLEN, shape_of(x)[-1], self)
        assert rows is not None, "there are segments for 24 nats"
        return Summed(z, raised, rows, rows.build(z), self.wanted)

    def _power(self, d: ir.Value, bits: int, span: float, declared: RealRange) -> ir.Value:
        """e^d for d in [-span, LOG_HEADROOM]."""
        error = 2.0 ** -(min(self.out_bits, MOST_POWER_PRECISION) + 1)
        encodings = bits, self.out_bits, self.ring_bits
        fitted = self.fit(Wanted(EXP_BELOW_ONE, -span, LOG_HEADROOM, *encodings, error))
        assert fitted is not None, "segments may be as wide as the sums' or wider"
        top = public(round(math.ldexp(fitted.origin, bits)), bits, self.ring_bits)
        z = step(secret_ops.Add, [d, top], between((fitted.least, fitted.most)))
        return fitted_function(z, fitted, declared, self.out_bits)


@dataclass(frozen=True)
class _Rows:
    """L, of rows of so many terms: numbers z in [0, span].

    Attributes:
        fitted: the sums by segments.
        precision: each term's, in bits.
        in_bits, out_bits: fraction bits of z and L.
        ring_bits: of both; rows are computed in the widest one.
    """

    fitted: Fitted
    span: float
    terms: int
    precision: int
    in_bits: int
    ring_bits: int
    fit: Fitter

    @staticmethod
    def of(span: float, terms: int, call: SoftmaxCall) -> _Rows | None:
        """The finest that there is; None where there are no segments for the span."""
        for precision in range(call.wanted, LEAST_PRECISION - 1, -1):
            bits = call.in_bits, precision, call.ring_bits
            found = call.fit(Wanted(EXP_SUMS, 0.0, span, *bits, 2.0**-precision, terms))
            if found is not None:
                encodings = call.in_bits, call.ring_bits
                return _Rows(found, span, terms, precision, *encodings, call.fit)
        return None

    @property
    def segments(self) -> ExpSums:
        """What the sums are of."""
        assert isinstance(self.fitted.form, ExpSums), "rows are summed by segments"
        return self.fitted.form

    @property
    def out_bits(self) -> int:
        """As many as z has, or as are exact."""
        whole_bits = math.ceil(math.log2(self.span + math.log(self.terms) + 1))
        return min(max(self.in_bits, self.precision + 1), self.ring_bits - 3 - whole_bits)

    @cached_property
    def starts(self) -> list[float]:
        """a_i: the sum is at least e^a_0 and below e^a_(I-1) times 4."""
        count = max(1, math.ceil((self.span + SLACK) / STEP))
        return [math.log(self.terms) + i * STEP for i in range(count)]

    @cached_property
    def ends(self) -> NDArray[np.float64]:
        """H_b."""
        nats = self.segments.nats
        unit = nats * 2.0**-self.segments.piece_bits
        return np.arange(1.0, self.segments.count + 1) * nats - unit

    @property
    def wide_bits(self) -> int:
        """log2 of the largest number of a segment over its smallest."""
        return math.ceil(2 * self.segments.nats * LOG2_E)

    @property
    def term_bits(self) -> int:
        return math.ceil(math.log2(self.terms))

    def build(self, z: ir.Value) -> ir.Value:
        """L at the current place, with out_bits, its last axis of one element."""
        within = between((0.0, float(self.terms)))
        sums = step(secret_ops.RowSums, [z], within, **self.fitted.attributes())
        above = self._compared(sums) if len(self.starts) > 1 else None
        near = self._near(sums, above)
        bits = Tensor.of(near).encoding.frac_bits
        error = math.ldexp(FIT_UNITS, -self.out_bits)
        log = self.fit(Wanted("log", *NEAR, bits, self.out_bits, MAX_RING_BITS, error))
        assert log is not None, "the logarithm near 1 is easily fitted"
        ends = between(map(math.log, NEAR))
        logarithm = fitted_function(near, log, ends, self.out_bits, self.ring_bits)
        return self._plus_start(logarithm, above)

    def _truncated(self, sums: ir.Value, frac_bits: int) -> ir.Value:
        dropped = self.segments.frac_bits - frac_bits
        within = between((0.0, float(self.terms)))
        return step(secret_ops.Truncate, [sums], within, ring_bits=MAX_RING_BITS, bits=dropped)

    def _compared(self, sums: ir.Value) -> ir.Value:
        """m_i of i > 0, on the last axis; a smallest number of a segment is 2^FUZZY_BITS units."""
        coarse = self._truncated(sums, self.wide_bits + FUZZY_BITS)
        bits = self.term_bits + FUZZY_BITS
        most = 1.25 * 2.0**self.wide_bits
        weights = np.exp(np.minimum(self.ends[:, None] - self.starts[1:], math.log(most)))
        matrix = public(np.rint(np.ldexp(weights, bits)), bits, MAX_RING_BITS)
        known = between((0.0, self.terms * most))
        total = step(secret_ops.Matmul, [coarse, matrix], known)
        whole = Tensor.of(total).encoding.frac_bits
        one = public(1 << whole, whole, MAX_RING_BITS)
        difference = step(secret_ops.Sub, [total, one], between((-1.0, self.terms * most)))
        window: dict[str, Any] = {
            "window_bits": MAX_RING_BITS - 1,
            "dropped_bits": whole - FUZZY_BITS,
        }
        return step(secret_ops.Step, [difference], between((0, 1)), **window)

    def _near(self, sums: ir.Value, above: ir.Value | None) -> ir.Value:
        """S."""
        fine = self._truncated(sums, self.wide_bits + self.precision + 1)
        bits = self.term_bits + self.precision
        # A number of segment b is at least e^(H_b - 2 h): what is larger than S is not there.
        distance = self.ends[:, None] - self.starts
        there = distance - 2 * self.segments.nats <= STEP + SLACK
        weights = np.rint(np.ldexp(np.where(there, np.exp(np.minimum(distance, 60)), 0.0), bits))
        weight = self._weights(weights.astype(np.int64).T, bits, above)
        products = step(secret_ops.Mul, [fine, weight], between((0.0, NEAR[1])))
        axes = (len(shape_of(products)) - 1,)
        return step(secret_ops.ReduceSum, [products], between(NEAR), axes=axes, keepdims=True)

    def _weights(self, each: NDArray[np.int64], bits: int, above: ir.Value | None) -> ir.Value:
        """Of [I, segments] integers the row that the m_i say."""
        first = public(each[0], bits, MAX_RING_BITS)
        if above is None:
            return first
        reals = between(np.ldexp([each.min(), each.max()], -bits))
        rises = public(np.diff(each, axis=0), bits, MAX_RING_BITS)
        total = step(secret_ops.Matmul, [above, rises], RealRange(-reals.high, reals.high, PROVEN))
        return step(secret_ops.Add, [total, first], reals)

    def _plus_start(self, logarithm: ir.Value, above: ir.Value | None) -> ir.Value:
        bits = self.out_bits
        starts = [round(math.ldexp(start, bits)) for start in self.starts]
        start = chosen(above, starts, bits, MAX_RING_BITS)
        ends = between((self.starts[0] - SLACK, self.starts[-1] + math.log(NEAR[1])))
        if above is not None:
            shape = shape_of(logarithm)
            start = step(secret_ops.Reshape, [start], RealRange.of(start.owner.opview), shape=shape)
        if self.ring_bits < MAX_RING_BITS:
            start = self._narrowed(start, starts)
        return step(secret_ops.Add, [logarithm, start], ends)

    def _narrowed(self, start: ir.Value, starts: Sequence[int]) -> ir.Value:
        declared, bits = RealRange.of(start.owner.opview), self.out_bits
        if len(starts) == 1:
            return public(starts[0], bits, self.ring_bits)
        return step(secret_ops.Reduce, [start], declared, ring_bits=self.ring_bits)
