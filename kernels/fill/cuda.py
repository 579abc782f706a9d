"""Launches of fill."""

from __future__ import annotations

from collections.abc import Sequence

from veilgraph.kernels.cuda.buffers import Buffer
from veilgraph.kernels.cuda.launch import THREADS, Argument, DeviceShape, Launch, grid_stride
from veilgraph.kernels.cuda.source import file_source
from veilgraph.kernels.cuda.strided import walk
from veilgraph.kernels.fill.declaration import Params

SOURCE = file_source("kernels/fill/cuda.cu", "veil_fill32", "veil_fill64")


def launches(
    buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape
) -> tuple[Launch, ...]:
    """One launch over the output's elements."""
    (out,) = buffers
    if out.elements == 0:
        return ()
    steps = walk(out, out)
    arguments: tuple[Argument, ...] = (
        out.pointer,
        Params.of(params).value,
        steps.count,
        *steps.arguments(),
    )
    grid = grid_stride(steps.count, device)
    return (Launch(SOURCE, f"veil_fill{out.word_bits}", grid, (THREADS, 1, 1), arguments),)
