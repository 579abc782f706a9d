"""What devices are called: by those who choose one, and by the machine. Loads nothing else."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from veilgraph.ir.errors import UsageError

CPU, CUDA, AUTO, HOST_EMULATOR = "cpu", "cuda", "auto", "host-emulator"
NO_GRAPHS = ",no-graphs"
MOST_GPUS = 1024


@dataclass(frozen=True)
class DeviceName:
    """A device's kind, which of this machine's it is, and whether it replays graphs."""

    kind: str
    index: int = 0
    graphs: bool = True

    @staticmethod
    def parse(text: str) -> DeviceName:
        """`cpu`, `cuda`, `cuda:1`, `auto`, `auto:1`, `cuda:1,no-graphs`.

        Raises:
            UsageError: no name of a device.
        """
        plain = text.removesuffix(NO_GRAPHS)
        graphs = plain == text
        kind, colon, number = plain.partition(":")
        if plain in (CUDA, AUTO, HOST_EMULATOR) or text == CPU:
            return DeviceName(plain, graphs=graphs)
        if kind in (CUDA, AUTO) and colon and number.isdecimal() and int(number) < MOST_GPUS:
            return DeviceName(kind, int(number), graphs)
        raise UsageError(f"There is no device `{text}`.", "Use cpu, cuda, cuda:N, auto or auto:N.")

    @property
    def gpu(self) -> str:
        """The GPU's own name, graphs or not: what tables of costs call it."""
        return HOST_EMULATOR if self.kind == HOST_EMULATOR else f"{CUDA}:{self.index}"


def require_device(text: str) -> None:
    """UsageError unless the text names a device for parties between hosts.

    The emulator is none: it compiles kernels with this host's C++ compiler, and is slow.
    """
    if DeviceName.parse(text).kind == HOST_EMULATOR:
        raise UsageError(
            "The device `host-emulator` imitates a GPU, for tests where parties are threads.",
            "Use cpu, cuda, cuda:N, auto or auto:N.",
        )


def machine_name() -> str:
    """This machine's processor, as it names itself, and how many of its cores are ours."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{models[0] if models else platform.machine()}, {cores} cores"
