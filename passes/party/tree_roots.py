"""Which draws hide the words of point and comparison functions: roots that are read as these alone.

Each word is XORed with, or added to, what seeds below a root expand to, under a key that is a draw
and no root. So words, and what is expanded of them, are functions of such a draw that look random
to whom it is hidden from. What is expanded is no draw: it hides nothing.

    accepted:  words(key, A, B, x) to 1, expand(key, B, words) at 1    A is hidden from 1
    refused:   A in the words of two trees, sent, as both roots, expanded as B or under another key
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from veilgraph.ir.party import ops
from veilgraph.ir.party.columns import NUMBERS
from veilgraph.ir.party.node import Node
from veilgraph.ir.party.program import Program
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.types import CompareWords
from veilgraph.passes.party.batch_rounds import Schedule
from veilgraph.passes.party.walks import Walks

Section = tuple[int, int, int]  # of words: where it starts, its length, bits of an element


@dataclass(frozen=True)
class TreeRoots:
    """The roots of a program's trees.

    Attributes:
        hidden: of each draw, whether a coalition does not know it.
    """

    schedule: Schedule
    walks: Walks
    hidden: Sequence[bool]

    @property
    def program(self) -> Program:
        return self.schedule.program

    def hiding(self, words: Node, phase: Phase) -> tuple[int, ...]:
        """Roots that hide words: hidden draws, as new as these, that are read as their roots alone.

        Args:
            phase: in which the words are sent.
        """
        nodes = self.program.nodes
        key = nodes[words.args[0]]
        if key.op is not ops.DRAW or key["number"] not in self._public_keys:
            return ()
        found = []
        for place in words.op.masking.roots:
            root = nodes[words.args[place]]
            if root.op is not ops.DRAW or not self.hidden[root["number"]]:
                continue
            is_new = phase == Phase.SETUP or root.phase != Phase.SETUP
            if is_new and self._is_root(root["number"], words, place):
                found.append(root["number"])
        return tuple(found)

    @cached_property
    def _public_keys(self) -> frozenset[int]:
        """The draws that are read as the key of trees alone: many trees may have the same."""
        return frozenset(
            draw
            for draw, readers in self._readers.items()
            if all(
                reader.args.index(number) == 0 and reader.args.count(number) == 1
                for reader, number in readers
            )
        )

    def _is_root(self, draw: int, words: Node, place: int) -> bool:
        """Whether a draw is read as one root of these words alone, and by what its party expands
        of them."""
        return draw in self._readers and all(
            reader.args.count(number) == 1
            and (
                (reader.id == words.id and reader.args.index(number) == place)
                or self._grows(reader, number, words, place)
            )
            for reader, number in self._readers[draw]
        )

    def _grows(self, reader: Node, root: int, words: Node, place: int) -> bool:
        """Whether this root, and no other words, are expanded as its party does it."""
        if not reader.op.masking.expands or reader.args.index(root) != 1:
            return False
        nodes, side = self.program.nodes, words.op.masking.roots.index(place)
        keys = [nodes[each.args[0]] for each in (reader, words)]
        places = [i for i in reader.op.masking.expands if i < len(reader.args)]
        return (
            reader["side"] == side
            and all(key.op is ops.DRAW for key in keys)
            and keys[0]["number"] == keys[1]["number"]
            and reader["index_bits"] == words["index_bits"]
            and [self._section(reader.args[i], words) for i in places] == _sections(words)
        )

    def _section(self, start: int, words: Node) -> Section | None:
        """Where in words a value lies that a party reads.

        None where it is no section of these words, or has lost bits before.
        """
        found, narrowest = self.walks.cast
        if narrowest[start] < self.program.nodes[start].type.bits:
            return None
        bits, node = narrowest[start], self.program.nodes[found[start]]
        first = 0
        length = node.elements
        if node.op is ops.CHUNK:
            first = node["start"]
            node = self.program.nodes[self.walks.passed[node.args[0]]]
        return (first, length, bits) if node.id == words.id else None

    @cached_property
    def _readers(self) -> dict[int, list[tuple[Node, int]]]:
        """Of each draw that trees alone read, by its number, the live nodes that do, each with what
        it reads.
        """
        columns, nodes = self.schedule.columns, self.program.nodes
        readers = np.repeat(np.arange(len(columns)), np.diff(columns.first))
        is_read = (columns.op[columns.args] == NUMBERS[ops.DRAW]) & (
            self.schedule.is_live[readers] != 0
        )
        readers, draws = readers[is_read], columns.args[is_read]
        is_tree = np.array([bool(op.masking.roots or op.masking.expands) for op in ops.ALL])
        of_trees = is_tree[columns.op[readers]]
        others = np.unique(columns.number[draws[~of_trees]])  # a draw's copies have its number
        of_trees &= ~np.isin(columns.number[draws], others)
        pairs = np.stack([readers[of_trees], draws[of_trees]], axis=1).tolist()
        found = defaultdict[int, list[tuple[Node, int]]](list)
        for reader, draw in dict.fromkeys(map(tuple, pairs)):
            found[nodes[draw]["number"]].append((nodes[reader], draw))
        return dict(found)


def _sections(words: Node) -> list[Section]:
    """What a party reads of the words of trees, in order."""
    if words.op is not ops.COMPARE_WORDS:
        return [(0, words.elements, words.type.bits)]
    layout = CompareWords(words["index_bits"], words["rings"])
    elements = words.elements // layout.size(1)
    rings = (layout.word_bits, *layout.rings)
    places = zip(layout.sections(elements), rings, strict=True)
    return [(*place, bits) for place, bits in places]
