"""independent_rows: which inputs an output depends on, by row, so that several clients share a run.

A plan takes rows: the first axis of each input, and of each output. If every row of an output
depends on that row of the inputs alone, clients may give some rows each and get the same ones back,
and none learns anything of another's.

Each element of each value gets an interval of rows that it may depend on; what an operation makes
depends on whatever its operands do. Nothing is assumed of an operation without a rule: all that it
makes depends on all that it reads. docs/protocols.md says what follows for who computes.

    independent:  %3 = matmul %1 %2     %1 = input {name = "x"}    %2 = weight {name = "w"}
    dependent:    %3 = reduce_sum %1 {axes = [0]}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from math import prod
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from veilgraph.ir.party import ops
from veilgraph.ir.party.columns import nodes_of
from veilgraph.ir.party.node import Node, Shape
from veilgraph.ir.party.ops import PartyOp
from veilgraph.ir.party.program import Program

MOST_ROWS = (1 << 15) - 1
MOST_NUMBERS = 1 << 30  # that are written down; a program that needs more has dependent rows
# [2, ...] of a value's shape, but 1 along an axis where all elements are alike: the first row that
# an element may depend on, and the last one's negative. The lesser holds both of two operands, and
# what depends on no row has MOST_ROWS.
Bounds: TypeAlias = npt.NDArray[np.int16]
Rule: TypeAlias = Callable[[Node, Sequence[Node], Sequence[Bounds]], Bounds]


def independent_rows(program: Program) -> int:
    """How many rows all inputs and outputs have, if each is computed for itself; else 1.

    Args:
        program: one that holds by `check_party`.
    """
    ends = nodes_of(program.nodes, ops.INPUT, ops.OUTPUT)
    extents = {node.shape[0] if node.shape else 1 for node in ends}
    if len(extents) != 1 or any(nodes_of(program.nodes, ops.STATE)):
        return 1
    (rows,) = extents
    if not 1 < rows < MOST_ROWS:
        return 1
    return rows if _are_independent(program.nodes, rows) else 1


def _are_independent(nodes: Sequence[Node], rows: int) -> bool:
    found = bounds_of(nodes, rows)
    own = _of_rows(rows)
    return found is not None and not any(
        (bounds < own.reshape(2, rows, *(1,) * (bounds.ndim - 2))).any()
        for node, bounds in zip(nodes, found, strict=True)
        if node.op is ops.OUTPUT
    )


def bounds_of(nodes: Sequence[Node], rows: int) -> list[Bounds] | None:
    """Of each value, the rows of inputs that its elements may depend on; None if it is too much.

    Args:
        rows: of inputs, at most; their first axis counts them.
    """
    found: list[Bounds] = []
    written = 0
    for node in nodes:
        operands = [nodes[i] for i in node.args]
        if node.op is ops.INPUT:
            found.append(_input(node, rows))
            continue
        if not operands:
            found.append(np.full((2, *(1 for _ in node.shape)), MOST_ROWS, np.int16))
            continue
        written += node.elements if node.op in WRITTEN else 0
        if written > MOST_NUMBERS:
            return None
        rule = RULES.get(node.op, _elementwise if node.op.elementwise else _everything)
        found.append(rule(node, operands, [found[i] for i in node.args]))
    return found


def _input(node: Node, rows: int) -> Bounds:
    own: Bounds = _of_rows(rows)[:, : node.shape[0] if node.shape else rows]
    if not node.shape:
        return _all_of(own, 0)
    return np.reshape(own, (2, -1, *(1 for _ in node.shape[1:])))


def _of_rows(rows: int) -> Bounds:
    """Each of its own row."""
    numbers = np.arange(rows, dtype=np.int16)
    return np.stack([numbers, -numbers])


def _all_of(bounds: Bounds, rank: int) -> Bounds:
    """All rows that any element depends on, for a value of some rank."""
    found: Bounds = bounds.reshape(2, -1).min(axis=1, initial=MOST_ROWS)
    return found.reshape(2, *(1,) * rank)


def _both(bounds: Iterator[Bounds]) -> Bounds:
    found: Bounds = reduce(np.minimum, bounds)
    return found


# Rules


def _everything(node: Node, operands: Sequence[Node], bounds: Sequence[Bounds]) -> Bounds:
    return _both(_all_of(each, len(node.shape)) for each in bounds)


def _elementwise(node: Node, operands: Sequence[Node], bounds: Sequence[Bounds]) -> Bounds:
    """Of operands that are repeated as NumPy does; of a table that is looked up in, all."""
    rank = len(node.shape)
    return _both(
        _all_of(each, rank)
        if each.ndim > rank + 1 or (node.op is ops.LOOKUP and number == 1)
        else each.reshape(2, *(1,) * (rank + 1 - each.ndim), *each.shape[1:])
        for number, each in enumerate(bounds)
    )


def _reshape(node: Node, operands: Sequence[Node], bounds: Sequence[Bounds]) -> Bounds:
    (operand,), (own,) = operands, bounds
    before, after = [2], [2]
    for old, new in _groups(operand.shape, node.shape):
        axes = slice(len(before), len(before) + len(old))
        if prod(own.shape[axes]) == 1:
            before, after = [*before, *(1 for _ in old)], [*after, *(1 for _ in new)]
        else:
            before, after = [*before, *old], [*after, *new]
    return _compressed(np.broadcast_to(own, before).reshape(after))


def _groups(old: Shape, new: Shape) -> Iterator[tuple[Shape, Shape]]:
    """Axes of either shape, in order, that hold the same elements."""
    if 0 in old:
        yield old, new
        return
    i = j = 0
    while i < len(old) or j < len(new):
        first, second = i, j
        i, j = min(i + 1, len(old)), min(j + 1, len(new))
        while prod(old[first:i]) != prod(new[second:j]):
            if (prod(old[first:i]) < prod(new[second:j]) and i < len(old)) or j == len(new):
                i += 1
            else:
                j += 1
        yield old[first:i], new[second:j]


def _compressed(bounds: Bounds) -> Bounds:
    """With 1 along each axis where all are alike."""
    for axis in range(1, bounds.ndim):
        if bounds.shape[axis] > 1 and (bounds == (first := bounds.take([0], axis))).all():
            bounds = first
    return bounds


def _chunk(node: Node, operands: Sequence[Node], bounds: Sequence[Bounds]) -> Bounds:
    start = node["start"]
    return _compressed(_flat(operands[0], bounds[0])[:, start : start + node.elements])


def _join(node: Node, operands: Sequence[Node], bounds: Sequence[Bounds]) -> Bounds:
    parts = [_flat(operand, each) for operand, each in zip(operands, bounds, strict=True)]
    return _compressed(np.concatenate(parts, axis=1))


def _flat(node: Node, bounds: Bounds) -> Bounds:
    return np.broadcast_to(bounds, (2, *node.shape)).reshape(2, -1)


def _concat(node: Node, operands: Sequence[Node], bounds: Sequence[Bounds]) -> Bounds:
    axis = node["axis"] + 1
    shape = np.max([each.shape for each in bounds], axis=0)
    parts = []
    for operand, each in zip(operands, bounds, strict=True):
        shape[axis] = operand.shape[axis - 1]
        parts.append(np.broadcast_to(each, shape))
    return _compressed(np.concatenate(parts, axis))


def _transpose(node: Node, operands: Sequence[Node], bounds: Sequence[Bounds]) -> Bounds:
    return bounds[0].transpose(0, *(axis + 1 for axis in node["permutation"]))


def _slice(node: Node, operands: Sequence[Node], bounds: Sequence[Bounds]) -> Bounds:
    found = bounds[0]
    places = zip(node["starts"], node["steps"], node.shape, strict=True)
    for axis, (start, step, size) in enumerate(places, 1):
        if found.shape[axis] > 1:
            found = found.take(start + step * np.arange(size), axis)
    return found


def _pad(node: Node, operands: Sequence[Node], bounds: Sequence[Bounds]) -> Bounds:
    """Zeros depend on nothing; on as much as the others, where all of an axis are alike."""
    found = bounds[0]
    pairs = zip(node["low"], node["high"], found.shape[1:], strict=True)
    widths = [(low, high) if size > 1 else (0, 0) for low, high, size in pairs]
    return np.pad(found, [(0, 0), *widths], constant_values=MOST_ROWS)


def _reduce_sum(node: Node, operands: Sequence[Node], bounds: Sequence[Bounds]) -> Bounds:
    return _least(bounds[0], *(axis + 1 for axis in node["axes"]))


def _pool_sum(node: Node, operands: Sequence[Node], bounds: Sequence[Bounds]) -> Bounds:
    return _least(bounds[0], 3, 4)


def _matmul(node: Node, operands: Sequence[Node], bounds: Sequence[Bounds]) -> Bounds:
    left, right = (
        (_least(each, 3) for each in bounds[::2]),
        (_least(each, 2) for each in bounds[1::2]),
    )
    return np.minimum(_both(left), _both(right))


def _conv2d(node: Node, operands: Sequence[Node], bounds: Sequence[Bounds]) -> Bounds:
    images = (_least(each, 2, 3, 4) for each in bounds[::2])
    filters = (_least(each, 2, 3, 4).swapaxes(1, 2) for each in bounds[1::2])
    return np.minimum(_both(images), _both(filters))


def _least(bounds: Bounds, *axes: int) -> Bounds:
    found: Bounds = bounds.min(axis=axes, keepdims=True, initial=MOST_ROWS)
    return found


def _by_index(node: Node, operands: Sequence[Node], bounds: Sequence[Bounds]) -> Bounds:
    """[indices, ...], of operands that are so, and a key."""
    count = node.shape[0]
    parts = (
        each.reshape(2, each.shape[1], -1).min(axis=2, initial=MOST_ROWS).reshape(2, -1, 1)
        if operand.shape[0] == count
        else _all_of(each, 2)
        for operand, each in zip(operands, bounds, strict=True)
    )
    return _both(parts)


def _compare_parts(node: Node, operands: Sequence[Node], bounds: Sequence[Bounds]) -> Bounds:
    """Payload after payload, each at all points; sections of words hold those of all points."""
    key, roots, points, *sections = bounds
    others = _both(_all_of(each, 1) for each in (key, *sections))
    own = np.minimum(np.minimum(roots, points), others)
    if own.shape[1] == 1:
        return own
    return np.tile(own, (1, len(node["rings"])))


RULES: Mapping[PartyOp, Rule] = {
    ops.SEND: _elementwise,
    ops.OUTPUT: _elementwise,
    ops.RESHAPE: _reshape,
    ops.CHUNK: _chunk,
    ops.JOIN: _join,
    ops.CONCAT: _concat,
    ops.TRANSPOSE: _transpose,
    ops.SLICE: _slice,
    ops.PAD: _pad,
    ops.BROADCAST: _elementwise,
    ops.REDUCE_SUM: _reduce_sum,
    ops.POOL_SUM: _pool_sum,
    ops.MATMUL: _matmul,
    ops.CONV2D: _conv2d,
    ops.POINT_WORDS: _by_index,
    ops.POINT_ROWS: _by_index,
    ops.COMPARE_PARTS: _compare_parts,
}
# What is written down element by element.
WRITTEN = frozenset((ops.RESHAPE, ops.CHUNK, ops.JOIN, ops.CONCAT))
