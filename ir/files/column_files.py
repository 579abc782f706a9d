"""Tables in CSV files: a header of column names, then a row a line; or in Parquet files.

Columns are found by name, in whatever order they stand; others are left alone. UTF-8, commas,
numbers with a point, text where an input has categories. Nothing that is missing is guessed.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilgraph.ir.errors import UsageError
from veilgraph.ir.files.file_kinds import FileKind, mistaken
from veilgraph.ir.files.parquet_files import is_parquet_file, parquet_lacks, read_parquet
from veilgraph.ir.plan.given import NONE, PLAIN, Cell, Encodings, Given

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


def read_columns(
    path: str | Path, columns: Columns, encodings: Encodings = NONE
) -> dict[str, NDArray[Any]]:
    """The columns of each input, [rows, columns] in the order that they are named.

    Args:
        encodings: of inputs that are no plain numbers: their text is read as it is, and a number
            that may be missing as NaN.

    Raises:
        UsageError: no such file, no table, a column that is missing or there twice, a row of
            another length, or a cell that is empty, no finite number or no category, with row and
            column.
    """
    kinds = {
        name: encodings.get(table, PLAIN).cell(place)
        for table, own in columns.items()
        for place, name in enumerate(own)
    }
    try:
        if is_parquet_file(path):
            found = read_parquet(path, kinds, places_of, _no_number)
        else:
            found = _of_csv(path, kinds)
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}.", "Check the path.") from error
    except (csv.Error, UnicodeDecodeError) as error:
        hint = "Save it as CSV in UTF-8: a line of column names, then a row a line."
        raise UsageError(mistaken(path, FileKind.TEXT, "CSV file"), hint) from error
    if not all(len(column) for column in found.values()):
        raise UsageError(f"{path} has no rows.", "Give one row at the least.")
    for table, given in encodings.items():
        if given.takes_text:
            _require_categories(path, {name: found[name] for name in columns[table]}, given)
    return {
        table: np.stack([found[name] for name in own], axis=1) for table, own in columns.items()
    }


def has_missing(path: str | Path) -> bool:
    """Whether a cell of any column is empty; False of a file that reading it refuses."""
    try:
        if is_parquet_file(path):
            return parquet_lacks(path)
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file)
            next(rows, None)
            return any(cell.strip().lower() in MISSING for row in rows for cell in row)
    except (csv.Error, UnicodeDecodeError, OSError):
        return False


def _require_categories(path: str | Path, texts: Mapping[str, NDArray[Any]], given: Given) -> None:
    """UsageError for the first text that may not be given; it isn't told, as no number is."""
    for place, (name, column) in enumerate(texts.items()):
        unknown = {text for text in set(column.tolist()) if not given.knows(text, place)}
        if not unknown:
            continue
        row, text = next((r, t) for r, t in enumerate(column.tolist(), 1) if t in unknown)
        told = "a category that the model doesn't know" if text else "no text"
        raise UsageError(f"Row {row} of {path} has {told} under `{name}`.", given.hint(place))


def _of_csv(path: str | Path, kinds: Mapping[str, Cell]) -> dict[str, NDArray[Any]]:
    with Path(path).open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(file, strict=True)
        header = [name.strip() for name in next(rows, [])]
        there = [name for name, kind in kinds.items() if _is_there(name, kind, header)]
        places = places_of(path, header, there)
        table = list(_cells(path, rows, header, places))
    found: dict[str, NDArray[Any]] = {}
    for name, *cells in zip(there, *table, strict=True):
        kind = kinds[name]
        if kind is Cell.TEXT:
            found[name] = np.array(cells, np.str_)
            continue
        numbers = (_number(path, row, name, cell, kind) for row, cell in enumerate(cells, 1))
        found[name] = np.fromiter(numbers, np.float64, len(cells))
    return {name: found.get(name, np.zeros(len(table))) for name in kinds}


def _is_there(name: str, kind: Cell, header: Sequence[str]) -> bool:
    return kind is not Cell.LACKING or name in header


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


def _cells(
    path: str | Path, rows: Iterable[Sequence[str]], header: Sequence[str], places: Sequence[int]
) -> Iterator[list[str]]:
    """The cells of each row at these places; empty lines are none."""
    for number, row in enumerate((row for row in rows if row), 1):
        if len(row) != len(header):
            raise UsageError(
                f"Row {number} of {path} has {len(row)} cells, and its header has {len(header)}.",
                "Give each row a cell for each column.",
            )
        yield [row[place].strip() for place in places]


def _number(path: str | Path, row: int, column: str, cell: str, kind: Cell) -> float:
    if kind is not Cell.NUMBER and cell.lower() in MISSING:
        return 0.0 if kind is Cell.LACKING else math.nan
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
            "Put a number there, or leave the row out: no branch of the model is for it.",
        )
    return UsageError(
        f"Row {row} of {path} has {cell!r} under `{column}`, which is no number.",
        "Encode text as numbers, as it was for training; write numbers with a point. Text is taken "
        "where the plan has a column's categories.",
    )
