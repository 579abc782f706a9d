"""Drivers that the device's tests run on."""

from __future__ import annotations

from pathlib import Path

import pytest
from cards import first_card
from copying_plans import HASTY
from fake_pycuda import FakeCubins, FakeGraphCalls, fake_pycuda

from veilgraph.runtime.devices.cuda.driver import Driver
from veilgraph.runtime.devices.cuda.pycuda_driver import PyCudaDriver
from veilgraph.runtime.devices.cuda.shim_driver import ShimDriver

DRIVERS = [*HASTY, "pycuda", pytest.param("card", marks=pytest.mark.gpu)]


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: pytest.FixtureRequest, shim_folder: Path) -> Driver:
    """The shim in any order of work that CUDA allows, PyCUDA's stand-in, and the first card."""
    if request.param == "card":
        return first_card()
    if request.param == "pycuda":
        cuda = fake_pycuda(shim_folder)
        return PyCudaDriver(cuda, 0, FakeCubins(cuda), FakeGraphCalls(cuda.card))
    return ShimDriver(shim_folder, hasty=request.param)


@pytest.fixture
def shim(shim_folder: Path) -> ShimDriver:
    return ShimDriver(shim_folder)
