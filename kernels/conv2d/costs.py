"""Which convolutions go by residues: what was measured, or what costs less by count.

What is counted is time of a whole card, in products of bytes: tiles run in waves, a tile a
multiprocessor, and a wave takes as long whether it is full or not. How many multiprocessors there
are follows from the architecture here, for what is compiled must not depend on more.
"""

from __future__ import annotations

from veilgraph.kernels.conv2d.convolution import Convolution
from veilgraph.kernels.conv2d.residues import Shape
from veilgraph.kernels.cuda.launch import DeviceShape
from veilgraph.kernels.gemm import limbs
from veilgraph.kernels.gemm.byte_products import COLUMNS, ROWS, engine_of
from veilgraph.kernels.gemm.tuning import nearest
from veilgraph.kernels.matmul.residues import BYTE_COST, LIMB_COST

_MULTIPROCESSORS = {"sm_80": 108, "sm_90": 132}
# What a launch costs beside one launch for all: 2 to 3 microseconds in a graph, in products of
# bytes.
_LAUNCH_COST = 1_500_000_000


def is_worth(c: Convolution, device: DeviceShape) -> bool:
    """Whether residues are expected to be faster than limbs, be they an image at a time."""
    shape = Shape.of(c)
    if not shape.is_able:
        return False
    ring = shape.ring
    row = nearest(device.arch, ring.word_bits, ring.limbs, c.extents, c.depths, c.kernel)
    if row is not None:
        return row.way == "residues"
    usual = DeviceShape(_MULTIPROCESSORS.get(device.arch, 108), device.arch)
    return residues_cost(shape, usual) < limbs_cost(c, ring, usual)


def residues_cost(shape: Shape, device: DeviceShape) -> float:
    """Of the products, of what passes through memory around them, and of more launches."""
    groups, filters, outputs = shape.extents
    planes, count = shape.planes, shape.basis.count
    together = engine_of(device, filters).together
    tiles = groups * count * -(-filters // (together * ROWS)) * -(-outputs // COLUMNS)
    waves = -(-tiles // (device.multiprocessors // together))
    products = waves * device.multiprocessors * ROWS * COLUMNS * planes.depth
    moved = planes.filled * planes.depth // planes.taps * planes.rows.phases * planes.columns.phases
    moved += filters * (outputs + (0 if shape.is_packed else planes.depth))
    launches = planes.pairs * (1 if shape.is_packed else 2) + 1
    return products + groups * count * moved * BYTE_COST + launches * _LAUNCH_COST


def limbs_cost(c: Convolution, ring: limbs.Ring, device: DeviceShape) -> float:
    """Of the products, in those of residues."""
    kernel, extents = "conv2d", c.extents
    if c.is_matmul:
        images, filters, *sides = c.out.shape
        kernel, extents = "matmul", (images, filters, sides[0] * sides[1])
    made = limbs.tiling(ring, extents, c.depths, device, kernel)
    waves = -(-made.grid[0] * extents[0] * made.parts // device.multiprocessors)
    area = waves * device.multiprocessors * made.tile.rows * made.tile.columns
    product = LIMB_COST[engine_of(device, c.filters)] * limbs.product_cost(made.tile)
    return area * sum(c.depths) / made.parts * ring.products * product
