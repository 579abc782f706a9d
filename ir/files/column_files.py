"""Tables in CSV files: a header of column names, then a row of numbers a line; or in Parquet files.

Columns are found by name, in whatever order they stand; others are left alone. UTF-8, commas,
numbers with a point. Nothing that is missing is guessed.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilgraph.ir.errors import UsageError
from veilgraph.ir.files.file_kinds import FileKind, mistaken
from veilgraph.ir.files.parquet_files import is_parquet_file, read_parquet

SUFFIX = ".csv"
MISSING = ("", "nan", "na", "n/a", "null", "none", "-", "?")
SHOWN = 12  # names of columns in a hint
Columns = Mapping[str, Sequence[str]]  # by input


def is_column_file(path: str | Path) -> bool:
    """Whether its name says that it is such a file."""
    return Path(path).suffix.lower() == SUFFIX or is_parquet_file(path)


def columns_named(name: str, shape: Sequence[int], columns: Columns) -> Sequence[str]:
    """The names of an input's columns; one that is a single column has its own name.

    Raises:
        UsageError: nothing names them.
    """
    if columns.get(name):
        return columns[name]
    if len(shape) == 2 and shape[1] == 1:
        return (name,)
    raise UsageError(
        f"The columns of input `{name}` have no names, and a CSV file has columns by name.",
        f"Compile with --columns {name}=FILE, a name a line; or give a .npy file.",
    )


def read_columns(path: str | Path, columns: Columns) -> dict[str, NDArray[np.float64]]:
    """The columns of each input, [rows, columns] in the order that they are named.

    Raises:
        UsageError: no such file, no table, a column that is missing or there twice, a row of
            another length, or a cell that is empty or no finite number, with row and column.
    """
    wanted = [name for own in columns.values() for name in own]
    try:
        if is_parquet_file(path):
            table = read_parquet(path, wanted, places_of, _no_number)
        else:
            table = _of_csv(path, wanted)
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}.", "Check the path.") from error
    except (csv.Error, UnicodeDecodeError) as error:
        hint = "Save it as CSV in UTF-8: a line of column names, then a row a line."
        raise UsageError(mistaken(path, FileKind.TEXT, "CSV file"), hint) from error
    if not len(table):
        raise UsageError(f"{path} has no rows.", "Give one row of numbers at the least.")
    ends = np.cumsum([len(own) for own in columns.values()])
    return dict(zip(columns, np.split(table, ends[:-1], axis=1), strict=True))


def _of_csv(path: str | Path, wanted: Sequence[str]) -> NDArray[np.float64]:
    with Path(path).open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(file, strict=True)
        header = [name.strip() for name in next(rows, [])]
        places = places_of(path, header, wanted)
        return np.array(list(_numbers(path, rows, header, places)), np.float64)


def places_of(what: object, given: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Where the wanted columns stand among those of a table.

    Args:
        what: the table, for the message.

    Raises:
        UsageError: a column that is missing, or there twice.
    """
    shown = ", ".join(given[:SHOWN]) + (", ..." if len(given) > SHOWN else "")
    hint = f"Its columns are {shown}." if shown else "Its first line names its columns."
    for name in wanted:
        if given.count(name) != 1:
            number = "two columns" if name in given else "no column"
            raise UsageError(f"{what} has {number} `{name}`.", hint)
    return [given.index(name) for name in wanted]


def _numbers(
    path: str | Path, rows: Iterable[Sequence[str]], header: Sequence[str], places: Sequence[int]
) -> Iterator[list[float]]:
    """The cells of each row at these places; empty lines are none."""
    for number, row in enumerate((row for row in rows if row), 1):
        if len(row) != len(header):
            raise UsageError(
                f"Row {number} of {path} has {len(row)} cells, and its header has {len(header)}.",
                "Give each row a cell for each column.",
            )
        yield [_number(path, number, header[place], row[place].strip()) for place in places]


def _number(path: str | Path, row: int, column: str, cell: str) -> float:
    try:
        number = math.nan if "_" in cell else float(cell)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise _no_number(path, row, column, cell)
    return number


def _no_number(path: str | Path, row: int, column: str, cell: str) -> UsageError:
    if cell.lower() in MISSING:
        return UsageError(
            f"Row {row} of {path} has no number under `{column}`.",
            "Put a number there, or leave the row out: no model guesses what is missing.",
        )
    return UsageError(
        f"Row {row} of {path} has {cell!r} under `{column}`, which is no number.",
        "Encode text as numbers, as it was for training; write numbers with a point.",
    )
