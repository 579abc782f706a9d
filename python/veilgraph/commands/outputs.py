"""Outputs of an inference: into files, into JSON, or a few of their numbers on the screen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.commands.files import write_arrays
from veilgraph.reports import units

Outputs = Mapping[str, npt.NDArray[np.float32]]
SHOWN = 10  # numbers of an output that is printed


def values(outputs: Outputs, paths: Mapping[str, Path]) -> dict[str, Any]:
    """Of each output its shape, and its file or its numbers; writes the files."""
    write_arrays(outputs, paths)
    return {
        name: {"shape": list(array.shape)}
        | ({"file": str(paths[name])} if name in paths else {"values": array.tolist()})
        for name, array in outputs.items()
    }


def lines(outputs: Outputs, paths: Mapping[str, Path]) -> list[str]:
    """A line an output: its file, or its first numbers; writes the files."""
    write_arrays(outputs, paths)
    return [
        f"{name}, {units.shape(array.shape)}: {paths.get(name) or _numbers(array)}"
        for name, array in outputs.items()
    ]


def _numbers(array: npt.NDArray[np.float32]) -> str:
    flat = array.ravel()
    shown = " ".join(f"{x:.6g}" for x in flat[:SHOWN])
    rest = flat.size - SHOWN
    return f"{shown} ... and {rest} more; --output writes all" if rest > 0 else shown
