"""Launches of fused programs: each form of a program is one printed kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from veilgraph.kernels.cuda.buffers import Buffer
from veilgraph.kernels.cuda.launch import DeviceShape, Launch, Sums
from veilgraph.kernels.fused.declaration import HEADER, INSTRUCTION
from veilgraph.kernels.fused.printer import ENTRY, NOTHING, Printer

TILE = 128  # elements of a warp's tile; kernels/fused/words.cuh has it too
WARP = 32
_WARPS = 8  # of a block
# A multiprocessor holds 64 warps; of blocks with a table in shared memory, six.
_BLOCKS, _BLOCKS_WITH_TABLE = 8, 6


def launches(
    buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape
) -> tuple[Launch, ...]:
    """One launch: a warp a tile, in strides of the grid."""
    return with_sums(buffers, params, device, NOTHING)


def with_sums(
    buffers: Sequence[Buffer],
    params: Sequence[int],
    device: DeviceShape,
    given: Mapping[int, Sums],
) -> tuple[Launch, ...]:
    """The same, where the kernel makes a stream itself that `launches` would load."""
    elements = params[0]
    if elements == 0:
        return ()
    table = np.array(params[HEADER:], np.int64).view(INSTRUCTION)
    program = Printer(elements, table, buffers, given)
    tiles = -(-elements // TILE)
    warps = min(tiles, _WARPS)
    most = device.multiprocessors * (_BLOCKS_WITH_TABLE if program.draws else _BLOCKS)
    grid = (min(-(-tiles // warps), most), 1, 1)
    return (Launch(program.source, ENTRY, grid, (warps * WARP, 1, 1), program.arguments),)
