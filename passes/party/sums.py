"""Values as sums: what verify_masking reads of a party-level program.

A message that is masked is a sum, of words or of bits, and its mask is a term. Here a node is taken
apart into such terms, through messages and whatever leaves a sum a sum.

    %5 = add %3 %4    %6 = send %5    %7 = sub %6 %2    sum of %7:  %3 + %4 - %2
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from veilgraph.ir.party import ops
from veilgraph.ir.party.columns import columns_of
from veilgraph.ir.party.node import Node
from veilgraph.ir.party.program import Program
from veilgraph.ir.types import Kind
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

    A draw goes by minus its number, minus one, whoever makes it; all else by its node's id.
    """

    terms: dict[int, int] = field(default_factory=dict)
    by_xor: bool = False

    def add(self, key: int, times: int) -> None:
        total = self.terms.pop(key, 0) + times
        if total % 2 if self.by_xor else total:
            self.terms[key] = total

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
        self.walks = Walks(columns_of(program.nodes)) if walks is None else walks
        self._steps = 0  # of `moved` so far

    def of(self, start: int, behind_messages: bool = True) -> Sum:
        """`start` as a sum of values and draws; a message as what was sent, or as it is."""
        nodes = self.program.nodes
        top = self._top(start, behind_messages)
        # XOR of words is a sum of its own.
        total = Sum(by_xor=top.type.kind is not Kind.WORDS or bool(top.op.masking.xors))
        todo = [(start, 1)]
        steps = 0
        while todo:
            i, sign = todo.pop()
            node = nodes[i]
            steps += 1
            is_end = steps >= MOST_TERMS or (node.op is ops.SEND and not behind_messages)
            parts = None if is_end else self._terms(node, total.by_xor)
            if parts is None:
                total.add(self.canonical(node), sign)
            else:
                todo.extend([(operand, sign * times) for operand, times in parts])
        return total

    def _terms(self, node: Node, by_xor: bool) -> Iterable[tuple[int, int]] | None:
        """Operands that a node is the sum of, by elements, and how often. None for any other."""
        masking = node.op.masking
        if self.is_transparent(node):
            return ((node.args[0], 1),)
        signs = masking.xors if by_xor else masking.adds
        if signs:
            return zip(node.args, signs, strict=True) if self._adds_alike(node) else None
        scaled = None if by_xor else self._scaled(node)
        return None if scaled is None else (scaled,)

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
        if scaled := self._scaled(node):
            return [(*scaled, ())]
        if node.op.masking.moves:
            shapes = tuple(nodes[a].shape for a in node.args)
            how = (node.op, node.attrs, node.shape, shapes)
            return [(a, 1, ((*how, n),)) for n, a in enumerate(node.args)]
        return None

    def _top(self, start: int, behind_messages: bool) -> Node:
        walks = self.walks
        return self.program.nodes[(walks.same if behind_messages else walks.same_here)[start]]

    def is_transparent(self, node: Node) -> bool:
        """A value read as it is: passed on, or reduced to fewer bits."""
        masking = node.op.masking
        if masking.narrows:
            return node.type.bits <= self.program.nodes[node.args[0]].type.bits
        return masking.passes

    def _adds_alike(self, node: Node) -> bool:
        """Whether operands are of the node's type, and element i is made of elements i."""
        nodes, shape, type = self.program.nodes, node.shape, node.type
        for a in node.args:
            x = nodes[a]
            if x.type is not type and x.type != type:
                return False
            if x.shape != shape and x.elements != node.elements and x.op is not ops.CONST:
                return False
        return True

    def _scaled(self, node: Node) -> tuple[int, int] | None:
        """What a node is a public multiple of, and how often."""
        if not node.op.masking.scales:
            return None
        nodes = self.program.nodes
        for one, other in (node.args, node.args[::-1]):
            alike = (nodes[one].type, nodes[one].elements) == (node.type, node.elements)
            if nodes[other].op is ops.CONST and alike:
                value, modulus = int(nodes[other]["value"]), 1 << node.type.bits
                return one, value if 2 * value < modulus else value - modulus
        return None

    def canonical(self, node: Node) -> int:
        """One id for the copies of a draw."""
        return -1 - int(node["number"]) if node.op is ops.DRAW else node.id

    def drawn(self, key: int) -> int | None:
        """The number of the draw that a term is, or of which it has some elements, each once."""
        if key < 0:
            return -1 - key
        node = self.program.nodes[self.walks.selected[key]]
        return int(node["number"]) if node.op is ops.DRAW else None


def _spread(operand: Node, node: Node) -> tuple[object, ...]:
    return "spread", operand.shape, node.shape
