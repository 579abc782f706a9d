"""Values as sums: what verify_masking reads of a party-level program.

A message that is masked is a sum, of words or of bits, and its mask is a term. Here a node is taken
apart into such terms, through messages and whatever leaves a sum a sum.

    %5 = add %3 %4    %6 = send %5    %7 = sub %6 %2    sum of %7:  %3 + %4 - %2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from veilgraph.ir.party import ops
from veilgraph.ir.party.columns import Columns, columns_of
from veilgraph.ir.party.node import Node, holders_of
from veilgraph.ir.party.program import Program
from veilgraph.ir.types import Kind
from veilgraph.passes import _native as native
from veilgraph.passes.facts import facts_of
from veilgraph.passes.party.walks import Walks

MOST_TERMS = 64  # a longer sum is left as it is: its deeper draws are no witnesses of this message
MOST_OUTPUT_TERMS = 1 << 14  # of an output; a longer one is not looked into
MOST_MASKED_TERMS = 1 << 8  # of what an output has bits of
MOST_STEPS = 1 << 20  # of all outputs together: a stranger's program ends in time, too
MOST_MOVES = 64  # of elements, from a term to its output

Path = tuple[tuple[object, ...], ...]  # moves of elements, the last first


@dataclass
class Sum:
    """A value as a sum: terms, how often each is added, never zero (by XOR: never even).

    A draw goes by minus its number, minus one, whoever makes it; all else by its node's id. Counts
    are modulo 2^64, of which every ring is a part.
    """

    terms: dict[int, int]
    by_xor: bool

    def key(self) -> tuple[object, ...]:
        """Equal for two values of a program only if they are the same sum."""
        return (self.by_xor, *sorted(self.terms.items()))


@dataclass
class Moved:
    """An output as a sum of moved terms: (path, term) and how often.

    `complete` says that all of it was taken apart.
    """

    terms: dict[tuple[Path, int], int] = field(default_factory=dict)
    complete: bool = True


class Sums:
    """The sums of a program's values."""

    def __init__(self, program: Program, walks: Walks | None = None) -> None:
        self.program = program
        columns = columns_of(program.nodes)
        self.walks = Walks(columns) if walks is None else walks
        self.native = _native(columns, self.walks)
        # Of draws, for all coalitions: sets of parties, and of each draw the number of its own.
        holders, which = holders_of(program.draws)
        self.holders = holders, np.array(which, np.int64)
        self._steps = 0  # of `moved` so far

    def of(self, start: int, behind_messages: bool = True) -> Sum:
        """`start` as a sum of values and draws; a message as what was sent, or as it is."""
        return Sum(*self.native.of(start, behind_messages))

    def moved(self, start: int, most: int = MOST_OUTPUT_TERMS) -> Moved:
        """The words `start` as a sum behind messages, and behind moves of elements."""
        total = Moved()
        todo: list[tuple[int, int, Path]] = [(start, 1, ())]
        steps = 0
        while todo:
            i, sign, path = todo.pop()
            node = self.program.nodes[i]
            steps, self._steps = steps + 1, self._steps + 1
            if steps > most or self._steps > MOST_STEPS or len(path) > MOST_MOVES:
                return Moved(complete=False)
            parts = self._parts(node)
            if parts is None:
                key = path, self.canonical(node)
                times = total.terms.pop(key, 0) + sign
                if times:
                    total.terms[key] = times
            else:
                todo.extend((a, sign * s, path + moves) for a, s, moves in parts)
        return total

    def _parts(self, node: Node) -> list[tuple[int, int, Path]] | None:
        """Operands that a node is the sum of: how often, and moved how. None for any other."""
        nodes = self.program.nodes
        if self.is_transparent(node):
            return [(node.args[0], 1, ())]
        if node.type.kind is not Kind.WORDS:
            return None
        if signs := node.op.masking.adds:
            return [
                (a, s, () if nodes[a].elements == node.elements else (_spread(nodes[a], node),))
                for a, s in zip(node.args, signs, strict=True)
            ]
        if scaled := self.native.scaled(node.id):
            return [(*scaled, ())]
        if node.op.masking.moves:
            shapes = tuple(nodes[a].shape for a in node.args)
            how = (node.op, node.attrs, node.shape, shapes)
            return [(a, 1, ((*how, n),)) for n, a in enumerate(node.args)]
        return None

    def is_transparent(self, node: Node) -> bool:
        """A value read as it is: passed on, or reduced to fewer bits."""
        return bool(self.walks.is_same[node.id])

    def canonical(self, node: Node) -> int:
        """One id for the copies of a draw."""
        return -1 - int(node["number"]) if node.op is ops.DRAW else node.id


def _two(signs: Sequence[int]) -> list[int]:
    return [*signs, 0, 0][:2]


_SIGNS = np.array(
    [[*_two(op.masking.adds), *_two(op.masking.xors), op.masking.scales] for op in ops.ALL],
    np.int64,
)


def _native(columns: Columns, walks: Walks) -> native.Sums:
    """A program as native code takes it apart."""
    numbers: dict[object, int] = {}
    types = [
        (
            numbers.setdefault((t.kind, t.bits), len(numbers)),
            numbers.setdefault(t.kind, len(numbers)),
            t.kind is Kind.WORDS,
            t.kind is Kind.PLANES,
            t.bits,
        )
        for _, t in columns.tensors
    ]
    return native.Sums(
        facts_of(columns),
        columns.op,
        columns.tensor,
        columns.attributes,
        columns.number,
        columns.elements,
        walks.is_same.view(np.uint8),
        np.asarray(walks.same),
        np.asarray(walks.same_here),
        columns.first,
        columns.args,
        _SIGNS,
        np.array(types, np.int64).reshape(-1, 5),
        columns.integers("value").reshape(-1),
        MOST_TERMS,
    )


def _spread(operand: Node, node: Node) -> tuple[object, ...]:
    return "spread", operand.shape, node.shape
