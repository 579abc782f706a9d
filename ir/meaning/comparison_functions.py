"""Comparison functions in NumPy: Boyle et al., EUROCRYPT 2021, figure 1, AES under a key as hash.

Nodes are numbers of 128 bits as Python's own, seeds but for their lowest two bits: slow, and
written from the paper. kernels/compare/declaration.py has the layout of words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.ir.meaning.point_functions import Hash, hash_under
from veilgraph.ir.types import CompareWords

Array = npt.NDArray[Any]
_TAG = 3  # the bits of a node that are no seed's
_BYTES = 16
LEAF_BITS = 2


@dataclass(frozen=True)
class Tree:
    """Of 2^index_bits points; `rings` are bits of payloads."""

    index_bits: int
    rings: tuple[int, ...]

    @property
    def layout(self) -> CompareWords:
        return CompareWords(self.index_bits, self.rings)

    @property
    def levels(self) -> int:
        return self.index_bits - LEAF_BITS

    def numbers(self, hashed: Hash, node: int, tag: int) -> list[int]:
        """What a node has for each payload, going left (tag 2), right (3) or at a leaf's point."""
        bits = self.layout.word_bits
        per, found = 128 // bits, []
        for i, ring in enumerate(self.rings):
            block = hashed((node ^ i // per << 2) & ~_TAG | tag)
            found.append((block >> bits * (i % per)) % (1 << ring))
        return found

    def reduced(self, numbers: Sequence[int]) -> list[int]:
        return [number % (1 << bits) for number, bits in zip(numbers, self.rings, strict=True)]


@dataclass(frozen=True)
class Words:
    """The correction words of one threshold: a block and numbers a level, numbers of each point."""

    seeds: list[int]
    numbers: list[list[int]]  # of levels, then of a leaf's points; one a payload each


def made(
    tree: Tree, hashed: Hash, first: int, second: int, threshold: int, payloads: Sequence[int]
) -> Words:
    """The words of one threshold."""
    nodes, seeds, numbers = [first & ~_TAG, second & ~_TAG | 1], [], []
    so_far = [0] * len(payloads)  # the first party's sum less the second one's
    for level in range(tree.levels):
        turn, sign = threshold >> tree.index_bits - 1 - level & 1, -1 if nodes[1] & 1 else 1
        sides = [[tree.numbers(hashed, node, 2 + side) for node in nodes] for side in (0, 1)]
        lost, kept = sides[1 - turn], sides[turn]
        word = [
            sign * (b - a - v + turn * payload)
            for a, b, v, payload in zip(*lost, so_far, payloads, strict=True)
        ]
        numbers.append(tree.reduced(word))
        so_far = [
            v + a - b + sign * each for v, a, b, each in zip(so_far, *kept, word, strict=True)
        ]
        children = [[hashed(node & ~_TAG | side) for node in nodes] for side in (0, 1)]
        apart = [a ^ b for a, b in children]
        controls = [(apart[side] ^ (side == turn)) & 1 for side in (0, 1)]
        seed = apart[1 - turn] & ~_TAG
        seeds.append(seed | controls[0] | controls[1] << 1)
        nodes = [
            child(each, node, seed | controls[turn])
            for each, node in zip(children[turn], nodes, strict=True)
        ]
    sign = -1 if nodes[1] & 1 else 1
    for point in range(1 << LEAF_BITS):
        is_below = point < threshold % (1 << LEAF_BITS)
        ends = [tree.numbers(hashed, node, point) for node in nodes]
        numbers.append(
            tree.reduced(
                [
                    sign * (b - a - v + is_below * payload)
                    for a, b, v, payload in zip(*ends, so_far, payloads, strict=True)
                ]
            )
        )
    return Words(seeds, numbers)


def child(hashed: int, parent: int, word: int) -> int:
    """A child of which the hash is known; the second lowest bit is not used."""
    return hashed & ~2 ^ (word if parent & 1 else 0)


def part(tree: Tree, hashed: Hash, root: int, words: Words, point: int, party: int) -> list[int]:
    """One party's part of each payload where the point is below the threshold."""
    node, total = root & ~_TAG | party, [0] * len(tree.rings)

    def added(tag: int, word: Sequence[int]) -> list[int]:
        own = tree.numbers(hashed, node, tag)
        return [t + a + (w if node & 1 else 0) for t, a, w in zip(total, own, word, strict=True)]

    for level, (seed, word) in enumerate(zip(words.seeds, words.numbers, strict=False)):
        turn = point >> tree.index_bits - 1 - level & 1
        total = added(2 + turn, word)
        corrected = seed & ~_TAG | seed >> turn & 1
        node = child(hashed(node & ~_TAG | turn), node, corrected)
    place = point % (1 << LEAF_BITS)
    total = added(place, words.numbers[tree.levels + place])
    return tree.reduced([-each if party else each for each in total])


def words(
    tree: Tree, key: Array, first: Array, second: Array, thresholds: Array, *payloads: Array
) -> Array:
    """The words of each threshold, section after section."""
    hashed, places = hash_under(key), 1 << tree.index_bits
    numbers = zip(*(each.tolist() for each in payloads), strict=True)
    each = zip(_numbers(first), _numbers(second), thresholds.tolist(), numbers, strict=True)
    found = [made(tree, hashed, a, b, r % places, values) for a, b, r, values in each]
    seeds = (seed for level in range(tree.levels) for seed in (w.seeds[level] for w in found))
    flat = b"".join(seed.to_bytes(_BYTES, "little") for seed in seeds)
    bits = tree.layout.word_bits
    word = np.uint32 if bits == 32 else np.uint64
    rows = [
        w.numbers[row][i]
        for i in range(len(tree.rings))
        for row in range(tree.layout.rows)
        for w in found
    ]
    whole: Array = np.concatenate([np.frombuffer(flat, word), np.array(rows, word)])
    return whole.astype(np.uint64)


def parts(
    tree: Tree,
    party: int,
    key: Array,
    roots: Array,
    points: Array,
    seeds: Array,
    *numbers: Array,
) -> Array:
    """A party's parts at each point, payload after payload."""
    hashed, count = hash_under(key), len(roots)
    word = np.uint32 if tree.layout.word_bits == 32 else np.uint64
    blocks = seeds.astype(word).view(np.uint64).reshape(tree.levels, count, 2)
    rows = np.stack([each.reshape(tree.layout.rows, count) for each in numbers], 1)
    out = np.zeros((len(numbers), count), np.uint64)
    for e, root in enumerate(_numbers(roots)):
        own = Words(list(_numbers(blocks[:, e])), rows[:, :, e].tolist())
        out[:, e] = part(tree, hashed, root, own, int(points[e]) % (1 << tree.index_bits), party)
    return out.reshape(-1)


def _numbers(blocks: Array) -> Iterator[int]:
    return (int(low) | int(high) << 64 for low, high in blocks)
