"""Arrays in files: read with every size checked first, written whole or not at all."""

from __future__ import annotations

import csv
import errno
import io
import math
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import ResourceLimitError, UsageError
from veilgraph.ir.files.column_files import columns_named, is_column_file, read_columns
from veilgraph.ir.files.file_kinds import FileKind, mistaken
from veilgraph.ir.files.parquet_files import is_parquet_file, require_pyarrow, write_parquet
from veilgraph.ir.files.whole_files import is_special, placed_whole
from veilgraph.ir.plan.given import TEXT
from veilgraph.ir.plan.tables import Tensor
from veilgraph.runtime.batches import Batches

Array = npt.NDArray[Any]
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
NUMBERS = "fiub"  # kinds of types
HINT = "Save the array with numpy.save(FILE, array)."
HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_inputs(paths: Mapping[str, Path], tensors: Sequence[Tensor]) -> dict[str, Array]:
    """The array in each file: .npy, or .csv or .parquet for a table whose columns have names.

    Args:
        paths: by input; "" stands for all that no other path is for, in one CSV file.

    Raises:
        UsageError: see `read_array` and `read_columns`.
    """
    known = {tensor.name: tensor for tensor in tensors}
    found = {n: _read_input(path, known.get(n)) for n, path in paths.items() if n}
    if "" in paths:
        rest = [tensor for tensor in tensors if tensor.name not in paths]
        if not is_column_file(paths[""]):
            raise UsageError(f"{paths['']} is given for no input.", "Give it as NAME=@FILE.")
        if not rest:
            raise UsageError(
                f"{paths['']} is given, and there is no input that it could be of.",
                "Leave it out, or name the input that it is of.",
            )
        found |= read_columns(
            paths[""], {t.name: _columns(t) for t in rest}, {t.name: t.given for t in rest}
        )
    return found


def read_batches(
    paths: Mapping[str, Path],
    own: Sequence[Tensor],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    rows: int | None = None,
) -> Batches:
    """The inputs in files, as the batches that a plan takes: of tables it may take many.

    Args:
        paths, own: as `read_inputs` has them.
        inputs, outputs, rows: as `Batches.of` has them.

    Raises:
        UsageError: as these do.
    """
    arrays = read_inputs(paths, own)
    tables = [n for n in arrays if is_column_file(paths[n if n in paths else ""])]
    return Batches.of(arrays, tables, inputs, outputs, rows)


def _read_input(path: Path, tensor: Tensor | None) -> Array:
    """One that the plan doesn't have is refused later, by name."""
    if tensor is None or not is_column_file(path):
        return read_array(path, NUMBERS + (TEXT if tensor and tensor.given.takes_text else ""))
    names, given = {tensor.name: _columns(tensor)}, {tensor.name: tensor.given}
    return read_columns(path, names, given)[tensor.name]


def _columns(tensor: Tensor) -> Sequence[str]:
    return columns_named(tensor.name, tensor.given_shape, {tensor.name: tensor.columns})


def read_array(path: Path, kinds: str = NUMBERS) -> Array:
    """The array of real numbers in a .npy file.

    Args:
        kinds: of types that it may hold.

    Raises:
        UsageError: no such file, none of this kind, one that is cut short, or other than numbers.
    """
    try:
        with path.open("rb") as file:
            _check_header(file, path, kinds)
            file.seek(0)
            array: Array = np.lib.format.read_array(file, allow_pickle=False)
            return array
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}.", "Check the path.") from error
    except ValueError as error:  # in words of NumPy's
        raise UsageError(mistaken(path, FileKind.ARRAY, ".npy file"), HINT) from error


def read_archive(path: Path) -> dict[str, Array]:
    """The arrays of real numbers in an .npz file, by name.

    Raises:
        UsageError: no such file, one of another kind, or one with other than numbers.
    """
    hint = "Save the arrays with numpy.savez(FILE, name=array, ...)."
    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise UsageError(f"{path} holds one array, without a name.", hint)
        with archive:
            found = {name: archive[name] for name in archive.files}
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}.", "Check the path.") from error
    except (ValueError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise UsageError(mistaken(path, FileKind.ARRAYS, ".npz file"), hint) from error
    for name, array in found.items():
        if array.dtype.kind not in "fiub":
            raise UsageError(
                f"`{name}` of {path} holds {array.dtype}, and must hold numbers.", hint
            )
    return found


def write_archive(path: Path, arrays: Mapping[str, Array]) -> None:
    """An .npz file of these arrays, whole or not at all.

    Raises:
        UsageError, ResourceLimitError: as `replacing`.
    """
    with replacing(path) as file:
        np.savez(file, allow_pickle=False, **dict(arrays))


def _check_header(file: IO[bytes], path: Path, kinds: str) -> None:
    version = np.lib.format.read_magic(file)
    if version not in HEADERS:
        raise UsageError(f"{path} is a .npy file of version {version}, which isn't read.", HINT)
    shape, _, dtype = HEADERS[version](file)
    if dtype.kind not in kinds:
        raise UsageError(f"{path} holds {dtype}, and must hold real numbers.", HINT)
    if min(shape, default=0) < 0:
        raise UsageError(f"{path} has a negative extent.", HINT)
    if math.prod(shape) * dtype.itemsize > os.fstat(file.fileno()).st_size:
        raise UsageError(f"{path} is cut short.", HINT)


def check_destination(path: Path, *kept: Path | None, is_printed: bool = False) -> None:
    """Raises UsageError unless a file can be written there; called before any work is done.

    Args:
        kept: files that are read, and must not be written over.
        is_printed: without a place it is shown on the screen, as outputs are.
    """
    for file in kept:
        if file is not None and path.exists() and file.exists() and path.samefile(file):
            raise UsageError(
                f"{path} is read here, and would be overwritten.", "Choose another name."
            )
    if path.is_dir():
        raise UsageError(f"{path} is a directory.", "Name a file in it.")
    if is_printed and is_parquet_file(path):
        require_pyarrow(path)
    if is_special(path):
        raise UsageError(
            f"{path} is a device, a pipe or a socket, and would become a file.",
            "Name a file, or leave the option out to have outputs printed."
            if is_printed
            else "Name a file in a directory of yours.",
        )
    if not path.parent.is_dir():
        raise UsageError(f"There is no directory {path.parent}.", "Make it, or choose another.")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"{path.parent} can't be written to.", "Choose a directory that is yours.")


def write_array(path: Path, array: Array, name: str = "") -> None:
    """Writes a .npy file, or .csv or .parquet where the path says so, that only its owner may read.

    A failure leaves no half of it. In a table rows are those of the first axis, and columns are
    called `name`, or `name.0`, `name.1`, ... where a row has several numbers.

    Raises:
        UsageError: the file can't be written.
        ResourceLimitError: the disk is full.
    """
    with replacing(path) as file:
        if is_parquet_file(path):
            header, table = _table(array, name)
            write_parquet(file, dict(zip(header, table.T, strict=True)), path)
        elif is_column_file(path):
            file.write(_as_rows(array, name).encode())
        else:
            np.lib.format.write_array(file, np.asarray(array, order="C"), allow_pickle=False)


def _table(array: Array, name: str) -> tuple[list[str], Array]:
    """The names of columns, and [rows, columns]."""
    table = array.reshape(len(array) if array.ndim else 1, -1)
    count = table.shape[1]
    return [name] if count == 1 else [f"{name}.{i}" for i in range(count)], table


def _as_rows(array: Array, name: str) -> str:
    header, table = _table(array, name)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *table.tolist()])
    return text.getvalue()


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file beside `path` to write to, which takes its place once the block has ended well."""
    try:
        with placed_whole(path) as file:
            yield file
    except OSError as error:
        if error.errno in _FULL:
            raise ResourceLimitError(
                f"{path} can't be written: {error.strerror}.",
                "Free some space, or choose a place on another disk.",
            ) from error
        hint = "Choose a place that is yours."
        raise UsageError(f"{path} can't be written: {error.strerror}.", hint) from error
