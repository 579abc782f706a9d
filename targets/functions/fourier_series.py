"""Which Fourier series a real function is in integers: as wide as its error needs, no wider."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal, localcontext
from functools import cache

from veilgraph.ir.secret.fourier import FINE_BITS, FourierSeries
from veilgraph.ir.types import MAX_RING_BITS
from veilgraph.targets.functions.catalogue import FUNCTIONS, Domain, RealFunction
from veilgraph.targets.functions.fourier_fit import DIGITS, MULTIPLES, PI, Family, Fit, fit
from veilgraph.targets.functions.function_block import FIT_UNITS
from veilgraph.targets.functions.kept_fits import kept

MOST_COEFFICIENT_BITS = 28
TERMS_A_BIT = 2 / 3  # of a result's precision: measured 0.5 to 1, by function and range
PERIOD_BITS = 4  # before the point, of what a function opens
MOST_WINDOW_BITS = 62  # masks are int64 where plans are checked
MOST_RATIO = 64.0  # of the ends of an interval, where zero is a singularity


def turning(name: str, reach: float, in_bits: int, out_bits: int, ring_bits: int) -> FourierSeries:
    """sin x or cos x, whose angle is as exact as the result for |x| <= reach."""
    more = out_bits + 4 + max(0, math.ceil(math.log2(max(reach, 1.0))))
    window_bits = min(in_bits + more, ring_bits)
    with localcontext() as context:
        context.prec = DIGITS
        multiple = int((Decimal(2) ** (window_bits - in_bits) / (2 * PI)).to_integral_value())
    one = (1 << MOST_COEFFICIENT_BITS,)
    parts = (one, (0,)) if name == "cos" else ((0,), one)
    precision = out_bits + 3
    return FourierSeries(
        window_bits, multiple, 1, *parts, MOST_COEFFICIENT_BITS, 0, 0,
        precision, precision, 2 * precision + 3,
    )  # fmt: skip


@cache
def series_of(
    name: str,
    low: float,
    high: float,
    in_bits: int,
    out_bits: int,
    ring_bits: int,
    fit_units: float = FIT_UNITS,
) -> FourierSeries | None:
    """The function on [low, high]; None where no Fourier series is close enough.

    Args:
        in_bits, out_bits: fraction bits of operand and result.
        ring_bits: of the operand; a function with a slope has no wider sum.
        fit_units: what the series may be off by, in units of the result's last place.
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


def _fit(
    name: str, interval: tuple[Decimal, Decimal], periods: tuple[Decimal, ...], goal: Decimal
) -> Fit | None:
    """As it is kept; calls whose operands differ in nothing but their scales have the same."""
    return kept(name, interval, periods, goal, lambda: _found(name, interval, periods, goal))


@cache
def _found(
    name: str, interval: tuple[Decimal, Decimal], periods: tuple[Decimal, ...], goal: Decimal
) -> Fit | None:
    function = FUNCTIONS[name]
    return fit(function.part, function.family, interval, periods, goal)


def _is_narrow(low: float, high: float) -> bool:
    """Whether the ends, of one sign, are so near that a series may do."""
    return low * high > 0 and max(low / high, high / low) <= MOST_RATIO


def _interval(
    function: RealFunction, low: Decimal, high: Decimal, in_bits: int
) -> tuple[Decimal, Decimal]:
    """Where the series must hold: from 0 on for even and odd ones; never a single point."""
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
) -> FourierSeries:
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

    return FourierSeries(
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


def typical_series(k: int, in_bits: int, out_bits: int) -> FourierSeries:
    """As many as a function with so many fraction bits is likely to be a sum of, in Z_2^k."""
    out_bits = max(1, out_bits)
    count = max(1, round(TERMS_A_BIT * out_bits))
    cosine_bits, factor_bits = out_bits + 2, out_bits + 2 + count.bit_length()
    return FourierSeries(
        window_bits=max(1, min(in_bits + PERIOD_BITS, k)),
        first=1,
        step=1,
        cosines=(1,) * count,
        sines=(1,) * count,
        coefficient_bits=FINE_BITS,
        constant=0,
        slope=0,
        cosine_bits=cosine_bits,
        factor_bits=factor_bits,
        sum_bits=min(cosine_bits + factor_bits + PERIOD_BITS, MAX_RING_BITS),
    )
