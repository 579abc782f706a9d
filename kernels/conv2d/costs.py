"""Which convolutions go by residues: what was measured, or what takes fewer clocks by count.

Counted is the time of a whole GPU: tiles run in waves, a tile a multiprocessor, and a wave takes
as long whether it is full or not; what passes through memory around the products; and the start of
each launch. Rates are predictions (benchmarks/RESULTS.md, "Ring products on tensor cores"), and
`python -m benchmarks.gpu.predictions` prints what follows from them. How many multiprocessors there
are is the architecture's usual number here, for what is compiled must not depend on more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from veilgraph.kernels.conv2d.convolution import Convolution
from veilgraph.kernels.conv2d.residues.residues import Shape
from veilgraph.kernels.cuda.launch import DeviceShape
from veilgraph.kernels.gemm import limbs
from veilgraph.kernels.gemm.residues.byte_products import COLUMNS, ROWS, STEP, engine_of
from veilgraph.kernels.gemm.tuning import nearest


@dataclass(frozen=True)
class Gpu:
    """A usual GPU of an architecture.

    Attributes:
        multiprocessors: how many it has.
        paired, alone: products of bytes a clock and multiprocessor by residues, in pairs of blocks
            and in single ones.
        mma: the same by limbs, on mma.sync.
        matrices, groups: the same by limbs, on wgmma, of images that are matrices and of others.
        moved: bytes a clock, from and to memory.
    """

    multiprocessors: int
    paired: float
    alone: float
    mma: float
    matrices: Mapping[limbs.Tile, float]
    groups: Mapping[limbs.Tile, float]
    moved: float


# By residues 0.74 and 0.66 of 4,096. By limbs what an H100 reached (benchmarks/RESULTS.md, "Ring
# products on tensor cores"): products of 8192 cubed, 3 x 3 layers of a VGG-16 and, on mma.sync, the
# layers of 64 filters.
_MATRICES: dict[limbs.Tile, float] = {
    limbs.GROUP_80: 1415, limbs.GROUP_64: 1300, limbs.GROUP_32: 1620,
}  # fmt: skip
_GROUPS: dict[limbs.Tile, float] = {
    limbs.GROUP_80: 680, limbs.GROUP_64: 940, limbs.GROUP_32: 1350,
}  # fmt: skip
_SM_90 = Gpu(132, 3030, 2700, 900, _MATRICES, _GROUPS, 1420)
_SM_80 = Gpu(108, 1540, 1540, 1540, {}, {}, 1000)  # 0.75 of 2,048
_START = 3000  # clocks before a launch's first product or word, and before a tile's by limbs
_TILE = 2500  # from a tile's sums to t_i
_SLOTS = 96  # instructions of threads that a multiprocessor issues a clock: 0.75 of 128


def is_worth(c: Convolution, device: DeviceShape) -> bool:
    """Whether residues are expected to be faster than limbs, be they an image at a time."""
    shape = Shape.of(c)
    if not shape.is_able:
        return False
    ring = shape.ring
    row = nearest(device.arch, ring.word_bits, ring.limbs, c.extents, c.depths, c.kernel)
    if row is not None:
        return row.way == "residues"
    return residues_clocks(shape, device.arch) < limbs_clocks(c, ring, device.arch)


def _gpu(arch: str) -> Gpu:
    return _SM_90 if arch == "sm_90" else _SM_80


def limbs_clocks(c: Convolution, ring: limbs.Ring, arch: str) -> float:
    """Of a convolution by limbs, an image at a time where images are matrices."""
    gpu, kernel, extents = _gpu(arch), "conv2d", c.extents
    if c.is_matmul:
        images, filters, *sides = c.out.shape
        kernel, extents = "matmul", (images, filters, sides[0] * sides[1])
    usual = DeviceShape(gpu.multiprocessors, arch)
    made = limbs.tiling(ring, extents, c.depths, usual, kernel)
    waves = -(-made.grid[0] * extents[0] * made.parts // gpu.multiprocessors)
    steps = -(-sum(-(-depth // limbs.STEP) for depth in c.depths) // made.parts)
    products = made.tile.rows * made.tile.columns * limbs.STEP * ring.products
    measured = gpu.matrices if c.is_matmul else gpu.groups
    rate = measured.get(made.tile, gpu.mma / limbs.product_cost(made.tile))
    return waves * (steps * products / rate + _START) + _START


def residues_clocks(shape: Shape, arch: str) -> float:
    """Of all launches of a convolution by residues."""
    gpu, planes, count = _gpu(arch), shape.planes, shape.basis.count
    groups, filters, outputs = shape.extents
    word, pixels = shape.ring.word_bits // 8, planes.rows.size * planes.columns.size
    read = groups * planes.channels * planes.images * pixels
    phases = planes.rows.phases * planes.columns.phases
    made = groups * planes.blocks * STEP * phases * planes.filled
    clocks = planes.pairs * _reduced(gpu, count, made, read * word)
    if not shape.is_packed:
        weights = groups * filters * planes.depth
        clocks += _reduced(gpu, count, weights, weights * word) + planes.pairs * _START
    sums = groups * filters * outputs
    return clocks + _multiplied(gpu, shape, arch) + _combined(gpu, count, sums, sums * word)


def _multiplied(gpu: Gpu, shape: Shape, arch: str) -> float:
    groups, filters, outputs = shape.extents
    together = engine_of(DeviceShape(gpu.multiprocessors, arch), filters).together
    tiles = groups * shape.basis.count * -(-filters // (together * ROWS)) * -(-outputs // COLUMNS)
    waves = -(-tiles // (gpu.multiprocessors // together))
    rate = gpu.paired if together > 1 else gpu.alone
    return waves * (ROWS * COLUMNS * shape.planes.depth / rate + _TILE) + _START


def _reduced(gpu: Gpu, count: int, made: int, read_bytes: int) -> float:
    """Words to so many bytes a modulus: 280 + 32 N instructions for four, as disassembled."""
    return _streamed(gpu, made * (70 + 8 * count), read_bytes + made * count)


def _combined(gpu: Gpu, count: int, sums: int, written_bytes: int) -> float:
    """So many sums to words: 470 + 27 N instructions for four."""
    return _streamed(gpu, sums * (118 + 7 * count), sums * count + written_bytes)


def _streamed(gpu: Gpu, instructions: int, moved: int) -> float:
    return max(instructions / (_SLOTS * gpu.multiprocessors), moved / gpu.moved) + _START
