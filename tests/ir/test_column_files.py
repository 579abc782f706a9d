"""CSV files: columns by name, and each way in which a file is no table of numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from veilgraph.ir.errors import UsageError
from veilgraph.ir.files.column_files import columns_named, is_column_file, read_columns

COLUMNS = {"X": ("age", "income"), "Y": ("rate",)}


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "rows.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    "text",
    [
        "age,income,rate\n30,1e3,0.5\n41,-2,.25\n",
        "\ufeffrate, income ,id,age\r\n0.5,1000,a7,30\r\n\r\n.25,-2,b8,41\r\n",
        'age,"income",rate\n"30",1000,0.5\n41,-2,0.25',
    ],
    ids=["in order", "another order, more columns, an empty line", "quoted"],
)
def test_columns_are_found_by_name(tmp_path: Path, text: str) -> None:
    found = read_columns(written(tmp_path, text), COLUMNS)
    np.testing.assert_array_equal(found["X"], [[30, 1000], [41, -2]])
    np.testing.assert_array_equal(found["Y"], [[0.5], [0.25]])


BAD = {
    "a column missing": ("age,rate\n1,2\n", "has no column `income`"),
    "a column twice": ("age,income,rate,age\n1,2,3,4\n", "has two columns `age`"),
    "nothing": ("", "has no column `age`"),
    "no rows": ("age,income,rate\n", "has no rows"),
    "a short row": ("age,income,rate\n1,2,3\n1,2\n", "Row 2 of .* has 2 cells, and its header"),
    "a long row": ("age,income,rate\n1,2,3,4\n", "Row 1 of .* has 4 cells"),
    "an empty cell": ("age,income,rate\n1,2,3\n1,,3\n", "Row 2 of .* no number under `income`"),
    "a NaN": ("age,income,rate\nNaN,2,3\n", "Row 1 of .* no number under `age`"),
    "infinity": ("age,income,rate\ninf,2,3\n", "'inf' under `age`, which is no number"),
    "an underscore": ("age,income,rate\n1_0,2,3\n", "'1_0' under `age`, which is no number"),
    "text": ("age,income,rate\n1,2,high\n", "'high' under `rate`, which is no number"),
    "a decimal comma": ('age,income,rate\n1,2,"0,5"\n', "'0,5' under `rate`"),
    "semicolons": ("age;income;rate\n1;2;3\n", "has no column `age`"),
    "an open quote": ('age,income,rate\n"1,2,3\n', "no CSV file"),
    "another encoding": (b"age,income,rate\n\xff,2,3\n", "no CSV file"),
    "a NumPy file": (b"\x93NUMPY\x01\x00", "a .npy file of one array, and no CSV file"),
}


@pytest.mark.parametrize(("text", "told"), BAD.values(), ids=BAD.keys())
def test_what_is_no_table_is_refused(tmp_path: Path, text: str | bytes, told: str) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        read_columns(written(tmp_path, text), COLUMNS)
    assert caught.value.hint


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read: No such file"):
        read_columns(tmp_path / "rows.csv", COLUMNS)


def test_a_single_column_has_the_inputs_name() -> None:
    assert columns_named("age", (8, 1), {}) == ("age",)
    assert columns_named("X", (8, 2), COLUMNS) == ("age", "income")
    with pytest.raises(UsageError, match="The columns of input `Z` have no names") as caught:
        columns_named("Z", (8, 2), COLUMNS)
    assert "--columns Z=FILE" in caught.value.hint


def test_the_suffix_decides() -> None:
    assert is_column_file("a/ROWS.CSV")
    assert not is_column_file("rows.npy")
