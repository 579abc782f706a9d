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
from veilgraph.ir.graph import Graph, attributes, kind_of
from veilgraph.ir.secret_types import Encoding, RangeSource, RealRange
from veilgraph.passes.intervals import HOLLOWS
from veilgraph.passes.public_numbers import scaling
from veilgraph.passes.ranges import Statistics
from veilgraph.passes.real_functions import (
    EVERYWHERE,
    FUNCTIONS,
    MOST_OF_ROOM,
    Ends,
    interval_of,
)
from veilgraph.passes.scale_structure import PRODUCTS
from veilgraph.passes.scales import Scales

BOUNDED: Mapping[str, Ends] = {
    "step": (0.0, 1.0),
    "sigmoid": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "erf": (-1.0, 1.0),
    "atan": (-math.pi / 2, math.pi / 2),
    "sin": (-1.0, 1.0),
    "cos": (-1.0, 1.0),
    "softmax": (0.0, 1.0),
}
POLES: Mapping[str, Callable[[float], float]] = {
    "log": math.log,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "reciprocal": lambda x: 1 / x,
}
UNBOUNDED = frozenset((*HOLLOWS, *POLES, "softplus", "exp"))
LARGEST_POWER = 700.0  # of e, that a float holds


@dataclass(frozen=True)
class Reach:
    """Where a value can be.

    Attributes:
        room: the largest that sums with it hold, as it is computed.
        is_linear: whether no product leads to it, whose ring would end what it can be.
    """

    low: float
    high: float
    room: float = math.inf
    is_linear: bool = False

    @staticmethod
    def trusted(known: RealRange) -> Reach:
        """Of a value that does not leave its range with its margin."""
        return Reach(known.low, known.high)

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
        held = 2.0 ** math.ceil(math.log2(known.reach(margin) or 1.0))
        held_here = math.ldexp(1.0, encoding.ring_bits - 2 - encoding.frac_bits)
        room = MOST_OF_ROOM * min(self.room, held_here)
        ends = max(self.low, -room), min(self.high, room)
        return known if reach <= held else RealRange(*ends, RangeSource.PROVEN)


def reachable(
    graph: Graph, statistics: Mapping[ir.Value, Statistics], scales: Scales, margin: float
) -> dict[ir.Value, Reach]:
    """Of every value; what the owners of inputs are refused is left out.

    Args:
        statistics: of the values of which anything is known.
        margin: how many times larger than calibrated an input may be.
    """
    return _Reach(statistics, scales, margin).of(graph)


class _Reach:
    def __init__(
        self, statistics: Mapping[ir.Value, Statistics], scales: Scales, margin: float
    ) -> None:
        self._statistics, self._scales, self._margin = statistics, scales, margin
        self._reach: dict[ir.Value, Reach] = {}
        self._bits: dict[ir.Value, int] = {}  # of fraction, as values are computed

    def of(self, graph: Graph) -> dict[ir.Value, Reach]:
        stored = self._scales.stored
        for value in graph.inputs.values():
            self._add(value, stored[value], self._given(value), is_linear=True)
        for name, value in graph.parameters.items():
            self._add(value, stored[value], _of(graph.weights[name]), is_linear=True)
        for op in graph.operations:
            result, operands = op.operation.results[0], op.operation.operands
            is_linear = all(self._reach[value].is_linear for value in operands)
            is_linear &= kind_of(op) not in PRODUCTS or scaling(op) is not None
            self._add(result, self._computed_bits(op), self._rule(op), is_linear)
        return self._reach

    def _add(self, value: ir.Value, bits: int, ends: Ends, is_linear: bool) -> None:
        """Ends it where its ring does."""
        room = math.ldexp(1.0, self._scales.rings.of(value) - 2 - bits)
        self._bits[value] = bits
        low, high = (min(max(end, -room), room) for end in ends)
        self._reach[value] = Reach(low, high, room, is_linear)

    def _ends(self, value: ir.Value) -> Ends:
        return self._reach[value].low, self._reach[value].high

    def _given(self, value: ir.Value) -> Ends:
        """Of an input: what its owner may give (`compilation.py`)."""
        known = self._known(value)
        calibrated = known.source is RangeSource.CALIBRATED
        return known.widened(self._margin) if calibrated else (known.low, known.high)

    def _known(self, value: ir.Value) -> RealRange:
        found = self._statistics.get(value)
        return found.range if found else RealRange(*EVERYWHERE, RangeSource.ASSUMED)

    def _computed_bits(self, op: ir.OpView) -> int:
        """Those of a sum of products before its truncation, as long as it may wait for one."""
        result, stored = op.operation.results[0], self._scales.stored
        operands = list(op.operation.operands)
        pending = self._scales.rings.structure.pending
        if result not in pending:
            return stored[result]
        if (scaled := scaling(op)) is not None:
            operand, factor = scaled
            bits = self._bits[operand] - factor.exponent
            return min(bits, self._scales.wide.get(result, bits))
        if kind_of(op) in PRODUCTS:
            return sum(stored[value] for value in operands[:2])
        return max(self._bits[value] for value in operands if value in pending)

    def _rule(self, op: ir.OpView) -> Ends:
        kind, operands = kind_of(op), list(op.operation.operands)
        if kind == "constant":
            return _of(attributes(op)["value"])
        if kind in BOUNDED:
            return BOUNDED[kind]
        if kind in PRODUCTS:
            return self._product(op)
        if kind in UNBOUNDED:
            return self._function(op)
        return RULES.get(kind, _same)(op, [self._ends(value) for value in operands])

    def _product(self, op: ir.OpView) -> Ends:
        x, y, *biases = op.operation.operands
        first, second = self._ends(x), self._ends(y)
        corners = [a * b for a in first for b in second]
        kind, terms = kind_of(op), 1
        if kind == "mul" and x == y:
            corners = [max(0.0, min(corners)) if min(first) > 0 else 0.0, max(corners)]
        elif kind == "matmul":
            terms = shape_of(x)[-1]
        elif kind == "conv":
            corners.append(0.0)  # in the padding
            terms = prod(shape_of(y)[1:])
        low, high = (terms * end for end in (min(corners), max(corners)))
        return _sum(op, [(low, high), *(self._ends(bias) for bias in biases)])

    def _function(self, op: ir.OpView) -> Ends:
        """Of a function that holds wherever its operand can be, or takes its domain's end."""
        (x,), kind = op.operation.operands, kind_of(op)
        low, high = self._ends(x)
        if kind in HOLLOWS:
            return HOLLOWS[kind], max(high, 0.0)
        if kind == "softplus":
            return 0.0, max(high, 0.0) + math.log(2)
        least, most = interval_of(FUNCTIONS[kind], self._known(x), self._margin)
        if kind == "exp":
            return 0.0, math.exp(min(high, most, LARGEST_POWER))
        if not math.isfinite(most) or least <= 0 <= most:
            return EVERYWHERE
        domain = (least, max(high, most)) if least > 0 else (min(low, least), most)
        ends = [POLES[kind](end) for end in domain]
        return min(ends), max(ends)


def _of(numbers: ArrayLike) -> Ends:
    known = np.asarray(numbers, np.float64)
    return (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)


def _same(op: ir.OpView, operands: Sequence[Ends]) -> Ends:
    """Maxima, and what moves numbers."""
    lows, highs = zip(*operands, strict=True)
    return min(lows), max(highs)


def _sum(op: ir.OpView, operands: Sequence[Ends]) -> Ends:
    lows, highs = zip(*operands, strict=True)
    return sum(lows), sum(highs)


def _negative(op: ir.OpView, operands: Sequence[Ends]) -> Ends:
    ((low, high),) = operands
    return -high, -low


def _difference(op: ir.OpView, operands: Sequence[Ends]) -> Ends:
    (low, high), (other_low, other_high) = operands
    return low - other_high, high - other_low


def _positive(op: ir.OpView, operands: Sequence[Ends]) -> Ends:
    ((low, high),) = operands
    return max(low, 0.0), max(high, 0.0)


def _padded(op: ir.OpView, operands: Sequence[Ends]) -> Ends:
    return _same(op, [*operands, (0.0, 0.0)])


def _integer(op: ir.OpView, operands: Sequence[Ends]) -> Ends:
    ((low, high),) = operands
    return low - 1, high + 1


def _total(op: ir.OpView, operands: Sequence[Ends]) -> Ends:
    """Sums over axes."""
    ((low, high),) = operands
    terms = element_count(shape_of(op.operation.operands[0])) // max(
        1, element_count(shape_of(op.operation.results[0]))
    )
    return terms * low, terms * high


def _windows(op: ir.OpView, operands: Sequence[Ends]) -> Ends:
    """Sums over windows, padded with zeros."""
    low, high = _padded(op, operands)
    named: dict[str, Any] = attributes(op)
    terms = prod(named["kernel"])
    return terms * low, terms * high


def _logarithms(op: ir.OpView, operands: Sequence[Ends]) -> Ends:
    """Of shares in rows of n."""
    ((low, high),) = operands
    named: dict[str, Any] = attributes(op)
    terms = shape_of(op.operation.operands[0])[named["axis"]]
    return low - high - math.log(terms), 0.0


RULES: Mapping[str, Callable[[ir.OpView, Sequence[Ends]], Ends]] = {
    "add": _sum,
    "sub": _difference,
    "neg": _negative,
    "relu": _positive,
    "pad": _padded,
    "floor": _integer,
    "round": _integer,
    "reduce_sum": _total,
    "sum_pool": _windows,
    "log_softmax": _logarithms,
}
