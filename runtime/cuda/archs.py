"""Names of GPU architectures."""

from __future__ import annotations

import re

from veilgraph.ir.errors import UsageError

_ARCH = re.compile(r"sm_[0-9]{2,3}[af]?")


def check_arch(arch: str) -> str:
    """The architecture, if it is one as nvcc calls them.

    Raises:
        UsageError: it is none.
    """
    if not _ARCH.fullmatch(arch):
        raise UsageError(f"`{arch}` is no GPU architecture.", "Name one as nvcc does, like sm_90.")
    return arch
