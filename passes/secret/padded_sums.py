"""Padded parts that meet in a sum: they are truncated behind it, where it has fewer elements.

    %1 = slice %0        8 places, once for each of 5 elements of a kernel
    %2 = pad %1          12 places
    %3 = add %2, ...     12 places: truncated here, 12 elements are, and before their pads 40

The derivative of a convolution by its image is such a sum. Other pads take what is truncated, of
which they would only make more. Programs are of the graph level or of the secret level.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from torch_mlir import ir

from veilgraph.ir.attributes import element_count, shape_of
from veilgraph.ir.graph.facts import Arithmetic, Facts
from veilgraph.ir.graph.ops import Expand, Pad
from veilgraph.ir.graph.program import defining
from veilgraph.ir.secret.ops import COUNTERPARTS, SecretOp

MOST_TERMS = 256  # of a sum that are looked at: each pad of one looks at all of them


def takes_truncated(reader: ir.OpView) -> bool:
    """Whether an operation takes truncated integers alone: a pad, but for parts of sums."""
    if _at_graph_level(reader) is Pad:
        return not is_part_of_a_sum(reader)
    kind = reader if isinstance(reader, SecretOp) else COUNTERPARTS.get(type(reader))
    return kind is not None and kind.facts.takes_truncated


def is_part_of_a_sum(pad: ir.OpView) -> bool:
    """Whether what a pad makes goes into a sum alone, which has no more elements than its padded
    parts had before."""
    total = _sum_of(pad.operation.results[0])
    return total is not None and _elements(total) <= sum(_before_pads(total))


def _sum_of(value: ir.Value) -> ir.Value | None:
    reader = _only_reader(value)
    while reader is not None and _moves(reader):
        reader = _only_reader(reader.operation.results[0])
    found = None
    for _ in range(MOST_TERMS):
        if reader is None or not _adds(reader):
            break
        found = reader.operation.results[0]
        reader = _only_reader(found)
    return found


def _before_pads(total: ir.Value) -> Iterator[int]:
    """The elements of each padded term of a sum, where it has fewest; of a long sum of some."""
    for value in islice(_terms(total), MOST_TERMS):
        fewest, is_padded = _elements(value), False
        while (op := defining(value)) is not None and _moves(op):
            is_padded |= _at_graph_level(op) is Pad
            value = op.operation.operands[0]
            fewest = min(fewest, _elements(value))
        if is_padded:
            yield fewest


def _terms(total: ir.Value) -> Iterator[ir.Value]:
    """What meets in a sum; a sum that something else reads too is a term."""
    waiting = [total]
    while waiting:
        value = waiting.pop()
        op = defining(value)
        if op is not None and _adds(op) and (value == total or _only_reader(value) is not None):
            waiting.extend(op.operation.operands)
        else:
            yield value


def _at_graph_level(op: ir.OpView) -> type[ir.OpView]:
    """The operation of the graph level that one is, or computes."""
    found: type[ir.OpView] = getattr(op, "computes", type(op))
    return found


def _arithmetic(op: ir.OpView) -> Arithmetic | None:
    facts = getattr(_at_graph_level(op), "facts", None)
    return facts.arithmetic if isinstance(facts, Facts) else None


def _moves(op: ir.OpView) -> bool:
    """Whether it moves elements of one operand, zeros between them too, and copies none."""
    is_layout = _arithmetic(op) is Arithmetic.LAYOUT and len(op.operation.operands) == 1
    return is_layout and _at_graph_level(op) is not Expand


def _adds(op: ir.OpView) -> bool:
    return _arithmetic(op) is Arithmetic.SUM


def _only_reader(value: ir.Value) -> ir.OpView | None:
    """None where several read a value, or none."""
    first, *others = [use.owner for use in value.uses] or [None]
    return None if first is None or others else first


def _elements(value: ir.Value) -> int:
    return element_count(shape_of(value))
