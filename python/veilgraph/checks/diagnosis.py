"""What this machine has and lacks: what `doctor` looks at, each with what to do about it."""

from __future__ import annotations

import importlib.util
import platform
import ssl
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from veilgraph.ir.errors import UsageError
from veilgraph.kernels.native import INSTRUCTION_SETS, library, supported
from veilgraph.reports import units
from veilgraph.runtime._native import OpenSsl
from veilgraph.runtime.devices.cuda.drivers.gpus import list_gpus, load_pycuda
from veilgraph.runtime.devices.cuda.nvcc import find_nvcc
from veilgraph.runtime.devices.names import CUDA, DeviceName, machine_name
from veilgraph.runtime.links.openssl import openssl

RUNTIME = ("numpy", "pyyaml", "click", "rich", "safetensors", "cryptography")
EXTRAS = {
    "compile": ("onnx", "onnxruntime", "torch-mlir"),
    "torch": ("torch",),
    "gpu": ("pycuda",),
}
PURPOSES = {
    "compile": "compile and check models",
    "torch": "compile PyTorch models",
    "gpu": "compute on a GPU",
}
LEAST_MEMORY_BYTES = 4 << 30
BITS = {
    "portable": "no vectors",
    "avx2": "AVX2",
    "avx512": "AVX-512",
    "zen4": "AVX-512 (AMD)",
    "amx": "AMX",
}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: what was found, and what to do if it is not as it should be."""

    what: str
    found: str
    advice: str = ""

    @property
    def is_ok(self) -> bool:
        return not self.advice


def diagnose() -> list[Finding]:
    """Everything there is to say about this machine; nothing is changed."""
    return [
        _python(),
        Finding("veilgraph", version("veilgraph")),
        _processor(),
        _kernels(),
        _interpreter(),
        _memory(),
        _tls(),
        _links(),
        *(_package(name) for name in RUNTIME),
        *(_extra(extra) for extra in EXTRAS),
        _gpu(),
        _nvcc(),
    ]


def _python() -> Finding:
    old = sys.version_info < (3, 11)
    return Finding("Python", platform.python_version(), "Use 3.11 or newer." if old else "")


def _processor() -> Finding:
    return Finding("processor", f"{machine_name()} for this process")


def _kernels() -> Finding:
    try:
        found = supported()
        library()
    except OSError as error:
        return Finding("kernels", f"can't be loaded: {error}", "Install veilgraph again.")
    best = f"{', '.join(found)}; {BITS[found[-1]]} is used"
    slow = found[-1] == INSTRUCTION_SETS[0]
    return Finding("kernels", best, "A processor with AVX2 is many times faster." if slow else "")


def _interpreter() -> Finding:
    found = importlib.util.find_spec("veilgraph.runtime._native")
    if found is None:
        return Finding("native interpreter", "absent", "Install veilgraph again.")
    return Finding("native interpreter", "present")


def _memory() -> Finding:
    fields = dict(line.split(":", 1) for line in _lines(Path("/proc/meminfo")) if ":" in line)
    if "MemAvailable" not in fields:
        return Finding("free memory", "unknown", "Look yourself: this system does not say.")
    free = int(fields["MemAvailable"].split()[0]) * 1024
    small = free < LEAST_MEMORY_BYTES
    advice = "Large models need more: `inspect` says how much a plan takes." if small else ""
    return Finding("free memory", units.size(free), advice)


def _tls() -> Finding:
    advice = "" if ssl.HAS_TLSv1_3 else "Links need TLS 1.3: use a Python with OpenSSL 1.1.1."
    return Finding("TLS", f"{ssl.OPENSSL_VERSION}, 1.3 {'absent' if advice else 'present'}", advice)


def _links() -> Finding:
    found = openssl()
    if isinstance(found, OpenSsl):
        return Finding("links", f"native, with {found.version}")
    slower = "Rounds take several times longer; a Python with a shared OpenSSL 3 is faster."
    return Finding("links", f"by Python's ssl: {found}", slower)


def _package(name: str) -> Finding:
    found = _version(name)
    return Finding(name, found or "absent", "" if found else "Install veilgraph again.")


def _extra(extra: str) -> Finding:
    versions = {name: _version(name) for name in EXTRAS[extra]}
    found = ", ".join(f"{name} {number or 'absent'}" for name, number in versions.items())
    wanted = f"To {PURPOSES[extra]}: pip install 'veilgraph[{extra}]'."
    return Finding(f"extra {extra}", found, "" if all(versions.values()) else wanted)


def _gpu() -> Finding:
    """What `--device cuda` would find: GPUs by PyCUDA, else what NVIDIA's driver shows."""
    listed = len(list(Path("/proc/driver/nvidia/gpus").glob("*")))
    try:
        gpus = list_gpus(load_pycuda())
    except UsageError as error:
        return Finding("GPU", f"{listed or 'none'}: {error.message}", error.hint if listed else "")
    return Finding("GPU", "; ".join(f"{c.name}, {c.arch}, {_gib(c.memory_bytes)}" for c in gpus))


def first_gpu() -> str | None:
    """What `--device` calls the first GPU that can be used, if there is one."""
    try:
        load_pycuda()
    except UsageError:
        return None
    return DeviceName(CUDA).gpu


def _gib(count: int) -> str:
    return f"{count / 2**30:.0f} GiB"


def _nvcc() -> Finding:
    found = find_nvcc()
    if found is None:
        return Finding("nvcc", "absent; a GPU's kernels can be compiled elsewhere by `prepare`")
    return Finding("nvcc", str(found))


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
