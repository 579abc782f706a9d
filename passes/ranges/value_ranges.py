"""Which numbers a value can be, whatever samples showed: where a real function has to hold.

    x, z in [-6, 6]     as their owners are held to      x - z in [-12, 12], calibrated [-1, 1]
    a = x w             a product, in a ring that holds 32 of its units: [-32, 32]
    s = sigmoid a       [0, 1]

One interval a tensor, by the operations' rules on its ends. What a ring can hold ends it: a product
that is larger is lost where it is made, and no function behind it could mend that. So intervals do
not grow from layer to layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch_mlir import ir

from veilgraph.ir.attributes import element_count, shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, attributes, kind_of
from veilgraph.ir.secret.types import Encoding, RangeSource, RealRange
from veilgraph.passes.encode.functions.catalogue import (
    EVERYWHERE,
    MOST_OF_HEADROOM,
    Ends,
    interval_of,
)
from veilgraph.passes.encode.scales.fraction_bits import Scales
from veilgraph.passes.graph.public_factors import scaling
from veilgraph.passes.ranges.calibrate import Statistics
from veilgraph.targets.functions.catalogue import FUNCTIONS

LARGEST_POWER = 700.0  # of e, that a float holds


@dataclass(frozen=True)
class ValueRange:
    """Where a value can be.

    Attributes:
        headroom: the largest that sums with it hold, as it is computed.
        is_linear: whether no product leads to it, whose ring would end what it can be.
    """

    low: float
    high: float
    headroom: float = math.inf
    is_linear: bool = False

    @staticmethod
    def trusted(known: RealRange) -> ValueRange:
        """Of a value that does not leave its range with its margin."""
        return ValueRange(known.low, known.high)

    def may_leave(self, known: RealRange, margin: float) -> bool:
        """Whether it can be outside of a calibrated range, margin included."""
        low, high = known.widened(margin)
        calibrated = known.source is RangeSource.CALIBRATED
        return calibrated and (self.low < low or self.high > high)

    def declared(self, known: RealRange, margin: float, encoding: Encoding) -> RealRange:
        """The range that comparisons go by: a known one, but where more is proven to be possible.

        A window holds all up to a power of two, and so does a product's ring. What the encoding
        does not hold is left out.
        """
        reach = max(-self.low, self.high)
        if known.source is not RangeSource.CALIBRATED or not self.is_linear:
            return known
        held = 2.0 ** math.ceil(math.log2(known.magnitude(margin) or 1.0))
        held_here = math.ldexp(1.0, encoding.ring_bits - 2 - encoding.frac_bits)
        headroom = MOST_OF_HEADROOM * min(self.headroom, held_here)
        ends = max(self.low, -headroom), min(self.high, headroom)
        return known if reach <= held else RealRange(*ends, RangeSource.PROVEN)


def value_ranges(
    graph: Graph, statistics: Mapping[ir.Value, Statistics], scales: Scales, margin: float
) -> dict[ir.Value, ValueRange]:
    """Of every value; what the owners of inputs are refused is left out.

    Args:
        statistics: of the values of which anything is known.
        margin: how many times larger than calibrated an input may be.
    """
    return _ValueRangeAnalysis(statistics, scales, margin).of(graph)


class _ValueRangeAnalysis:
    """Ends found so far, in program order."""

    def __init__(
        self, statistics: Mapping[ir.Value, Statistics], scales: Scales, margin: float
    ) -> None:
        self._statistics, self._scales, self._margin = statistics, scales, margin
        self._value_ranges: dict[ir.Value, ValueRange] = {}
        self._bits: dict[ir.Value, int] = {}  # of fraction, as values are computed

    def of(self, graph: Graph) -> dict[ir.Value, ValueRange]:
        stored = self._scales.stored
        for value in graph.inputs.values():
            accepted = self._known(value).accepted(self._margin)
            self._add(value, stored[value], accepted, is_linear=True)
        for name, value in graph.parameters.items():
            self._add(value, stored[value], _of(graph.weights[name]), is_linear=True)
        for op in graph.operations:
            result, operands = op.operation.results[0], op.operation.operands
            is_linear = all(self._value_ranges[value].is_linear for value in operands)
            is_linear &= not ops.facts_of(op).is_bilinear or scaling(op) is not None
            bits = max(self._computed_bits(op), self._scales.filled(result))
            self._add(result, bits, RULES[type(op)](self, op), is_linear)
        return self._value_ranges

    def _add(self, value: ir.Value, bits: int, ends: Ends, is_linear: bool) -> None:
        """Ends it where its ring does."""
        headroom = math.ldexp(1.0, self._scales.rings.of(value) - 2 - bits)
        self._bits[value] = bits
        low, high = (min(max(end, -headroom), headroom) for end in ends)
        self._value_ranges[value] = ValueRange(low, high, headroom, is_linear)

    def _ends(self, value: ir.Value) -> Ends:
        return self._value_ranges[value].low, self._value_ranges[value].high

    def _known(self, value: ir.Value) -> RealRange:
        found = self._statistics.get(value)
        return found.range if found else RealRange(*EVERYWHERE, RangeSource.ASSUMED)

    def _computed_bits(self, op: ir.OpView) -> int:
        """Those of a sum of products before its truncation, as long as it may wait for one."""
        result, stored = op.operation.results[0], self._scales.stored
        operands = list(op.operation.operands)
        deferred = self._scales.rings.structure.deferred
        if result not in deferred:
            return stored[result]
        if (scaled := scaling(op)) is not None:
            operand, factor = scaled
            bits = self._bits[operand] - factor.exponent
            return min(bits, self._scales.wide.get(result, bits))
        if ops.facts_of(op).is_bilinear:
            return sum(stored[value] for value in operands[:2])
        return max(self._bits[value] for value in operands if value in deferred)

    def operands(self, op: ir.OpView) -> list[Ends]:
        """Where what an operation takes can be."""
        return [self._ends(value) for value in op.operation.operands]

    def domain(self, op: ir.OpView) -> Ends:
        """The interval on which a real function of one number holds."""
        (x,) = op.operation.operands
        return interval_of(FUNCTIONS[kind_of(op)], self._known(x), self._margin)


def _of(numbers: ArrayLike) -> Ends:
    known = np.asarray(numbers, np.float64)
    return (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)


Rule = Callable[[_ValueRangeAnalysis, ir.OpView], Ends]


def _constant(analysis: _ValueRangeAnalysis, op: ir.OpView) -> Ends:
    return _of(attributes(op)["value"])


def _bounds(analysis: _ValueRangeAnalysis, op: ir.OpView) -> Ends:
    """Whatever the operands are."""
    bounds = ops.facts_of(op).bounds
    assert bounds is not None
    return bounds


def _added(operands: Sequence[Ends]) -> Ends:
    lows, highs = zip(*operands, strict=True)
    return sum(lows), sum(highs)


def _spanned(operands: Sequence[Ends]) -> Ends:
    lows, highs = zip(*operands, strict=True)
    return min(lows), max(highs)


def _same(analysis: _ValueRangeAnalysis, op: ir.OpView) -> Ends:
    """Maxima, and what moves numbers."""
    return _spanned(analysis.operands(op))


def _sum(analysis: _ValueRangeAnalysis, op: ir.OpView) -> Ends:
    return _added(analysis.operands(op))


def _negative(analysis: _ValueRangeAnalysis, op: ir.OpView) -> Ends:
    ((low, high),) = analysis.operands(op)
    return -high, -low


def _difference(analysis: _ValueRangeAnalysis, op: ir.OpView) -> Ends:
    (low, high), (other_low, other_high) = analysis.operands(op)
    return low - other_high, high - other_low


def _positive(analysis: _ValueRangeAnalysis, op: ir.OpView) -> Ends:
    ((low, high),) = analysis.operands(op)
    return max(low, 0.0), max(high, 0.0)


def _padded(analysis: _ValueRangeAnalysis, op: ir.OpView) -> Ends:
    return _spanned([*analysis.operands(op), (0.0, 0.0)])


def _integer(analysis: _ValueRangeAnalysis, op: ir.OpView) -> Ends:
    ((low, high),) = analysis.operands(op)
    return low - 1, high + 1


def _total(analysis: _ValueRangeAnalysis, op: ir.OpView) -> Ends:
    """Sums over axes."""
    ((low, high),) = analysis.operands(op)
    terms = element_count(shape_of(op.operation.operands[0])) // max(
        1, element_count(shape_of(op.operation.results[0]))
    )
    return terms * low, terms * high


def _windows(analysis: _ValueRangeAnalysis, op: ir.OpView) -> Ends:
    """Sums over windows, padded with zeros."""
    low, high = _padded(analysis, op)
    named: dict[str, Any] = attributes(op)
    terms = prod(named["kernel"])
    return terms * low, terms * high


def _corners(analysis: _ValueRangeAnalysis, op: ir.OpView) -> list[float]:
    """Products of the ends of two factors."""
    first, second, *_ = analysis.operands(op)
    return [a * b for a in first for b in second]


def _mul(analysis: _ValueRangeAnalysis, op: ir.OpView) -> Ends:
    x, y = op.operation.operands
    corners = _corners(analysis, op)
    if x != y:
        return min(corners), max(corners)
    ((low, _), _) = analysis.operands(op)
    return (max(0.0, min(corners)) if low > 0 else 0.0), max(corners)


def _matmul(analysis: _ValueRangeAnalysis, op: ir.OpView) -> Ends:
    corners, terms = _corners(analysis, op), shape_of(op.operation.operands[0])[-1]
    return terms * min(corners), terms * max(corners)


def _conv(analysis: _ValueRangeAnalysis, op: ir.OpView) -> Ends:
    corners = [*_corners(analysis, op), 0.0]  # in the padding
    terms = prod(shape_of(op.operation.operands[1])[1:])
    return _added([(terms * min(corners), terms * max(corners)), *analysis.operands(op)[2:]])


def _hollow(least: float) -> Rule:
    """Of x times a share that grows with x: its least value, rounded down, is below zero."""
    return lambda analysis, op: (least, max(analysis.operands(op)[0][1], 0.0))


def _softplus(analysis: _ValueRangeAnalysis, op: ir.OpView) -> Ends:
    ((_, high),) = analysis.operands(op)
    return 0.0, max(high, 0.0) + math.log(2)


def _exp(analysis: _ValueRangeAnalysis, op: ir.OpView) -> Ends:
    """It holds wherever its operand can be, or takes its domain's end."""
    ((_, high),), (_, most) = analysis.operands(op), analysis.domain(op)
    return 0.0, math.exp(min(high, most, LARGEST_POWER))


def _singular(function: Callable[[float], float]) -> Rule:
    """Monotone on either side of zero; an operand below the domain counts as the domain's end."""

    def ends(analysis: _ValueRangeAnalysis, op: ir.OpView) -> Ends:
        ((low, high),), (least, most) = analysis.operands(op), analysis.domain(op)
        if not math.isfinite(most) or least <= 0 <= most:
            return EVERYWHERE
        domain = (least, max(high, most)) if least > 0 else (min(low, least), most)
        return _spanned([(function(end), function(end)) for end in domain])

    return ends


def _logarithms(analysis: _ValueRangeAnalysis, op: ir.OpView) -> Ends:
    """Of shares in rows of n."""
    ((low, high),) = analysis.operands(op)
    named: dict[str, Any] = attributes(op)
    terms = shape_of(op.operation.operands[0])[named["axis"]]
    return low - high - math.log(terms), 0.0


RULES: Mapping[type[ir.OpView], Rule] = {
    **{kind: _bounds for kind in ops.OPERATIONS if ops.facts_of_kind(kind).bounds is not None},
    ops.Constant: _constant,
    ops.Add: _sum,
    ops.Sub: _difference,
    ops.Neg: _negative,
    ops.Mul: _mul,
    ops.Matmul: _matmul,
    ops.Conv: _conv,
    ops.Relu: _positive,
    ops.Maximum: _same,
    ops.MaxPool: _same,
    ops.ReduceMax: _same,
    ops.SumPool: _windows,
    ops.ReduceSum: _total,
    ops.Floor: _integer,
    ops.Round: _integer,
    ops.Gelu: _hollow(-0.171),
    ops.Silu: _hollow(-0.279),
    ops.Softplus: _softplus,
    ops.Exp: _exp,
    ops.Log: _singular(math.log),
    ops.Sqrt: _singular(math.sqrt),
    ops.Rsqrt: _singular(lambda x: 1 / math.sqrt(x)),
    ops.Reciprocal: _singular(lambda x: 1 / x),
    ops.LogSoftmax: _logarithms,
    ops.Reshape: _same,
    ops.Transpose: _same,
    ops.Slice: _same,
    ops.Pad: _padded,
    ops.Expand: _same,
    ops.Concat: _same,
}
