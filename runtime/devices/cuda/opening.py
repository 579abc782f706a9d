"""Devices on a GPU, or on what stands in for one; loaded when one is asked for."""

from __future__ import annotations

from pathlib import Path

from veilgraph.ir.plan.plan import Plan
from veilgraph.runtime.devices.cuda.cubins import Cubins, cache_folder
from veilgraph.runtime.devices.cuda.device import CudaReady
from veilgraph.runtime.devices.cuda.drivers.emulator import EmulatorDriver
from veilgraph.runtime.devices.cuda.drivers.gpus import load_pycuda
from veilgraph.runtime.devices.cuda.drivers.pycuda import PyCudaDriver
from veilgraph.runtime.devices.cuda.nvcc import find_nvcc
from veilgraph.runtime.devices.cuda.program import CudaProgram


def on_gpu(plan: Plan, party: str, index: int, cubins: Path | None, graphs: bool) -> CudaReady:
    """The GPU of that number; see devices.ready."""
    gpu = PyCudaDriver(load_pycuda(), index, Cubins(cache_folder(), cubins, find_nvcc()))
    return CudaReady(CudaProgram.prepared(plan, party, gpu), graphs)


def on_emulator(plan: Plan, party: str, graphs: bool) -> CudaReady:
    """The host's stand-in for a GPU."""
    emulator = EmulatorDriver(cache_folder().with_name("host-emulator"))
    return CudaReady(CudaProgram.prepared(plan, party, emulator), graphs)
