"""Tables in Parquet files: columns by name, as of CSV files.

They need pyarrow, of the extra `tables`. Numbers, truth values and decimals are read as numbers.
Nothing that is missing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from veilgraph.ir.errors import UsageError
from veilgraph.ir.files.file_kinds import FileKind, mistaken

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
    path: str | Path, wanted: Sequence[str], places_of: Places, no_number: Refusal
) -> NDArray[np.float64]:
    """The wanted columns, [rows, columns].

    Args:
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
        places_of(path, names, wanted)
        try:
            table = file.read(columns=list(wanted))
        except (pyarrow.ArrowException, OSError) as error:
            raise UsageError(mistaken(path, FileKind.PARQUET, "Parquet file"), HINT) from error
    columns = [_numbers(pyarrow, path, name, table.column(name), no_number) for name in wanted]
    return np.stack(columns, axis=1)


def _numbers(
    pyarrow: Any, path: str | Path, name: str, column: Any, no_number: Refusal
) -> NDArray[np.float64]:
    kind = pyarrow.types
    if kind.is_dictionary(column.type):  # a category of pandas
        column = column.cast(column.type.value_type)
    if column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise no_number(path, row + 1, name, "")
    if kind.is_decimal(column.type):
        column = column.cast(pyarrow.float64())
    known = (kind.is_integer, kind.is_floating, kind.is_boolean)
    if len(column) and not any(each(column.type) for each in known):
        raise no_number(path, 1, name, str(column[0].as_py()))
    numbers = np.asarray(column.to_numpy(), np.float64)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise no_number(path, int(bad[0]) + 1, name, str(numbers[bad[0]]))
    return numbers


def write_parquet(file: IO[bytes], columns: dict[str, NDArray[Any]], path: str | Path) -> None:
    """Writes a table with these columns; UsageError where pyarrow isn't installed."""
    pyarrow = require_pyarrow(path)
    pyarrow.parquet.write_table(pyarrow.table(columns), file)
