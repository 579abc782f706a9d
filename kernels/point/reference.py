"""What the kernel of point functions computes; blocks are [..., 2] words of 64 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.kernels.fused.aes import encrypt, expand_key
from veilgraph.kernels.point.declaration import Params

Blocks = npt.NDArray[np.uint64]
Words = npt.NDArray[np.unsignedinteger[Any]]
_ONE = np.uint64(1)


def point_words(
    params: Params, key: Blocks, first: Blocks, second: Blocks, indices: Words
) -> Blocks:
    """The words of E indices, [E, levels + 2, 2]."""
    index = indices.astype(np.uint64) & np.uint64((1 << params.index_bits) - 1)
    nodes = [_with_control(first, 0), _with_control(second, 1)]
    out = np.zeros((len(index), params.levels + 2, 2), np.uint64)
    for level in range(params.levels):
        turn = index >> np.uint64(params.index_bits - 1 - level) & _ONE
        children = [[_hash(key, _seed(node), side) for side in (0, 1)] for node in nodes]
        left, right = (children[0][side] ^ children[1][side] for side in (0, 1))
        lost = _seed(np.where(turn[:, None] == 1, left, right))
        controls = left[:, 0] & _ONE ^ turn ^ _ONE, right[:, 0] & _ONE ^ turn
        out[:, level] = _with_control(lost, controls[0])
        out[:, params.levels, 0] |= controls[1] << np.uint64(level)
        word = _with_control(lost, np.where(turn == 1, *reversed(controls)))
        for i, (left, right) in enumerate(children):
            kept: Blocks = np.where(turn[:, None] == 1, right, left)
            nodes[i] = np.bitwise_xor(kept, word * (nodes[i][:, :1] & _ONE))
    ours, theirs = (_numbers(params, _hash(key, _seed(node), 0)) for node in nodes)
    unit = np.eye(params.lanes, dtype=ours.dtype)[index & np.uint64(params.lanes - 1)]
    signs = np.where(nodes[1][:, :1] & _ONE == 1, -1, 1).astype(ours.dtype)
    out[:, params.levels + 1] = (signs * (unit - ours + theirs)).view(np.uint64)
    return out


def point_rows(
    params: Params,
    key: Blocks,
    roots: Blocks,
    words: Blocks,
    places: int,
    opened: Words | None = None,
) -> Words:
    """A party's rows, [E, places]."""
    count, levels = len(roots), params.levels
    nodes = _with_control(roots, params.party)[:, None]
    if not count:
        return np.zeros((0, places), np.uint32 if params.lane_bits == 2 else np.uint64)
    for level in range(levels):
        word = words[:, level]
        right = words[:, levels, 0] >> np.uint64(level) & _ONE
        both = np.stack([word, _with_control(word, right)], 1)
        children = np.stack(
            [_hash(key, _seed(nodes).reshape(-1, 2), s).reshape(nodes.shape) for s in (0, 1)], 2
        )
        nodes = (children ^ both[:, None] * (nodes[:, :, None, :1] & _ONE)).reshape(count, -1, 2)
    leaves = _numbers(params, _hash(key, _seed(nodes).reshape(-1, 2), 0))
    last = _numbers(params, words[:, levels + 1])
    times = (nodes[:, :, :1] & _ONE).astype(leaves.dtype)
    row = leaves.reshape(count, -1, params.lanes) + times * last[:, None]
    row = (row if params.party == 0 else -row).reshape(count, -1)
    place = np.broadcast_to(np.arange(places), (count, places))
    if opened is not None:
        place = opened.astype(np.int64)[:, None] - place & (1 << params.index_bits) - 1
    taken: Words = np.take_along_axis(row, place, 1)
    return taken


def _hash(key: Blocks, seeds: Blocks, side: int) -> Blocks:
    """AES(x) XOR x of x = seed + side, [n, 2]."""
    x = _with_control(seeds, side)
    cipher = encrypt(expand_key(key.tobytes()), x.view(np.uint8).reshape(-1, 16))
    hashed: Blocks = cipher.reshape(-1).view(np.uint64).reshape(-1, 2) ^ x
    return hashed


def _seed(nodes: Blocks) -> Blocks:
    seeds: Blocks = nodes & np.array([~_ONE, ~np.uint64(0)])
    return seeds


def _with_control(nodes: Blocks, bits: Words | int) -> Blocks:
    """The seeds of nodes, with these control bits."""
    marked = _seed(nodes)
    marked[..., 0] |= np.asarray(bits, np.uint64)
    return marked


def _numbers(params: Params, blocks: Blocks) -> Words:
    """The numbers of leaves, [n, lanes]."""
    word = np.uint32 if params.lane_bits == 2 else np.uint64
    return np.ascontiguousarray(blocks).view(word)
