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

import numpy as np

from veilgraph.ir.party import ops
from veilgraph.ir.party.columns import NUMBERS, Alike, RowBlock
from veilgraph.ir.party.node import Draw
from veilgraph.ir.party.program import Program
from veilgraph.ir.plan.tables import Phase

Key = tuple[tuple[int, ...], int]  # a node's operands, by their places, and where it is
NEW = (NUMBERS[ops.DRAW], NUMBERS[ops.SEND])  # of which no two are equal


@dataclass(frozen=True)
class Template:
    """What was made of some operands.

    A place counts the operands first, then the nodes of setup that are read, then the nodes that
    are made.

    Attributes:
        rows: of the nodes; operands are places, and numbers of draws and sends count from 0.
        fixed: the nodes of setup.
        draws, sends: of the nodes.
        first_read: the nodes that read operands and what setup makes alone. An equal one may be
            there already, and nothing else may.
        found_later: nodes that others may ask for, who have the operands and the results.
        results: places.
    """

    rows: RowBlock
    fixed: tuple[int, ...]
    draws: tuple[tuple[frozenset[int], Phase], ...]
    sends: int
    first_read: tuple[tuple[Alike, Key], ...]
    found_later: tuple[tuple[Alike, Key, int], ...]
    results: tuple[int, ...]

    def placed(self, program: Program, operands: Sequence[int]) -> list[int] | None:
        """The results of other operands; None, and nothing is made, where the program has some of
        the nodes.

        Args:
            operands: that are as different from each other as the template's, of its phases.
        """
        given = [*operands, *self.fixed]
        for alike, (places, where) in self.first_read:
            if (*[given[j] for j in places], where) in alike.made:
                return None
        rows, draws = program.rows, len(program.draws)
        first = len(rows)
        count = len(self.rows.op)
        at = np.concatenate((np.array(given, np.int64), np.arange(first, first + count)))
        rows.extend(self.rows, at, draws, program.sends, program.layer)
        program.draws += [Draw(draws + j, *each) for j, each in enumerate(self.draws)]
        program.sends += self.sends
        ids: list[int] = at.tolist()
        for alike, (places, where), place in self.found_later:
            alike.made[(*[ids[j] for j in places], where)] = ids[place]
        return [ids[place] for place in self.results]


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
        is_made = np.frombuffer(rows.phase[first:], np.uint8) != Phase.SETUP
        made = (first + np.flatnonzero(is_made)).tolist()
        block = rows.block(first, is_made)
        is_new = np.isin(block.op, NEW)
        shared = np.frombuffer(rows.op[first:], np.uint8)[~is_made]
        if (block.number[~is_new] >= 0).any() or np.isin(shared, NEW).any():
            return None
        fixed = self._fixed([*block.args.tolist(), *results])
        if fixed is None or program.has_reused:
            return None
        given = len(self.operands) + len(fixed)
        place_of = {node: j for j, node in enumerate((*self.operands, *fixed, *made))}
        args = [place_of[node] for node in block.args.tolist()]
        ends = block.ends.tolist()
        keys: list[Key] = []
        for node, begin, end in zip(made, [0, *ends], ends, strict=False):
            party, phase, _ = rows.place_of(node)
            keys.append((tuple(args[begin:end]), program.place(party, phase)))
        found = tuple(place_of[node] for node in results)
        alike = {j: rows.alike_of(node) for j, node in enumerate(made) if not is_new[j]}
        reach, later = {*range(given), *found}, []
        for j, own in alike.items():
            if reach.issuperset(keys[j][0]):
                reach.add(given + j)
                later.append((own, keys[j], given + j))
        first_number = np.where(block.is_draw, self.draws, self.sends)
        number = np.where(block.number < 0, block.number, block.number - first_number)
        return Template(
            replace(block, args=np.array(args, np.int64), number=number),
            fixed,
            tuple((draw.holders, draw.phase) for draw in program.draws[self.draws :]),
            program.sends - self.sends,
            tuple(
                (own, keys[j]) for j, own in alike.items() if max(keys[j][0], default=-1) < given
            ),
            tuple(later),
            found,
        )

    def _fixed(self, read: Sequence[int]) -> tuple[int, ...] | None:
        """The nodes of setup among these; None where others were there before."""
        phase, operands = self.program.rows.phase, frozenset(self.operands)
        fixed = tuple(n for n in dict.fromkeys(read) if phase[n] == Phase.SETUP)
        is_known = operands.union(fixed)
        return fixed if all(n >= self.first or n in is_known for n in read) else None


@contextmanager
def recording(program: Program, operands: Sequence[int]) -> Iterator[Recording]:
    """Records what is made inside.

    Args:
        operands: what it is made of, besides what setup makes; each once.
    """
    rows = program.rows
    program.watched, program.has_reused = len(rows), False
    try:
        yield Recording(program, tuple(operands), len(rows), len(program.draws), program.sends)
    finally:
        program.watched = 0
