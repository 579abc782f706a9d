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
    Pieces,
    decay,
    known_of_mask,
    known_of_opened,
    scaled_of_opened,
)
from veilgraph.targets.suite import Sharing


def of_mask(pieces: Pieces, r: Value, tables: Sequence[Sharing]) -> list[Value]:
    """The m numbers in Z_2^sum_bits that are dealt of r."""
    found = known_of_mask(pieces, _decay(pieces, r.mod(pieces.piece_bits), tables))
    found = found.mod(pieces.sum_bits)
    zero = r.program.const(0, r.shape, found.type).only(*found.at)
    hot = one_hot(r.bits(pieces.piece_bits, pieces.number_bits))
    return [select(hot[-t % pieces.count], found, zero) for t in range(pieces.count)]


def one_hot(bits: Value) -> list[Value]:
    """For each number t a plane: 1 where the planes of `bits`, the lowest first, say t."""
    found: list[Value] = []
    for number in range(bits.type.bits):
        bit = bits.plane(number, 1)
        found = [x & y for y in (~bit, bit) for x in found] if found else [~bit, bit]
    return found


def sums(pieces: Pieces, c: Value, dealt: Sequence[Value], tables: Sequence[Sharing]) -> Value:
    """One party's part of the sums of each piece along a row: [rows, n] to [rows, m]."""
    known = known_of_opened(pieces, _known(pieces, c, tables)).mod(pieces.sum_bits)
    upper = c.bits(pieces.piece_bits, pieces.number_bits)
    turned = list(dealt)
    for number in range(pieces.number_bits):
        bit, by = upper.plane(number, 1), 1 << number
        turned = [select(bit, turned[j - by], turned[j]) for j in range(pieces.count)]
    rows = c.shape[0]
    columns = [
        apply(ops.REDUCE_SUM, (part * known,), (rows, 1), part.type, axes=(1,)) for part in turned
    ]
    return apply(ops.CONCAT, columns, (rows, pieces.count), columns[0].type, axis=1)


def power(pieces: Pieces, c: Value, dealt: Sequence[Value], tables: Sequence[Sharing]) -> Value:
    """One party's part of the exponential; the last table has the heights."""
    known, tall = _known(pieces, c, tables), tables[-1][0]
    upper = (c >> pieces.piece_bits).mod(pieces.number_bits)
    total: Value | None = None
    for t, part in enumerate(dealt):
        scaled = scaled_of_opened(pieces, known, look_up(tall, upper + t))
        product = scaled.mod(pieces.sum_bits) * part
        total = product if total is None else total + product
    assert total is not None
    return total


def _known(pieces: Pieces, c: Value, tables: Sequence[Sharing]) -> Value:
    """The decay of the complement of the lower bits of c."""
    lower = c.mod(pieces.piece_bits)
    return _decay(pieces, -lower + ((1 << pieces.piece_bits) - 1), tables)


def _decay(pieces: Pieces, v: Value, tables: Sequence[Sharing]) -> Value:
    high, low = (table[0] for table in tables[:2])
    found: Value = decay(look_up(high, v >> pieces.low_bits), look_up(low, v))
    return found
