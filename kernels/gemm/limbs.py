"""Matrix products on 8-bit tensor cores, by balanced limbs: kernels/gemm/limbs.cuh.

An element x of Z_2^k is sum d_i(x) 256^i modulo 2^k, -128 <= d_i <= 127: with
y = x + sum 128 256^i, d_i is byte i of y less 128. So, of L = ceil(k / 8) limbs,

    a b = sum over w < L of 256^w sum over i + j = w of d_i(a) d_j(b)   modulo 256^L,

L (L + 1) / 2 products of bytes: 10 of 4 limbs, 15 of 5, 36 of 8.

**How deep 32-bit sums are exact.** The products of one weight w, w + 1 of them a depth, are added
in one sum of 32 bits, which wraps (PTX ISA, mma without .satfinite). The ring takes 8 L - 8 w bits
of it. Where these are 32 or fewer, w >= L - 4, wrapping changes nothing, at any depth: so for
L <= 4 never. For w < L - 4 the sum itself must be right. |d_i d_j| <= 2^14, and all limbs -128
reach it, so weight w is exact for (2^31 - 1) // (2^14 (w + 1)) depths, the least for w = L - 5:

    limbs   5        6       7       8
    depths  131,071  65,535  43,690  32,767

After as many steps of 32 depths as fit (`exact_depth`), a block adds its sums to the output, and
begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache
from typing import ClassVar, TypeAlias

from veilgraph.kernels.cuda.buffers import Buffer
from veilgraph.kernels.cuda.launch import DeviceShape, Ending
from veilgraph.kernels.cuda.source import Source, params_struct
from veilgraph.kernels.gemm.tuning import nearest

STEP = 32  # depths of a step; kernels/gemm/quads.cuh has it too
# Of rows, columns, and depths of all pairs together: the kernels count in 32 bits.
MAX_EXTENT = (1 << 31) - (1 << 16)
STORED = 3  # arguments of Stored in kernels/gemm/limbs.cuh, behind all others
_AT_ONCE = 32  # lines that a block copies at a time
_WARPS = 8
_LEAST_STEPS = 8  # that are worth a part of their own
_MAX_PARTS = 64
_MAX_Z = 65535
_MAX_STAGES = 3
# Addends of left and of right factors: one each, or two where factors may be sums.
Terms: TypeAlias = tuple[int, int]
_PLAIN: Terms = (1, 1)


class Access(IntEnum):
    """How the threads of a block share the copies of a factor; kernels/gemm/quads.cuh."""

    WORDS_ALONG_LINES = 0
    WORDS_ALONG_DEPTHS = 1
    VECTORS_ALONG_DEPTHS = 2
    VECTORS_ALONG_LINES = 3
    PACKED = 4  # kernels/gemm/pack.py


@dataclass(frozen=True)
class Ring:
    """Limbs of a ring in words of 32 or 64 bits."""

    word_bits: int
    limbs: int

    @staticmethod
    def of(word_bits: int, bits: int) -> Ring:
        """Of Z_2^bits; narrow rings get more limbs than they need, rather than kernels of their
        own."""
        least = 3 if word_bits == 32 else 5
        return Ring(word_bits, max(least, -(-bits // 8)))

    @property
    def products(self) -> int:
        """Products of bytes for one of ring elements."""
        return self.limbs * (self.limbs + 1) // 2

    @property
    def exact_depth(self) -> int | None:
        """Depths that are added before sums go to the output; None for any."""
        if self.limbs <= 4:
            return None
        return ((1 << 31) - 1) // ((self.limbs - 4) << 14) // STEP * STEP


@dataclass(frozen=True)
class MmaTile:
    """`down` x `across` of mma's 16 x 8 for each of warps_down x warps_across warps."""

    header: ClassVar[str] = "limbs"
    least_stages: ClassVar[int] = 1  # with which words are copied while others are multiplied
    planes: ClassVar[tuple[str, str]] = ("MmaPlane", "MmaPlane")  # kernels/gemm/pack.cuh
    down: int
    across: int
    warps_down: int
    warps_across: int

    @property
    def rows(self) -> int:
        return 16 * self.down * self.warps_down

    @property
    def columns(self) -> int:
        return 8 * self.across * self.warps_across

    def shared_bytes(self, ring: Ring, stages: int, terms: Terms = _PLAIN) -> int:
        """Of a block: LimbMemory of kernels/gemm/limbs.cuh."""
        vector = 128 // ring.word_bits
        at_once = _AT_ONCE * vector
        sides = zip((self.rows, self.columns), terms, strict=True)
        passes = sum(-(-lines // at_once) * vector * count for lines, count in sides)
        stage = passes * (ring.word_bits // 8) * 4 * _WARPS * 32
        planes = ring.limbs * (self.rows + self.columns) * STEP
        return stages * stage + 2 * planes

    def text(self, ring: str, stages: int, terms: Terms = _PLAIN) -> str:
        """Of it in C++."""
        shape = f"{self.down}, {self.across}, {self.warps_down}, {self.warps_across}"
        return f"veil::LimbTile<{ring}, {shape}, {stages}, {terms[0]}, {terms[1]}>"


@dataclass(frozen=True)
class WgmmaTile:
    """Two groups of four warps, 64 x `columns` each: kernels/gemm/limbs_wgmma.cuh."""

    columns: int
    header: ClassVar[str] = "limbs_wgmma"
    least_stages: ClassVar[int] = 2
    planes: ClassVar[tuple[str, str]] = ("FragmentPlane", "CoreMatrixPlane")
    rows: ClassVar[int] = 128

    def shared_bytes(self, ring: Ring, stages: int, terms: Terms = _PLAIN) -> int:
        """Of a block: GroupMemory."""
        vector = 128 // ring.word_bits
        right = -(-self.columns // (_AT_ONCE * vector)) * vector
        passes = self.rows // _AT_ONCE * terms[0] + right * terms[1]
        stage = passes * (ring.word_bits // 8) * 4 * _WARPS * 32
        core_matrix = 8 * 16 + 16
        return stages * stage + 4 * ring.limbs * 2 * self.columns // 8 * core_matrix

    def text(self, ring: str, stages: int, terms: Terms = _PLAIN) -> str:
        """Of it in C++."""
        return f"veil::GroupTile<{ring}, {self.columns}, {stages}, {terms[0]}, {terms[1]}>"


Tile: TypeAlias = MmaTile | WgmmaTile
SMALL = MmaTile(2, 2, 2, 4)  # 64 x 64
WIDE = MmaTile(2, 4, 2, 4)  # 64 x 128, where sums of so many limbs leave registers for it
FLAT = MmaTile(1, 2, 1, 8)  # 16 x 128
TALL = MmaTile(1, 2, 8, 1)  # 128 x 16
GROUP_80, GROUP_64, GROUP_32 = (WgmmaTile(columns) for columns in (80, 64, 32))
TILES = (GROUP_80, GROUP_64, GROUP_32, WIDE, SMALL, FLAT, TALL)
# In tuned.json.
NAMES: dict[str, Tile] = {
    "wide": WIDE, "small": SMALL, "flat": FLAT, "tall": TALL,
    "group_80": GROUP_80, "group_64": GROUP_64, "group_32": GROUP_32,
}  # fmt: skip
# The most limbs whose sums leave registers for a tile.
_MOST_LIMBS: dict[Tile, int] = {WIDE: 5, GROUP_80: 4, GROUP_64: 5}
# Convolutions whose main loop takes all registers: with a program behind it, some were spilled.
_FULL = {(WIDE, 5), (GROUP_64, 5), (GROUP_32, 8)}
# What a product costs, beside one in WIDE or SMALL: more in tiles that meet each limb they have
# loaded with few others, less by wgmma, as far as splits and shared memory keep up with it.
_COSTS: dict[Tile, float] = {FLAT: 1.5, TALL: 1.5, GROUP_80: 0.75, GROUP_64: 0.77, GROUP_32: 0.8}


def product_cost(tile: Tile) -> float:
    """What a product of bytes costs in a tile, beside one in a square tile by mma.sync."""
    return _COSTS.get(tile, 1.0)


@dataclass(frozen=True)
class Tiling:
    """A kernel, and the grid that it runs on: tiles in x, parts in y, the batch in z."""

    ring: Ring
    tile: Tile
    stages: int
    grid: tuple[int, int, int]
    terms: Terms = _PLAIN

    @property
    def parts(self) -> int:
        """Of the depth."""
        return self.grid[1]

    @property
    def suffix(self) -> str:
        """Of the kernel's name."""
        ring, tile = self.ring, self.tile
        sums = "" if self.terms == _PLAIN else f"_{self.terms[0]}{self.terms[1]}"
        return f"{ring.word_bits}_{ring.limbs}_{tile.rows}x{tile.columns}_{self.stages}{sums}"

    def of_sums(self, terms: Terms, device: DeviceShape) -> Tiling | None:
        """The same where factors may be sums, with as many stages as shared memory holds then; None
        where it holds too few."""
        stages = min(self.stages, stages_of(self.ring, self.tile, device, terms))
        if stages < min(self.stages, self.tile.least_stages):
            return None
        return replace(self, stages=stages, terms=terms)

    @property
    def shared_bytes(self) -> int:
        return self.tile.shared_bytes(self.ring, self.stages, self.terms)

    def source(self, kernel: str) -> tuple[Source, str]:
        """The kernel of kernels/<kernel>/limbs.cuh for this, and its entry."""
        return _source(kernel, self.ring, self.tile, self.stages, self.terms)

    def ending(self, kernel: str, out: Buffer, depths: Sequence[int]) -> Ending | None:
        """How a program takes the sums of all pairs' depths, if a block makes each at once."""
        steps, exact = sum(-(-depth // STEP) for depth in depths), self.ring.exact_depth
        is_full = kernel == "conv2d" and (self.tile, self.ring.limbs) in _FULL
        if is_full or self.parts > 1 or (exact is not None and STEP * steps > exact):
            return None
        entry = f"veil_{kernel}_limbs{self.suffix}_followed"
        header = f'{self._includes(kernel)}#include "kernels/gemm/followed.cuh"\n\n'
        text = self._instance(kernel, entry, "veil::Followed<veil::Program>")
        name = f"{kernel}_limbs_followed"
        return Ending(out.pointer, out.word_bits, out.elements, name, entry, header, text, STORED)

    def _includes(self, kernel: str) -> str:
        headers = f"kernels/gemm/{self.tile.header}.cuh", f"kernels/{kernel}/limbs.cuh"
        return params_struct(kernel) + "".join(f'#include "{header}"\n' for header in headers)

    def _instance(self, kernel: str, entry: str, ending: str) -> str:
        """A kernel of which sums have this end."""
        ring = self.ring
        word = f"veil::Ring<uint{ring.word_bits}_t, {ring.limbs}>"
        shape = self.tile.text(word, self.stages, self.terms)
        return f"VEIL_{kernel.upper()}_LIMBS({entry}, {self.shared_bytes}, {ending}, {shape})\n"


@cache
def _source(kernel: str, ring: Ring, tile: Tile, stages: int, terms: Terms) -> tuple[Source, str]:
    tiling = Tiling(ring, tile, stages, (1, 1, 1), terms)
    entry = f"veil_{kernel}_limbs{tiling.suffix}"
    text = tiling._instance(kernel, entry, f"veil::Stored<uint{ring.word_bits}_t>")
    return Source(f"{kernel}_limbs", f"{tiling._includes(kernel)}\n{text}", (entry,)), entry


def stages_of(ring: Ring, tile: Tile, device: DeviceShape, terms: Terms = _PLAIN) -> int:
    """How many steps ahead words are copied: as many as shared memory holds; 0: not even one."""
    fitting = [
        stages
        for stages in range(1, _MAX_STAGES + 1)
        if tile.shared_bytes(ring, stages, terms) <= device.shared_bytes
    ]
    return max(fitting, default=0)


def stages_worth(ring: Ring, tile: Tile, device: DeviceShape) -> range:
    """What may be fastest. One stage copies next to nothing ahead, so it is for where no more
    fit."""
    most = stages_of(ring, tile, device)
    return range(min(2, most), most + 1)


def tiles_of(ring: Ring, device: DeviceShape) -> list[Tile]:
    """The tiles that a ring's sums leave registers for, and that shared memory holds."""
    return [
        tile
        for tile in TILES
        if stages_of(ring, tile, device)
        and ring.limbs <= _MOST_LIMBS.get(tile, ring.limbs)
        and (device.arch == "sm_90" or isinstance(tile, MmaTile))
    ]


def tiling(
    ring: Ring,
    extents: tuple[int, int, int],
    depths: Sequence[int],
    device: DeviceShape,
    kernel: str = "matmul",
) -> Tiling:
    """For outputs [batch, rows, columns], sums of pairs so deep.

    As measured for the nearest shape (kernels/gemm/tuning.py). Where none is near, the tile is the
    one that wastes least on its edges, and outputs with fewer tiles than the device has
    multiprocessors have their depth cut. What is compiled depends on extents and architecture only.
    """
    batch, rows, columns = extents
    row = nearest(device.arch, ring.word_bits, ring.limbs, extents, depths, kernel)
    if row is not None and row.way == "limbs" and NAMES[row.tile] in tiles_of(ring, device):
        tile = NAMES[row.tile]
        stages = min(row.stages, stages_of(ring, tile, device))
        return tiling_of(ring, tile, stages, row.parts, extents, depths)

    def cost(tile: Tile) -> float:
        padded = -(-rows // tile.rows) * tile.rows * -(-columns // tile.columns) * tile.columns
        return padded * product_cost(tile)

    tile = min(tiles_of(ring, device), key=cost)
    tiles = -(-rows // tile.rows) * -(-columns // tile.columns)
    steps = sum(-(-depth // STEP) for depth in depths)
    wanted = device.multiprocessors // max(1, batch * tiles)
    parts = min(wanted, steps // _LEAST_STEPS, _MAX_PARTS)
    return tiling_of(ring, tile, stages_of(ring, tile, device), parts, extents, depths)


def tiling_of(
    ring: Ring,
    tile: Tile,
    stages: int,
    parts: int,
    extents: tuple[int, int, int],
    depths: Sequence[int],
) -> Tiling:
    """With a tile, stages, and parts, as far as there are so many steps."""
    batch, rows, columns = extents
    tiles = -(-rows // tile.rows) * -(-columns // tile.columns)
    steps = sum(-(-depth // STEP) for depth in depths)
    parts = max(1, min(parts, steps))
    return Tiling(ring, tile, stages, (tiles, parts, min(batch, _MAX_Z)))


# What one multiply-add of the integer units costs, in products of bytes on tensor cores: 64 32-bit
# multiply-adds a clock and multiprocessor (four of them for words of 64 bits), beside 2,048
# products of bytes or more, less what either way loses.
_INTEGER_COST = {32: 32, 64: 128}
_INTEGER_LINES, _INTEGER_DEPTH = 32, 8  # least side of its tiles, and its steps


def is_worth(
    ring: Ring,
    extents: tuple[int, int, int],
    depths: Sequence[int],
    device: DeviceShape,
    kernel: str = "matmul",
) -> bool:
    """Whether tensor cores are expected to beat the integer units (kernels/gemm/tiles.py):
    as measured, or unless most of a tile or of a step is empty."""
    if max(*extents, sum(depths)) > MAX_EXTENT:
        return False
    row = nearest(device.arch, ring.word_bits, ring.limbs, extents, depths, kernel)
    if row is not None:
        return row.way != "integers"
    _, rows, columns = extents
    tile = tiling(ring, extents, depths, device, kernel).tile

    def padded(lines: Sequence[tuple[int, int]], step: int) -> float:
        area = 1
        for extent, side in lines:
            area *= -(-extent // side) * side
        return area * sum(-(-depth // step) * step for depth in depths)

    by_limbs = padded([(rows, tile.rows), (columns, tile.columns)], STEP) * ring.products
    least = [(rows, _INTEGER_LINES), (columns, _INTEGER_LINES)]
    return by_limbs < padded(least, _INTEGER_DEPTH) * _INTEGER_COST[ring.word_bits]


def access(factors: Iterable[tuple[Buffer, int, int]]) -> Access:
    """How factors are read that share a side of the product: each with its strides over lines and
    over depths, in elements."""
    known = list(factors)
    vector = 128 // known[0][0].word_bits

    def is_aligned(buffer: Buffer, *strides: int) -> bool:
        second = buffer.addend or buffer.pointer
        begins = buffer.offset % 16 == 0 and second.offset % 16 == 0
        return begins and all(s % vector == 0 for s in strides)

    if all(b.is_fixed for b, _, _ in known):
        return Access.PACKED
    # Neither has a batch's stride: the same for all that is read of an entry.
    if all(d == 1 and is_aligned(b, line, *_batch(b)) for b, line, d in known):
        return Access.VECTORS_ALONG_DEPTHS
    if all(line == 1 and is_aligned(b, d, *_batch(b)) for b, line, d in known):
        return Access.VECTORS_ALONG_LINES
    along_depths = known[0][2] == 1
    return Access.WORDS_ALONG_DEPTHS if along_depths else Access.WORDS_ALONG_LINES


def _batch(buffer: Buffer) -> tuple[int, ...]:
    """Strides over what is neither line nor depth."""
    return buffer.strides[:1] if buffer.shape[0] > 1 else ()
