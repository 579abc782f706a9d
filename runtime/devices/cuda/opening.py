"""Devices on a card, or on what stands in for one; loaded when one is asked for."""

from __future__ import annotations

from pathlib import Path

from veilgraph.ir.plan.tables import Plan
from veilgraph.runtime.devices.cuda.cards import load_pycuda
from veilgraph.runtime.devices.cuda.cubins import Cubins, cache_folder
from veilgraph.runtime.devices.cuda.device import CudaReady
from veilgraph.runtime.devices.cuda.emulator_driver import EmulatorDriver
from veilgraph.runtime.devices.cuda.nvcc import find_nvcc
from veilgraph.runtime.devices.cuda.program import CudaProgram
from veilgraph.runtime.devices.cuda.pycuda_driver import PyCudaDriver


def on_card(plan: Plan, party: str, index: int, cubins: Path | None, graphs: bool) -> CudaReady:
    """The card of that number; see devices.ready."""
    card = PyCudaDriver(load_pycuda(), index, Cubins(cache_folder(), cubins, find_nvcc()))
    return CudaReady(CudaProgram.prepared(plan, party, card), graphs)


def on_emulator(plan: Plan, party: str, graphs: bool) -> CudaReady:
    """The host's stand-in for a card."""
    emulator = EmulatorDriver(cache_folder().with_name("host-emulator"))
    return CudaReady(CudaProgram.prepared(plan, party, emulator), graphs)
