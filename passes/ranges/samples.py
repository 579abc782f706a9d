"""The user's samples for calibration: an .npz file with one array an input, or rows of a CSV file.

Samples lie on a new first axis. The file is untrusted: every header is checked before its array is
read.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from veilgraph.ir.errors import UsageError
from veilgraph.ir.files.column_files import Columns, columns_named, is_column_file, read_columns
from veilgraph.ir.files.file_kinds import FileKind, mistaken
from veilgraph.ir.plan.given import NONE as NONE_GIVEN
from veilgraph.ir.plan.given import PLAIN, TEXT, Encodings, Given

Shape = tuple[int, ...]
NONE: Mapping[str, Shape] = {}
NO_COLUMNS: Columns = {}
HINT = "Save it with numpy.savez(file, NAME=array), one array an input, samples on the first axis."
# What zipfile, zlib and NumPy raise on a damaged file; encrypted entries are RuntimeErrors.
DAMAGES = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError)
HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_samples(
    path: str | Path,
    inputs: Mapping[str, Shape],
    optional: Mapping[str, Shape] = NONE,
    columns: Columns = NO_COLUMNS,
    encodings: Encodings = NONE_GIVEN,
) -> dict[str, NDArray[Any]]:
    """The samples in `path` for inputs of these shapes: numbers, and text as it is given.

    Of a CSV file as many rows are a sample as inputs have; what is left at its end makes none.

    Args:
        optional: shapes of what may be there too.
        columns: the names of the columns of tables, for a CSV file.
        encodings: of inputs that may hold text, or numbers that are missing, which are NaN.

    Raises:
        UsageError: no such file, none of this kind, or arrays that are missing, unknown, of another
            shape, of different numbers of samples, no real numbers, or not finite.
    """
    if is_column_file(path):
        return _of_rows(path, inputs, columns, encodings)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
            if not all(member.endswith(".npy") for member in members):
                raise ValueError("another kind of archive")
            names = [member.removesuffix(".npy") for member in members]
            inputs = {**inputs, **{n: shape for n, shape in optional.items() if n in names}}
            _check_names(path, names, inputs)
            samples = {
                n: _read_array(path, archive, n, shape, encodings.get(n, PLAIN))
                for n, shape in inputs.items()
            }
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}.", "Check the path.") from error
    except DAMAGES as error:  # in words of libraries
        raise UsageError(mistaken(path, FileKind.ARRAYS, ".npz file"), HINT) from error
    counts = {name: len(array) for name, array in samples.items()}
    _require(len(set(counts.values())) <= 1, f"{path} has different numbers of samples: {counts}.")
    return samples


def archive_lacks(path: str | Path) -> bool:
    """Whether an array of an .npz file holds a NaN; False of a file that reading it refuses."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = (archive[name] for name in archive.files)
            return any(x.dtype.kind == "f" and bool(np.isnan(x).any()) for x in arrays)
    except (OSError, AttributeError, *DAMAGES):
        return False


def _of_rows(
    path: str | Path, inputs: Mapping[str, Shape], columns: Columns, encodings: Encodings
) -> dict[str, NDArray[Any]]:
    names = {n: columns_named(n, shape, columns) for n, shape in inputs.items()}
    tables = read_columns(path, names, encodings)
    found: dict[str, NDArray[Any]] = {}
    for name, table in tables.items():
        rows, width = inputs[name]
        count = len(table) // rows
        if not count:
            raise UsageError(
                f"{path} has {len(table)} rows, and a sample of `{name}` has {rows}.",
                "Give more rows, or compile for fewer at once with --shape.",
            )
        found[name] = table[: count * rows].reshape(count, rows, width)
        if table.dtype.kind != TEXT:
            with np.errstate(over="ignore"):
                found[name] = found[name].astype(np.float32)
            held = not np.isinf(found[name]).any()  # a cell that is missing was refused
            _require(held, f"{path} has numbers beyond those of float32.")
    counts = {name: len(array) for name, array in found.items()}
    _require(len(set(counts.values())) <= 1, f"{path} has different numbers of samples: {counts}.")
    return found


def _check_names(path: str | Path, names: list[str], inputs: Mapping[str, Shape]) -> None:
    missing = [name for name in inputs if name not in names]
    extra = [name for name in names if name not in inputs]
    known, given = ", ".join(inputs), ", ".join(names) or "none"
    _require(not missing, f"{path} has no array for {', '.join(missing)}; its arrays: {given}.")
    _require(not extra, f"{path} has arrays that are no input: {', '.join(extra)}; not {known}.")


def _read_array(
    path: str | Path, archive: zipfile.ZipFile, name: str, shape: Shape, given: Given
) -> NDArray[Any]:
    stored = archive.getinfo(f"{name}.npy").file_size
    with archive.open(f"{name}.npy") as file:
        found, dtype = _read_header(file)
    _check_header(path, name, found, dtype, shape, is_text=given.takes_text)
    whole = math.prod(found) * np.dtype(dtype).itemsize <= stored
    _require(whole, f"{name} in {path} is cut short.")
    with archive.open(f"{name}.npy") as file:
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    if given.takes_text:
        return array
    array = array.astype(np.float32)
    bad = np.isinf(array) if given.flagged else ~np.isfinite(array)
    if bad.any():
        raise UsageError(
            f"{name} in {path} holds a NaN or an infinite number.",
            "Leave out the samples in which a number is missing, or put one in its place.",
        )
    return array


def _read_header(file: IO[bytes]) -> tuple[Shape, DTypeLike]:
    version = np.lib.format.read_magic(file)
    if version not in HEADERS:
        raise ValueError("a version that isn't known")
    shape, _, dtype = HEADERS[version](file)
    return shape, dtype


def _check_header(
    path: str | Path, name: str, given: Shape, dtype: DTypeLike, shape: Shape, *, is_text: bool
) -> None:
    wanted = " x ".join(map(str, ("samples", *shape)))
    found = " x ".join(map(str, given)) or "a single number"
    fits = len(given) == len(shape) + 1 and given[1:] == shape and given[0] > 0
    _require(fits, f"{name} in {path} is {found}, but must be {wanted}.")
    wanted, what = (TEXT, "text") if is_text else ("fiub", "real numbers")
    known = np.dtype(dtype).kind in wanted
    _require(known, f"{name} in {path} holds {dtype}, but must hold {what}.")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise UsageError(message, HINT)
