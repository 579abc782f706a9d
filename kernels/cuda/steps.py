"""The launches of a plan's step, by its kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Protocol, cast

from veilgraph.kernels import KERNELS
from veilgraph.kernels.cuda.buffers import Buffer
from veilgraph.kernels.cuda.launch import DeviceShape, Launch


class CudaKernel(Protocol):
    """A kernel's cuda.py."""

    def launches(
        self, buffers: Sequence[Buffer], params: Sequence[int], device: DeviceShape
    ) -> tuple[Launch, ...]: ...


_CUDA: Mapping[str, CudaKernel] = {
    name: cast(CudaKernel, import_module(f"veilgraph.kernels.{name}.cuda")) for name in KERNELS
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
    return _CUDA[kernel].launches(buffers, params, device)
