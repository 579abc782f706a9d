"""Launches of matmul by residues: factors to bytes, N products of bytes, and words of those."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from veilgraph.kernels.cuda.buffers import Buffer
from veilgraph.kernels.cuda.launch import (
    PACKED,
    SCRATCH,
    THREADS,
    Argument,
    DeviceShape,
    Launch,
    Packed,
    Pointer,
    Sums,
    grid_stride,
)
from veilgraph.kernels.gemm import limbs
from veilgraph.kernels.gemm.residues.byte_products import (
    COLUMNS,
    MMA,
    ROWS,
    STEP,
    WGMMA,
    WGMMA_PAIRS,
    Places,
    engine_of,
    multiply,
    pitch_of,
    plane_bytes,
)
from veilgraph.kernels.gemm.residues.residues import MAX_DEPTH, Basis, constants, entries, source
from veilgraph.kernels.gemm.tuning import nearest
from veilgraph.kernels.matmul.declaration import Params

MAX_SCRATCH = 4 << 30
# What a byte of residues costs that is written and read again, in products of bytes: a GPU makes
# some 600 T of these a second, and moves 3 TB.
_BYTE_COST = 400
# What a product of bytes costs by limbs on mma.sync, whose kernel splits as it goes, in products of
# residues: some 450 T a second beside 620 T by wgmma, 680 T in pairs.
_LIMB_COST = {MMA: 1.0, WGMMA: 1.4, WGMMA_PAIRS: 1.5}
# The same by limbs on wgmma, as an H100 took it for 8192 cubed (benchmarks/RESULTS.md).
_GROUP_COST: dict[limbs.Tile, float] = {
    limbs.GROUP_80: 1.8,
    limbs.GROUP_64: 1.9,
    limbs.GROUP_32: 1.6,
}


@dataclass(frozen=True)
class Shape:
    """A call: outputs [batch, rows, columns], and the depth of each pair.

    `packed` says whether the residues of all left factors, and of all right ones, are made once a
    session.
    """

    ring: limbs.Ring
    batch: int
    rows: int
    columns: int
    depths: tuple[int, ...]
    packed: tuple[bool, bool] = (False, False)

    @staticmethod
    def of(buffers: Sequence[Buffer], bits: int) -> Shape:
        ring = limbs.Ring.of(buffers[0].word_bits, bits)
        depths = tuple(a.shape[2] for a in buffers[1::2])
        batch, rows, columns = buffers[0].shape

        def is_packed(factor: Buffer) -> bool:
            # One matrix for all entries would be kept as many times.
            return factor.is_fixed and (batch == 1 or factor.strides[0] != 0)

        left, right = (all(map(is_packed, buffers[side::2])) for side in (1, 2))
        return Shape(ring, batch, rows, columns, depths, (left, right))

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
        return pitch_of(self.columns)

    @property
    def places(self) -> tuple[int, int, int]:
        """Where in scratch memory t_i begin, the right factors' residues, and where they end; the
        left factors' lie before. What is packed lies elsewhere."""
        left, right = (0 if packed else 1 for packed in self.packed)
        t = left * self.factor_bytes(self.rows)
        start = t + self.batch * self.basis.count * self.rows * self.pitch
        return t, start, start + right * self.factor_bytes(self.columns)

    def factor_bytes(self, lines: int) -> int:
        """Of the residues of one side, of so many rows or columns."""
        return self.batch * self.basis.count * plane_bytes(lines, self.depth)

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
        row = nearest(device.arch, ring.word_bits, ring.limbs, extents, self.depths)
        if row is not None:
            return row.way == "residues"
        area = -(-self.rows // ROWS) * ROWS * -(-self.columns // COLUMNS) * COLUMNS
        sides = zip((self.rows, self.columns), self.packed, strict=True)
        reduced = sum(lines for lines, packed in sides if not packed)
        moved = reduced * self.depth + self.rows * self.columns
        cost = self.basis.count * (area * self.depth + moved * _BYTE_COST)
        tile = limbs.tiling(self.ring, extents, self.depths, device).tile
        area = -(-self.rows // tile.rows) * tile.rows
        area *= -(-self.columns // tile.columns) * tile.columns
        usual = _LIMB_COST[engine_of(device, self.rows)] * limbs.product_cost(tile)
        product = _GROUP_COST.get(tile, usual)
        return cost < area * self.depth * self.ring.products * product


def factor_strides(factor: Buffer, side: int) -> tuple[int, int, int]:
    """Of a left (0) or a right (1) factor, over entries, lines (rows or columns), and depths."""
    batch, *others = factor.strides
    return batch, others[side], others[1 - side]


def by_residues(
    buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape
) -> tuple[Launch, ...]:
    """On tensor cores, where a Shape is able: 2 launches a pair, and 2; a launch less for each
    factor on a side that is packed."""
    out, *factors = buffers
    shape = Shape.of(buffers, Params.of(params).bits)
    t, _, end = shape.places
    made = source(out.word_bits, shape.basis)
    _, combine = entries(out.word_bits, shape.basis)
    left, reductions = _residues(factors[::2], shape, 0, device)
    right, others = _residues(factors[1::2], shape, 1, device)
    places = Places(left, Pointer(SCRATCH, t), right)
    extents = shape.batch, shape.rows, shape.columns
    quads = shape.batch * shape.rows * shape.pitch // 4
    sums = (out.pointer, places.out, *extents, shape.pitch)
    return (
        *reductions,
        *others,
        multiply(shape.basis, extents, shape.depth, places, device, end),
        Launch(
            made,
            combine,
            grid_stride(quads, device),
            (THREADS, 1, 1),
            sums,
            scratch_bytes=end,
            sums=_sums(out, shape),
        ),
    )


def _sums(out: Buffer, shape: Shape) -> Sums:
    """What `combine` stores."""
    index = "uint32_t" if out.elements < 1 << 31 else "uint64_t"
    return Sums(
        out.pointer,
        out.word_bits,
        out.elements,
        f'#include "kernels/gemm/residues/combined.cuh"\n\n{constants(shape.basis)}',
        ("const uint8_t* t", "uint64_t rows", "uint64_t columns", "uint64_t pitch"),
        (Pointer(SCRATCH, shape.places[0]), shape.rows, shape.columns, shape.pitch),
        f"combined<uint{out.word_bits}_t, {index}, Basis::kCount>"
        "(tile, t, rows, columns, pitch, Basis::kProduct, kModuli)",
    )


def _residues(
    factors: Sequence[Buffer], shape: Shape, side: int, device: DeviceShape
) -> tuple[Argument, tuple[Launch, ...]]:
    """Where the residues of the left (0) or right (1) factors are, and what makes them at each
    inference."""
    _, right, end = shape.places
    if shape.packed[side]:
        made = _reductions(factors, shape, side, Pointer(PACKED, 0), 0, device)
        lines = (shape.rows, shape.columns)[side]
        return Packed(shape.factor_bytes(lines), made), ()
    out = Pointer(SCRATCH, right if side else 0)
    return out, _reductions(factors, shape, side, out, end, device)


def _reductions(
    factors: Sequence[Buffer],
    shape: Shape,
    side: int,
    out: Pointer,
    scratch_bytes: int,
    device: DeviceShape,
) -> tuple[Launch, ...]:
    """For each factor that has depths, the launch that makes its residues."""
    word_bits = factors[0].word_bits
    made, entry = source(word_bits, shape.basis), entries(word_bits, shape.basis)[0]
    found: list[Launch] = []
    at = 0
    for factor, depth, filled in zip(factors, shape.depths, shape.filled, strict=True):
        lines = factor.shape[1 + side]
        head = out, factor.pointer, *factor_strides(factor, side)
        extents = shape.batch, lines, depth, at, filled, shape.depth
        arguments = (*head, *extents, factor.addend or 0)
        grid = grid_stride(shape.batch * lines * filled // 4, device)
        if filled:
            found.append(Launch(made, entry, grid, (THREADS, 1, 1), arguments, 0, scratch_bytes))
        at += filled
    return tuple(found)
