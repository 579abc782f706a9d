"""Point functions in NumPy: Boyle, Gilboa, Ishai, CCS 2016, with AES under a public key as hash.

Nodes are numbers of 128 bits as Python's own, the lowest bit the control bit: slow, and written
from the paper. kernels/point/declaration.py has the layout of words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from veilgraph.ir.types import point_levels

Array = npt.NDArray[Any]
Hash = Callable[[int], int]
_BYTES = 16


@dataclass(frozen=True)
class Tree:
    """Of 2^index_bits elements of a ring."""

    index_bits: int
    ring_bits: int

    @property
    def levels(self) -> int:
        return point_levels(self.index_bits, self.ring_bits)

    @property
    def lane_bits(self) -> int:
        """Of an element in a leaf."""
        return 32 if self.ring_bits <= 32 else 64

    def elements(self, leaf: int) -> list[int]:
        size = self.lane_bits
        return [leaf >> size * i & (1 << size) - 1 for i in range(128 // size)]


@dataclass(frozen=True)
class Words:
    """The correction words of one index: of each level for left and right children, of leaves."""

    levels: list[tuple[int, int]]
    leaf: int

    @staticmethod
    def read(tree: Tree, blocks: list[int]) -> Words:
        *seeds, controls, leaf = blocks
        rights = (s & ~1 | controls >> i & 1 for i, s in enumerate(seeds))
        return Words(list(zip(seeds, rights, strict=True)), leaf)

    def written(self) -> list[int]:
        controls = sum((right & 1) << i for i, (_, right) in enumerate(self.levels))
        return [*(left for left, _ in self.levels), controls, self.leaf]


def hash_under(key: Array) -> Hash:
    """x to AES(x) XOR x, for AES-128 under a key."""
    encryptor = Cipher(algorithms.AES128(key.tobytes()), modes.ECB()).encryptor()

    def hashed(x: int) -> int:
        return int.from_bytes(encryptor.update(x.to_bytes(_BYTES, "little")), "little") ^ x

    return hashed


def made(tree: Tree, hashed: Hash, first: int, second: int, index: int) -> Words:
    """The words of one index."""
    nodes, levels = [first & ~1, second | 1], []
    for level in range(tree.levels):
        turn = index >> tree.index_bits - 1 - level & 1
        children = [[hashed(node & ~1 | side) for side in (0, 1)] for node in nodes]
        apart = [children[0][side] ^ children[1][side] for side in (0, 1)]
        seed = apart[1 - turn] & ~1
        pair = [seed | (apart[side] ^ (side == turn)) & 1 for side in (0, 1)]
        nodes = [
            child[turn] ^ (pair[turn] if node & 1 else 0)
            for child, node in zip(children, nodes, strict=True)
        ]
        levels.append((pair[0], pair[1]))
    ours, theirs = (tree.elements(hashed(node & ~1)) for node in nodes)
    sign, size, leaf = (-1 if nodes[1] & 1 else 1), tree.lane_bits, 0
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        unit = index % len(ours) == i
        leaf |= (sign * (unit - a + b) & (1 << size) - 1) << size * i
    return Words(levels, leaf)


def leaves(tree: Tree, hashed: Hash, root: int, words: Words, party: int) -> list[int]:
    """All elements of one party's row, modulo 2^lane_bits."""
    nodes = [root & ~1 | party]
    for pair in words.levels:
        nodes = [
            hashed(node & ~1 | side) ^ (pair[side] if node & 1 else 0)
            for node in nodes
            for side in (0, 1)
        ]
    last, sign = tree.elements(words.leaf), 1 - 2 * party
    return [
        sign * (own + (word if node & 1 else 0)) & (1 << tree.lane_bits) - 1
        for node in nodes
        for own, word in zip(tree.elements(hashed(node & ~1)), last, strict=True)
    ]


def words(
    index_bits: int, ring_bits: int, key: Array, first: Array, second: Array, indices: Array
) -> Array:
    """The words of each index, as blocks."""
    tree, hashed = Tree(index_bits, ring_bits), hash_under(key)
    each = zip(_numbers(first), _numbers(second), indices.tolist(), strict=True)
    found = [made(tree, hashed, a, b, i % (1 << index_bits)).written() for a, b, i in each]
    flat = b"".join(block.to_bytes(_BYTES, "little") for row in found for block in row)
    return np.frombuffer(flat, np.uint64).reshape(len(found), tree.levels + 2, 2)


def rows(
    tree: Tree,
    party: int,
    places: int,
    key: Array,
    roots: Array,
    words: Array,
    opened: Array | None = None,
) -> Array:
    """A party's rows, [indices, places]."""
    hashed, out = hash_under(key), np.zeros((len(roots), places), np.uint64)
    for e, (root, row) in enumerate(zip(_numbers(roots), words, strict=True)):
        own = np.array(
            leaves(tree, hashed, root, Words.read(tree, list(_numbers(row))), party), np.uint64
        )
        at, size = np.arange(places), 1 << tree.index_bits
        out[e] = own[at if opened is None else (int(opened[e]) % size - at) % size]
    return out


def _numbers(blocks: Array) -> Iterator[int]:
    return (int(low) | int(high) << 64 for low, high in blocks)
