"""Blocks that open an operand under a mask: Fourier series, and segments of an exponential.

docs/protocols.md has the protocols; suites whose parties can open a value under a mask take these.
"""

from __future__ import annotations

import math
from dataclasses import replace

from veilgraph.ir.secret.exponential import ExpSegments, ExpSums, Segments
from veilgraph.ir.secret.fourier import FourierSeries
from veilgraph.ir.types import MAX_RING_BITS
from veilgraph.targets.functions.catalogue import EXP_BELOW_ONE, EXP_SUMS, FUNCTIONS, TURNING
from veilgraph.targets.functions.fourier_series import series_of, turning, typical_series
from veilgraph.targets.functions.function_block import Fitted, FunctionBlock, Wanted
from veilgraph.targets.functions.segment_cuts import segments_of_power, segments_of_sums
from veilgraph.targets.parties import Operation

Kind = type[FourierSeries] | type[Segments]

# Variants of what truncates its sum: as wide as its values need, or so wide that no overflow of
# its parts bears on the result.
NARROW, WIDE = "narrow", "wide"
SMALLEST_BITS = 4  # below the result's last place: segments of smaller numbers count as zero


def _series(wanted: Wanted) -> Fitted | None:
    """A Fourier series over the interval; sine and cosine are one term, whatever the interval."""
    bits = wanted.in_bits, wanted.out_bits, wanted.ring_bits
    ends = wanted.least, wanted.most
    form: FourierSeries | None
    if wanted.function in TURNING:
        form = turning(wanted.function, max(-wanted.least, wanted.most), *bits)
    else:
        units = math.ldexp(wanted.error, wanted.out_bits)
        form = series_of(wanted.function, *ends, *bits, units)
    return None if form is None else Fitted(wanted.function, *ends, wanted.error, form)


def _below_one(wanted: Wanted) -> Fitted | None:
    """Segments of the exponential, of a sum whose lowest segment begins at 0."""
    precision, bits, headroom = -round(math.log2(wanted.error)), wanted.in_bits, wanted.most
    span = headroom - wanted.least + headroom
    found = segments_of_power(span, bits, wanted.ring_bits, precision, headroom)
    if found is None:
        return None
    segments, nats = found
    most = (segments.count - 1) * nats
    top = round(math.ldexp(most - headroom, bits))
    least_bits = wanted.out_bits + SMALLEST_BITS
    form = ExpSegments(**segments.parameters(), in_bits=bits, top=top, least_bits=least_bits)
    return Fitted("exp", 0.0, most, wanted.error, form, math.ldexp(top, -bits))


def _sums(wanted: Wanted) -> Fitted | None:
    """Segments of [0, most], each with a sum of its own."""
    precision = -round(math.log2(wanted.error))
    span = wanted.most - wanted.least
    found = segments_of_sums(span, wanted.in_bits, wanted.ring_bits, wanted.terms, precision)
    if found is None:
        return None
    form = ExpSums(**found[0].parameters(), in_bits=wanted.in_bits)
    return Fitted("exp", wanted.least, wanted.most, wanted.error, form)


SERIES = FunctionBlock(FourierSeries, frozenset((*FUNCTIONS, *TURNING)), _series, typical_series)
SEGMENTS = FunctionBlock(ExpSegments, frozenset((EXP_BELOW_ONE,)), _below_one)
SEGMENT_SUMS = FunctionBlock(ExpSums, frozenset((EXP_SUMS,)), _sums)
MASKED_OPENINGS = (SERIES, SEGMENTS, SEGMENT_SUMS)


def without_overflow(op: Operation, kind: Kind, ring_bits: int) -> Operation:
    """The op whose sums' upper bits are a result in Z_2^K, whatever their parts are: K + s bits.

    Itself where there is no such ring, or where a slope would ask for bits of the operand that it
    has not got.

    Args:
        op: a form's values, truncated by s bits.
        ring_bits: of the operand.
    """
    form, bits = kind.of(op.attrs), op.ring_bits + int(op["bits"])
    if not form.sum_bits < bits <= MAX_RING_BITS:
        return op
    is_read = replace(form, sum_bits=bits).read_bits <= ring_bits
    return replace(op, attrs={**op.attrs, "sum_bits": bits}) if is_read else op
