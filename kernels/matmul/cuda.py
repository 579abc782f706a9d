"""Launches of matmul: on tensor cores by limbs, or by residues where those are fewer products, or
on the integer units where tiles would be mostly empty; with the depth cut where the output alone
keeps no device busy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from veilgraph.kernels.cuda.buffers import Buffer
from veilgraph.kernels.cuda.launch import THREADS, Argument, DeviceShape, Launch
from veilgraph.kernels.cuda.source import file_source
from veilgraph.kernels.gemm import limbs
from veilgraph.kernels.gemm.pack import packed
from veilgraph.kernels.gemm.parts import Parts
from veilgraph.kernels.gemm.tiles import SHAPES, tiling
from veilgraph.kernels.matmul import residues
from veilgraph.kernels.matmul.declaration import Params
from veilgraph.kernels.matmul.residues import factor_strides

Way: TypeAlias = Callable[[Sequence[Buffer], Sequence[int], DeviceShape], tuple[Launch, ...]]

MAX_PAIRS = 4  # of a launch; pairs.cuh and windows.cuh of conv2d have it too
# What a GPU moves in the time that a launch takes: two microseconds at 3 TB/s.
_LAUNCH_BYTES = 6_000_000
SOURCE = file_source(
    "kernels/matmul/cuda.cu",
    *(f"veil_matmul{bits}_{r}x{c}" for bits, shapes in SHAPES.items() for r, c in shapes),
)


def launches(
    buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape
) -> tuple[Launch, ...]:
    """By the way that is expected to be faster."""
    return way_of(buffers, params, device)(buffers, params, device) if buffers[0].elements else ()


def launches_of_sums(
    buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape
) -> tuple[Launch, ...]:
    """The same where factors are sums (`Buffer.addend`), which are made while they are loaded; none
    where they had better be made before.

    Residues of each factor are made once, so of a sum too. By limbs each tile of the output makes
    the sums that it needs: as long as the second addend, read once a tile, is no more bytes than
    a step of its own reads and writes, and moves in the time of its launch.
    """
    if buffers[0].elements == 0:
        return ()
    way = way_of(buffers, params, device)
    if way is residues.by_residues:
        return way(buffers, params, device)
    plain = _tiling(buffers, params, device) if way is by_limbs else None
    made = plain.of_sums(_terms(buffers), device) if plain else None
    if made is None or not _saves(buffers, made.tile):
        return ()
    return by_limbs(buffers, params, device, made)


def way_of(buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape) -> Way:
    """What makes the launches of a product that is not empty."""
    out = buffers[0]
    ring, depths = (
        limbs.Ring.of(out.word_bits, Params.of(params).bits),
        [a.shape[2] for a in buffers[1::2]],
    )
    batch, rows, columns = out.shape
    if limbs.is_worth(ring, (batch, rows, columns), depths, device):
        is_large = residues.Shape.of(buffers, Params.of(params).bits).is_worth(device)
        return residues.by_residues if is_large else by_limbs
    return by_integers


def _tiling(buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape) -> limbs.Tiling:
    out = buffers[0]
    batch, rows, columns = out.shape
    ring, depths = (
        limbs.Ring.of(out.word_bits, Params.of(params).bits),
        [a.shape[2] for a in buffers[1::2]],
    )
    return limbs.tiling(ring, (batch, rows, columns), depths, device)


def _terms(buffers: Sequence[Buffer]) -> limbs.Terms:
    """How many addends left and right factors have."""
    left, right = (any(f.addend for f in buffers[side::2]) for side in (1, 2))
    return 1 + left, 1 + right


def _saves(buffers: Sequence[Buffer], tile: limbs.Tile) -> bool:
    """Whether what tiles read of second addends is no more than what the sums' own steps move."""
    out, *factors = buffers
    _, rows, columns = out.shape
    tiles = -(-columns // tile.columns), -(-rows // tile.rows)  # that read a line of either side
    again = moved = 0
    for number, factor in enumerate(factors):
        if factor.addend is None:
            continue
        size = factor.elements * factor.word_bits // 8
        again += size * tiles[number % 2]
        moved += 3 * size // (factor.shape[0] if factor.strides[0] == 0 else 1) + _LAUNCH_BYTES
    return again <= moved


def by_limbs(
    buffers: Sequence[Buffer],
    params: Sequence[int],
    device: DeviceShape,
    made: limbs.Tiling | None = None,
) -> tuple[Launch, ...]:
    """On tensor cores, as `made` or as fits the shape; extents are at most limbs.MAX_EXTENT. `made`
    says which factors may be sums."""
    out, *factors = buffers
    batch, rows, columns = out.shape
    pairs = list(zip(factors[::2], factors[1::2], strict=True))
    made = made or _tiling(buffers, params, device)
    assert made.terms == _terms(buffers), "a kernel of other sums"
    sides = tuple(
        limbs.access((f, *factor_strides(f, s)[1:]) for f in factors[s::2]) for s in (0, 1)
    )

    def words(factor: Buffer, side: int) -> tuple[Argument, ...]:
        if sides[side] is not limbs.Access.PACKED:
            return _factor(factor, side)
        extents = batch, factor.shape[1 + side], factor.shape[2 - side]
        strides = factor_strides(factor, side)
        return packed(factor, strides, extents, made.ring, made.tile, side, device)

    parts, (source, entry) = Parts(out, made.parts), made.source("matmul")
    head = batch, rows, columns, sides[0] + 8 * sides[1]
    block, shared, scratch = (THREADS, 1, 1), made.shared_bytes, parts.scratch_bytes
    each = _in_launches(pairs, words)
    ending = made.ending("matmul", out, [a.shape[2] for a, _ in pairs]) if len(each) == 1 else None
    stored = ((parts.pointer, parts.pitch, int(number > 0)) for number in range(len(each)))
    arguments = [(*head, *words, *end) for words, end in zip(each, stored, strict=True)]
    return (
        *(
            Launch(source, entry, made.grid, block, every, shared, scratch, ending=ending)
            for every in arguments
        ),
        *parts.added(device),
    )


def by_integers(
    buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape
) -> tuple[Launch, ...]:
    """On the integer units."""
    out, *factors = buffers
    batch, rows, columns = out.shape
    pairs = list(zip(factors[::2], factors[1::2], strict=True))
    depth = sum(a.shape[2] for a, _ in pairs)
    tiles = tiling(out.word_bits, (batch, rows, columns), depth, device)
    parts, entry = Parts(out, tiles.parts), f"veil_matmul{out.word_bits}{tiles.suffix}"
    head: list[Argument] = [parts.pointer, batch, rows, columns, parts.count, parts.pitch]
    block, scratch = (THREADS, 1, 1), parts.scratch_bytes
    return (
        *(
            Launch(SOURCE, entry, tiles.grid, block, (*head, int(number > 0), *each), 0, scratch)
            for number, each in enumerate(_in_launches(pairs, _factor))
        ),
        *parts.added(device),
    )


def _factor(factor: Buffer, side: int) -> tuple[Argument, ...]:
    """The struct Factor of pairs.cuh, of a left (0) or a right (1) one."""
    return factor.pointer, *factor_strides(factor, side)


def _in_launches(
    pairs: Sequence[tuple[Buffer, Buffer]], factor: Callable[[Buffer, int], tuple[Argument, ...]]
) -> list[list[Argument]]:
    """The struct Pairs of pairs.cuh for each launch; all but the first add to what is stored."""
    return in_launches(
        [(*factor(a, 0), *factor(b, 1), a.shape[2], a.addend or 0, b.addend or 0) for a, b in pairs]
    )


def in_launches(pairs: Sequence[tuple[Argument, ...]]) -> list[list[Argument]]:
    """A struct Pairs for each launch: how many there are, and the words of MAX_PAIRS."""
    firsts = range(0, len(pairs), MAX_PAIRS)
    return [_pairs(pairs[first : first + MAX_PAIRS]) for first in firsts]


def _pairs(pairs: Sequence[tuple[Argument, ...]]) -> list[Argument]:
    words = [word for pair in pairs for word in pair]
    return [len(pairs), *words, *(MAX_PAIRS - len(pairs)) * len(pairs[0]) * [0]]
