"""additive, continued: functions of a masked opening.

All parties get c = x + r for a mask r of the provider, who deals what a function has of r. Each
multiplies its parts of that with what the function has of c. See additive.py for how costs are
counted, and docs/protocols.md for the arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

from veilgraph.ir.party.program import Value
from veilgraph.ir.secret.exponential import Segments
from veilgraph.ir.secret.fourier import FourierSeries
from veilgraph.targets.blocks.linear import reduced
from veilgraph.targets.blocks.window import Compare, opened_window
from veilgraph.targets.functions import exponential as exponentials
from veilgraph.targets.functions.clips import Clip, clipped_sums, opened_bits
from veilgraph.targets.functions.masked_openings import NARROW, WIDE, without_overflow
from veilgraph.targets.functions.masked_series import of_mask, of_opened, summed
from veilgraph.targets.parties import Operation, Parties, Sharing
from veilgraph.targets.suites.additive import ADDITIVE, at_each, truncate
from veilgraph.targets.variants import STANDARD, Protocol


def masked_function(p: Parties, op: Operation, x: Sharing, high: Sharing, low: Sharing) -> Sharing:
    """floor((f(x) 2^F + tau) / 2^s), f a Fourier series of N terms (ir/secret/fourier.py).  2
    rounds; w + m bits online, 2N * m + K + e offline.

    m = sum_bits and e = K - m + s > 0. c = x + r modulo 2^w is opened to all; the provider shares
    what the terms have of r.
    """
    series, tables = FourierSeries.of(op.attrs), (high, low)
    if Clip.of(op.attrs) is not None:
        return _clipped(p, op, x, tables)
    index = x.map(lambda part: part.mod(series.window_bits))
    r = p.provider.random(index.shape, index.type)
    factors = [p.provider.deal(b) for b in of_mask(series, r.value, tables)]
    c = p.provider.opened_under(index.parts, r.parts)
    known = of_opened(series, c, tables)
    parts = [summed(known, [b[i] for b in factors]) for i in p]
    if series.slope:
        own = [v.mod(series.sum_bits) * series.slope for v in x.parts]
        parts = [part + v for part, v in zip(parts, own, strict=True)]
    parts[0] = parts[0] + series.constant
    rounded: Sharing = truncate(p, op, at_each(p, parts))
    return rounded


def _clipped(p: Parties, op: Operation, x: Sharing, tables: tuple[Sharing, ...]) -> Sharing:
    """The same of a series with an end (targets/functions/clips.py).  The rounds of `compare` more;
    w is no less than what is compared, and what is dealt is what products with a bit take.
    """
    compare: Compare = ADDITIVE.called(p, "compare")
    c, r = opened_window(p.provider, reduced(x, opened_bits(op)).parts)
    parts = clipped_sums(p.provider, op, c, r, tables, compare)
    rounded: Sharing = truncate(p, op, at_each(p, parts))
    return rounded


def wide_function(p: Parties, op: Operation, x: Sharing, high: Sharing, low: Sharing) -> Sharing:
    """The same with m = K + s, where that is a ring.  1 + g rounds; w + g / P m bits online,
    2N * m + g K offline.

    g = min(1, P - 2) of P parties. The sum has room enough above its result for parts of two to be
    shifted: nothing more is opened.
    """
    wide = without_overflow(op, FourierSeries, x.type.bits)
    return masked_function(p, wide, x, high, low)


def exp_sums(p: Parties, op: Operation, x: Sharing, *tables: Sharing) -> Sharing:
    """The sums of e^x along rows, by M segments of x (ir/secret/exponential.py).  1 round; w bits
    online, M * m offline.

    m = sum_bits. c = mu x + r modulo 2^w is opened to all; for each segment the provider shares a
    decay of the lower bits of r, or zero. Parts of all M numbers are turned by the upper bits of c.
    """
    segments = Segments.of(op.attrs)
    length = x.shape[-1]
    rows = x.map(lambda part: part.reshape((part.elements // length, length)))
    c, dealt = opened_and_dealt(p, rows, segments, tables)
    parts = [p.at(exponentials.sums(segments, c, own, tables), i) for i, own in enumerate(dealt)]
    return at_each(p, [part.reshape(op.shape) for part in parts])


def masked_exp(p: Parties, op: Operation, x: Sharing, *tables: Sharing) -> Sharing:
    """floor((e^x 2^F + tau) / 2^s) by M segments of x (ir/secret/exponential.py).  2 rounds; w + m
    bits online, M * m + K + e offline.

    m = sum_bits and e = K - m + s > 0. As `exp_sums`; the numbers of all segments are multiplied by
    what their distance from c makes of them, and the sum is truncated.
    """
    segments = Segments.of(op.attrs)
    c, dealt = opened_and_dealt(p, x, segments, tables)
    parts = [exponentials.power(segments, c, own, tables) for own in dealt]
    rounded: Sharing = truncate(p, op, at_each(p, parts))
    return rounded


def wide_exp(p: Parties, op: Operation, x: Sharing, *tables: Sharing) -> Sharing:
    """The same with m = K + s, where that is a ring.  1 + g rounds; w + g / P m bits online,
    M * m + g K offline.

    As for `wide_function`.
    """
    return masked_exp(p, without_overflow(op, Segments, x.type.bits), x, *tables)


def opened_and_dealt(
    p: Parties, x: Sharing, segments: Segments, tables: Sequence[Sharing]
) -> tuple[Value, list[list[Value]]]:
    """c = mu x + r at all, and each one's parts of what is dealt of r.  1 round."""
    index = x.map(lambda part: (part * segments.multiple).mod(segments.window_bits))
    r = p.provider.random(index.shape, index.type)
    dealt = [p.provider.deal(value) for value in exponentials.of_mask(segments, r.value, tables)]
    c = p.provider.opened_under(index.parts, r.parts)
    return c, [[parts[i] for parts in dealt] for i in p]


FUNCTIONS: dict[str, dict[str, Protocol]] = {
    "masked_function": {NARROW: masked_function, WIDE: wide_function},
    "exp_sums": {STANDARD: exp_sums},
    "masked_exp": {NARROW: masked_exp, WIDE: wide_exp},
}
