"""Padded parts that meet in a sum: they are truncated behind it, where it has fewer elements.

    %1 = slice %0        8 places, once for each of 5 elements of a kernel
    %2 = pad %1          12 places
    %3 = add %2, ...     12 places: truncated here, 12 elements are, and before their pads 40

The derivative of a convolution by its image is such a sum. Other pads take what is truncated, of
which they would only make more. Operations have one name at the graph level and the secret level.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch_mlir import ir

from veilgraph.ir.attributes import element_count, shape_of
from veilgraph.ir.graph.program import defining, kind_of

_MOVES = frozenset(("reshape", "transpose", "slice", "pad"))
_SUMS = frozenset(("add", "sub"))


def is_part_of_a_sum(pad: ir.OpView) -> bool:
    """Whether what a pad makes goes into a sum alone, which has no more elements than its padded
    parts had before."""
    total = _sum_of(pad.operation.results[0])
    return total is not None and _elements(total) <= sum(_before_pads(total))


def _sum_of(value: ir.Value) -> ir.Value | None:
    reader = _only_reader(value)
    while reader is not None and kind_of(reader) in _MOVES:
        reader = _only_reader(reader.operation.results[0])
    found = None
    while reader is not None and kind_of(reader) in _SUMS:
        found = reader.operation.results[0]
        reader = _only_reader(found)
    return found


def _before_pads(total: ir.Value) -> Iterator[int]:
    """The elements of each padded term of a sum, where it has fewest."""
    for value in _terms(total):
        fewest, is_padded = _elements(value), False
        while (op := defining(value)) is not None and kind_of(op) in _MOVES:
            is_padded |= kind_of(op) == "pad"
            value = op.operation.operands[0]
            fewest = min(fewest, _elements(value))
        if is_padded:
            yield fewest


def _terms(total: ir.Value) -> Iterator[ir.Value]:
    op = defining(total)
    if op is None or kind_of(op) not in _SUMS:
        yield total
        return
    for value in op.operation.operands:
        yield from _terms(value)


def _only_reader(value: ir.Value) -> ir.OpView | None:
    """None where several read a value, or none."""
    first, *others = [use.owner for use in value.uses] or [None]
    return None if first is None or others else first


def _elements(value: ir.Value) -> int:
    return element_count(shape_of(value))
