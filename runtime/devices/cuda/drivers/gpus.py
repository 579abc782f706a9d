"""A machine's GPUs, found by PyCUDA, which is imported when they are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from veilgraph.ir.errors import UsageError

LEAST_DRIVER = 12000  # CUDA 12.0, as drivers count
_INSTALL = "pip install 'veilgraph[gpu]', where CUDA's compiler and headers are."


@dataclass(frozen=True)
class Gpu:
    """A GPU: its product's name, its architecture as nvcc calls it, multiprocessors and memory."""

    name: str
    arch: str
    multiprocessors: int
    memory_bytes: int


def load_pycuda() -> Any:
    """The module pycuda.driver, initialised.

    Raises:
        UsageError: PyCUDA or NVIDIA's driver is absent or too old, or there is no GPU.
    """
    try:
        cuda = import_module("pycuda.driver")
    except ModuleNotFoundError as error:
        raise UsageError(
            "A GPU is reached through the package pycuda, which is not installed.", _INSTALL
        ) from error
    except ImportError as error:
        raise UsageError(
            f"PyCUDA finds no NVIDIA driver: {error}.",
            "Install NVIDIA's driver; `veilgraph doctor` says what there is.",
        ) from error
    try:
        cuda.init()
        count = cuda.Device.count()
    except cuda.Error as error:
        raise UsageError(
            f"NVIDIA's driver finds no GPU: {error}.",
            "Use --device cpu here; `veilgraph doctor` says what there is.",
        ) from error
    if count == 0:
        raise UsageError("There is no GPU in this machine.", "Use --device cpu here.")
    version = cuda.get_driver_version()
    if version < LEAST_DRIVER:
        raise UsageError(
            f"NVIDIA's driver is too old: it is of CUDA {cuda_version(version)}, and "
            f"{cuda_version(LEAST_DRIVER)} is the least.",
            "Install a newer driver, or use --device cpu.",
        )
    return cuda


def list_gpus(cuda: Any) -> list[Gpu]:
    """The GPUs that `cuda:0`, `cuda:1` and so on are."""
    return [gpu_of(cuda, cuda.Device(index)) for index in range(cuda.Device.count())]


def gpu_of(cuda: Any, device: Any) -> Gpu:
    """What a device of PyCUDA is."""
    major, minor = device.compute_capability()
    counted = device.get_attribute(cuda.device_attribute.MULTIPROCESSOR_COUNT)
    return Gpu(device.name(), f"sm_{major}{minor}", int(counted), int(device.total_memory()))


def cuda_version(version: int) -> str:
    """A version of CUDA as people write it, of the number that drivers give."""
    return f"{version // 1000}.{version % 1000 // 10}"
