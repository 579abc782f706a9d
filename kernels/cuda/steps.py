"""The launches of a plan's step, by its kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from veilgraph.kernels.conv2d import cuda as conv2d
from veilgraph.kernels.copy import cuda as copy
from veilgraph.kernels.cuda.buffers import Buffer
from veilgraph.kernels.cuda.launch import DeviceShape, Launch
from veilgraph.kernels.fill import cuda as fill
from veilgraph.kernels.fused import cuda as fused
from veilgraph.kernels.matmul import cuda as matmul
from veilgraph.kernels.pool_sum import cuda as pool_sum
from veilgraph.kernels.reduce_sum import cuda as reduce_sum


class CudaKernel(Protocol):
    """A kernel's cuda.py."""

    def launches(
        self, buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape
    ) -> tuple[Launch, ...]: ...


KERNELS: Mapping[str, CudaKernel] = {
    "fused": fused,
    "matmul": matmul,
    "conv2d": conv2d,
    "pool_sum": pool_sum,
    "reduce_sum": reduce_sum,
    "copy": copy,
    "fill": fill,
}


def launches(
    kernel: str, buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape
) -> tuple[Launch, ...]:
    """What runs one step of a plan, in order; none where there is nothing to compute.

    Only for steps that the CPU library's `check` has passed on the same tables: nothing is
    validated here, and kernels trust their arguments.

    Args:
        kernel: a name of veilgraph.kernels.KERNELS.
        buffers: the step's rows of the buffer table.
        params: the step's parameters, int64 each.
        device: the shape of the device that launches.
    """
    return KERNELS[kernel].launches(buffers, params, device)
