"""Launches of pool_sum."""

from __future__ import annotations

from collections.abc import Sequence

from veilgraph.kernels.cuda.buffers import Buffer
from veilgraph.kernels.cuda.launch import THREADS, Argument, DeviceShape, Launch, grid_stride
from veilgraph.kernels.cuda.source import file_source

SOURCE = file_source("kernels/pool_sum/cuda.cu", "veil_pool_sum32", "veil_pool_sum64")


def launches(
    buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape
) -> tuple[Launch, ...]:
    """One launch, a thread an output."""
    out, x = buffers
    if out.elements == 0:
        return ()
    arguments: tuple[Argument, ...] = (
        out.pointer, x.pointer, out.elements, *params, *x.shape[2:], *out.shape[2:],
    )  # fmt: skip
    grid = grid_stride(out.elements, device)
    return (Launch(SOURCE, f"veil_pool_sum{out.word_bits}", grid, (THREADS, 1, 1), arguments),)
