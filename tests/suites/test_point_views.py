"""What the words of a point function say of its index: nothing to who has one root, and all to who
has both.

A model on blocks of a few bits, from docs/protocols.md ("One-hot rows") and the layout in
kernels/point/declaration.py. At 128 bits, with AES as its hash, it is the product's. Its hash is a
random function here. What a party does not know of it, its values below the root that the party
lacks, is enumerated; or functions are sampled, and both roots with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from conformance import Setting
from test_one_hot import HIDING, WITH_CLIENT, OneHot
from views import Sample

from veilgraph.ir.meaning import point_functions
from veilgraph.ir.party import ops
from veilgraph.passes.party.batch_rounds import batch_rounds
from veilgraph.passes.party.verify_masking import coalitions
from veilgraph.targets.parties import Member

Array = npt.NDArray[Any]
Hash = Callable[[int, int, int, Array], Array]  # whose node's, its level, which child, its seed


@dataclass(frozen=True)
class Tree:
    """Of 2^index_bits places: a leaf is a block, of `lanes` numbers."""

    block_bits: int
    index_bits: int
    lanes: int

    @property
    def levels(self) -> int:
        return max(0, self.index_bits - (self.lanes.bit_length() - 1))

    @property
    def number_bits(self) -> int:
        return self.block_bits // self.lanes

    def numbers(self, block: Array) -> list[Array]:
        return [self.reduced(block >> self.number_bits * i) for i in range(self.lanes)]

    def reduced(self, number: Array) -> Array:
        return number & (1 << self.number_bits) - 1


@dataclass(frozen=True)
class Words:
    levels: list[tuple[Array, Array]]  # what corrects a left and a right child
    leaf: Array

    def columns(self) -> list[Array]:
        """All that is sent of them: a word a level, the bits of right children, the leaf's."""
        return [each for left, right in self.levels for each in (left, right & 1)] + [self.leaf]


def seed_of(node: Array) -> Array:
    return node >> 1 << 1


def words_of(tree: Tree, hashed: Hash, roots: Sequence[Array], index: int) -> Words:
    """Boyle, Gilboa, Ishai, CCS 2016, figure 1: every seed off the path to the index is the same
    in both trees."""
    nodes = [seed_of(root) | party for party, root in enumerate(roots)]
    levels = []
    for level in range(tree.levels):
        turn = index >> tree.index_bits - 1 - level & 1
        left, right = (
            [hashed(party, level, side, seed_of(node)) for party, node in enumerate(nodes)]
            for side in (0, 1)
        )
        apart = left[0] ^ left[1], right[0] ^ right[1]
        off_path = seed_of(apart[1 - turn])
        pair = off_path | apart[0] & 1 ^ turn ^ 1, off_path | apart[1] & 1 ^ turn
        kept = (left, right)[turn]
        nodes = [child ^ pair[turn] * (node & 1) for child, node in zip(kept, nodes, strict=True)]
        levels.append(pair)
    ends = [hashed(party, tree.levels, 0, seed_of(node)) for party, node in enumerate(nodes)]
    sign, leaf = 1 - 2 * (nodes[1] & 1), ends[0] * 0
    for i, (ours, theirs) in enumerate(zip(*map(tree.numbers, ends), strict=True)):
        unit = int(i == index % tree.lanes)
        leaf = leaf | tree.reduced(sign * (unit - ours + theirs)) << tree.number_bits * i
    return Words(levels, leaf)


def row_of(tree: Tree, hashed: Hash, root: Array, words: Words, party: int) -> Array:
    """A party's numbers, [all places, ...]."""
    nodes = [seed_of(root) | party]
    for level, pair in enumerate(words.levels):
        nodes = [
            hashed(party, level, side, seed_of(node)) ^ pair[side] * (node & 1)
            for node in nodes
            for side in (0, 1)
        ]
    row = [
        tree.reduced((1 - 2 * party) * (number + last * (node & 1)))
        for node in nodes
        for number, last in zip(
            tree.numbers(hashed(party, tree.levels, 0, seed_of(node))),
            tree.numbers(words.leaf),
            strict=True,
        )
    ]
    return np.array(row[: 1 << tree.index_bits])


# Hashes


def sampled(rng: np.random.Generator, tree: Tree, runs: int) -> Hash:
    """Of each run a function of its own, the same at every node of both parties: a key's."""
    keys = rng.integers(1 << 63, size=runs, dtype=np.uint64)

    def hashed(party: int, level: int, side: int, seed: Array) -> Array:
        x = (seed | side).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + keys
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x = (x ^ x >> np.uint64(shift)) * np.uint64(factor)
        return (x ^ x >> np.uint64(31)).astype(np.int64) & (1 << tree.block_bits) - 1

    return hashed


@dataclass(frozen=True)
class Known:
    """One party knows its function; of the other's, each value on the path takes every value.

    These values are what nobody has asked for who lacks the root above them.
    """

    tree: Tree
    knows: int
    table: Array

    @property
    def bits(self) -> int:
        return self.tree.block_bits * (2 * self.tree.levels + 1)

    def __call__(self, party: int, level: int, side: int, seed: Array) -> Array:
        if party == self.knows:
            return np.asarray(self.table[seed | side])
        every = np.arange(1 << self.bits) >> self.tree.block_bits * (2 * level + side)
        return every & (1 << self.tree.block_bits) - 1


def drawn_roots(rng: np.random.Generator, tree: Tree, runs: int) -> tuple[Array, Array]:
    first, second = rng.integers(1 << tree.block_bits, size=(2, runs))
    return first, second


TREES = (
    Tree(2, 1, 1),
    Tree(3, 2, 1),
    Tree(4, 1, 1),
    Tree(4, 2, 2),
    Tree(4, 1, 2),
    Tree(4, 1, 4),
    Tree(8, 2, 4),
)
LARGER = (Tree(16, 3, 1), Tree(16, 3, 2), Tree(16, 4, 4))
RUNS = 1 << 14


# The model


@pytest.mark.parametrize("ring_bits", [32, 64])
def test_the_model_is_the_product(ring_bits: int) -> None:
    rng = np.random.default_rng(ring_bits)
    tree = Tree(128, 4, 128 // ring_bits)
    real = point_functions.Tree(tree.index_bits, ring_bits)
    aes = point_functions.hash_under(rng.integers(1 << 63, size=2, dtype=np.uint64))

    def hashed(party: int, level: int, side: int, seed: Array) -> Array:
        return np.asarray(np.frompyfunc(aes, 1, 1)(seed | side), object)

    numbers = [int.from_bytes(rng.bytes(16), "little") for _ in range(2)]
    roots = [np.array([number], object) for number in numbers]
    for index in range(1 << tree.index_bits):
        words = words_of(tree, hashed, roots, index)
        made = point_functions.made(real, aes, *numbers, index)
        assert [(int(a[0]), int(b[0])) for a, b in words.levels] == made.levels
        assert int(words.leaf[0]) == made.leaf
        for party in (0, 1):
            row = row_of(tree, hashed, roots[party], words, party)[:, 0].tolist()
            assert row == point_functions.leaves(real, aes, numbers[party], made, party)


@pytest.mark.parametrize("tree", [*TREES, *LARGER], ids=str)
def test_two_rows_add_up_to_the_unit(tree: Tree) -> None:
    """With any function, were it a bad one: of roots and keys nothing is asked."""
    rng = np.random.default_rng(1)
    roots, hashed = drawn_roots(rng, tree, 64), sampled(rng, tree, 64)
    for index in range(1 << tree.index_bits):
        words = words_of(tree, hashed, roots, index)
        rows = [row_of(tree, hashed, root, words, j) for j, root in enumerate(roots)]
        unit = np.arange(1 << tree.index_bits)[:, None] == index
        np.testing.assert_array_equal(tree.reduced(rows[0] + rows[1]), unit * np.ones((1, 64)))


# Views, exactly


def counted(columns: Sequence[Array], sizes: Sequence[int]) -> Array:
    """How often each value of all columns together is seen."""
    place = np.zeros(1, np.int64)
    for column, size in zip(columns, sizes, strict=True):
        place = place << size | column
    return np.bincount(place, minlength=1 << sum(sizes))


def sizes_of(tree: Tree) -> list[int]:
    return [tree.block_bits, 1] * tree.levels + [tree.block_bits]


@pytest.mark.parametrize("tree", TREES, ids=str)
@pytest.mark.parametrize("knows", [0, 1])
def test_words_are_uniform_to_who_has_one_root(tree: Tree, knows: int) -> None:
    """Every index, every root of its own, and every value that the other root expands to."""
    rng, size = np.random.default_rng(2), 1 << tree.block_bits
    for table in rng.integers(size, size=(2, size)):
        hashed = Known(tree, knows, table)
        for root in range(0, size, max(1, size // 16)):
            own, other = np.full(1, root), np.zeros(1, np.int64)  # which is read no further
            roots = (own, other) if knows == 0 else (other, own)
            for index in range(1 << tree.index_bits):
                seen = counted(words_of(tree, hashed, roots, index).columns(), sizes_of(tree))
                assert (seen == seen[0]).all(), (root, index)


@pytest.mark.parametrize("knows", [0, 1])
def test_an_opened_number_and_words_of_its_mask_say_nothing(knows: int) -> None:
    """c = x + r0 + r1 and the words of r0 + r1, to who drew one of r0 and r1."""
    tree, own = Tree(3, 2, 1), 3
    places, table = 1 << tree.index_bits, np.random.default_rng(3).integers(8, size=8)
    hashed, root = Known(tree, knows, table), np.full(1, 5)
    words = [
        counted(words_of(tree, hashed, (root, root), r).columns(), sizes_of(tree))
        for r in range(places)
    ]
    for x in range(places):
        seen = np.zeros((places, len(words[0])), np.int64)
        for theirs in range(places):
            r = (own + theirs) % places
            seen[(x + r) % places] += words[r]
        assert (seen == seen[0, 0]).all()


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_both_roots_in_one_hand_are_the_index(tree: Tree) -> None:
    """Words of one pair of roots are others for each index: who has both finds it."""
    size = 1 << tree.block_bits
    table = np.random.default_rng(4).integers(size, size=size)
    first, second = (each.ravel() for each in np.indices((size, size)))

    def hashed(party: int, level: int, side: int, seed: Array) -> Array:
        return np.asarray(table[seed | side])

    made = [
        np.array(words_of(tree, hashed, (first, second), index).columns())
        for index in range(1 << tree.index_bits)
    ]
    for i, words in enumerate(made):
        for other in made[:i]:
            assert (words != other).any(axis=0).all()


# Views, sampled


def view(tree: Tree, index: int, seed: int, knows: int, fault: str = "") -> Sample:
    """Words and a root, of a new function each run; and what a faulty protocol tells beside."""
    rng = np.random.default_rng([seed, index])
    roots, hashed = list(drawn_roots(rng, tree, RUNS)), sampled(rng, tree, RUNS)
    if fault == "one root for both":
        roots[1 - knows] = roots[knows]
    words = words_of(tree, hashed, roots, index)
    own, theirs = (row_of(tree, hashed, roots[j], words, j) for j in (knows, 1 - knows))
    told = {
        "the other root": tree.reduced(own + theirs),
        "words of index 0 too": words_of(tree, hashed, roots, 0).columns(),
        "a secret under the other row": [tree.reduced(theirs[-1] + index)],
    }
    messages = [*words.columns(), *told.get(fault, ())]
    found, known = Sample(), [roots[knows], tree.reduced(-own[-1])]
    found.add([m.astype(np.uint64) for m in messages], [k.astype(np.uint64) for k in known])
    return found


@pytest.mark.parametrize("tree", LARGER, ids=str)
@pytest.mark.parametrize("knows", [0, 1])
def test_views_are_alike_for_every_index(tree: Tree, knows: int) -> None:
    """One function for both parties and all levels, as AES under a key is."""
    first = view(tree, 0, 5, knows)
    for index in range(1, 1 << tree.index_bits):
        assert not first.differences(view(tree, index, 6, knows)), index


FAULTS = [
    "the other root",
    "one root for both",
    "words of index 0 too",
    "a secret under the other row",
]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("tree", LARGER, ids=str)
def test_what_tells_the_index_shows(tree: Tree, fault: str) -> None:
    """What test_point_masks.py refuses: a root that is sent, used twice, or the same as the other;
    and rows as a mask."""
    first = view(tree, 0, 5, 0, fault)
    assert first.differences(view(tree, (1 << tree.index_bits) - 2, 6, 0, fault))


# Suites


@pytest.mark.parametrize("setting", [*HIDING, *WITH_CLIENT], ids=str)
def test_no_coalition_has_both_roots_of_a_secret_index(setting: Setting) -> None:
    """Of whoever does not know the index: its owner does, and of a mask who prepares."""
    target = setting.target
    everyone: list[int | None] = [*range(setting.computing), None]
    if setting.clients:
        everyone.append(len(target.parties))
    for owner in everyone:
        made = OneHot(setting, np.arange(4), 6, True, owner)
        receiver = 0 if not setting.clients else len(target.parties)
        value: Any = setting.suite.reveal(made.trace.parties, Member(receiver), made.rows)
        made.trace.program.output(value, receiver, "y", 0)
        program = made.trace.program
        nodes = [program.nodes[i] for i in batch_rounds(program).live]
        for tree in (node for node in nodes if node.op is ops.POINT_WORDS):
            roots = [program.nodes[tree.args[place]] for place in (1, 2)]
            holders = [program.draws[root["number"]].holders for root in roots]
            for coalition in map(set, coalitions(target)):
                has_both = all(not coalition.isdisjoint(each) for each in holders)
                assert not has_both or tree.party in coalition, (owner, coalition)
                assert owner is None or tree.party == owner
