"""Products of a program, and steps like them: what they multiply, and how long they take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

import numpy as np
import numpy.typing as npt

from veilgraph.ir.party.columns import Columns, Int64s
from veilgraph.ir.party.node import Shape
from veilgraph.ir.party.ops import ALL, PartyOp, Runs
from veilgraph.ir.types import Type
from veilgraph.kernels.declared import DECLARED
from veilgraph.kernels.kernel import no_products
from veilgraph.targets.machines import MACHINE


def _multiplies(op: PartyOp) -> bool:
    return op.kernel in DECLARED and DECLARED[op.kernel].multiply_adds is not no_products


def _is_slow(op: PartyOp) -> bool:
    return op.early and op.runs is Runs.STEP


_MULTIPLIES = np.array([_multiplies(op) for op in ALL])
_IS_SLOW = np.array([_is_slow(op) for op in ALL])


def products(columns: Columns, rows: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Each product of these nodes, and its multiply-adds."""
    return _of_each(columns, np.flatnonzero(_MULTIPLIES[columns.op] & rows), _multiply_adds)


def _of_each(
    columns: Columns, rows: Int64s, asked: Callable[[Columns, int], int]
) -> Iterator[tuple[int, int]]:
    """Of each row what is asked of it; once of those of one operation over the same tensors."""
    known: dict[tuple[int, ...], int] = {}
    counts = columns.first[rows + 1] - columns.first[rows]
    ends = np.cumsum(counts)
    args = np.repeat(columns.first[rows] - (ends - counts), counts) + np.arange(counts.sum())
    operands = columns.tensor[columns.args[args]].tolist()
    each = rows, columns.op[rows], columns.tensor[rows], ends - counts, ends
    for i, op, tensor, begin, end in zip(*(column.tolist() for column in each), strict=True):
        key = op, tensor, *operands[begin:end]
        if key not in known:
            known[key] = asked(columns, i)
        yield i, known[key]


def _multiply_adds(columns: Columns, i: int) -> int:
    shapes = [shape for shape, _ in _tensors(columns, i)]
    return DECLARED[ALL[columns.op[i]].kernel].multiply_adds(shapes)


def _tensors(columns: Columns, i: int) -> list[tuple[Shape, Type]]:
    """A node's, then its operands'."""
    first, last = columns.first[i : i + 2].tolist()
    own = [i, *columns.args[first:last].tolist()]
    return [columns.tensors[each] for each in columns.tensor[own].tolist()]


def seconds_of(columns: Columns, i: int, multiply_adds: int) -> float:
    """What a step takes: its multiply-adds, and what it reads and writes once."""
    tensors = _tensors(columns, i)
    moved = sum(type.stored_bytes(prod(shape)) for shape, type in tensors)
    return MACHINE.multiplying(multiply_adds, tensors[0][1].bits, moved)


def nanoseconds(columns: Columns) -> Iterator[tuple[int, int]]:
    """Each product, sum or comparison that is a step of its own, and what it takes."""
    return _of_each(columns, np.flatnonzero(_IS_SLOW[columns.op]), _nanoseconds)


def _nanoseconds(columns: Columns, i: int) -> int:
    return round(1e9 * seconds_of(columns, i, _multiply_adds(columns, i)))
