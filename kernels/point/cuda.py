"""Launches of point functions: a thread an index for words, a thread a leaf for rows."""

from __future__ import annotations

from collections.abc import Sequence

from veilgraph.kernels.cuda.buffers import Buffer
from veilgraph.kernels.cuda.launch import THREADS, Argument, DeviceShape, Launch, grid_stride
from veilgraph.kernels.cuda.source import file_source
from veilgraph.kernels.point.declaration import WORDS, Params

SOURCE = file_source(
    "kernels/point/cuda.cu", "veil_point_words", "veil_point_rows32", "veil_point_rows64"
)


def launches(
    buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape
) -> tuple[Launch, ...]:
    """One launch; none where there is no index, or no place."""
    given = Params.of(params)
    shape = given.party, given.index_bits, given.lane_bits, given.levels
    out = buffers[0]
    if out.elements == 0:
        return ()
    pointers = [buffer.pointer for buffer in buffers]
    arguments: tuple[Argument, ...]
    if given.party == WORDS:
        count, bits = buffers[4].elements, buffers[4].word_bits
        entry, items = "veil_point_words", count
        arguments = (*pointers, bits, count, *shape)
    else:
        count, width = out.shape
        bits = buffers[4].word_bits if len(buffers) == 5 else 0
        opened = pointers[4] if bits else 0
        entry = f"veil_point_rows{out.word_bits}"
        arguments = (*pointers[:4], opened, bits, count, width, *shape)
        places = 1 << given.index_bits if bits else width
        items = count * -(-places // given.lanes)
    grid = grid_stride(items, device)
    return (Launch(SOURCE, entry, grid, (THREADS, 1, 1), arguments),)
