"""Launches of fused programs: each form of a program is one printed kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from veilgraph.kernels.cuda.buffers import Buffer, Kind
from veilgraph.kernels.cuda.launch import DeviceShape, Launch, Sums
from veilgraph.kernels.cuda.source import Source
from veilgraph.kernels.fused.declaration import header_of, instructions_of
from veilgraph.kernels.fused.instructions import Op
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


def is_elementwise(buffers: Sequence[Buffer], params: Sequence[int]) -> bool:
    """Whether each thread may do any elements of a program by itself: words, without draws, bits
    and what is stored packed."""
    table = instructions_of(params)
    packed = {number for number, b in enumerate(buffers) if b.kind is Kind.PACKED}
    stored = {int(ins["a"]) for ins in table if ins["op"] == Op.STORE}
    return not packed & stored and all(Op(int(ins["op"])).is_elementwise for ins in table)


def ended(buffers: Sequence[Buffer], params: Sequence[int], launch: Launch, stream: int) -> Launch:
    """A launch that makes a program's stream, with the program in place of storing it: one that
    `is_elementwise`."""
    ending = launch.ending
    assert ending is not None, "a launch that takes no program"
    sums = Sums(ending.place, ending.word_bits, ending.elements, "", (), (), "sums")
    program = Printer(header_of(params).elements, instructions_of(params), buffers, {stream: sums})
    text = f"{ending.header}{program.ending}{ending.kernel}"
    return replace(
        launch,
        source=Source(ending.name, text, (ending.entry,)),
        entry=ending.entry,
        arguments=(*launch.arguments[: -ending.stored], *program.arguments),
        ending=None,
    )


def with_sums(
    buffers: Sequence[Buffer],
    params: Sequence[int],
    device: DeviceShape,
    given: Mapping[int, Sums],
) -> tuple[Launch, ...]:
    """The same, where the kernel makes a stream itself that `launches` would load."""
    elements = header_of(params).elements
    if elements == 0:
        return ()
    program = Printer(elements, instructions_of(params), buffers, given)
    tiles = -(-elements // TILE)
    warps = min(tiles, _WARPS)
    most = device.multiprocessors * (_BLOCKS_WITH_TABLE if program.draws else _BLOCKS)
    grid = (min(-(-tiles // warps), most), 1, 1)
    return (Launch(program.source, ENTRY, grid, (warps * WARP, 1, 1), program.arguments),)
