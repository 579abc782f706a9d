"""Launches of copy: runs as 16-byte vectors, transpositions by squares, other views by words."""

from __future__ import annotations

from collections.abc import Sequence

from veilgraph.kernels.cuda.buffers import Buffer
from veilgraph.kernels.cuda.launch import THREADS, Argument, DeviceShape, Launch, grid_stride
from veilgraph.kernels.cuda.source import file_source
from veilgraph.kernels.cuda.strided import Dimension, Walk, walk

SOURCE = file_source(
    "kernels/copy/cuda.cu",
    "veil_copy_run",
    *(f"veil_copy_{way}{bits}" for way in ("words", "turned") for bits in (32, 64)),
)
VECTOR_BYTES = 16
SQUARE = 32  # words a side of what passes through shared memory; cuda.cu has it too
_LEAST = SQUARE // 2  # words along a side for which a square is worth it


def launches(
    buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape
) -> tuple[Launch, ...]:
    """One launch, of the kernel that the buffers' strides allow."""
    out, x = buffers
    if out.elements == 0:
        return ()
    steps = walk(out, x)
    aligned = out.offset % VECTOR_BYTES == x.offset % VECTOR_BYTES == 0
    arguments: tuple[Argument, ...] = (out.pointer, x.pointer)
    across = _turned(steps)
    if steps.is_run and aligned:
        words = steps.count * out.word_bits // 32
        entry, arguments = "veil_copy_run", (*arguments, words)
        grid = grid_stride(-(-words // (VECTOR_BYTES // 4)), device)
    elif across is not None:
        entry, rest = f"veil_copy_turned{out.word_bits}", _squares(steps, across)
        arguments = (*arguments, *rest)
        grid = grid_stride(steps.count, device)
    else:
        entry = f"veil_copy_words{out.word_bits}"
        arguments = (*arguments, steps.count, *steps.arguments())
        grid = grid_stride(steps.count, device)
    return (Launch(SOURCE, entry, grid, (THREADS, 1, 1), arguments),)


def _turned(steps: Walk) -> Dimension | None:
    """The dimension along which the input runs, where the output runs along another."""
    *others, inner = steps.dimensions or (Dimension(1, 1, 1),)
    if inner.out != 1 or abs(inner.x) <= 1 or inner.extent < _LEAST:
        return None
    return next((d for d in others if d.x == 1 and d.extent >= _LEAST), None)


def _squares(steps: Walk, lines: Dimension) -> tuple[int, ...]:
    """The structs Turn and Walk: two dimensions, and those that are left."""
    *others, inner = steps.dimensions
    outer = Walk(tuple(d for d in others if d is not lines))
    return lines.extent, lines.out, inner.extent, inner.x, outer.count, *outer.arguments()
