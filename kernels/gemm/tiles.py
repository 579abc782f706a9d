"""Which tiles a matrix product is made of, and into how many parts its depth is cut."""

from __future__ import annotations

from dataclasses import dataclass

from veilgraph.kernels.cuda.launch import DeviceShape

DEPTH = 8  # depths in shared memory; kernels/gemm/tiled.cuh has it too
_LARGE = {32: (128, 128), 64: (128, 64)}  # accumulators of 64 bits take two registers
_FLAT, _TALL = (32, 128), (128, 32)
_THIN = 32  # rows or columns that a large tile would be mostly empty on
_LEAST_STEPS = 16  # of DEPTH each that are worth a part of their own
_MAX_PARTS = 64
_MAX_Z = 65535

SHAPES: dict[int, tuple[tuple[int, int], ...]] = {
    bits: (large, _FLAT, _TALL) for bits, large in _LARGE.items()
}


@dataclass(frozen=True)
class Tiling:
    """A grid of tiles of `rows` x `columns`, each made in `parts` that are added up."""

    rows: int
    columns: int
    grid: tuple[int, int, int]
    parts: int

    @property
    def suffix(self) -> str:
        """Of the kernels for this shape."""
        return f"_{self.rows}x{self.columns}"


def tiling(
    word_bits: int, extents: tuple[int, int, int], depth: int, device: DeviceShape
) -> Tiling:
    """For outputs [batch, rows, columns] of so many depths, all pairs' together.

    Outputs with fewer tiles than the device has multiprocessors have their depth cut.
    """
    batch, rows, columns = extents
    shape = _FLAT if rows <= _THIN else _TALL if columns <= _THIN else _LARGE[word_bits]
    tiles = -(-columns // shape[1]), -(-rows // shape[0])
    blocks = batch * tiles[0] * tiles[1]
    wanted = -(-2 * device.multiprocessors // blocks)
    parts = max(1, min(wanted, depth // (DEPTH * _LEAST_STEPS), _MAX_PARTS))
    return Tiling(*shape, (*tiles, min(batch * parts, _MAX_Z)), parts)
