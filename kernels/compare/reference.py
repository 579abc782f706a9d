"""What the kernel of comparison functions computes; blocks are [..., 2] words of 64 bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.kernels.compare.declaration import LEAF_BITS, Params
from veilgraph.kernels.fused.aes import encrypt, expand_key

Blocks = npt.NDArray[np.uint64]
Words = npt.NDArray[np.unsignedinteger[Any]]
_ONE = np.uint64(1)
_TAG = np.uint64(3)  # the bits of a node that are no seed's


def compare_words(
    params: Params,
    key: Blocks,
    first: Blocks,
    second: Blocks,
    thresholds: Words,
    payloads: Sequence[Words],
) -> Words:
    """The words of E thresholds, [E size] numbers, section after section."""
    word, levels, rings = _word(params), params.levels, _rings(params)
    nodes = [_tagged(first, 0), _tagged(second, 1)]
    seeds = np.zeros((levels, len(first), 2), np.uint64)
    numbers = np.zeros((params.payloads, params.rows, len(first)), word)
    own = [each.astype(word) for each in payloads]
    so_far = [np.zeros(len(first), word) for _ in payloads]  # the first party's less the second's
    for level in range(levels):
        turn = _bit(thresholds, params.index_bits - 1 - level)
        sign = _sign(nodes[1], word)
        values = [[_numbers(params, key, node, 2 + side) for side in (0, 1)] for node in nodes]
        for i, payload in enumerate(own):
            left, right = (values[1][side][i] - values[0][side][i] for side in (0, 1))
            lost, kept = np.where(turn == 1, (left, right), (right, left))
            below = np.where(turn == 1, payload, word(0))
            numbers[i, level] = sign * (lost - so_far[i] + below) & rings[i]
            so_far[i] = so_far[i] - kept + sign * numbers[i, level]
        children = [[_hash(key, node, side) for side in (0, 1)] for node in nodes]
        apart = [children[0][side] ^ children[1][side] for side in (0, 1)]
        controls = apart[0][:, 0] & _ONE ^ turn ^ _ONE, apart[1][:, 0] & _ONE ^ turn
        lost_seed = np.where(turn[:, None] == 1, *apart)
        seeds[level] = _tagged(lost_seed, controls[0] | controls[1] << _ONE)
        both = _tagged(lost_seed, np.where(turn == 1, *reversed(controls)))
        for j, sides in enumerate(children):
            own_child = np.where(turn[:, None] == 1, *reversed(sides))
            nodes[j] = _child(own_child, nodes[j], both)
    sign, place = _sign(nodes[1], word), _place(thresholds)
    for point in range(1 << LEAF_BITS):
        ends = [_numbers(params, key, node, point) for node in nodes]
        for i, payload in enumerate(own):
            below = np.where(point < place, payload, word(0))
            number = sign * (ends[1][i] - ends[0][i] - so_far[i] + below)
            numbers[i, levels + point] = number & rings[i]
    return np.concatenate([seeds.reshape(-1).view(word), numbers.reshape(-1)])


def compare_parts(
    params: Params, key: Blocks, roots: Blocks, points: Words, sections: Sequence[Words]
) -> Words:
    """A party's parts at E points, [payloads E]."""
    word, levels, count = _word(params), params.levels, len(roots)
    seeds = np.ascontiguousarray(sections[0]).view(np.uint64).reshape(levels, count, 2)
    numbers = [each.astype(word).reshape(params.rows, count) for each in sections[1:]]
    total: Words = np.zeros((params.payloads, count), word)
    nodes = _tagged(roots, params.party)
    for level in range(levels):
        turn = _bit(points, params.index_bits - 1 - level)
        words = [each[level] for each in numbers]
        total = np.add(total, _read(params, key, nodes, turn + np.uint64(2), words))
        bits = seeds[level][:, 0] >> turn & _ONE
        nodes = _child(_hash(key, nodes, turn), nodes, _tagged(seeds[level], bits))
    place = _place(points)
    last = [each[levels + place, np.arange(count)] for each in numbers]
    total = np.add(total, _read(params, key, nodes, place, last))
    signed = total if params.party == 0 else np.negative(total)
    parts: Words = (signed & np.array(_rings(params))[:, None]).reshape(-1)
    return parts


def _read(
    params: Params, key: Blocks, nodes: Blocks, tags: npt.ArrayLike, words: Sequence[Words]
) -> Words:
    """The numbers of nodes, corrected where their control bits are 1, [payloads, E]."""
    control = (nodes[:, 0] & _ONE).astype(_word(params))
    read: Words = np.array(_numbers(params, key, nodes, tags)) + control * np.array(words)
    return read


def _numbers(params: Params, key: Blocks, nodes: Blocks, tags: npt.ArrayLike) -> list[Words]:
    """Of each payload the numbers H(s + tag)."""
    found: list[Words] = []
    for i in range(params.payloads):
        seeds = nodes.copy()
        seeds[:, 0] ^= np.uint64(i // params.lanes << 2)
        block = _hash(key, seeds, tags).view(_word(params))
        found.append(block[:, i % params.lanes].copy())
    return found


def _child(hashed: Blocks, parents: Blocks, words: Blocks) -> Blocks:
    """Children by their hashes, of which the second lowest bit is not used."""
    return _tagged(hashed, hashed[:, 0] & _ONE) ^ words * (parents[:, :1] & _ONE)


def _hash(key: Blocks, nodes: Blocks, tags: npt.ArrayLike) -> Blocks:
    """AES(x) XOR x of x = seed + tag, [n, 2]."""
    x = _tagged(nodes, tags)
    cipher = encrypt(expand_key(key.tobytes()), x.view(np.uint8).reshape(-1, 16))
    hashed: Blocks = cipher.reshape(-1).view(np.uint64).reshape(-1, 2) ^ x
    return hashed


def _tagged(nodes: Blocks, tags: npt.ArrayLike) -> Blocks:
    """The seeds of nodes, with these lowest two bits."""
    marked: Blocks = nodes & np.array([~_TAG, ~np.uint64(0)])
    marked[..., 0] |= np.asarray(tags, np.uint64)
    return marked


def _bit(numbers: Words, place: int) -> Blocks:
    bits: Blocks = numbers.astype(np.uint64) >> np.uint64(place) & _ONE
    return bits


def _place(numbers: Words) -> npt.NDArray[np.int64]:
    """Of a point, or a threshold, its place in its leaf."""
    return numbers.astype(np.uint64).view(np.int64) & (1 << LEAF_BITS) - 1


def _sign(nodes: Blocks, word: type[Any]) -> Words:
    """Minus 1 where the second party's control bit is 1."""
    signs: Words = np.where(nodes[:, 0] & _ONE == 1, -1, 1).astype(word)
    return signs


def _word(params: Params) -> type[Any]:
    return np.uint32 if params.lanes == 4 else np.uint64


def _rings(params: Params) -> list[Any]:
    """Of each payload all bits of its ring."""
    word = _word(params)
    return [word((1 << bits) - 1) for bits in params.rings]
