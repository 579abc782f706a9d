"""CUDA's compiler, where there is one."""

from __future__ import annotations

import shutil
from pathlib import Path

_NVCC = Path("/usr/local/cuda/bin/nvcc")  # where CUDA's own packages put it


def find_nvcc() -> Path | None:
    """CUDA's compiler, if there is one on the PATH or where its packages put it."""
    found = shutil.which("nvcc")
    if found is not None:
        return Path(found)
    return _NVCC if _NVCC.exists() else None
