"""Tables in Parquet files: columns by name, as of CSV files.

They need pyarrow, of the extra `tables`. Numbers, truth values and decimals are read as numbers,
and text as text where it is wanted. Nothing that is missing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from veilgraph.ir.errors import UsageError
from veilgraph.ir.files.file_kinds import FileKind, mistaken
from veilgraph.ir.plan.given import Cell

SUFFIX = ".parquet"
HINT = "Write it with pandas' DataFrame.to_parquet, or give a CSV file."
Places = Callable[[object, Sequence[str], Sequence[str]], list[int]]
Refusal = Callable[[str | Path, int, str, str], UsageError]


def is_parquet_file(path: str | Path) -> bool:
    """Whether its name says that it is such a file."""
    return Path(path).suffix.lower() == SUFFIX


def require_pyarrow(path: str | Path) -> Any:
    """The package; UsageError where it isn't installed."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise UsageError(
            f"{path} is a Parquet file, and pyarrow isn't installed.",
            "Install it with `pip install 'veilgraph[tables]'`, or use a CSV file.",
        ) from error
    return pyarrow


def read_parquet(
    path: str | Path, kinds: Mapping[str, Cell], places_of: Places, no_number: Refusal
) -> dict[str, NDArray[Any]]:
    """The wanted columns by name, [rows]: text, or numbers of which NaN is missing.

    Args:
        kinds: what cells may be, by the names of the columns that are wanted.
        places_of: where they stand among those of the file; raises for one that is missing.
        no_number: the error for a cell, by row from 1 on, column and what it holds.

    Raises:
        UsageError: no such file, none of this kind, or what these two say.
    """
    pyarrow = require_pyarrow(path)
    with Path(path).open("rb") as opened:
        try:
            file = pyarrow.parquet.ParquetFile(opened)
            names = [str(name) for name in file.schema_arrow.names]
        except (pyarrow.ArrowException, OSError) as error:
            raise UsageError(mistaken(path, FileKind.PARQUET, "Parquet file"), HINT) from error
        there = [n for n, kind in kinds.items() if kind is not Cell.LACKING or n in names]
        places_of(path, names, there)
        try:
            table = file.read(columns=there)
        except (pyarrow.ArrowException, OSError) as error:
            raise UsageError(mistaken(path, FileKind.PARQUET, "Parquet file"), HINT) from error
    found: dict[str, NDArray[Any]] = {}
    for name in there:
        column = table.column(name)
        if pyarrow.types.is_dictionary(column.type):  # a category of pandas
            column = column.cast(column.type.value_type)
        if kinds[name] is Cell.TEXT:
            found[name] = _texts(pyarrow, path, name, column)
        else:
            found[name] = _numbers(pyarrow, path, name, column, kinds[name], no_number)
    return {name: found.get(name, np.zeros(table.num_rows)) for name in kinds}


def parquet_lacks(path: str | Path) -> bool:
    """Whether any cell is empty, or NaN; False of what is no such file, which reading it tells."""
    pyarrow = require_pyarrow(path)
    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError):
        return False
    is_real = pyarrow.types.is_floating
    return any(
        c.null_count or (is_real(c.type) and bool(np.isnan(c.to_numpy()).any()))
        for c in table.columns
    )


def _texts(pyarrow: Any, path: str | Path, name: str, column: Any) -> NDArray[np.str_]:
    """Text as it is; what is missing is empty."""
    kind = pyarrow.types
    if not (kind.is_string(column.type) or kind.is_large_string(column.type)):
        raise UsageError(
            f"{path} has {column.type} under `{name}`, and the model text.",
            "Write the column as text, as it was for training.",
        )
    return np.array(["" if text is None else text for text in column.to_pylist()], np.str_)


def _numbers(
    pyarrow: Any, path: str | Path, name: str, column: Any, cell: Cell, no_number: Refusal
) -> NDArray[np.float64]:
    kind, may_miss = pyarrow.types, cell is not Cell.NUMBER
    if column.null_count and not may_miss:
        row = column.is_null().to_pylist().index(True)
        raise no_number(path, row + 1, name, "")
    if kind.is_decimal(column.type) or (may_miss and kind.is_null(column.type)):
        column = column.cast(pyarrow.float64())
    known = (kind.is_integer, kind.is_floating, kind.is_boolean)
    if len(column) and not any(each(column.type) for each in known):
        raise no_number(path, 1, name, str(column[0].as_py()))
    if may_miss and column.null_count:
        column = column.cast(pyarrow.float64())
    numbers = np.asarray(column.to_numpy(), np.float64)
    bad = np.flatnonzero(np.isinf(numbers) | (np.isnan(numbers) & (not may_miss)))
    if len(bad):
        raise no_number(path, int(bad[0]) + 1, name, str(numbers[bad[0]]))
    return np.nan_to_num(numbers, nan=0.0) if cell is Cell.LACKING else numbers


def write_parquet(file: IO[bytes], columns: dict[str, NDArray[Any]], path: str | Path) -> None:
    """Writes a table with these columns; UsageError where pyarrow isn't installed."""
    pyarrow = require_pyarrow(path)
    pyarrow.parquet.write_table(pyarrow.table(columns), file)
