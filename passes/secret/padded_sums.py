"""Padded parts that meet in a sum: they are truncated behind it, where it has fewer elements.

    %1 = slice %0        8 places, once for each of 5 elements of a kernel
    %2 = pad %1          12 places
    %3 = add %2, ...     12 places: truncated here, 12 elements are, and before their pads 40

The derivative of a convolution by its image is such a sum. Other pads take what is truncated, of
which they would only make more. Programs are of the graph level or of the secret level, where what
meets in a sum is lifted into its ring, and reduced behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from torch_mlir import ir

from veilgraph.ir.attributes import element_count, shape_of
from veilgraph.ir.graph.facts import Arithmetic, Facts
from veilgraph.ir.graph.ops import Expand, Pad
from veilgraph.ir.graph.program import defining
from veilgraph.ir.secret.ops import COUNTERPARTS, Lift, Reduce, SecretOp

CHANGES = (Lift, Reduce)  # of rings
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
    return total is not None and _elements(total) <= _before_pads(total)


def _sum_of(value: ir.Value) -> ir.Value | None:
    reader = _next_reader(value)
    while reader is not None and _moves(reader):
        reader = _next_reader(reader.operation.results[0])
    found = None
    for _ in range(MOST_TERMS):
        if reader is None or not _adds(reader):
            break
        found = reader.operation.results[0]
        reader = _next_reader(found)
    return found


def _before_pads(total: ir.Value) -> int:
    """The elements of the padded terms of a sum, where they have fewest; of a long sum of some.

    What several terms are made of is counted once: it is truncated once, and moved to each of them.
    """
    places: dict[ir.Value, None] = {}
    for value in islice(_terms(total), MOST_TERMS):
        place, is_padded = value, False
        while (op := defining(value)) is not None and (_moves(op) or isinstance(op, CHANGES)):
            is_padded |= _at_graph_level(op) is Pad
            value = op.operation.operands[0]
            place = value if _elements(value) <= _elements(place) else place
        if is_padded:
            places[place] = None
    return sum(map(_elements, places))


def _terms(total: ir.Value) -> Iterator[ir.Value]:
    """What meets in a sum; a sum that something else reads too is a term."""
    waiting = [total]
    while waiting:
        value = waiting.pop()
        while value != total and isinstance(op := defining(value), CHANGES) and _is_read_once(op):
            (value,) = op.operation.operands
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


def _is_read_once(op: ir.OpView) -> bool:
    return _only_reader(op.operation.results[0]) is not None


def _next_reader(value: ir.Value) -> ir.OpView | None:
    """The only one; of the same integers in another ring, if it is that."""
    reader = _only_reader(value)
    while isinstance(reader, CHANGES):
        reader = _only_reader(reader.operation.results[0])
    return reader


def _only_reader(value: ir.Value) -> ir.OpView | None:
    """None where several read a value, or none."""
    first, *others = [use.owner for use in value.uses] or [None]
    return None if first is None or others else first


def _elements(value: ir.Value) -> int:
    return element_count(shape_of(value))
