"""Nodes that a protocol made of some operands, to be made again of others.

A program with 800 activations expands some bodies of protocols hundreds of times, each a few
thousand nodes. What such a body makes depends on nothing but how its operands lie: the same
operations in the same order, of other operands, with numbers of their own for draws and sends. So
they are kept as columns, and placed at once.

    made:     %90 = draw {number = 7}    %91 = add %40 %90
    placed:   %95 = draw {number = 9}    %96 = add %62 %95     of %62 in place of %40
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from veilgraph.ir.party import ops
from veilgraph.ir.party.columns import NUMBERS, Int64s, RowBlock
from veilgraph.ir.party.node import Draw
from veilgraph.ir.party.program import Program
from veilgraph.ir.plan.tables import Phase

NEW = (NUMBERS[ops.DRAW], NUMBERS[ops.SEND])  # of which no two are equal


@dataclass(frozen=True, eq=False)
class Template:
    """What was made of some operands.

    A place counts the operands first, then the nodes of setup that are read, then the nodes that
    are made.

    Attributes:
        rows: of the nodes; operands are places, and numbers of draws and sends count from 0.
        fixed: the nodes of setup.
        draws, sends: of the nodes.
        first_read: those of the rows that read operands and what setup makes alone. An equal one
            may be there already, and nothing else may.
        found_later: rows that others may ask for, who have the operands and the results.
        results: places.
    """

    rows: RowBlock
    fixed: tuple[int, ...]
    draws: tuple[tuple[frozenset[int], Phase], ...]
    sends: int
    first_read: Int64s
    found_later: Int64s
    results: tuple[int, ...]

    def placed(self, program: Program, operands: Sequence[int]) -> list[int] | None:
        """The results of other operands; None, and nothing is made, where the program has some of
        the nodes.

        Args:
            operands: that are as different from each other as the template's, of its phases.
        """
        rows, draws = program.rows, len(program.draws)
        first, count = len(rows), len(self.rows.op)
        given = np.array([*operands, *self.fixed], np.int64)
        at = np.concatenate((given, np.arange(first, first + count)))
        if rows.knows(self.rows.columns, self.first_read, at):
            return None
        rows.extend(self.rows, at, draws, program.sends, program.layer)
        rows.know(first + self.found_later)
        program.draws += [Draw(draws + j, *each) for j, each in enumerate(self.draws)]
        program.sends += self.sends
        found: list[int] = at[[*self.results]].tolist()
        return found


@dataclass
class Recording:
    """Of what is made of some operands.

    Attributes:
        program: that nodes are added to.
        operands: of no setup.
        first, draws, sends: how many there were before.
    """

    program: Program
    operands: tuple[int, ...]
    first: int
    draws: int
    sends: int

    def template(self, results: Sequence[int]) -> Template | None:
        """What was made; None where some of it was there before, or has numbers of its own."""
        program, rows, first = self.program, self.program.rows, self.first
        is_made = rows.phases(first) != Phase.SETUP
        made = (first + np.flatnonzero(is_made)).tolist()
        block = rows.block(first, is_made)
        is_new = np.isin(block.op, NEW)
        shared = rows.block(first, ~is_made).op
        if (block.number[~is_new] >= 0).any() or np.isin(shared, NEW).any():
            return None
        fixed = self._fixed([*block.args.tolist(), *results])
        if fixed is None or rows.has_reused:
            return None
        given = len(self.operands) + len(fixed)
        place_of = {node: j for j, node in enumerate((*self.operands, *fixed, *made))}
        args = [place_of[node] for node in block.args.tolist()]
        read = [args[a:b] for a, b in pairwise((0, *block.ends.tolist()))]
        found = tuple(place_of[node] for node in results)
        alike = np.flatnonzero(~is_new).tolist()
        reach, later = {*range(given), *found}, []
        for j in alike:
            if reach.issuperset(read[j]):
                reach.add(given + j)
                later.append(j)
        is_draw = block.op == NUMBERS[ops.DRAW]
        first_number = np.where(is_draw, self.draws, self.sends)
        number = np.where(block.number < 0, block.number, block.number - first_number)
        return Template(
            replace(block, args=np.array(args, np.int64), number=number),
            fixed,
            tuple((draw.holders, draw.phase) for draw in program.draws[self.draws :]),
            program.sends - self.sends,
            np.array([j for j in alike if max(read[j], default=-1) < given], np.int64),
            np.array(later, np.int64),
            found,
        )

    def _fixed(self, read: Sequence[int]) -> tuple[int, ...] | None:
        """The nodes of setup among these; None where others were there before."""
        phase, operands = self.program.rows.phase, frozenset(self.operands)
        fixed = tuple(n for n in dict.fromkeys(read) if phase(n) == Phase.SETUP)
        is_known = operands.union(fixed)
        return fixed if all(n >= self.first or n in is_known for n in read) else None


@contextmanager
def recording(program: Program, operands: Sequence[int]) -> Iterator[Recording]:
    """Records what is made inside.

    Args:
        operands: what it is made of, besides what setup makes; each once.
    """
    rows = program.rows
    rows.watched, rows.has_reused = len(rows), False
    try:
        yield Recording(program, tuple(operands), len(rows), len(program.draws), program.sends)
    finally:
        rows.watched = 0
