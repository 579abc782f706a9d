"""One-hot rows of secret indices: point functions between two parties, or comparisons.

A row is 1 at its index and 0 elsewhere, and 0 everywhere for an index that is out of range. One who
knows an index, or a random number, makes two trees for it (Boyle, Gilboa, Ishai, CCS 2016): two
roots, each a draw, and words that say nothing to who lacks one of the roots. Each of two parties
expands its tree to its part of the row. Rows are functions of the words: they are no draws.

Of N places in Z_2^K an index takes W = 128 (n - log2(128 / K') + 2) bits of words, K' = 32 or 64
the bits of a machine word that holds K, n the bits of an index.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from veilgraph.ir.party import ops
from veilgraph.ir.party.program import Value, apply, point_rows, point_words, select
from veilgraph.ir.party.rules import MOST_INDEX_BITS
from veilgraph.ir.types import blocks
from veilgraph.targets.parties import Operation, Parties, Place, Provider, Sharing

Step = Callable[[Parties, Operation, Sharing], Sharing]


def owned_bits(depth: int) -> int:
    """Bits of an index whose owner knows it: there is a place beyond the last."""
    return depth.bit_length()


def computed_bits(op: Operation) -> int:
    """Bits of a computed index: all of its window, and no place stands for a negative number."""
    return max(int(op["window_bits"]), (_rows(op) - 1).bit_length() + 1)


def is_too_wide(op: Operation) -> bool:
    """Whether no tree has a place for every number of a computed index's window."""
    return computed_bits(op) > MOST_INDEX_BITS


def owned_place(op: Operation, x: Value) -> Value:
    """The place that one who knows x makes a row for: one beyond the last if x is out of range."""
    depth, k = int(op["depth"]), x.type.bits
    wide = max(k, owned_bits(depth) + 2)
    half = 1 << (k - 1)
    signed = (x + half).mod(wide) - half if wide > k else x
    outside = x.program.const(depth, x.shape, signed.type)
    if op["wraps"]:
        signed = select(signed.bits(wide - 1), signed + depth, signed)
    below = select((signed - depth).bits(wide - 1), signed, outside)
    return select(signed.bits(wide - 1), outside, below)


def shared_rows(
    p: Parties, op: Operation, x: Value, owner: Place, first: Sequence[int], second: Sequence[int]
) -> tuple[Value, Value]:
    """Parts of the rows of what `owner` knows, one at the roles `first` and one at `second`.

    1 round; W bits to each of these that is not the owner.
    """
    x = x.reshape((x.elements,))
    depth = int(op["depth"])
    n, index = owned_bits(depth), owned_place(op, x)
    with p.program.in_phase(x.phase):
        key = p.draw(_together(p, [owner], first, second), (1,), blocks())
        roots = [p.draw(_together(p, [owner], each), x.shape, blocks()) for each in (first, second)]
    told = point_words(key, roots, index, n, op.ring_bits)
    receivers = {p.index(i): i for i in (*first, *second)}
    for party, i in receivers.items():
        if party not in told.at:
            told = p.send(told, owner, i)
    parts = [
        p.at(point_rows(key, root, told, j, n, depth, op.type).reshape(op.shape), *holders)
        for j, (root, holders) in enumerate(zip(roots, (first, second), strict=True))
    ]
    return parts[0], parts[1]


def _together(p: Parties, *groups: Sequence[Place]) -> list[Place]:
    """The places of all groups, each party once."""
    found: dict[int, Place] = {}
    for place in (place for group in groups for place in group):
        found.setdefault(p.index(place), place)
    return list(found.values())


def opened_rows(d: Provider, op: Operation, c: Value, r: Value) -> tuple[Value, ...]:
    """Parts of the rows of x for c = x + r at two members, and r at the provider, [indices, N].

    Offline; 2W bits. The provider makes rows of its random r: that of x has the number of place
    c - j at place j.
    """
    p, n = d.parties, computed_bits(op)
    key = p.draw((*d.members, d.host), (1,), blocks())
    roots = [p.draw((i, d.host), r.shape, blocks()) for i in d.members]
    told = point_words(key, roots, d.own(r), n, op.ring_bits)
    for i in d.members:
        told = p.send(told, d.host, i)
    depth, rows = int(op["depth"]), _rows(op)
    turned = c + (rows - depth)  # places begin with -depth where indices wrap
    each = (
        p.at(point_rows(key, root, told, j, n, rows, op.type, turned), i)
        for j, (i, root) in enumerate(zip(d.members, roots, strict=True))
    )
    return tuple(_folded(op, part) for part in each)


def by_comparisons(p: Parties, op: Operation, x: Sharing, step: Step) -> Sharing:
    """Rows by N + 1 comparisons an index: [x >= j] - [x >= j + 1]; 2N + 1 if indices wrap."""
    depth, rows, count = int(op["depth"]), _rows(op), prod(x.shape)
    window = max(int(op["window_bits"]), rows.bit_length() + 1) + 1
    least = _counted(x[0], rows + 1) - (rows - depth)
    column = x.map(lambda part: part.reshape((count, 1)))
    spread = column.map(lambda part: apply(ops.BROADCAST, (part,), (count, rows + 1), part.type))
    first, *rest = spread.parts
    shifted = Sharing((first - least, *rest), spread.form)
    named = {"window_bits": window, "dropped_bits": 0}
    compared = step(p, Operation("step", (count, rows + 1), op.ring_bits, named), shifted)

    def row(part: Value) -> Value:
        return _folded(op, _columns(part, 0, rows) - _columns(part, 1, rows)).reshape(op.shape)

    return compared.map(row)


def _counted(like: Value, count: int) -> Value:
    """0, 1, 2, ... as a public row, at every party."""
    numbers = like.program.const(0, (1, 1), like.type)
    size = 1
    while size < count:
        more = numbers + size
        numbers = apply(ops.CONCAT, (numbers, more), (1, 2 * size), like.type, axis=1)
        size *= 2
    return _columns(numbers, 0, count)


def _rows(op: Operation) -> int:
    """Places that are made: those of the row, and those of negative indices before it."""
    depth = int(op["depth"])
    return 2 * depth if op["wraps"] else depth


def _columns(value: Value, start: int, count: int) -> Value:
    shape = (value.shape[0], count)
    if shape == value.shape:
        return value
    return apply(ops.SLICE, (value,), shape, value.type, starts=(0, start), steps=(1, 1))


def _folded(op: Operation, part: Value) -> Value:
    """Rows of the op's depth: an index below zero counts from the end."""
    depth = int(op["depth"])
    if op["wraps"]:
        part = _columns(part, 0, depth) + _columns(part, depth, depth)
    return part
