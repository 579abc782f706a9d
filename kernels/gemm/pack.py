"""Factors split into limbs once a session, for products that read them again and again:
kernels/gemm/pack.cuh.

Of an element L bytes are copied at each product in place of a word's 4 or 8, in runs of whole
steps, and nothing is taken apart. The layout follows from the ring's limbs and the tile's lines, so
from the architecture and from what was measured there.
"""

from __future__ import annotations

from functools import cache

from veilgraph.kernels.cuda.buffers import Buffer
from veilgraph.kernels.cuda.launch import (
    PACKED,
    THREADS,
    Argument,
    DeviceShape,
    Launch,
    Packed,
    Pointer,
    grid_stride,
)
from veilgraph.kernels.cuda.source import Source
from veilgraph.kernels.gemm.limbs import STEP, Ring, Tile

_QUAD = 4  # depths that a thread takes apart at a time


@cache
def source(ring: Ring, plane: str) -> tuple[Source, str]:
    """The kernel for a ring and a plane of kernels/gemm/pack.cuh, and its entry."""
    entry = f"veil_pack{ring.word_bits}_{ring.limbs}_{plane}"
    text = (
        '#include "kernels/gemm/pack.cuh"\n\n'
        f"VEIL_PACK({entry}, uint{ring.word_bits}_t, {ring.limbs}, {plane})\n"
    )
    return Source("pack", text, (entry,)), entry


def packed(
    buffer: Buffer,
    strides: tuple[int, int, int],
    extents: tuple[int, int, int],
    ring: Ring,
    tile: Tile,
    side: int,
    device: DeviceShape,
) -> tuple[Argument, int, int, int]:
    """A factor as a struct Factor with its layout's strides, in words: from entry to entry, from
    tile to tile, and from step to step.

    Args:
        buffer: where the factor lies.
        strides: of it in elements, over entries, lines and depths. What is the same in all entries
            is packed once.
        extents: entries, lines and depths.
        tile: of the product.
        side: 0 for a left factor, 1 for a right one.
    """
    _, lines, depth = extents
    tile_lines = (tile.rows, tile.columns)[side]
    entries = extents[0] if strides[0] else 1
    steps, tiles = -(-depth // STEP), -(-lines // tile_lines)
    of_step = ring.limbs * tile_lines * STEP * 8 // ring.word_bits
    of_entry = tiles * steps * of_step
    made, entry = source(ring, tile.planes[side])
    items = entries * tiles * steps * tile_lines * STEP // _QUAD
    head = Pointer(PACKED, 0), buffer.pointer, *strides
    arguments = (*head, entries, lines, depth, tile_lines)
    launch = Launch(made, entry, grid_stride(items, device), (THREADS, 1, 1), arguments)
    found = Packed(entries * of_entry * ring.word_bits // 8, (launch,) if items else ())
    return found, of_entry if entries > 1 else 0, steps * of_step, of_step
