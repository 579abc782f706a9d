"""The largest numbers of each row, and where they are, in the operations of the graph level.

In a group of g numbers all g (g - 1) / 2 pairs are compared at once; the number of comparisons that
each loses is its rank, the comparisons with constants 0 .. k-1 say which ranks come first, and
products with what they say pick numbers and positions. Of larger tensors every group sends its k
best into the next turn: rounds grow with the logarithm of the groups' number, where a tournament of
pairs would take that of the numbers'. All but the comparisons is linear; of equal numbers the first
wins.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.legality import MAX_FACTOR

GROUP = 32  # numbers that are ranked together: 496 comparisons in one turn


@dataclass(frozen=True)
class Field:
    """Numbers in the running, [rows, n], and their positions: secret, or known at the start."""

    numbers: ir.Value
    positions: ir.Value | NDArray[np.float32]

    def part(self, start: int, count: int) -> Field:
        """`count` of them from `start`."""
        known = isinstance(self.positions, np.ndarray)
        places = (
            self.positions[start : start + count]
            if known
            else _columns(self.positions, start, count)
        )
        return Field(_columns(self.numbers, start, count), places)


@dataclass(frozen=True)
class Ranked:
    """The `count` largest numbers of each row, the largest first; of equal ones the first.

    Attributes:
        hot: [rows, count, n], ones where a number of the field has rank 0, 1, ...
        field: what is left of the rows, in their order.
    """

    hot: ir.Value
    field: Field

    @staticmethod
    def of(x: ir.Value, count: int) -> Ranked:
        """Of x [rows, n], n at least `count`."""
        field = Field(x, np.arange(shape_of(x)[1], dtype=np.float32))
        size = max(GROUP, 4 * count)
        while (extent := shape_of(field.numbers)[1]) > size:
            whole = extent - extent % size
            winners = [_turn(field.part(0, whole), size, count)]
            if rest := extent - whole:
                last = field.part(whole, rest)
                winners.append(_as_secret(last) if rest <= count else _turn(last, rest, count))
            field = _joined(winners)
        return Ranked(_first(field.numbers, count), field)

    def positions(self) -> ir.Value:
        """[rows, count]."""
        return _picked(self.hot, self.field.positions)

    def numbers(self) -> ir.Value:
        """[rows, count]."""
        return _picked(self.hot, self.field.numbers)


def _turn(field: Field, size: int, count: int) -> Field:
    """The `count` best of each group of `size`."""
    rows, extent = shape_of(field.numbers)
    groups = extent // size
    numbers = ops.Reshape.build(field.numbers, shape=(rows * groups, size))
    hot = _first(numbers, count)
    known = field.positions
    if isinstance(known, np.ndarray):
        starts = known.reshape(groups, size)[:, :1]
        inside = _picked(hot, known[:size] - known[0])
        offsets = np.broadcast_to(starts - 0.0, (groups, count)).astype(np.float32)
        shifted = ops.Reshape.build(inside, shape=(rows, groups * count))
        positions = ops.Add.build(shifted, _public(offsets.reshape(1, -1)))
    else:
        secret = ops.Reshape.build(known, shape=(rows * groups, size))
        positions = ops.Reshape.build(_picked(hot, secret), shape=(rows, groups * count))
    best = ops.Reshape.build(_picked(hot, numbers), shape=(rows, groups * count))
    return Field(best, positions)


def _joined(fields: list[Field]) -> Field:
    if len(fields) == 1:
        return fields[0]
    numbers = ops.concat([field.numbers for field in fields], 1)
    return Field(numbers, ops.concat([field.positions for field in fields], 1))


def _as_secret(field: Field) -> Field:
    """The field as one of several: its positions as a tensor."""
    if not isinstance(field.positions, np.ndarray):
        return field
    rows, extent = shape_of(field.numbers)
    places = np.broadcast_to(field.positions, (rows, extent))
    return Field(field.numbers, _public(places))


def _first(x: ir.Value, count: int) -> ir.Value:
    """[rows, count, n] of ones where a number has rank 0, 1, ..., count - 1 in its row."""
    rows, extent = shape_of(x)
    pairs = list(itertools.combinations(range(extent), 2))
    differences = np.zeros((extent, len(pairs)), np.float32)
    losses = np.zeros((len(pairs), extent), np.float32)
    for pair, (i, j) in enumerate(pairs):
        differences[[i, j], pair] = 1, -1
        losses[pair, [i, j]] = -1, 1  # the first has one loss less where it wins
    wins = ops.Step.build(ops.Matmul.build(x, _public(differences)))
    later = np.arange(extent - 1, -1, -1, dtype=np.float32)
    # Minus the rank, to be compared from below: rank = losses + (how many come later).
    behind = ops.Neg.build(ops.Matmul.build(wins, _public(losses)))
    behind = ops.Reshape.build(behind, shape=(rows, 1, extent))
    limits = np.arange(count, dtype=np.float32)[:, None] - later[None, :]
    up_to = ops.Step.build(ops.Add.build(behind, _public(limits[None])))  # rank <= 0, 1, ...
    if count == 1:
        return up_to
    lower = ops.Slice.build(
        up_to, shape=(rows, count - 1, extent), starts=(0, 0, 0), steps=(1, 1, 1)
    )
    none = ops.Pad.build(lower, low=(0, 1, 0), high=(0, 0, 0), value=0.0)
    return ops.Sub.build(up_to, none)


def _picked(hot: ir.Value, values: ir.Value | NDArray[np.float32]) -> ir.Value:
    """[rows, count]: of each row's values those that `hot` has ones for; public ones are whole."""
    rows, count, extent = shape_of(hot)
    if not isinstance(values, np.ndarray):
        column = ops.Reshape.build(values, shape=(rows, extent, 1))
        return ops.Reshape.build(ops.Matmul.build(hot, column), shape=(rows, count))
    high, low = np.divmod(values, MAX_FACTOR)
    made = ops.Matmul.build(hot, _public(low.reshape(extent, 1)))
    if high.any():  # factors that cost no truncation end at MAX_FACTOR
        thousands = ops.Matmul.build(hot, _public(high.reshape(extent, 1)))
        made = ops.Add.build(ops.Mul.build(thousands, ops.constant(float(MAX_FACTOR))), made)
    return ops.Reshape.build(made, shape=(rows, count))


def _columns(x: ir.Value, start: int, count: int) -> ir.Value:
    rows = shape_of(x)[0]
    return ops.Slice.build(x, shape=(rows, count), starts=(0, start), steps=(1, 1))


def _public(value: NDArray[np.floating]) -> ir.Value:
    return ops.Constant.build(value=np.ascontiguousarray(value, dtype=np.float32))
