"""Products that wait for a public factor before they are truncated: gradients, for a rate.

    %1 = matmul %x, %y : ring 24, 21 bits      %1 = matmul %x, %y : ring 40, 21 bits
    %2 = truncate %1   : ring 40, 14 bits      %3 = mul %1, %rate : ring 40, 42 bits
    %3 = mul %2, %rate : ring 40, 35 bits      %4 = truncate %3, with the momentum's part
    %4 = truncate %3, with the momentum's part

The factors of a product are often at hand in a wider ring than its own, and reduced for it. In a
ring that has room for the multiple the product needs no truncation of its own:
merge_truncations.py leaves it out. No ring is wider for that than what its factors are in, and the
sum that the multiple goes into: few elements are lifted for many, as a batch's for a dense layer's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch_mlir import ir

from veilgraph.ir.attributes import element_count, shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.dialect import GraphOp
from veilgraph.ir.graph.program import users
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.types import frac_bits_of, ring_of
from veilgraph.ir.types import MAX_RING_BITS
from veilgraph.passes.encode.scales.constraints import headroom
from veilgraph.passes.encode.scales.ring_widths import CANDIDATE_WIDTHS
from veilgraph.passes.graph.public_factors import scaling
from veilgraph.passes.ranges.calibrate import Statistics
from veilgraph.passes.secret.merge_truncations import is_told_number

FEWER = 4  # times as many elements as are lifted need no truncation then


@dataclass(frozen=True)
class Multiples:
    """Which products wait, and in which ring.

    Attributes:
        values: of values of the graph, those of the secret level, as they are encoded.
        statistics: of the graph's values of which anything is known.
        margin: values may be this many times larger than their range says.
        ring_of: where a value of the graph is computed.
    """

    values: Mapping[ir.Value, ir.Value]
    statistics: Mapping[ir.Value, Statistics]
    margin: float
    ring_of: Callable[[ir.Value], int]

    def ring_of_product(self, op: ir.OpView, ring_bits: int) -> int:
        """The ring that an op is done in, whose accumulator is in one of `ring_bits`.

        Its operands are encoded.
        """
        if not ops.facts_of(op).is_bilinear or scaling(op) is not None:
            return ring_bits
        (result,) = op.operation.results
        factors = [self.values[value] for value in op.operation.operands]
        multiples = self._of(result)
        if not multiples or self._number_of(op) is not None:
            return ring_bits
        number_bits = max(frac_bits_of(number) for _, number in multiples)
        frac_bits = number_bits + sum(map(frac_bits_of, factors[:2]))
        whole_bits = max(self._whole_bits(multiple) for multiple, _ in multiples)
        enough = (k for k in CANDIDATE_WIDTHS if headroom(k, whole_bits) >= frac_bits)
        wide = next(enough, MAX_RING_BITS)
        count = element_count(shape_of(result))
        available = min(_widest(each, count) for each in factors)
        available = min(available, *(self.ring_of(multiple) for multiple, _ in multiples))
        return wide if ring_bits < wide <= available else ring_bits

    def _of(self, value: ir.Value) -> list[tuple[ir.Value, ir.Value]]:
        """(multiple, public number) of all that reads a value, moved or not, and the sums that
        multiples go into; none if anything else reads it.
        """
        found: list[tuple[ir.Value, ir.Value]] = []
        for op in users(value):
            if not isinstance(op, GraphOp):  # it is an output
                return []
            (result,) = op.operation.results
            if ops.facts_of(op).moves:
                each = self._of(result)
            else:
                number = self._number_of(op)
                sums = (u.operation.results[0] for u in users(result) if isinstance(u, ops.Add))
                each = [] if number is None else [(result, number), *((s, number) for s in sums)]
            if not each:
                return []
            found += each
        return found

    def _number_of(self, op: ir.OpView) -> ir.Value | None:
        """The one number, told to all, that an op multiplies by; None where it does not."""
        if not isinstance(op, ops.Mul):
            return None
        known = [self.values.get(value) for value in op.operation.operands]
        told = [value for value in known if value is not None and is_told_number(value)]
        return told[0] if len(told) == 1 else None

    def _whole_bits(self, value: ir.Value) -> int:
        """Before the point, of the largest value, its margin included; below 0 of a small one."""
        known = self.statistics.get(value)
        if known is None:
            return MAX_RING_BITS
        exponent: int = math.frexp(known.range.magnitude(self.margin))[1]
        return exponent


def _widest(value: ir.Value, most: int) -> int:
    """The widest ring that a factor may be had in, for much less than a truncation of `most`.

    What is truncated is truncated into any ring: that is little, if it has `most` elements at most.
    A lift is one more truncation.
    """
    op = None if isinstance(value, ir.BlockArgument) else value.owner.opview
    count = element_count(shape_of(value))
    is_truncated = isinstance(op, secret_ops.Truncate) and count <= most
    return MAX_RING_BITS if is_truncated or FEWER * count <= most else ring_of(value)
