"""A factor of gradients in a plan's integers: at most how large, by what |g|^2 may be.

A factor is made of the sum of all |g_i|^2, which is exact or truncated, by operations of the secret
level on single numbers. All are followed in intervals of |g|^2, each rounding at its worst, and for
each outcome that comparisons may have:

    truncate           less than one unit in the last place off, up or down
    step, relu         what lies below zero by less than 2^dropped_bits may count as positive
    function           twice its error, and one unit; where the form is no inverse root, any number
    a ring, a window   what leaves it ends what is known of |g|
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from torch_mlir import ir

from veilgraph.ir.secret import ops
from veilgraph.ir.secret.function_forms import function_form
from veilgraph.ir.secret.ops import attributes_of
from veilgraph.ir.secret.types import Secrecy, Tensor

Floats = npt.NDArray[np.float64]
Interval = tuple[Floats, Floats]  # the least and the most, by interval of |g|^2 and element
FINE = 2.0**-9  # of an interval of |g|^2, relative to it
NEAREST, FARTHEST = 2.0**-16, 2.0**40  # |g|^2 over the limit's, where intervals are looked at
FLOAT_SLACK = 1e-9  # for what float64 rounds here
MASKS = (0, 0x5DEECE66D)  # under which a form is looked at
MOST_BITS = 8  # comparisons, all of whose outcomes are looked at


class Unknown(Exception):
    """A program whose roundings are not followed here."""


@dataclass(frozen=True)
class Squares:
    """A number that is a sum of |g_i|^2 times `shares`, and something from `low` to `high`."""

    shares: Mapping[ir.Value, float]
    low: float = 0.0
    high: float = 0.0

    def times(self, factor: float) -> Squares:
        ends = sorted((self.low * factor, self.high * factor))
        return Squares({g: share * factor for g, share in self.shares.items()}, *ends)

    def plus(self, other: Squares) -> Squares:
        shares = dict(self.shares)
        for g, share in other.shares.items():
            shares[g] = shares.get(g, 0.0) + share
        return Squares(shares, self.low + other.low, self.high + other.high)


@dataclass
class RoundedFactor:
    """By what gradients are multiplied, over what |g|^2 may be.

    Attributes:
        value: the factor, step size included.
        limit: the norm that it is to shorten gradients to.
        step_size: the input that is the step size, and `told`, what that is.
        finer: what gradients were rounded by before they were squared, each element of them.
    """

    value: ir.Value
    limit: float
    step_size: ir.Value
    told: float
    finer: dict[ir.Value, float] = field(default_factory=dict)
    linear: dict[ir.Value, Squares | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = math.ceil(math.log(FARTHEST / NEAREST) / FINE)
        ends = NEAREST * np.exp(FINE * np.arange(count + 1))
        scale = self.limit**2
        self.low, self.high = scale * np.array([0.0, *ends[:-1]]), scale * ends
        self._high, self._fits = np.zeros_like(self.high), np.ones(len(ends), bool)
        compared = [op for op in self._chain() if isinstance(op, ops.Step | ops.ClippedFunction)]
        results = [op.operation.results[0] for op in compared]
        bits = [(result, number) for result in results for number in range(size_of(result))]
        if len(bits) > MOST_BITS:
            raise Unknown
        for outcome in itertools.product((0, 1), repeat=len(bits)):
            self._add(dict(zip(bits, outcome, strict=True)))

    def _chain(self) -> list[ir.OpView]:
        """The operations that make the factor of squares."""
        found: dict[ir.Value, ir.OpView] = {}

        def visit(value: ir.Value) -> None:
            op = defining(value)
            if op is None or value in found or self._squares(value) is not None:
                return
            for operand in op.operation.operands:
                visit(operand)
            found[value] = op

        visit(self.value)
        return list(found.values())

    def require_gradients(self, gradients: set[ir.Value]) -> None:
        """Unknown unless the squares are of all of these, and alike."""
        found = [s.shares for s in self.linear.values() if s is not None and s.shares]
        if not any(shares.keys() >= gradients for shares in found):
            raise Unknown

    def longest(self, slack: float) -> tuple[float, float]:
        """|r g| over the limit at most, and up to which |g| over the limit."""
        share = np.sqrt(self.high) * self._high / (self.told * self.limit)
        at_limit = share[self.high <= 1.01 * self.limit**2].max()
        beyond = np.flatnonzero(~self._fits | (share > max(1 + slack, at_limit)))
        end = int(beyond[0]) if len(beyond) else len(share)
        if not end:
            raise Unknown
        return float(share[:end].max()), float(math.sqrt(self.high[end - 1]) / self.limit)

    def largest(self, reach: float) -> float:
        """The factor at most, of gradients up to this length over the limit."""
        is_near = self.high <= (1.01 * reach * self.limit) ** 2
        return float(self._high[is_near & self._fits].max())

    def _add(self, outcome: Mapping[tuple[ir.Value, int], int]) -> None:
        """What the factor is where comparisons end so, and where they can."""
        run = _Run(self, outcome)
        high = run.of(self.value)[1][:, 0]
        fits = run.fits & np.isfinite(high)
        self._fits &= fits | ~run.may_be
        self._high = np.where(run.may_be & fits, np.maximum(self._high, high), self._high)

    def _squares(self, value: ir.Value) -> Squares | None:
        if value not in self.linear:
            self.linear[value] = self._as_squares(value)
        return self.linear[value]

    def _as_squares(self, value: ir.Value) -> Squares | None:
        """A value as a sum of squares; None for another."""
        op = defining(value)
        tensor = Tensor.of(value)
        is_secret = tensor.encoding.secrecy is Secrecy.SECRET
        if op is None or not is_secret or size_of(value) > 1:
            return None
        operands = list(op.operation.operands)
        if isinstance(op, ops.Matmul):
            (a, unit), (b, other) = map(base, operands)
            if a != b:
                return None
            self.finer[a] = max(unit, other)
            return Squares({a: 1.0})
        if isinstance(op, ops.Mul):
            numbers = [_numbers(x) for x in operands]
            known = [number for number in numbers if number is not None]
            secret = [self._squares(x) for x, n in zip(operands, numbers, strict=True) if n is None]
            return secret[0].times(float(known[0][0])) if known and secret and secret[0] else None
        parts = [self._squares(x) for x in operands]
        if any(part is None for part in parts):
            return None
        first = parts[0]
        assert first is not None
        if isinstance(op, ops.Scale | ops.Reinterpret):
            return first.times(_restated(op))
        if isinstance(op, EXACT):
            return first
        if isinstance(op, ops.Add):
            second = parts[1]
            assert second is not None
            return first.plus(second)
        if type(op) in (ops.Truncate, ops.RoundOff):
            unit = unit_of(value)
            return first.plus(Squares({}, -unit, unit))
        return None


@dataclass
class _Run:
    """Values over all intervals of |g|^2, for one outcome of comparisons: an interval a row.

    Attributes:
        may_be: where comparisons may end so.
        fits: where no value has left its ring.
    """

    factor: RoundedFactor
    outcome: Mapping[tuple[ir.Value, int], int]
    found: dict[ir.Value, Interval] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = len(self.factor.high)
        self.may_be, self.fits = np.ones(count, bool), np.ones(count, bool)

    def of(self, value: ir.Value) -> Interval:
        """The least and the most that a value is."""
        if value not in self.found:
            self.found[value] = self._computed(value)
            encoding = Tensor.of(value).encoding
            self.require(self.found[value], value, encoding.ring_bits - 1)
        return self.found[value]

    def require(self, found: Interval, value: ir.Value, bits: int) -> None:
        """Notes where a number does not fit into so many bits and a sign.

        What is known of none is a function where it does not hold: any number of its ring.
        """
        least, most = found
        room = math.ldexp(unit_of(value), bits)
        is_known = np.isfinite(least) & np.isfinite(most)
        fits = ~is_known | (np.maximum(np.abs(least), np.abs(most)) < room)
        self.fits &= fits.all(axis=1)

    def _computed(self, value: ir.Value) -> Interval:
        ones = np.ones((len(self.factor.high), 1))
        if (numbers := _numbers(value)) is not None:
            return numbers * ones, numbers * ones
        if same(value) == self.factor.step_size:
            return self.factor.told * ones, self.factor.told * ones
        squares, op = self.factor._squares(value), defining(value)
        if op is None:
            raise Unknown
        if squares is not None:
            return self._of_squares(squares, op)
        operands = [self.of(x) for x in op.operation.operands]
        if (bits := _room(op)) is not None:
            self.require(operands[0], op.operation.operands[0], bits)
        rule = _RULES.get(type(op))
        if rule is None:
            raise Unknown
        return rule(self, op, *operands)

    def _of_squares(self, squares: Squares, op: ir.OpView) -> Interval:
        """Of all squares together, where each has the same share; a part lies below the whole."""
        for operand in op.operation.operands:
            if self.factor._squares(operand) is not None:
                found = self.of(operand)
                if (bits := _room(op)) is not None:
                    self.require(found, operand, bits)
        shares = {*squares.shares.values()}
        most = max(shares) * self.factor.high + squares.high
        spread = max(shares) - min(shares)
        every = {g for s in self.factor.linear.values() if s for g in s.shares}
        is_whole = squares.shares.keys() == every and spread <= FLOAT_SLACK * max(shares)
        least = max(shares) * self.factor.low * is_whole + squares.low
        return least[:, np.newaxis], most[:, np.newaxis]

    def compared(self, op: ir.OpView, low: Floats, high: Floats) -> Floats:
        """How comparisons with zero end, which are noted to be possible where they are."""
        result = op.operation.results[0]
        bits = np.array([self.outcome[result, number] for number in range(size_of(result))])
        missed = math.ldexp(unit_of(op.operation.operands[0]), attributes_of(op)["dropped_bits"])
        self.may_be &= np.where(bits == 1, high > -missed, low < 0).all(axis=1)
        return bits.astype(np.float64)


def _truncated(run: _Run, op: ir.OpView, x: Interval) -> Interval:
    unit = unit_of(op.operation.results[0])
    return x[0] - unit, x[1] + unit


def _relu(run: _Run, op: ir.OpView, x: Interval) -> Interval:
    unit = unit_of(op.operation.results[0]) if isinstance(op, ops.Truncate) else 0.0
    missed = math.ldexp(unit_of(op.operation.operands[0]), attributes_of(op)["dropped_bits"])
    low = np.where(x[0] >= 0, x[0] - unit, np.minimum(0, np.maximum(x[0], -missed) - unit))
    return low, np.maximum(x[1], 0) + unit


def _step(run: _Run, op: ir.OpView, x: Interval) -> Interval:
    bits = run.compared(op, *x) * np.ones_like(x[0])
    return bits, bits


def _function(run: _Run, op: ir.OpView, x: Interval) -> Interval:
    """Of an inverse root, where its form is one at both ends and in the middle; no other is."""
    named, result = attributes_of(op), op.operation.results[0]
    operand = op.operation.operands[0]
    form, unit, origin = function_form(named["form"]), unit_of(operand), named["origin"]
    off, holds = named["error"], np.ones(x[0].shape, bool)
    for place in (x[0], (x[0] + x[1]) / 2, x[1]):
        z = np.nan_to_num(place / unit).clip(-(2.0**62), 2.0**62).astype(np.int64)
        real = z * unit - origin
        wanted = 1 / np.sqrt(np.maximum(real, unit))
        for mask in MASKS:
            masked = np.full(z.shape, mask % (1 << form.window_bits), np.int64)
            made = form.values(z, masked) * 2.0**-form.frac_bits
            holds &= (real > 0) & (np.abs(made - wanted) <= 2 * off)
    off = 2 * off + unit_of(result)
    most, least = (1 / np.sqrt(np.maximum(end - origin, unit)) for end in x)
    return np.where(holds, least - off, -np.inf), np.where(holds, most + off, np.inf)


def _clipped_function(run: _Run, op: ir.OpView, x: Interval) -> Interval:
    named, unit = attributes_of(op), unit_of(op.operation.operands[0])
    edge = named["edge"] * unit
    beside = x[0] - edge, x[1] - edge
    run.require(beside, op.operation.operands[0], named["window_bits"] - 1)
    if run.compared(op, *beside).all():
        return _function(run, op, x)
    beyond = np.full_like(x[0], named["beyond"] * unit_of(op.operation.results[0]))
    return beyond, beyond


def _product(run: _Run, op: ir.OpView, x: Interval, y: Interval) -> Interval:
    """0 times whatever is 0."""
    with np.errstate(invalid="ignore"):
        products = [np.where(np.isnan(a * b), 0.0, a * b) for a in x for b in y]
    return np.min(products, axis=0), np.max(products, axis=0)


def _sum(run: _Run, op: ir.OpView, x: Interval) -> Interval:
    if size_of(op.operation.results[0]) > 1:
        raise Unknown
    low, high = (end.sum(axis=1, keepdims=True) for end in x)
    return low, high


_RULES: Mapping[type, Callable[..., Interval]] = {
    **dict.fromkeys((ops.Reduce, ops.Lift, ops.Reshape), lambda run, op, x: x),
    **dict.fromkeys((ops.Truncate, ops.RoundOff), _truncated),
    **dict.fromkeys((ops.Relu, ops.TruncateRelu), _relu),
    ops.Add: lambda run, op, x, y: (x[0] + y[0], x[1] + y[1]),
    ops.Sub: lambda run, op, x, y: (x[0] - y[1], x[1] - y[0]),
    ops.Neg: lambda run, op, x: (-x[1], -x[0]),
    ops.Mul: _product,
    ops.ReduceSum: _sum,
    ops.Scale: lambda run, op, x: (x[0] * _restated(op), x[1] * _restated(op)),
    ops.Reinterpret: lambda run, op, x: (x[0] * _restated(op), x[1] * _restated(op)),
    ops.Step: _step,
    ops.Function: _function,
    ops.ClippedFunction: _clipped_function,
}
EXACT = (ops.Reduce, ops.Lift, ops.Reshape, ops.Transpose)


def defining(value: ir.Value) -> ir.OpView | None:
    return None if isinstance(value, ir.BlockArgument) else value.owner.opview


def size_of(value: ir.Value) -> int:
    return math.prod(Tensor.of(value).shape)


def _room(op: ir.OpView) -> int | None:
    """Bits and a sign that the operand must fit into; None where its ring is all."""
    before, after = (
        Tensor.of(x).encoding.ring_bits for x in (op.operation.operands[0], op.operation.results[0])
    )
    named = attributes_of(op)
    if isinstance(op, ops.Truncate | ops.Lift):
        is_any = isinstance(op, ops.Truncate) and after <= before - named["bits"]
        room = before - 1 if is_any else before - 2
        return min(room, int(named.get("window_bits", before)) - 1)
    return int(named["window_bits"]) - 1 if isinstance(op, ops.Step | ops.Relu) else None


def unit_of(value: ir.Value) -> float:
    return math.ldexp(1.0, -Tensor.of(value).encoding.frac_bits)


def _restated(op: ir.OpView) -> float:
    """What a number is multiplied by where its integer is, or is read anew."""
    (operand,), named = op.operation.operands, attributes_of(op)
    return float(named.get("factor", 1)) * unit_of(op.operation.results[0]) / unit_of(operand)


def is_same(op: ir.OpView) -> bool:
    """Whether it is the same number in another encoding, or place."""
    return isinstance(op, EXACT) or (isinstance(op, ops.Scale) and _restated(op) == 1)


def same(value: ir.Value) -> ir.Value:
    """What a value was before it was written otherwise, exactly."""
    while (op := defining(value)) is not None and is_same(op):
        value = op.operation.operands[0]
    return value


def base(value: ir.Value) -> tuple[ir.Value, float]:
    """What a value was before it was written otherwise, and what that rounded each element by."""
    op, unit = defining(value), 0.0
    while op is not None and (is_same(op) or type(op) in (ops.Truncate, ops.RoundOff)):
        unit += 0.0 if is_same(op) else unit_of(value)
        value = op.operation.operands[0]
        op = defining(value)
    return value, unit


def _numbers(value: ir.Value) -> Floats | None:
    """The numbers of a public constant."""
    constant = same(value)
    op = defining(constant)
    if not isinstance(op, ops.Constant):
        return None
    return np.asarray(attributes_of(op)["value"], np.float64).reshape(-1) * unit_of(constant)
