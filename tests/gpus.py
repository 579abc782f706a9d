"""The GPU of the tests that need one, and single launches on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from veilgraph.ir.errors import UsageError
from veilgraph.kernels.cuda import Launch, key_schedules
from veilgraph.runtime.devices.cuda.cubins import Cubins, cache_folder
from veilgraph.runtime.devices.cuda.drivers.gpus import load_pycuda
from veilgraph.runtime.devices.cuda.drivers.interface import Driver
from veilgraph.runtime.devices.cuda.drivers.pycuda import PyCudaDriver
from veilgraph.runtime.devices.cuda.nvcc import find_nvcc

Array = npt.NDArray[Any]


def pycuda_or_skip() -> Any:
    """The module pycuda.driver; skips the test, and says why, where there is no GPU."""
    if lacking := _lacking():
        pytest.skip(lacking)
    return load_pycuda()


@cache
def _lacking() -> str:
    """Why there is no GPU; empty where there is one."""
    try:
        load_pycuda()
    except UsageError as error:
        return error.message
    return ""


@cache
def first_gpu() -> PyCudaDriver:
    """The driver of the first GPU, with this user's cache; skips the test where there is none."""
    return PyCudaDriver(pycuda_or_skip(), 0, Cubins(cache_folder(), None, find_nvcc()))


class GpuRunner:
    """Runs launches by a driver over copies of host memory; as EmulatorRunner, which needs none."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def run(
        self, launch: Launch, regions: Sequence[Array], keys: bytes = b"", run: int = 0
    ) -> None:
        """One launch; every region is as the launch left it."""
        driver, schedules = self._driver, key_schedules(keys).reshape(-1)
        number = np.array([run], np.uint64)
        with driver.current():
            stream, done = driver.stream(), driver.event()
            driver.prepare([launch.source])
            kernel = driver.kernel(launch)
            with self._copies([*regions, schedules, number]) as (addresses, pinned):
                for address, content in zip(addresses, pinned, strict=True):
                    stream.copy_in(address, content)
                words = launch.bind(addresses[:-2], *addresses[-2:])
                stream.launch(kernel, words.tobytes())
                for address, content in zip(addresses, pinned, strict=True):
                    stream.copy_out(content, address)
                stream.record(done)
                done.synchronize()
                for region, content in zip(regions, pinned, strict=False):
                    region.reshape(-1).view(np.uint8)[:] = content[: region.nbytes]

    @contextmanager
    def _copies(
        self, regions: Sequence[Array]
    ) -> Iterator[tuple[list[int], list[npt.NDArray[np.uint8]]]]:
        """Memory on the GPU for each region, and pinned memory that has its content."""
        sizes = [max(1, region.nbytes) for region in regions]
        addresses = [self._driver.allocate(size) for size in sizes]
        pinned = [self._driver.pinned(size) for size in sizes]
        for content, region in zip(pinned, regions, strict=True):
            content[: region.nbytes] = region.reshape(-1).view(np.uint8)
        try:
            yield addresses, pinned
        finally:
            for address in addresses:
                self._driver.release(address)
