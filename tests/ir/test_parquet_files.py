"""Parquet files: columns by name, and each way in which a file is no table of numbers."""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from veilgraph.commands.files import check_destination, write_array
from veilgraph.ir.errors import UsageError
from veilgraph.ir.files.column_files import is_column_file, read_columns
from veilgraph.passes.ranges.samples import read_samples

COLUMNS = {"X": ("age", "income"), "Y": ("rate",)}
GOOD: dict[str, Any] = {"rate": [0.5, 0.25], "id": ["a7", "b8"], "income": [1000, -2]}


def written(folder: Path, columns: Any) -> Path:
    path = folder / "rows.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    return path


@pytest.mark.parametrize(
    "ages",
    [
        [30, 41],
        pyarrow.array([30, 41], pyarrow.uint8()),
        pyarrow.array([30, 41], pyarrow.float16()),
        [Decimal("30.00"), Decimal("41.00")],
        pyarrow.array([30, 41]).dictionary_encode(),
    ],
    ids=["integers", "small integers", "halves", "decimals", "a category of numbers"],
)
def test_columns_are_found_by_name(tmp_path: Path, ages: Any) -> None:
    path = written(tmp_path, GOOD | {"age": ages})
    assert is_column_file(path)
    found = read_columns(path, COLUMNS)
    np.testing.assert_array_equal(found["X"], [[30, 1000], [41, -2]])
    np.testing.assert_array_equal(found["Y"], [[0.5], [0.25]])


def test_truth_values_are_numbers(tmp_path: Path) -> None:
    found = read_columns(written(tmp_path, GOOD | {"age": [True, False]}), COLUMNS)
    np.testing.assert_array_equal(found["X"][:, 0], [1, 0])


BAD: dict[str, tuple[Any, str]] = {
    "a column missing": (GOOD, "has no column `age`"),
    "an empty cell": (GOOD | {"age": [1, None]}, "Row 2 of .* has no number under `age`"),
    "a NaN": (GOOD | {"age": [1.5, np.nan]}, "Row 2 of .* has no number under `age`"),
    "infinity": (GOOD | {"age": [np.inf, 1.5]}, "Row 1 of .* has 'inf' under `age`, which is no"),
    "text": (GOOD | {"age": ["old", "1"]}, "Row 1 of .* has 'old' under `age`, which is no number"),
    "a category": (
        GOOD | {"age": pyarrow.array(["old", "young"]).dictionary_encode()},
        "Row 1 of .* has 'old' under `age`, which is no number",
    ),
    "a list": (GOOD | {"age": [[1], [2]]}, "which is no number"),
    "no rows": ({name: pyarrow.array([], "f8") for name in ("age", "income", "rate")}, "no rows"),
}


@pytest.mark.parametrize(("columns", "told"), BAD.values(), ids=BAD.keys())
def test_what_is_no_table_is_refused(tmp_path: Path, columns: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read_columns(written(tmp_path, columns), COLUMNS)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"age,income,rate\n1,2,3\n", "is a text file, and no Parquet file"),
        (b"PAR1 and nothing else PAR1", "no Parquet file|damaged|cut short"),
        (b"", "is empty, and no Parquet file"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=told):
        read_columns(path, COLUMNS)
    with pytest.raises(UsageError, match="can't be read"):
        read_columns(tmp_path / "none.parquet", COLUMNS)


def test_a_parquet_file_called_csv_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD).rename(tmp_path / "rows.csv")
    with pytest.raises(UsageError, match="is a Parquet file, and no CSV file"):
        read_columns(path, COLUMNS)


def test_samples_of_a_calibration(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD | {"age": [30, 41]})
    found = read_samples(path, {"X": (1, 2)}, columns={"X": ("income", "age")})
    np.testing.assert_array_equal(found["X"], [[[1000, 30]], [[-2, 41]]])


def test_answers_are_written(tmp_path: Path) -> None:
    path = tmp_path / "answer.parquet"
    check_destination(path, is_printed=True)
    write_array(path, np.array([[1.5, 2], [3, 4]], np.float32), "score")
    assert parquet.read_table(path).to_pydict() == {"score.0": [1.5, 3.0], "score.1": [2.0, 4.0]}
    write_array(path, np.array(["approved", "declined"]), "label")
    assert parquet.read_table(path).to_pydict() == {"label": ["approved", "declined"]}


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, GOOD)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UsageError, match="is a Parquet file, and pyarrow isn't installed"):
        read_columns(path, COLUMNS)
    with pytest.raises(UsageError, match="pyarrow isn't installed"):
        check_destination(path, is_printed=True)
