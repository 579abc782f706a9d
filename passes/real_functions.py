"""Real functions of one number, and the sums of waves that encode_fixed_point.py puts for them.

A sum of waves holds on the range of its operand, with its margin, and to a unit or two in the last
place of the result. Where a function is flat (or a straight line) far out, a wide range is clipped
first; elsewhere a range on which no sum is close enough is an AccuracyError.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from enum import Enum
from functools import cache

from veilgraph.ir.secret_types import MAX_RING_BITS, RangeSource, RealRange
from veilgraph.ir.waves import FINE_BITS, Waves
from veilgraph.passes.wave_fits import (
    DIGITS,
    MULTIPLES,
    PI,
    Family,
    Fit,
    Function,
    arctangent,
    erf,
    exp,
    fit,
    tanh,
)

MOST_COEFFICIENT_BITS = 28
FIT_UNITS = 0.5  # of the last place, that waves may be off by: as much as rounding is
WIDE = 2.0  # times the flat function's reach, beyond which a clip is cheaper than more waves
COARSE_WIDE = 3.0  # the same up to COARSE_BITS of fraction, where waves are few and narrow
COARSE_BITS = 14
POWER_SLACK = 1 / 16  # of an exponent, beyond its margin
ROOM = 2.0  # times a range with its margin, that a product's ring may hold at the most
MOST_OF_ROOM = 15 / 16  # what a proven range may be of a ring, its slack left out
EVERYWHERE = (-math.inf, math.inf)
MOST_WINDOW_BITS = 62  # masks are int64 where plans are checked
MOST_RATIO = 64.0  # of the ends of an interval, where zero is a pole
HALF = Decimal("0.5")
Ends = tuple[float, float]


class Tail(Enum):
    """What a function is far out."""

    NONE = "none"
    FLAT = "flat"  # on both sides
    LINE = "line"  # 0 far below, x far above
    ZERO = "zero"  # far below


class Domain(Enum):
    """How the range of an operand is widened by the margin."""

    ADDED = "added"  # as every value's
    POSITIVE = "positive"  # by a factor on both sides: zero must stay outside
    POWER = "power"  # so that the result is within its own margin


@dataclass(frozen=True)
class RealFunction:
    """One function.

    Attributes:
        part: what the waves are, in decimal arithmetic: the function less slope x + constant.
        reach: how far from 0 it differs from its tail by more than 2^-bits.
    """

    family: Family
    part: Function
    slope: Decimal = Decimal(0)
    constant: Decimal = Decimal(0)
    tail: Tail = Tail.NONE
    reach: Callable[[int], float] = lambda bits: math.inf
    domain: Domain = Domain.ADDED

    def value(self, x: Decimal) -> Decimal:
        return self.part(x) + self.slope * x + self.constant


def _gelu(x: Decimal) -> Decimal:
    return x / 2 * erf(x / Decimal(2).sqrt())


def _gelu_by_tanh(x: Decimal) -> Decimal:
    return x / 2 * tanh((2 / PI).sqrt() * (x + Decimal("0.044715") * x**3))


def _softplus(x: Decimal) -> Decimal:
    return (1 + exp(-abs(x))).ln() + abs(x) / 2


def _nats(bits: int) -> float:
    return bits * math.log(2)


FUNCTIONS: Mapping[str, RealFunction] = {
    "sigmoid": RealFunction(
        Family.SQUARE, lambda x: tanh(x / 2) / 2, constant=HALF, tail=Tail.FLAT, reach=_nats
    ),
    "tanh": RealFunction(
        Family.SQUARE, tanh, tail=Tail.FLAT, reach=lambda bits: _nats(bits + 1) / 2
    ),
    "erf": RealFunction(
        Family.SQUARE, erf, tail=Tail.FLAT, reach=lambda bits: math.sqrt(_nats(bits))
    ),
    "atan": RealFunction(Family.SQUARE, arctangent),
    "gelu none": RealFunction(
        Family.TRIANGLE, _gelu, HALF, tail=Tail.LINE, reach=lambda bits: math.sqrt(2 * _nats(bits))
    ),
    "gelu tanh": RealFunction(
        Family.TRIANGLE,
        _gelu_by_tanh,
        HALF,
        tail=Tail.LINE,
        reach=lambda bits: math.sqrt(2 * _nats(bits)),
    ),
    "silu": RealFunction(
        Family.TRIANGLE,
        lambda x: x / 2 * tanh(x / 2),
        HALF,
        tail=Tail.LINE,
        reach=lambda bits: _nats(bits + 4),
    ),
    "softplus": RealFunction(Family.TRIANGLE, _softplus, HALF, tail=Tail.LINE, reach=_nats),
    "exp": RealFunction(Family.FREE, exp, tail=Tail.ZERO, reach=_nats, domain=Domain.POWER),
    "log": RealFunction(Family.FREE, lambda x: x.ln(), domain=Domain.POSITIVE),
    "sqrt": RealFunction(Family.FREE, lambda x: x.sqrt(), domain=Domain.POSITIVE),
    "rsqrt": RealFunction(Family.FREE, lambda x: 1 / x.sqrt(), domain=Domain.POSITIVE),
    "reciprocal": RealFunction(Family.FREE, lambda x: 1 / x, domain=Domain.POSITIVE),
}
TURNING = ("sin", "cos")  # one wave, whatever the range
KINDS = frozenset((*(name.split()[0] for name in FUNCTIONS), *TURNING))


def interval_of(function: RealFunction, known: RealRange, margin: float) -> Ends:
    """Where an operand of this range may lie."""
    if known.source is RangeSource.ASSUMED:
        return -math.inf, math.inf
    if function.domain is Domain.ADDED:
        return known.widened(margin)
    factor = margin if known.source is RangeSource.CALIBRATED else 17 / 16
    if function.domain is Domain.POWER:
        more = math.log(factor) + POWER_SLACK
        return known.low - more, known.high + more
    if known.low > 0:
        return known.low / factor, known.high * factor
    if known.high < 0:
        return known.low * factor, known.high / factor
    return known.low, known.high


def clip_of(function: RealFunction, low: float, high: float, bits: int) -> Ends:
    """The bounds to clip to, infinite where there needs no clip."""
    if function.tail is Tail.NONE:
        return EVERYWHERE
    reach = _flat_from(function, bits)
    if function.tail is Tail.ZERO:
        return (-reach if low < -WIDE * reach else -math.inf), math.inf
    return (-reach, reach) if max(-low, high) > _wide(function, bits) else EVERYWHERE


def clips_of(function: RealFunction, usual: Ends, ends: Ends, bits: int) -> Iterator[Ends]:
    """The clips that make the function hold wherever its operand can be, the first choice first.

    Waves over all of it, where that is no wider than a product's ring makes of a range for which
    they are the first choice: they cost no round. A power of e is clipped above, because what is
    larger than its result's range would be lost further on.

    Args:
        usual: where the operand lies, margin included.
        ends: where it can be, `usual` included.
    """
    if function.tail is Tail.NONE:
        yield from (EVERYWHERE, usual)
    elif function.tail is Tail.ZERO:
        most = usual[1] - POWER_SLACK if ends[1] > usual[1] else math.inf
        yield clip_of(function, *ends, bits)[0], most
        yield usual[0], most
    else:
        unclipped = clip_of(function, *usual, bits) == EVERYWHERE
        if unclipped and max(-ends[0], ends[1]) <= ROOM * _wide(function, bits):
            yield EVERYWHERE
        reach = _flat_from(function, bits)
        yield -reach, reach


def _flat_from(function: RealFunction, bits: int) -> float:
    return math.ceil(function.reach(bits + 2) * 8) / 8


def _wide(function: RealFunction, bits: int) -> float:
    """How far out waves are the cheaper choice."""
    return (COARSE_WIDE if bits <= COARSE_BITS else WIDE) * _flat_from(function, bits)


def turning(name: str, reach: float, in_bits: int, out_bits: int, ring_bits: int) -> Waves:
    """sin x or cos x, whose angle is as exact as the result for |x| <= reach."""
    more = out_bits + 4 + max(0, math.ceil(math.log2(max(reach, 1.0))))
    window_bits = min(in_bits + more, ring_bits)
    with localcontext() as context:
        context.prec = DIGITS
        multiple = int((Decimal(2) ** (window_bits - in_bits) / (2 * PI)).to_integral_value())
    one = (1 << MOST_COEFFICIENT_BITS,)
    parts = (one, (0,)) if name == "cos" else ((0,), one)
    precision = out_bits + 3
    return Waves(
        window_bits, multiple, 1, *parts, MOST_COEFFICIENT_BITS, 0, 0,
        precision, precision, 2 * precision + 3,
    )  # fmt: skip


@cache
def waves_of(
    name: str,
    low: float,
    high: float,
    in_bits: int,
    out_bits: int,
    ring_bits: int,
    fit_units: float = FIT_UNITS,
) -> Waves | None:
    """The function on [low, high]; None where no sum of waves is close enough.

    Args:
        in_bits, out_bits: fraction bits of operand and result.
        ring_bits: of the operand; a function with a slope has no wider sum.
        fit_units: what the waves may be off by, in units of the result's last place.
    """
    function = FUNCTIONS[name]
    if not (math.isfinite(low) and math.isfinite(high)):
        return None
    if function.domain is Domain.POSITIVE and not _is_narrow(low, high):
        return None
    with localcontext() as context:
        context.prec = DIGITS
        interval = _interval(function, Decimal(low), Decimal(high), in_bits)
        widths = dict(_periods(function, interval, in_bits, ring_bits))
        goal = Decimal(fit_units) * Decimal(2) ** -out_bits
        found = _fit(name, interval, tuple(widths), goal)
        if found is None:
            return None
        bound = _bound(function, interval)
        most_bits = ring_bits if function.slope else MAX_RING_BITS
        return _integers(function, found, widths[found.period], bound, in_bits, out_bits, most_bits)


@cache
def _fit(
    name: str, interval: tuple[Decimal, Decimal], periods: tuple[Decimal, ...], goal: Decimal
) -> Fit | None:
    """Calls whose operands differ in nothing but their scales have the same."""
    function = FUNCTIONS[name]
    return fit(function.part, function.family, interval, periods, goal)


def _is_narrow(low: float, high: float) -> bool:
    """Whether the ends, of one sign, are so near that waves may do."""
    return low * high > 0 and max(low / high, high / low) <= MOST_RATIO


def _interval(
    function: RealFunction, low: Decimal, high: Decimal, in_bits: int
) -> tuple[Decimal, Decimal]:
    """Where the waves must hold: from 0 on for even and odd ones; never a single point."""
    least = Decimal(2) ** -in_bits
    if function.family is Family.FREE:
        return low, max(high, low + 64 * least)
    return Decimal(0), max(abs(low), abs(high), 64 * least)


def _periods(
    function: RealFunction, interval: tuple[Decimal, Decimal], in_bits: int, ring_bits: int
) -> Iterator[tuple[Decimal, tuple[int, int]]]:
    """Periods worth trying, the likeliest first, each with its window's width and multiple."""
    length = interval[1] - interval[0]
    free = function.family is Family.FREE
    least, most, likely = (1.2, 4.0, 1.8) if free else (2.08, 8.0, 4.3)
    found: dict[Decimal, tuple[int, int]] = {}
    for window_bits in range(1, min(ring_bits, MOST_WINDOW_BITS) + 1):
        for multiple in MULTIPLES:
            period = Decimal(2) ** (window_bits - in_bits) / multiple
            if Decimal(least) * length <= period <= Decimal(most) * length:
                found.setdefault(period, (window_bits, multiple))
    ratios = {period: abs(math.log(period / length / Decimal(likely))) for period in found}
    for period in sorted(found, key=lambda p: (round(ratios[p], 6), p)):
        yield period, found[period]


def _bound(function: RealFunction, interval: tuple[Decimal, Decimal]) -> Decimal:
    """The largest magnitude of the function."""
    low, high = interval
    points = [low + (high - low) * i / 64 for i in range(65)]
    if function.family is not Family.FREE:
        points += [-x for x in points]
    return max(abs(function.value(x)) for x in points)


def _integers(
    function: RealFunction,
    found: Fit,
    window: tuple[int, int],
    bound: Decimal,
    in_bits: int,
    out_bits: int,
    most_bits: int,
) -> Waves:
    """A fit's numbers as integers, no wider than its error needs and the ring allows."""
    window_bits, multiple = window
    count = len(found.cosines)
    weight = sum((abs(c) for c in (*found.cosines, *found.sines)), Decimal(0))
    cosine_bits = min(FINE_BITS, out_bits + 2 + max(0, math.ceil(math.log2(weight))))
    factor_bits = min(FINE_BITS, out_bits + 2 + math.ceil(math.log2(count)))
    whole_bits = max(0, math.ceil(math.log2(bound * Decimal("1.02") + Decimal(2) ** -out_bits)))
    while cosine_bits + factor_bits + whole_bits + 2 > most_bits:
        if cosine_bits >= factor_bits:
            cosine_bits -= 1
        else:
            factor_bits -= 1
    largest = max(abs(c) for c in (*found.cosines, *found.sines))
    coefficient_bits = MOST_COEFFICIENT_BITS - max(0, math.ceil(math.log2(largest)) - 1)
    frac_bits = cosine_bits + factor_bits

    def integer(x: Decimal, bits: int) -> int:
        return int((x * Decimal(2) ** bits).to_integral_value())

    return Waves(
        window_bits=window_bits,
        first=multiple,
        step=multiple if function.family is Family.FREE else 2 * multiple,
        cosines=tuple(integer(c, coefficient_bits) for c in found.cosines),
        sines=tuple(integer(c, coefficient_bits) for c in found.sines),
        coefficient_bits=coefficient_bits,
        constant=integer(found.constant + function.constant, frac_bits),
        slope=integer(function.slope, frac_bits - in_bits),
        cosine_bits=cosine_bits,
        factor_bits=factor_bits,
        sum_bits=frac_bits + whole_bits + 2,
    )
