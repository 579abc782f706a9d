"""Samples of what owners give, as the numbers that a model computes with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.compilation.parts import Parts
from veilgraph.ir.attributes import shape_of
from veilgraph.ir.errors import UsageError
from veilgraph.ir.files.column_files import (
    columns_named,
    has_missing,
    is_column_file,
    places_of,
)
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.plan.given import OTHER, PLAIN, Encodings, Given, as_rows
from veilgraph.passes.ranges.samples import archive_lacks, read_samples

Array = npt.NDArray[Any]
Numbers = dict[str, npt.NDArray[np.float32]]
Samples = Mapping[str, npt.ArrayLike]
Shapes = Mapping[str, tuple[int, ...]]
Columns = Mapping[str, tuple[str, ...]]


def samples_of(
    calibrate: str | Path | Samples | None, graphs: Mapping[str, Graph], parts: Parts
) -> Numbers | None:
    """Those of all inputs of all entries; states have none."""
    if calibrate is None:
        return None
    columns = dict(parts.columns)
    written: dict[str, tuple[int, ...]] = {}
    encodings: dict[str, Given] = {}
    for graph in graphs.values():
        written |= {n: shape_of(v) for n, v in graph.inputs.items() if n not in graph.states}
        encodings |= graph.given
        columns = {**graph.columns, **columns}
    taken = {n: encodings.get(n, PLAIN).shape(shape) for n, shape in written.items()}
    if isinstance(calibrate, str | Path):
        given = read_given(calibrate, taken, parts, columns, encodings)
        return as_numbers(_with_missing(given, encodings), encodings, columns)
    if hasattr(calibrate, "columns"):
        calibrate = _of_frame(calibrate, taken, columns, encodings)
    elif not isinstance(calibrate, Mapping):
        raise UsageError(
            f"Samples are given as one {type(calibrate).__name__}, without a name.",
            f"Give an array by the name of each input: {', '.join(parts.whole(taken))}.",
        )
    else:
        calibrate = _whole(calibrate, parts.whole(taken), columns, encodings)
    return as_numbers(_with_missing(parts.split(calibrate), encodings), encodings, columns)


def lack_numbers(calibrate: str | Path | Samples | None) -> bool:
    """Whether samples lack numbers, so that trees have to take such rows."""
    if calibrate is None:
        return False
    if isinstance(calibrate, str | Path):
        return has_missing(calibrate) if is_column_file(calibrate) else archive_lacks(calibrate)
    if hasattr(calibrate, "columns"):
        return _lacks(np.asarray(calibrate))
    arrays = calibrate.values() if isinstance(calibrate, Mapping) else ()
    return any(_lacks(np.asarray(x)) for x in arrays)


def _lacks(array: Array) -> bool:
    """Whether it holds a NaN, which alone does not equal itself, or None."""
    if array.dtype.kind == "f":
        return bool(np.isnan(array).any())
    is_any = array.dtype.kind == OTHER
    return is_any and any(x is None or (isinstance(x, float) and x != x) for x in array.reshape(-1))


def read_given(
    path: str | Path,
    taken: Shapes,
    parts: Parts,
    columns: Columns,
    encodings: Encodings,
    optional: Shapes | None = None,
) -> dict[str, Array]:
    """The samples of inputs in a file, each as its owner gives it.

    Args:
        taken: the shapes of what is given, by the plan's input.
        optional: shapes of what may be there too, where it is no table.

    Raises:
        UsageError: see `read_samples`.
    """
    if is_column_file(path):
        return read_samples(path, taken, columns=columns, encodings=encodings)
    whole = {n: encodings[p] for n, of in parts.of.items() for p in of if p in encodings}
    named = {**encodings, **whole}  # which kind of numbers, whatever columns
    return parts.split(read_samples(path, parts.whole(taken), optional or {}, {}, named))


def as_numbers(samples: Mapping[str, Any], encodings: Encodings, columns: Columns) -> Numbers:
    """Samples as owners write them.

    Raises:
        UsageError: text that is no category, or a number that is missing or infinite.
    """
    found = {}
    for name, given in samples.items():
        encoding = encodings.get(name, PLAIN)
        array = np.asarray(given)
        if encoding.takes_text and array.ndim == 3:  # rows are counted through
            flat = array.reshape(-1, array.shape[-1])
            rows = encoding.numbers(flat, f"`{name}`", columns.get(name, ()))
            array = rows.reshape(*array.shape[:2], -1)
        elif encoding != PLAIN or array.dtype.kind == OTHER:
            array = encoding.numbers(array, f"`{name}`", columns.get(name, ()))
        if array.dtype.kind not in "fiub":
            raise UsageError(
                f"Samples of `{name}` have type {array.dtype}, and need real numbers.",
                "Give an array of numbers, as numpy.asarray makes it.",
            )
        found[name] = array.astype(np.float32)
        _require_finite(name, found[name])
    return found


def _with_missing(samples: Mapping[str, Any], encodings: Encodings) -> dict[str, Any]:
    """More samples, in which numbers are missing where they may be and no sample lacks one.

    Each row lacks another column, so that ranges are of what takes its place too.
    """
    arrays = {name: np.asarray(array) for name, array in samples.items()}
    lacking = {
        name: [i for i in encodings[name].flagged if not _lacks(array[..., i].astype(float))]
        for name, array in arrays.items()
        if name in encodings and encodings[name].flagged
    }
    count = max((-(-len(at) // arrays[n].shape[1]) for n, at in lacking.items()), default=0)
    if not count:
        return arrays
    found = {}
    for name, array in arrays.items():
        more = np.array(array[np.arange(count) % len(array)], copy=True)
        if name in lacking:
            more = more.astype(np.float64)
            rows = more.reshape(-1, more.shape[-1])
            for row, column in enumerate(lacking[name]):
                rows[row, column] = np.nan
        found[name] = np.concatenate([array, more])
    return found


def _whole(
    calibrate: Samples, shapes: Shapes, columns: Columns, encodings: Encodings
) -> dict[str, Any]:
    """UsageError unless each input has samples of its shape."""
    found = {}
    for name, shape in shapes.items():
        wanted = f"Give an array of shape (samples, {', '.join(map(str, shape))})."
        if name not in calibrate:
            named = ", ".join(map(str, calibrate)) or "nothing"
            raise UsageError(f"There are no samples of `{name}`, but of {named}.", wanted)
        array: Any = calibrate[name]
        if encodings.get(name, PLAIN).lacks:
            array = np.asarray(as_rows(array, columns.get(name, ())))
            array = array.reshape(-1, *shape) if array.ndim == len(shape) else array
        given = np.shape(array)
        if given[1:] != shape or not given[0]:
            raise UsageError(f"Samples of `{name}` have shape {given}.", wanted)
        found[name] = array
    return found


def _of_frame(frame: Any, taken: Shapes, columns: Columns, encodings: Encodings) -> dict[str, Any]:
    """The rows of a data frame, as many a sample as inputs have."""
    given, found = list(map(str, frame.columns)), {}
    for name, shape in taken.items():
        places = places_of("The data frame", given, columns_named(name, shape, columns))
        table = np.asarray(frame.iloc[:, places])
        count = len(table) // shape[0]
        if not count:
            raise UsageError(
                f"The data frame has {len(table)} rows, and a sample of `{name}` has {shape[0]}.",
                "Give more rows, or compile for fewer at once.",
            )
        found[name] = table[: count * shape[0]].reshape(count, *shape)
    return found


def _require_finite(name: str, samples: npt.NDArray[np.float32]) -> None:
    """Raises UsageError, which says where, if a sample holds a NaN or an infinity."""
    found = np.argwhere(~np.isfinite(samples))
    if len(found):
        place = ", ".join(map(str, found[0].tolist()))
        raise UsageError(
            f"Samples of `{name}` hold {samples[tuple(found[0])]:g} at [{place}], from 0.",
            "Leave out the samples in which a number is missing, or put one in its place.",
        )
