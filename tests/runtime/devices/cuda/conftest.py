"""Drivers that the device's tests run on."""

from __future__ import annotations

from pathlib import Path

import pytest
from copying_plans import HASTY
from fake_pycuda import FakeCubins, FakeGraphCalls, fake_pycuda
from gpus import first_gpu

from veilgraph.runtime.devices.cuda.drivers.emulator import EmulatorDriver
from veilgraph.runtime.devices.cuda.drivers.interface import Driver
from veilgraph.runtime.devices.cuda.drivers.pycuda import PyCudaDriver

DRIVERS = [*HASTY, "pycuda", pytest.param("gpu", marks=pytest.mark.gpu)]


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: pytest.FixtureRequest, emulator_folder: Path) -> Driver:
    """The emulator in any order of work that CUDA allows, PyCUDA's stand-in, and the first GPU."""
    if request.param == "gpu":
        return first_gpu()
    if request.param == "pycuda":
        cuda = fake_pycuda(emulator_folder)
        return PyCudaDriver(cuda, 0, FakeCubins(cuda), FakeGraphCalls(cuda.gpu))
    return EmulatorDriver(emulator_folder, hasty=request.param)


@pytest.fixture
def emulator(emulator_folder: Path) -> EmulatorDriver:
    return EmulatorDriver(emulator_folder)
