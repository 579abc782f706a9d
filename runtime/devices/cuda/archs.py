"""Names of GPU architectures: a GPU's, such as sm_90, and what nvcc makes its machine code for.

A GPU has no suffix. Its machine code may: sm_90a has the instructions of that one architecture,
which no later GPU runs either, and cubins are for one architecture anyhow.
"""

from __future__ import annotations

import re

from veilgraph.ir.errors import UsageError

_ARCH = re.compile(r"sm_([0-9]{2,3})[af]?")
LEAST = 80  # Ampere: asynchronous copies
_BUILT_AS = {"sm_90": "sm_90a"}  # where kernels use what only the suffixed name has: wgmma


def gpu_arch(arch: str) -> str:
    """The architecture of GPUs that a name of nvcc's stands for: sm_90 for sm_90a too.

    Raises:
        UsageError: it is none, or one that kernels can't be compiled for.
    """
    found = _ARCH.fullmatch(arch)
    if found is None:
        raise UsageError(f"`{arch}` is no GPU architecture.", "Name one as nvcc does, like sm_90.")
    if int(found[1]) < LEAST:
        raise UsageError(
            f"GPUs of {arch} are too old for these kernels.",
            f"Take one of sm_{LEAST} (an A100, say) or later.",
        )
    return f"sm_{found[1]}"


def build_flag(arch: str) -> str:
    """What nvcc is told for GPUs of an architecture.

    Raises:
        UsageError: as `gpu_arch`.
    """
    gpu = gpu_arch(arch)
    return f"-arch={_BUILT_AS.get(gpu, gpu)}"
