"""Launches of copy: runs of words as 16-byte vectors, other views word by word."""

from __future__ import annotations

from collections.abc import Sequence

from veilgraph.kernels.cuda.buffers import Buffer
from veilgraph.kernels.cuda.launch import THREADS, Argument, DeviceShape, Launch, grid_stride
from veilgraph.kernels.cuda.source import file_source
from veilgraph.kernels.cuda.strided import walk

SOURCE = file_source(
    "kernels/copy/cuda.cu", "veil_copy_run", "veil_copy_words32", "veil_copy_words64"
)
VECTOR_BYTES = 16


def launches(
    buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape
) -> tuple[Launch, ...]:
    """One launch, of the kernel that the buffers' strides allow."""
    out, x = buffers
    if out.elements == 0:
        return ()
    steps = walk(out, x)
    aligned = out.offset % VECTOR_BYTES == x.offset % VECTOR_BYTES == 0
    if steps.is_run and aligned:
        words = steps.count * out.word_bits // 32
        grid = grid_stride(-(-words // (VECTOR_BYTES // 4)), device)
        arguments = (out.pointer, x.pointer, words)
        return (Launch(SOURCE, "veil_copy_run", grid, (THREADS, 1, 1), arguments),)
    grid = grid_stride(steps.count, device)
    entry = f"veil_copy_words{out.word_bits}"
    strided: tuple[Argument, ...] = (out.pointer, x.pointer, steps.count, *steps.arguments())
    return (Launch(SOURCE, entry, grid, (THREADS, 1, 1), strided),)
