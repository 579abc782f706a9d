"""Exponentials of a masked opening, for any suite that can open a value under a mask.

`ir/secret/exponential.py` has the arithmetic; here it runs on values of the party level, whose
tables are public constants: what is dealt of a mask r, at the one who knows it, and what those who
see c make of that. Dealt are m = 2^q numbers; number t is a decay where the upper bits of r are -t
modulo m, and zero elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from veilgraph.ir.party import ops
from veilgraph.ir.party.program import Value, apply, look_up, select
from veilgraph.ir.secret.exponential import (
    Segments,
    decay,
    known_of_mask,
    known_of_opened,
    scaled_of_opened,
)
from veilgraph.targets.parties import Sharing


def of_mask(segments: Segments, r: Value, tables: Sequence[Sharing]) -> list[Value]:
    """The m numbers in Z_2^sum_bits that are dealt of r."""
    found = known_of_mask(segments, _decay(segments, r.mod(segments.piece_bits), tables))
    found = found.mod(segments.sum_bits)
    zero = r.program.const(0, r.shape, found.type).only(*found.at)
    hot = one_hot(r.bits(segments.piece_bits, segments.number_bits))
    return [select(hot[-t % segments.count], found, zero) for t in range(segments.count)]


def one_hot(bits: Value) -> list[Value]:
    """For each number t a plane: 1 where the planes of `bits`, the lowest first, say t."""
    found: list[Value] = []
    for number in range(bits.type.bits):
        bit = bits.plane(number, 1)
        found = [x & y for y in (~bit, bit) for x in found] if found else [~bit, bit]
    return found


def sums(segments: Segments, c: Value, dealt: Sequence[Value], tables: Sequence[Sharing]) -> Value:
    """One party's part of the sums of each segment along a row: [rows, n] to [rows, m]."""
    known = known_of_opened(segments, _known(segments, c, tables)).mod(segments.sum_bits)
    upper = c.bits(segments.piece_bits, segments.number_bits)
    turned = list(dealt)
    for number in range(segments.number_bits):
        bit, by = upper.plane(number, 1), 1 << number
        turned = [select(bit, turned[j - by], turned[j]) for j in range(segments.count)]
    rows = c.shape[0]
    columns = [
        apply(ops.REDUCE_SUM, (part * known,), (rows, 1), part.type, axes=(1,)) for part in turned
    ]
    return apply(ops.CONCAT, columns, (rows, segments.count), columns[0].type, axis=1)


def power(segments: Segments, c: Value, dealt: Sequence[Value], tables: Sequence[Sharing]) -> Value:
    """One party's part of the exponential; the last table has the heights."""
    known, tall = _known(segments, c, tables), tables[-1][0]
    upper = (c >> segments.piece_bits).mod(segments.number_bits)
    total: Value | None = None
    for t, part in enumerate(dealt):
        scaled = scaled_of_opened(segments, known, look_up(tall, upper + t))
        product = scaled.mod(segments.sum_bits) * part
        total = product if total is None else total + product
    assert total is not None
    return total


def _known(segments: Segments, c: Value, tables: Sequence[Sharing]) -> Value:
    """The decay of the complement of the lower bits of c."""
    lower = c.mod(segments.piece_bits)
    return _decay(segments, -lower + ((1 << segments.piece_bits) - 1), tables)


def _decay(segments: Segments, v: Value, tables: Sequence[Sharing]) -> Value:
    high, low = (table[0] for table in tables[:2])
    found: Value = decay(look_up(high, v >> segments.low_bits), look_up(low, v))
    return found
