"""Where chains of operands lead, of all nodes of a program at once.

What checks masks asks of many nodes what value they pass on, or have bits of. In a program that a
stranger wrote a chain may be as long as the program, and asked about as often: followed node by
node that takes forever. Here it takes as many looks at all nodes as a chain's length has bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import numpy.typing as npt

from veilgraph.ir.party import ops
from veilgraph.ir.party.columns import NUMBERS, Columns
from veilgraph.ir.party.ops import Masking

Flags = npt.NDArray[np.bool_]


class Walks:
    """Of each node the first one, from first operand to first operand, that ends a chain."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    @cached_property
    def passed(self) -> memoryview:
        """Behind messages and what else passes a value on: the node whose value it is."""
        return self._behind(self._of(lambda m: m.passes))

    @cached_property
    def whole(self) -> memoryview:
        """Behind sections and bits too."""
        return self._behind(self._of(lambda m: m.passes or m.selects or m.of_bits))

    @cached_property
    def masked(self) -> memoryview:
        """Behind bits, and what passes a value on."""
        return self._behind(self._of(lambda m: m.passes or m.of_bits))

    @cached_property
    def same(self) -> memoryview:
        """Behind what leaves words as they are, or reduces them to fewer bits."""
        return self._behind(self.is_same)

    @cached_property
    def same_here(self) -> memoryview:
        """As `same`, but a message ends a chain."""
        return self._behind(self.is_same & (self._columns.op != NUMBERS[ops.SEND]))

    @cached_property
    def selected(self) -> memoryview:
        """Behind sections, each of whose elements is there once, and reductions."""
        columns = self._columns
        repeats = [not all(dict(pairs).get("steps", ())) for pairs in columns.pairs]
        once = ~np.array(repeats, bool)[columns.attributes]
        return self._behind((self._of(lambda m: m.selects) & once) | (self._narrows & self.is_same))

    @cached_property
    def cast(self) -> tuple[memoryview, memoryview]:
        """Behind casts, and what passes a value on; and the fewest bits of all on the way."""
        found = self._next(self._narrows | self._of(lambda m: m.passes))
        least = self._bits
        while True:
            further = found[found]
            if np.array_equal(further, found):
                return found.data, np.minimum(least, least[found]).data
            found, least = further, np.minimum(least, least[found])

    @cached_property
    def is_same(self) -> Flags:
        """Of each node, whether it is its operand, passed on or reduced to fewer bits."""
        columns, bits, fewer = self._columns, self._bits, self._narrows.copy()
        rows = np.flatnonzero(fewer)
        fewer[rows] = bits[rows] <= bits[columns.args[columns.first[rows]]]
        return fewer | (self._of(lambda m: m.passes) & ~self._narrows)

    @property
    def _bits(self) -> npt.NDArray[np.int32]:
        bits = np.array([type.bits for _, type in self._columns.tensors], np.int32)
        return bits[self._columns.tensor]

    @cached_property
    def _narrows(self) -> Flags:
        return self._of(lambda m: m.narrows)

    def _of(self, holds: Callable[[Masking], bool]) -> Flags:
        found: Flags = np.array([holds(op.masking) for op in ops.ALL])[self._columns.op]
        return found

    def _next(self, within: Flags) -> npt.NDArray[np.int32]:
        """Of each node its first operand, or itself where it ends a chain."""
        columns, rows = self._columns, np.flatnonzero(within)
        found = np.arange(len(columns), dtype=np.int32)
        found[rows] = columns.args[columns.first[rows]]
        return found

    def _behind(self, within: Flags) -> memoryview:
        """Of each node the first that is not within a chain."""
        found = self._next(within)
        while True:
            further = found[found]  # twice as far
            if np.array_equal(further, found):
                return found.data
            found = further
