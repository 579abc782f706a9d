"""What the words of a comparison function say of a threshold and its payloads: nothing to who has
one root, and all to who has both.

A model on blocks of a few bits, from docs/protocols.md ("By a tree") and the layout in
kernels/compare/declaration.py. At 128 bits, with AES as its hash, it is the product's. Its hash is
a random function here. What a party does not know of it, its values below the root that the party
lacks, is enumerated; or functions are sampled, and both roots with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from test_point_views import counted, drawn_roots, sampled
from views import (
    Sample,
)

from veilgraph.ir.meaning import comparison_functions, point_functions
from veilgraph.ir.types import BLOCK_BITS

Array = npt.NDArray[Any]
Hash = Callable[[int, int, int, int, Array], Array]  # whose, level, tag, block of numbers, its seed
LEAF_BITS = 2
POINTS = 1 << LEAF_BITS


@dataclass(frozen=True)
class Tree:
    """Of 2^index_bits points; a block has `lanes` numbers, one of each payload's ring."""

    block_bits: int
    index_bits: int
    rings: tuple[int, ...]
    lanes: int = 1

    @property
    def levels(self) -> int:
        return self.index_bits - LEAF_BITS

    def reduced(self, numbers: Sequence[Array]) -> list[Array]:
        return [number & (1 << bits) - 1 for number, bits in zip(numbers, self.rings, strict=True)]

    def numbers(self, hashed: Hash, party: int, level: int, tag: int, node: Array) -> list[Array]:
        """Of each payload; tags 2 and 3 are of a way down, at the last level all are points."""
        width = self.block_bits // self.lanes
        blocks = [
            hashed(party, level, tag, i // self.lanes, node) >> width * (i % self.lanes)
            for i in range(len(self.rings))
        ]
        return self.reduced(blocks)


def child(hashed: Array) -> Array:
    """The second lowest bit of a node is not used."""
    return hashed & ~2


@dataclass(frozen=True)
class Words:
    seeds: list[Array]  # of each level: whose lowest bits correct the children's
    numbers: list[list[Array]]  # of each level, then of each point: one a payload

    def columns(self) -> list[Array]:
        return [*self.seeds, *(number for each in self.numbers for number in each)]


def seed_above(node: Array) -> Array:
    return node >> 2 << 2


def words_of(
    tree: Tree, hashed: Hash, roots: Sequence[Array], threshold: int, payloads: Sequence[int]
) -> Words:
    """Boyle et al., EUROCRYPT 2021, figure 1."""
    nodes = [seed_above(root) | j for j, root in enumerate(roots)]
    seeds, numbers = [], []
    so_far = [np.zeros_like(roots[0]) for _ in payloads]
    for level in range(tree.levels):
        turn = threshold >> tree.index_bits - 1 - level & 1
        sign = 1 - 2 * (nodes[1] & 1)
        ways = [
            [tree.numbers(hashed, j, level, 2 + way, seed_above(node)) for way in (0, 1)]
            for j, node in enumerate(nodes)
        ]
        lost, kept = ([each[way] for each in ways] for way in (1 - turn, turn))
        word = [
            sign * (b - a - v + turn * payload)
            for a, b, v, payload in zip(*lost, so_far, payloads, strict=True)
        ]
        numbers.append(tree.reduced(word))
        so_far = [v + a - b + sign * w for v, a, b, w in zip(so_far, *kept, word, strict=True)]
        children = [
            [child(hashed(j, level, way, 0, seed_above(node))) for way in (0, 1)]
            for j, node in enumerate(nodes)
        ]
        apart = [children[0][way] ^ children[1][way] for way in (0, 1)]
        off_path = seed_above(apart[1 - turn])
        corrected = [apart[way] & 1 ^ int(way == turn) for way in (0, 1)]
        seeds.append(off_path | corrected[0] | corrected[1] << 1)
        nodes = [
            each[turn] ^ (off_path | corrected[turn]) * (node & 1)
            for each, node in zip(children, nodes, strict=True)
        ]
    sign = 1 - 2 * (nodes[1] & 1)
    for point in range(POINTS):
        below = int(point < threshold % POINTS)
        ends = [
            tree.numbers(hashed, j, tree.levels, point, seed_above(node))
            for j, node in enumerate(nodes)
        ]
        word = [
            sign * (b - a - v + below * payload)
            for a, b, v, payload in zip(*ends, so_far, payloads, strict=True)
        ]
        numbers.append(tree.reduced(word))
    return Words(seeds, numbers)


def parts_at(
    tree: Tree, hashed: Hash, root: Array, words: Words, point: int, party: int
) -> list[Array]:
    """A party's part of each payload where the point is below the threshold."""
    node, total = seed_above(root) | party, [np.zeros_like(root) for _ in tree.rings]

    def added(level: int, tag: int, word: Sequence[Array]) -> list[Array]:
        own = tree.numbers(hashed, party, level, tag, seed_above(node))
        return [t + a + w * (node & 1) for t, a, w in zip(total, own, word, strict=True)]

    for level, seed in enumerate(words.seeds):
        turn = point >> tree.index_bits - 1 - level & 1
        total = added(level, 2 + turn, words.numbers[level])
        own = child(hashed(party, level, turn, 0, seed_above(node)))
        node = own ^ (seed_above(seed) | seed >> turn & 1) * (node & 1)
    place = point % POINTS
    total = added(tree.levels, place, words.numbers[tree.levels + place])
    return tree.reduced([part * (1 - 2 * party) for part in total])


# Hashes


def random_function(rng: np.random.Generator, tree: Tree, runs: int) -> Hash:
    """Of each run one of its own, the same at every node of both parties: a key's."""
    hashed = sampled(rng, tree, runs)

    def at(party: int, level: int, tag: int, block: int, seed: Array) -> Array:
        return hashed(party, level, tag, seed_above(seed) ^ block << LEAF_BITS)

    return at


@dataclass(frozen=True)
class Known:
    """One party knows its function; of the other's, each value on the path takes every value.

    These values are what nobody has asked for who lacks the root above them: of each level two
    children without their unused bit, and numbers of two ways; then those of the points.
    """

    tree: Tree
    knows: int
    table: Array  # by block, then seed and tag

    @property
    def child_bits(self) -> int:
        return self.tree.block_bits - 1

    @property
    def bits(self) -> int:
        numbers = sum(self.tree.rings)
        return self.tree.levels * (2 * self.child_bits + 2 * numbers) + POINTS * numbers

    def __call__(self, party: int, level: int, tag: int, block: int, seed: Array) -> Array:
        if party == self.knows:
            return np.asarray(self.table[block, seed | tag])
        numbers, every = sum(self.tree.rings), np.arange(1 << self.bits)
        first = level * 2 * (self.child_bits + numbers)
        if level < self.tree.levels and tag < 2:
            value = every >> first + tag * self.child_bits & (1 << self.child_bits) - 1
            return value >> 1 << 2 | value & 1
        if level < self.tree.levels:
            first, tag = first + 2 * self.child_bits, tag - 2
        own = sum(self.tree.rings[:block])
        return every >> first + tag * numbers + own & (1 << self.tree.rings[block]) - 1


TREES = (Tree(3, 3, (1,)), Tree(3, 3, (2,)), Tree(4, 3, (1,)), Tree(3, 3, (1, 1)), Tree(3, 4, (1,)))
LARGER = (Tree(16, 4, (4,)), Tree(16, 4, (4, 7), 2), Tree(16, 4, (9, 3)))
RUNS = 1 << 14


def every_payload(tree: Tree) -> Iterator[tuple[int, ...]]:
    return product(*(range(1 << bits) for bits in tree.rings))


# The model


def number_of(block: Array) -> int:
    return int(block[0]) | int(block[1]) << 64


def hashed_under(aes: point_functions.Hash) -> Hash:
    """The product's hash, number by number."""

    def hashed(party: int, level: int, tag: int, block: int, seed: Array) -> Array:
        return np.asarray(np.frompyfunc(aes, 1, 1)(seed_above(seed) ^ block << 2 | tag), object)

    return hashed


@pytest.mark.parametrize("index_bits", [3, 4, 11, 63])
@pytest.mark.parametrize("rings", [(1,), (32, 7), (17, 40, 64), (32, 32, 15)])
def test_the_model_is_the_product(rings: tuple[int, ...], index_bits: int) -> None:
    """The model in Python's integers, one threshold at a time; the product in arrays, all at once:
    each threshold of small trees with each point, and some of larger ones."""
    rng, places = np.random.default_rng(1), 1 << index_bits
    tree = Tree(BLOCK_BITS, index_bits, rings, BLOCK_BITS // (32 if max(rings) <= 32 else 64))
    real = comparison_functions.Tree(index_bits, rings)
    key = rng.integers(1 << 64, size=2, dtype=np.uint64)
    scalar = hashed_under(point_functions.hash_under(key))
    arrays = comparison_functions.hash_under(key)
    thresholds = np.arange(places, dtype=np.uint64)
    if places > 16:
        thresholds = rng.integers(places, size=8, dtype=np.uint64)
    count, near = len(thresholds), [*thresholds[:3], *thresholds[:3] - np.uint64(1)]
    points = [int(point) % places for point in ([*near, 0] if places > 16 else thresholds)]
    roots = rng.integers(1 << 64, size=(2, count, 2), dtype=np.uint64)
    payloads = rng.integers(1 << 64, size=(len(rings), count), dtype=np.uint64)
    made = comparison_functions.made(real, arrays, *roots, thresholds, payloads)
    parts = {
        (j, point): comparison_functions.part(
            real, arrays, roots[j], made, np.full(count, point, np.uint64), j
        )
        for j, point in product((0, 1), points)
    }
    for e, threshold in enumerate(thresholds.tolist()):
        own_roots = [np.array([number_of(root[e])], object) for root in roots]
        words = words_of(tree, scalar, own_roots, threshold, payloads[:, e].tolist())
        assert [int(seed[0]) for seed in words.seeds] == [number_of(s) for s in made.seeds[:, e]]
        numbers = [[int(n[0]) for n in each] for each in words.numbers]
        assert numbers == made.numbers[:, :, e].T.tolist()
        for (j, point), found in parts.items():
            own = parts_at(tree, scalar, own_roots[j], words, point, j)
            assert [int(each[0]) for each in own] == found[:, e].tolist()


@pytest.mark.parametrize("tree", [*TREES, *LARGER], ids=str)
def test_two_parts_add_up_to_the_payload(tree: Tree) -> None:
    """With any function, were it a bad one: of roots and keys nothing is asked."""
    rng = np.random.default_rng(1)
    roots, hashed = drawn_roots(rng, tree, 64), random_function(rng, tree, 64)
    payloads = [int(rng.integers(1, 1 << bits)) for bits in tree.rings]
    for threshold in range(1 << tree.index_bits):
        words = words_of(tree, hashed, roots, threshold, payloads)
        for point in range(1 << tree.index_bits):
            parts = [parts_at(tree, hashed, roots[j], words, point, j) for j in (0, 1)]
            sums = tree.reduced([a + b for a, b in zip(*parts, strict=True)])
            for total, payload in zip(sums, payloads, strict=True):
                assert (total == payload * (point < threshold)).all()


# Views, exactly


def sizes_of(tree: Tree) -> list[int]:
    rows = tree.levels + POINTS
    return [tree.block_bits] * tree.levels + list(tree.rings) * rows


@pytest.mark.parametrize("tree", TREES, ids=str)
@pytest.mark.parametrize("knows", [0, 1])
def test_words_are_uniform_to_who_has_one_root(tree: Tree, knows: int) -> None:
    """Every threshold and payload, every root of its own, and every value that the other root
    expands to."""
    size = 1 << tree.block_bits
    table = np.random.default_rng(2).integers(size, size=(len(tree.rings), size))
    hashed = Known(tree, knows, table)
    for root in range(0, size, 4):
        own, other = np.full(1, root), np.zeros(1, np.int64)  # which is read no further
        roots = (own, other) if knows == 0 else (other, own)
        for threshold, payloads in product(range(1 << tree.index_bits), every_payload(tree)):
            words = words_of(tree, hashed, roots, threshold, payloads)
            seen = counted(words.columns(), sizes_of(tree))
            assert (seen == seen[0]).all(), (root, threshold, payloads)


@pytest.mark.parametrize("knows", [0, 1])
def test_an_opened_number_and_words_of_its_mask_say_nothing(knows: int) -> None:
    """c = x + r0 + r1, and words of a threshold and of payloads that are all of r0 + r1."""
    tree, own = Tree(3, 3, (1,)), 3
    places = 1 << tree.index_bits
    hashed = Known(tree, knows, np.random.default_rng(3).integers(8, size=(1, 8)))
    root = np.full(1, 5)
    words = [
        counted(words_of(tree, hashed, (root, root), r, [r >> 2]).columns(), sizes_of(tree))
        for r in range(places)
    ]
    for x in range(places):
        seen = np.zeros((places, len(words[0])), np.int64)
        for theirs in range(places):
            r = (own + theirs) % places
            seen[(x + r) % places] += words[r]
        assert (seen == seen[0, 0]).all()


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_both_roots_in_one_hand_are_the_threshold(tree: Tree) -> None:
    """Words of one pair of roots are others for each threshold: who has both finds it."""
    size = 1 << tree.block_bits
    table = np.random.default_rng(4).integers(size, size=(len(tree.rings), size))
    first, second = (each.ravel() for each in np.indices((size, size)))

    def hashed(party: int, level: int, tag: int, block: int, seed: Array) -> Array:
        return np.asarray(table[block, seed_above(seed) | tag])

    made = [
        np.array(words_of(tree, hashed, (first, second), r, [1] * len(tree.rings)).columns())
        for r in range(1 << tree.index_bits)
    ]
    for i, words in enumerate(made):
        for other in made[:i]:
            assert (words != other).any(axis=0).all()


# Views, sampled


Secret = tuple[int, Sequence[int]]  # a threshold and its payloads


def view(tree: Tree, secret: Secret, seed: int, knows: int, fault: str = "") -> Sample:
    """Words and a root, of a new function each run; and what a faulty protocol tells beside."""
    threshold, payloads = secret
    rng = np.random.default_rng([seed, threshold, *payloads])
    roots = list(drawn_roots(rng, tree, RUNS))
    hashed = random_function(rng, tree, RUNS)
    if fault == "one root for both":
        roots[1 - knows] = roots[knows]
    words = words_of(tree, hashed, roots, threshold, payloads)
    own, theirs = (parts_at(tree, hashed, roots[j], words, 0, j) for j in (knows, 1 - knows))
    zeros = [0] * len(payloads)
    told = {
        "the other root": tree.reduced([a + b for a, b in zip(own, theirs, strict=True)]),
        "words of threshold 0 too": words_of(tree, hashed, roots, 0, zeros).columns(),
        "a secret under the other part": tree.reduced([each + threshold for each in theirs]),
    }
    messages = [*words.columns(), *told.get(fault, ())]
    known = [roots[knows], *tree.reduced([-each for each in own])]
    found = Sample()
    found.add([m.astype(np.uint64) for m in messages], [k.astype(np.uint64) for k in known])
    return found


def secrets_of(tree: Tree) -> list[Secret]:
    highest = [(1 << bits) - 1 for bits in tree.rings]
    ones = [1] * len(tree.rings)
    return [(0, ones), (1, highest), (6, ones), (13, [5] * len(ones)), (15, highest)]


@pytest.mark.parametrize("tree", LARGER, ids=str)
@pytest.mark.parametrize("knows", [0, 1])
def test_views_are_alike_for_thresholds_and_payloads(tree: Tree, knows: int) -> None:
    """One function for both parties and all levels, as AES under a key is."""
    first, *others = secrets_of(tree)
    seen = view(tree, first, 5, knows)
    for secret in others:
        assert not seen.differences(view(tree, secret, 6, knows)), secret


FAULTS = [
    "the other root",
    "one root for both",
    "words of threshold 0 too",
    "a secret under the other part",
]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("tree", LARGER, ids=str)
def test_what_tells_the_threshold_shows(tree: Tree, fault: str) -> None:
    """What test_compare_masks.py refuses: a root that is sent, used twice, or the same as the
    other; and parts as a mask."""
    first, *_, last = secrets_of(tree)
    seen, other = (view(tree, secret, 5, 0, fault) for secret in (first, last))
    has_other_constants = seen.parities.shape != other.parities.shape
    assert has_other_constants or seen.differences(other)
