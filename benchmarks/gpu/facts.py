"""What a figure of a GPU needs beside it: the GPU, its driver, CUDA, and the clocks."""

from __future__ import annotations

import argparse
import re
import subprocess
from typing import Any

from veilgraph.runtime.devices.cuda.drivers.gpus import load_pycuda
from veilgraph.runtime.devices.cuda.nvcc import find_nvcc
from veilgraph.runtime.devices.names import CUDA, DeviceName

_ASKED = {  # of nvidia-smi, and how its answer is said
    "driver_version": "driver {}",
    "clocks.sm": "multiprocessors at {} now",
    "clocks.max.sm": "{} at most",
    "clocks.max.memory": "memory at {} at most",
    "power.limit": "power limit {}",
}
SECONDS = 30


def add_option(made: argparse.ArgumentParser) -> None:
    """--device: what is measured."""
    made.add_argument(
        "--device", default="cuda:0", help="a GPU, or host-emulator to try the script"
    )


def facts(device: str) -> str:
    """A GPU by its product's name, driver, CUDA and clocks; of another device, its own name.

    Raises:
        UsageError: there is no such GPU.
    """
    name = DeviceName.parse(device)
    if name.kind != CUDA:
        return device
    cuda = load_pycuda()
    gpu = cuda.Device(name.index)
    version = cuda.get_driver_version()
    known = [
        str(gpu.name()),
        *driver_facts(str(gpu.pci_bus_id())),
        f"CUDA {version // 1000}.{version % 1000 // 10} of the driver",
        *compiler_facts(),
        f"{clock_hertz(cuda, gpu) / 1e6:.0f} MHz by CUDA",
    ]
    return ", ".join(known)


def clock_hertz(cuda: Any, gpu: Any) -> float:
    """The most that a GPU's multiprocessors run at."""
    return 1e3 * float(gpu.get_attribute(cuda.device_attribute.CLOCK_RATE))


def driver_facts(bus: str) -> list[str]:
    """What nvidia-smi says of the GPU on a PCI bus, which CUDA and it may number differently."""
    command = ["nvidia-smi", f"--id={bus}", f"--query-gpu={','.join(_ASKED)}"]
    try:
        done = subprocess.run(
            [*command, "--format=csv,noheader"], capture_output=True, text=True, timeout=SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return ["driver and clocks unknown: no nvidia-smi"]
    answers = [answer.strip() for answer in done.stdout.strip().split(",")]
    if done.returncode != 0 or len(answers) != len(_ASKED):
        return ["driver and clocks unknown: nvidia-smi failed"]
    return [said.format(answer) for said, answer in zip(_ASKED.values(), answers, strict=True)]


def compiler_facts() -> list[str]:
    """The release of the nvcc that kernels are compiled with, where there is one."""
    nvcc = find_nvcc()
    if nvcc is None:
        return []
    said = subprocess.run([str(nvcc), "--version"], capture_output=True, text=True).stdout
    release = re.search(r"V[0-9.]+", said)
    return [f"nvcc {release[0][1:]}"] if release else []
