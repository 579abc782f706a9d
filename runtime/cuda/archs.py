"""Names of GPU architectures."""

from __future__ import annotations

import re

from veilgraph.ir.errors import UsageError

_ARCH = re.compile(r"sm_([0-9]{2,3})[af]?")
LEAST = 80  # Ampere: asynchronous copies


def check_arch(arch: str) -> str:
    """The architecture, if it is one as nvcc calls them, and not too old.

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
    return arch
