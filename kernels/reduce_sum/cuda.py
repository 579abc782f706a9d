"""Launches of reduce_sum: each sum cut into as many parts as keep the device busy."""

from __future__ import annotations

from collections.abc import Sequence

from veilgraph.kernels.cuda.buffers import Buffer
from veilgraph.kernels.cuda.launch import THREADS, Argument, DeviceShape, Launch, grid_stride
from veilgraph.kernels.cuda.source import file_source
from veilgraph.kernels.cuda.strided import Dimension, merged
from veilgraph.kernels.fill import cuda as fill
from veilgraph.kernels.fill.declaration import Params as Fill

SOURCE = file_source("kernels/reduce_sum/cuda.cu", "veil_reduce_sum32", "veil_reduce_sum64")
_LEAST_TERMS = 16  # that are worth a part of their own
_BUSY = 4 * THREADS  # threads a multiprocessor


def launches(
    buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape
) -> tuple[Launch, ...]:
    """One launch, after one of zeros where sums have several parts."""
    out, x = buffers
    if out.elements == 0:
        return ()
    steps = list(zip(out.shape, x.shape, out.strides, x.strides, strict=True))
    outer = merged(tuple(Dimension(o, to, by) for o, _, to, by in steps))
    # Terms in the order of their memory: the walk sorts by its output's strides.
    inner = merged(tuple(Dimension(n, by, by) for o, n, _, by in steps if o != n))
    parts = max(1, min(device.multiprocessors * _BUSY // out.elements, inner.count // _LEAST_TERMS))
    zeros = fill.launches([out], Fill(0).values(), device) if parts > 1 else ()
    arguments: tuple[Argument, ...] = (
        out.pointer, x.pointer, out.elements, inner.count, parts,
        *outer.arguments(), *inner.arguments(),
    )  # fmt: skip
    grid = grid_stride(out.elements * parts, device)
    entry = f"veil_reduce_sum{out.word_bits}"
    return (*zeros, Launch(SOURCE, entry, grid, (THREADS, 1, 1), arguments))
