"""Launches of matmul by residues: factors to bytes, N products of bytes, and words of those."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from veilgraph.kernels.cuda.buffers import Buffer
from veilgraph.kernels.cuda.launch import (
    SCRATCH,
    THREADS,
    Argument,
    DeviceShape,
    Launch,
    Pointer,
    grid_stride,
)
from veilgraph.kernels.gemm import limbs
from veilgraph.kernels.gemm.residues import MAX_DEPTH, STEP, Basis, entries, source
from veilgraph.kernels.gemm.tuning import nearest

ROWS, COLUMNS, _STAGES = 128, 256, 4  # of a block's tile; kernels/gemm/residues.cuh has them too
SHARED_BYTES = _STAGES * (ROWS + COLUMNS) * STEP
MAX_SCRATCH = 4 << 30
_MAX_Z = 65535
# What a byte of residues costs that is written and read again, in products of bytes: a card makes
# some 600 T of these a second, and moves 3 TB.
_BYTE_COST = 400


@dataclass(frozen=True)
class Shape:
    """A call: outputs [batch, rows, columns], and the depth of each pair."""

    ring: limbs.Ring
    batch: int
    rows: int
    columns: int
    depths: tuple[int, ...]

    @staticmethod
    def of(buffers: Sequence[Buffer], bits: int) -> Shape:
        ring = limbs.Ring.of(buffers[0].word_bits, bits)
        depths = tuple(a.shape[2] for a in buffers[1::2])
        batch, rows, columns = buffers[0].shape
        return Shape(ring, batch, rows, columns, depths)

    @property
    def filled(self) -> tuple[int, ...]:
        """Depths in whole steps."""
        return tuple(-(-depth // STEP) * STEP for depth in self.depths)

    @property
    def depth(self) -> int:
        return sum(self.filled)

    @property
    def basis(self) -> Basis:
        return Basis.of(self.ring, sum(self.depths))

    @property
    def pitch(self) -> int:
        """Bytes from row to row of t_i."""
        return -(-self.columns // 4) * 4

    @property
    def places(self) -> tuple[int, int, int]:
        """Where in scratch memory t_i begin, the right factors' residues, and where they end."""
        planes = self.batch * self.basis.count
        t = planes * self.rows * self.depth
        right = t + -(-planes * self.rows * self.pitch // 16) * 16
        return t, right, right + planes * self.columns * self.depth

    @property
    def is_able(self) -> bool:
        """Whether sums fit 32 bits, and residues the scratch memory."""
        return self.depth <= MAX_DEPTH and self.places[2] <= MAX_SCRATCH

    def is_worth(self, device: DeviceShape) -> bool:
        """Whether residues are expected to be faster than limbs: as measured, or by products, and
        bytes moved."""
        if not self.is_able:
            return False
        extents, ring = (self.batch, self.rows, self.columns), self.ring
        row = nearest(device.arch, ring.word_bits, ring.limbs, extents, sum(self.depths))
        if row is not None:
            return row.way == "residues"
        area = -(-self.rows // ROWS) * ROWS * -(-self.columns // COLUMNS) * COLUMNS
        moved = (self.rows + self.columns) * self.depth + self.rows * self.columns
        cost = self.basis.count * (area * self.depth + moved * _BYTE_COST)
        tile = limbs.tiling(self.ring, extents, self.depths, device).tile
        area = -(-self.rows // tile.rows) * tile.rows
        area *= -(-self.columns // tile.columns) * tile.columns
        return cost < area * self.depth * self.ring.products


def by_residues(
    buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape
) -> tuple[Launch, ...]:
    """On tensor cores, where a Shape is able: 2 launches a pair, and 2."""
    out, *factors = buffers
    shape = Shape.of(buffers, params[0])
    t, right, end = shape.places
    made = source(out.word_bits, shape.basis)
    reduce, multiply, combine = entries(out.word_bits, shape.basis)
    steps = [
        Launch(made, reduce, grid_stride(quads, device), (THREADS, 1, 1), arguments, 0, end)
        for quads, arguments in _reductions(factors, shape)
    ]
    tiles = -(-shape.rows // ROWS) * -(-shape.columns // COLUMNS)
    grid = tiles, 1, min(shape.batch * shape.basis.count, _MAX_Z)
    places = Pointer(SCRATCH, t), Pointer(SCRATCH, 0), Pointer(SCRATCH, right)
    extents = shape.batch, shape.rows, shape.columns
    block = THREADS, 1, 1
    products = (*places, *extents, shape.depth, shape.pitch)
    steps.append(Launch(made, multiply, grid, block, products, SHARED_BYTES, end))
    quads = shape.batch * shape.rows * shape.pitch // 4
    sums = (out.pointer, places[0], *extents, shape.pitch)
    steps.append(Launch(made, combine, grid_stride(quads, device), block, sums, 0, end))
    return tuple(steps)


def _reductions(factors: Sequence[Buffer], shape: Shape) -> list[tuple[int, tuple[Argument, ...]]]:
    """For each factor that has depths: quads of it, and the arguments of `reduce`."""
    found: list[tuple[int, tuple[Argument, ...]]] = []
    at = 0
    _, right, _ = shape.places
    for a, b, filled in zip(factors[::2], factors[1::2], shape.filled, strict=True):
        for buffer, lines, place, strides in (
            (a, shape.rows, 0, a.strides),
            (b, shape.columns, right, (b.strides[0], b.strides[2], b.strides[1])),
        ):
            arguments: list[Argument] = [Pointer(SCRATCH, place), buffer.pointer, *strides]
            arguments += [shape.batch, lines, a.shape[2], at, filled, shape.depth]
            if filled:
                found.append((shape.batch * lines * filled // 4, tuple(arguments)))
        at += filled
    return found
