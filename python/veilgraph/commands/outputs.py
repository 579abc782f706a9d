"""Outputs of an inference: into files, into JSON, or a few of their numbers on the screen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.commands.files import write_array
from veilgraph.ir.errors import UsageError
from veilgraph.plans import Plan
from veilgraph.reports import units

Outputs = Mapping[str, npt.NDArray[np.float32]]
SHOWN = 10  # numbers of an output that is printed


def values(outputs: Outputs, paths: Mapping[str, Path]) -> dict[str, Any]:
    """Of each output its shape, and its file or its numbers; writes the files."""
    _write(outputs, paths)
    return {
        name: {"shape": list(array.shape)}
        | ({"file": str(paths[name])} if name in paths else {"values": array.tolist()})
        for name, array in outputs.items()
    }


def lines(outputs: Outputs, paths: Mapping[str, Path], plan: Plan) -> list[str]:
    """A line an output: its file, or its first numbers; writes the files.

    What is revealed in place of an output is named for what it is: `argmax of logits`.
    """
    given = plan.manifest.options.get("reveal_as")
    forms = given if isinstance(given, Mapping) else {}
    named = {name: f"{forms[name]} of {name}" if name in forms else name for name in outputs}
    _write(outputs, paths)
    return [
        f"{named[name]}, {units.shape(array.shape)}: {paths.get(name) or _numbers(array)}"
        for name, array in outputs.items()
    ]


def _write(outputs: Outputs, paths: Mapping[str, Path]) -> None:
    """Writes the files; an array whose place turns out bad goes to a temporary folder.

    Raises:
        UsageError: an array could not be written where it was meant to be; it says where it is.
    """
    rescued: list[tuple[str, UsageError]] = []
    for name, path in paths.items():
        try:
            write_array(path, outputs[name])
        except UsageError as error:
            place = Path(mkdtemp(prefix="veilgraph-")) / path.name  # of mode 0700
            write_array(place, outputs[name])
            rescued.append((str(place), error))
    if rescued:
        first, places = rescued[0][1], ", ".join(place for place, _ in rescued)
        raise UsageError(first.message, f"The answer is kept in {places}.") from first


def _numbers(array: npt.NDArray[np.float32]) -> str:
    flat = array.ravel()
    shown = " ".join(f"{x:.6g}" for x in flat[:SHOWN])
    rest = flat.size - SHOWN
    return f"{shown} ... and {rest} more; --output writes all" if rest > 0 else shown
