"""Comparison functions in NumPy: Boyle et al., EUROCRYPT 2021, figure 1, AES under a key as hash.

Nodes are blocks of 128 bits, [..., 2] words of 64 bits of which the lower one is first: seeds but
for their lowest two bits. Numbers are kept modulo 2^64 and reduced at the end. All elements go down
the tree together. kernels/compare/declaration.py has the layout of words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from veilgraph.ir.types import CompareWords

Array = npt.NDArray[Any]
Hash = Callable[[Array], Array]  # of each block
LEAF_BITS = 2
_ONE = np.uint64(1)
_TAG = np.uint64(3)  # the bits of a node that are no seed's


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

    @property
    def word(self) -> type[Any]:
        """Of the numbers that blocks are read as."""
        return np.uint32 if self.layout.word_bits == 32 else np.uint64

    def numbers(self, hashed: Hash, nodes: Array, tags: npt.ArrayLike) -> Array:
        """What nodes have for each payload, [payloads, ...]: going left (tag 2), right (3) or at a
        leaf's point."""
        per, found = 128 // self.layout.word_bits, []
        for i in range(len(self.rings)):
            block = hashed(tagged(nodes ^ np.array([i // per << 2, 0], np.uint64), tags))
            found.append(block.view(self.word)[..., i % per].astype(np.uint64))
        return np.array(found)

    def reduced(self, numbers: Array) -> Array:
        """[payloads, ...] modulo the payloads' rings."""
        masks = np.array([(1 << bits) - 1 for bits in self.rings], np.uint64)
        return np.asarray(numbers & masks.reshape(-1, *[1] * (numbers.ndim - 1)))

    def turns(self, points: Array, level: int) -> Array:
        return np.asarray(points >> np.uint64(self.index_bits - 1 - level) & _ONE)


@dataclass(frozen=True)
class Words:
    """The correction words of E thresholds."""

    seeds: Array  # blocks, [levels, E, 2], whose lowest two bits correct children's control bits
    numbers: Array  # of levels, then of a leaf's points, [payloads, levels + 4, E]


def hash_under(key: Array) -> Hash:
    """x to AES(x) XOR x, for AES-128 under a key."""
    encryptor = Cipher(algorithms.AES128(key.tobytes()), modes.ECB()).encryptor()

    def hashed(x: Array) -> Array:
        cipher = np.frombuffer(encryptor.update(x.tobytes()), np.uint64)
        return np.asarray(cipher.reshape(x.shape) ^ x)

    return hashed


def made(
    tree: Tree, hashed: Hash, first: Array, second: Array, thresholds: Array, payloads: Array
) -> Words:
    """The words of E thresholds, which are below 2^index_bits; payloads are [payloads, E]."""
    nodes, seeds, numbers = np.stack([tagged(first, 0), tagged(second, 1)]), [], []
    so_far = np.zeros_like(payloads)  # the first party's sum less the second one's
    for level in range(tree.levels):
        turn, sign = tree.turns(thresholds, level), _sign(nodes[1])
        lost, kept = (tree.numbers(hashed, nodes, tag) for tag in (_TAG - turn, turn + 2 * _ONE))
        word = sign * (lost[:, 1] - lost[:, 0] - so_far + turn * payloads)
        numbers.append(tree.reduced(word))
        so_far = so_far + kept[:, 0] - kept[:, 1] + sign * numbers[-1]
        off, on = (hashed(tagged(nodes, side)) for side in (turn ^ _ONE, turn))
        seed = off[0] ^ off[1]
        control = (on[0, :, 0] ^ on[1, :, 0] ^ _ONE) & _ONE
        seeds.append(tagged(seed, (seed[:, 0] & _ONE) << (turn ^ _ONE) | control << turn))
        nodes = child(on, nodes, tagged(seed, control))
    sign, place = _sign(nodes[1]), thresholds & _TAG
    for point in range(1 << LEAF_BITS):
        ends = tree.numbers(hashed, nodes, point)
        below = np.uint64(point) < place
        numbers.append(tree.reduced(sign * (ends[:, 1] - ends[:, 0] - so_far + below * payloads)))
    return Words(np.array(seeds), np.stack(numbers, 1))


def part(tree: Tree, hashed: Hash, roots: Array, words: Words, points: Array, party: int) -> Array:
    """One party's part of each payload where points are below thresholds, [payloads, E]."""
    nodes, total = tagged(roots, party), np.zeros((len(tree.rings), len(roots)), np.uint64)

    def added(tags: Array, word: Array) -> Array:
        return total + tree.numbers(hashed, nodes, tags) + (nodes[:, 0] & _ONE) * word

    for level, seed in enumerate(words.seeds):
        turn = tree.turns(points, level)
        total = added(turn + 2 * _ONE, words.numbers[:, level])
        corrected = tagged(seed, seed[:, 0] >> turn & _ONE)
        nodes = child(hashed(tagged(nodes, turn)), nodes, corrected)
    place = points & _TAG
    last = words.numbers[:, tree.levels + place.astype(np.intp), np.arange(len(roots))]
    total = added(place, last)
    return tree.reduced(np.negative(total) if party else total)


def child(hashed: Array, parents: Array, words: Array) -> Array:
    """Children by their hashes, of which the second lowest bit is not used."""
    return np.asarray(tagged(hashed, hashed[..., 0] & _ONE) ^ words * (parents[..., :1] & _ONE))


def tagged(nodes: Array, tags: npt.ArrayLike) -> Array:
    """The seeds of nodes, with these lowest two bits."""
    found = nodes.copy()
    found[..., 0] = nodes[..., 0] & ~_TAG | np.asarray(tags, np.uint64)
    return found


def words(
    tree: Tree, key: Array, first: Array, second: Array, thresholds: Array, *payloads: Array
) -> Array:
    """The words of each threshold, section after section."""
    below = _modulo(tree, thresholds)
    values = np.array(payloads, np.uint64)
    found = made(tree, hash_under(key), first, second, below, values)
    sections = found.seeds.reshape(-1).view(tree.word), found.numbers.reshape(-1)
    return np.concatenate([each.astype(np.uint64) for each in sections])


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
    blocks = seeds.astype(tree.word).view(np.uint64).reshape(tree.levels, len(roots), 2)
    rows = np.array(numbers, np.uint64).reshape(len(numbers), tree.layout.rows, len(roots))
    own = Words(blocks, rows)
    return part(tree, hash_under(key), roots, own, _modulo(tree, points), party).reshape(-1)


def _modulo(tree: Tree, numbers: Array) -> Array:
    return np.asarray(numbers.astype(np.uint64) & np.uint64((1 << tree.index_bits) - 1))


def _sign(nodes: Array) -> Array:
    """Minus 1 where the second party's control bit is 1, modulo 2^64."""
    return np.uint64(1) - 2 * (nodes[:, 0] & _ONE)
