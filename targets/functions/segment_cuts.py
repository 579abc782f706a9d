"""The segments that an exponential is made of: the fewest dealt bits that are exact enough."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from veilgraph.ir.secret.exponential import Segments
from veilgraph.ir.secret.fourier import FINE_BITS
from veilgraph.ir.types import MAX_RING_BITS
from veilgraph.targets.functions.fourier_fit import MULTIPLES

LOG2_E = math.log2(math.e)
MOST_NUMBER_BITS = 6  # of a segment: more are not worth their bits
MOST_NATS = 8.0  # of a segment: decays must show with FINE_BITS
FUZZY_BITS = 3  # each of what comparisons are made of is exact to an eighth
ROW_BITS = 62  # of what rows are compared by, and of their sums


@dataclass(frozen=True)
class Cut:
    """A range of numbers in segments of `nats` each; `in_bits` of their fraction are opened."""

    nats: float
    window_bits: int
    piece_bits: int
    multiple: int

    @property
    def count(self) -> int:
        return 1 << (self.window_bits - self.piece_bits)

    def segments(self, opened_bits: int, factor_bits: int, sum_bits: int) -> Segments:
        return Segments(
            self.window_bits, self.piece_bits, self.multiple, opened_bits, factor_bits, sum_bits
        )


def cuts(span: float, in_bits: int, ring_bits: int) -> Iterator[Cut]:
    """The ways to cut [0, span] into segments, the narrowest window of each kind."""
    for multiple in MULTIPLES:
        for piece_bits in range(2, ring_bits):
            nats = math.ldexp(1 / multiple, piece_bits - in_bits)
            number_bits = max(1, math.ceil(math.log2(span / nats + 1)))
            window_bits = piece_bits + number_bits
            if nats <= MOST_NATS and number_bits <= MOST_NUMBER_BITS and window_bits <= ring_bits:
                yield Cut(nats, window_bits, piece_bits, multiple)


def segments_of_sums(
    span: float, in_bits: int, ring_bits: int, terms: int, precision: int
) -> tuple[Segments, float] | None:
    """For sums of so many powers of numbers in [0, span], and the nats of a segment.

    Each term has a relative error of 2^-precision. None where there are none.
    """
    found = []
    for cut in cuts(span, in_bits, ring_bits):
        bits = math.ceil(precision + cut.nats * LOG2_E)
        term_bits = math.ceil(math.log2(terms))
        segments = cut.segments(bits, bits, 2 * bits + term_bits + 3)
        compared = 2 * (2 * cut.nats * LOG2_E + term_bits + FUZZY_BITS) + 4
        fits = segments.sum_bits <= MAX_RING_BITS and bits < FINE_BITS and compared <= ROW_BITS
        if fits:
            found.append((segments, cut.nats))
    return min(found, key=_dealt, default=None)


def segments_of_power(
    span: float, in_bits: int, ring_bits: int, precision: int, headroom: float
) -> tuple[Segments, float] | None:
    """For powers of numbers up to `headroom` above 0, where 1 is, of an error of 2^-precision."""
    found = []
    for cut in cuts(span, in_bits, ring_bits):
        bits = precision + math.ceil((cut.nats + headroom) * LOG2_E)
        segments = cut.segments(precision, bits, precision + bits + 3)
        if bits < FINE_BITS and segments.sum_bits <= MAX_RING_BITS:
            found.append((segments, cut.nats))
    return min(found, key=_dealt, default=None)


def _dealt(found: tuple[Segments, float]) -> tuple[int, int]:
    segments, _ = found
    return segments.count * segments.sum_bits + 2 * segments.window_bits, segments.multiple
