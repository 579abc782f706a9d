"""Where real functions of one number have to hold, and where their operand is clipped.

A fitted form (targets/functions/) holds on the range of its operand, with its margin, and to a unit
or two in the last place of the result. Where a function is flat (or a straight line) far out, a
wide range is clipped first; elsewhere a range on which no form is close enough is an AccuracyError.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from veilgraph.ir.secret.types import RangeSource, RealRange
from veilgraph.targets.functions.catalogue import Domain, RealFunction, Tail

WIDE = 2.0  # times the flat function's extent, beyond which a clip is cheaper than more terms
COARSE_WIDE = 3.0  # the same up to COARSE_BITS of fraction, where series are short and narrow
COARSE_BITS = 14
POWER_SLACK = 1 / 16  # of an exponent, beyond its margin
RANGE_HEADROOM = 2.0  # times a range with its margin, that a product's ring may hold at the most
MOST_OF_HEADROOM = 15 / 16  # what a proven range may be of a ring, its slack left out
EVERYWHERE = (-math.inf, math.inf)
Ends = tuple[float, float]


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
    extent = _flat_from(function, bits)
    if function.tail is Tail.ZERO:
        return (-extent if low < -WIDE * extent else -math.inf), math.inf
    return (-extent, extent) if max(-low, high) > _wide(function, bits) else EVERYWHERE


def clips_of(function: RealFunction, usual: Ends, ends: Ends, bits: int) -> Iterator[Ends]:
    """The clips that make the function hold wherever its operand can be, the first choice first.

    A series over all of it, where that is no wider than a product's ring makes of a range for which
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
        if unclipped and max(-ends[0], ends[1]) <= RANGE_HEADROOM * _wide(function, bits):
            yield EVERYWHERE
        extent = _flat_from(function, bits)
        yield -extent, extent


def _flat_from(function: RealFunction, bits: int) -> float:
    return math.ceil(function.reach(bits + 2) * 8) / 8


def _wide(function: RealFunction, bits: int) -> float:
    """How far out a series is the cheaper choice."""
    return (COARSE_WIDE if bits <= COARSE_BITS else WIDE) * _flat_from(function, bits)
