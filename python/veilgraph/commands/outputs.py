"""Outputs of an inference: into files, into JSON, or a few of their numbers on the screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from veilgraph.commands.files import write_array
from veilgraph.ir.errors import UsageError
from veilgraph.ir.files.column_files import is_column_file
from veilgraph.reports import units

Outputs = Mapping[str, npt.NDArray[np.float32]]


class Source(Protocol):
    """What outputs come from, a plan or a service, and what it says of them."""

    @property
    def labels(self) -> Mapping[str, Sequence[str]]: ...

    @property
    def forms(self) -> Mapping[str, str]: ...


SHOWN = 10  # numbers, or names, of an output that is printed


def values(outputs: Outputs, paths: Mapping[str, Path], source: Source) -> dict[str, Any]:
    """Of each output its shape, and its file or its numbers, and names of classes; writes files."""
    _write(outputs, paths, source)
    found: dict[str, Any] = {}
    for name, array in outputs.items():
        content = {"file": str(paths[name])} if name in paths else {"values": array.tolist()}
        found[name] = {"shape": list(array.shape), **content}
        if name in source.labels:
            found[name]["labels"] = named(array, source.labels[name]).tolist()
    return found


def named(array: npt.NDArray[np.float32], labels: Sequence[str]) -> npt.NDArray[np.str_]:
    """What the classes at these places are called."""
    places = np.rint(array).astype(np.int64)
    return np.asarray(labels)[np.clip(places, 0, len(labels) - 1)]


def lines(outputs: Outputs, paths: Mapping[str, Path], source: Source) -> list[str]:
    """A line an output: its file, or its first numbers; writes the files.

    What is revealed in place of an output is named for what it is: `argmax of logits`.
    """
    forms = source.forms
    called = {name: f"{forms[name]} of {name}" if name in forms else name for name in outputs}
    _write(outputs, paths, source)
    shown = {
        name: paths.get(name) or first_numbers(x, source.labels.get(name))
        for name, x in outputs.items()
    }
    return [
        f"{called[name]}, {units.shape(array.shape)}: {shown[name]}"
        for name, array in outputs.items()
    ]


def _write(outputs: Outputs, paths: Mapping[str, Path], source: Source) -> None:
    """Writes the files; an array whose place turns out bad goes to a temporary folder.

    Raises:
        UsageError: an array could not be written where it was meant to be; it says where it is.
    """
    rescued: list[tuple[str, UsageError]] = []
    for name, path in paths.items():
        array: npt.NDArray[Any] = outputs[name]
        if name in source.labels and is_column_file(path):
            array = named(array, source.labels[name])
        try:
            write_array(path, array, name)
        except UsageError as error:
            place = Path(mkdtemp(prefix="veilgraph-")) / path.name  # of mode 0700
            write_array(place, array, name)
            rescued.append((str(place), error))
    if rescued:
        first, places = rescued[0][1], ", ".join(place for place, _ in rescued)
        raise UsageError(first.message, f"The answer is kept in {places}.") from first


def first_numbers(array: npt.NDArray[np.float32], labels: Sequence[str] | None = None) -> str:
    """The first numbers, or names of classes."""
    flat = array.ravel()
    first = flat[:SHOWN]
    shown = (
        " ".join(f"{x:.6g}" for x in first) if labels is None else ", ".join(named(first, labels))
    )
    rest = flat.size - SHOWN
    return f"{shown} ... and {rest} more; --output writes all" if rest > 0 else shown
