"""Products of bytes, modulus by modulus: the step `multiply` of kernels/gemm/residues/residues.py.

Three kernels do it, on the same planes of residues (kernels/gemm/residues/byte_products.cuh) and to
the same t_i: one by mma.sync, for every GPU, and two by wgmma, which sm_90 alone has. A tile is
ROWS x COLUMNS for one modulus, and as many blocks as the device has multiprocessors walk over all
tiles of all moduli and entries. Where rows fill them, two blocks of a cluster make tiles one below
the other and share the right factor, which takes a third off what they read.

**From a sum to t_i.** Sums begin at B = floor(2^31 / m) m, which is 0 modulo m and more than any
|r| <= MAX_DEPTH 2^14, so r + B is never negative, nor 2^32 or more. Its four bytes times
256^j (M / m)^-1 mod m add up to less than 2^18, and to t_i modulo m: a dot product, and a remainder
by a constant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from veilgraph.kernels.cuda.launch import Argument, DeviceShape, Launch, Pointer
from veilgraph.kernels.cuda.source import Source
from veilgraph.kernels.gemm.residues.residues import Basis

STEP = 64  # depths; kernels/gemm/residues/byte_products.cuh has these too
ROWS, COLUMNS = 128, 256
_STEP_BYTES = (ROWS + COLUMNS) * STEP
_OUT_BYTES = ROWS * (COLUMNS + 16)
PIECE = 16  # bytes of t_i that are stored together: rows are filled up to whole ones


@dataclass(frozen=True)
class Engine:
    """A kernel of kernels/gemm/byte_products_<name>.cuh; `together` blocks are a cluster."""

    name: str
    threads: int
    shared_bytes: int
    together: int = 1


MMA = Engine("mma", 256, 4 * _STEP_BYTES)
WGMMA = Engine("wgmma", 320, 8 * _STEP_BYTES + _OUT_BYTES + 8 * 16)
WGMMA_PAIRS = replace(WGMMA, together=2)
_MOST_EMPTY = 1.1  # rows with what fills up pairs of tiles, less than which pairs save


def engine_of(device: DeviceShape, rows: int) -> Engine:
    """The fastest that a device has for outputs of so many rows."""
    if device.arch != "sm_90":
        return MMA
    alone, paired = (-(-rows // lines) * lines for lines in (ROWS, 2 * ROWS))
    return WGMMA_PAIRS if paired <= _MOST_EMPTY * alone else WGMMA


def plane_bytes(lines: int, depth: int) -> int:
    """Of residues for one modulus, in whole steps of depth: lines are filled up to whole tiles."""
    return -(-lines // COLUMNS) * COLUMNS * depth


@dataclass(frozen=True)
class Right:
    """How planes of right factors lie, in C++: what a kernel's parameter is, and its header."""

    type: str
    header: str


BLOCKS = Right("ByteProduct", "kernels/gemm/residues/byte_products.cuh")


def pitch_of(columns: int) -> int:
    """Bytes from row to row of t_i: columns, in whole PIECEs."""
    return -(-columns // PIECE) * PIECE


def entry(basis: Basis, engine: Engine) -> str:
    """The kernel's name."""
    return f"veil_multiply_{basis.count}_{engine.name}_{engine.together}"


@cache
def source(basis: Basis, engine: Engine, right: Right = BLOCKS) -> Source:
    """The kernel for the moduli of a basis; its limbs don't matter."""
    return _source(basis.moduli, basis.inverses, entry(basis, engine), engine, right)


@cache
def _source(
    moduli: tuple[int, ...], inverses: tuple[int, ...], name: str, engine: Engine, right: Right
) -> Source:
    rows = "\n".join(
        f"    {{{m}u, {(1 << 31) // m * m}u, {_powers(m, inverse)}u, {-(-(1 << 32) // m)}u}},"
        for m, inverse in zip(moduli, inverses, strict=True)
    )
    text = f"""#include "kernels/gemm/residues/byte_products_{engine.name}.cuh"
#include "{right.header}"

namespace veil {{
__device__ const Scale kScales[{len(moduli)}] = {{
{rows}
}};
}}  // namespace veil

VEIL_BYTE_PRODUCTS({name}, {right.type}, {engine.shared_bytes}, {len(moduli)}, {engine.together},
                   veil::kScales)
"""
    return Source(f"byte_products_{engine.name}", text, (name,))


def _powers(m: int, inverse: int) -> int:
    """256^j (M / m)^-1 mod m as bytes."""
    return sum(pow(256, j, m) * inverse % m << 8 * j for j in range(4))


@dataclass(frozen=True)
class Places:
    """Of the left factor's planes, of t_i, and of the right factor's planes.

    `layout` is the right factor's, and `more` what the kernel has to know of it.
    """

    left: Argument
    out: Pointer
    right: Argument
    layout: Right = BLOCKS
    more: tuple[int, ...] = ()


def multiply(
    basis: Basis,
    extents: tuple[int, int, int],
    depth: int,
    places: Places,
    device: DeviceShape,
    scratch_bytes: int,
) -> Launch:
    """t_i [batch, moduli, rows, pitch_of(columns)] of planes [batch, moduli] of so many depths.

    Args:
        basis: the moduli.
        extents: batch, rows and columns of the output.
        depth: of all pairs, whole steps, at most MAX_DEPTH.
        places: where planes are, and where t_i go.
        device: what launches.
        scratch_bytes: what the region SCRATCH has to hold.
    """
    batch, rows, columns = extents
    engine = engine_of(device, rows)
    planes = batch * basis.count
    tiles = planes * -(-rows // (engine.together * ROWS)) * -(-columns // COLUMNS)
    clusters = min(tiles, max(1, device.multiprocessors // engine.together))
    arguments: tuple[Argument, ...] = (
        places.out, places.left, places.right, planes, rows, columns, depth, pitch_of(columns),
        *places.more,
    )  # fmt: skip
    return Launch(
        source(basis, engine, places.layout),
        entry(basis, engine),
        (clusters * engine.together, 1, 1),
        (engine.threads, 1, 1),
        arguments,
        engine.shared_bytes,
        scratch_bytes,
        engine.together,
    )
