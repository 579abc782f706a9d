"""Fourier series of a masked opening, for any suite that can open a value under a mask.

`ir/secret/fourier.py` has the arithmetic; here it runs on values of the party level, whose tables
are public constants: what is known of an opened c, at those who know it, and what is dealt of its
mask r, at the one who knows that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from veilgraph.ir.party.program import Value, look_up
from veilgraph.ir.secret.fourier import (
    FourierSeries,
    Split,
    Turn,
    known_of_mask,
    known_of_opened,
    turned,
    turns,
)
from veilgraph.targets.parties import Sharing


def of_opened(series: FourierSeries, c: Value, tables: Sequence[Sharing]) -> list[Value]:
    """Two values a term in Z_2^sum_bits: cosine and sine of its multiple of c."""
    return [
        part.mod(series.sum_bits)
        for turn in _turns(series, c, tables)
        for part in known_of_opened(series, turn)
    ]


def of_mask(series: FourierSeries, r: Value, tables: Sequence[Sharing]) -> list[Value]:
    """Two values a term in Z_2^sum_bits, of the mask r: what `of_opened` is multiplied by."""
    return [
        part.mod(series.sum_bits)
        for number, turn in enumerate(_turns(series, r, tables))
        for part in known_of_mask(series, number, turn)
    ]


def summed(known: Sequence[Value], dealt: Sequence[Value]) -> Value:
    """The sum of the products."""
    total = known[0] * dealt[0]
    for a, b in zip(known[1:], dealt[1:], strict=True):
        total = total + a * b
    return total


def _turns(series: FourierSeries, index: Value, tables: Sequence[Sharing]) -> Iterator[Turn]:
    high, low = (table[0] for table in tables)
    split = Split.of(series.window_bits)

    def row(table: Value, number: int) -> Value:
        count = table.shape[1]
        return table.chunk(number * count, count)

    def turn(multiple: int) -> Turn:
        angle = (index * multiple) >> split.dropped
        return turned(
            Turn(*(look_up(row(high, j), angle >> split.low) for j in (0, 1))),
            Turn(*(look_up(row(low, j), angle) for j in (0, 1))),
        )

    return turns(series, turn)
