"""Tables of more or fewer rows than a plan takes at once: `simulate` and `run` take them whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_columns import NAMES, PARTIES, ROWS, compile_verb, csv, folder, ran, score, table
from verbs import reason

from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan.tables import Tensor
from veilgraph.measuring.processes import write_configs
from veilgraph.runtime.batches import Batches

__all__ = ["folder"]

X = Tensor("X", (4, 2), 32, 8, "alice", 0, columns=("a", "b"))
Y = Tensor("y", (4, 1), 32, 8, "alice", 0)


@pytest.mark.parametrize("count", [1, 3, 9, 40])
def test_a_table_is_run_in_batches(folder: Path, count: int) -> None:
    plan, rows = compile_verb(folder), table(40)[:count]
    given = csv(folder / "given.csv", rows[:, [3, 0, 2, 1]], ("rate", "age", "visits", "income"))
    answer = folder / "answer.csv"
    options = ("--weights", folder / "score.weights", "--output", f"score=@{answer}")
    assert f"score, {count}x1:" in ran("simulate", plan, *options, "--input", f"@{given}")
    header, *lines = answer.read_text().splitlines()
    assert header == "score"
    assert len(lines) == count
    np.testing.assert_allclose(np.float32(lines), score(rows)[:, 0], atol=0.02)


def sessions(folder: Path, options: dict[str, tuple[str, ...]]) -> list[tuple[int, str]]:
    """Exit code and all that each party tells, the parties at once."""
    running = []
    for party in PARTIES:
        own = ["run", "score.plan", "--party", party, "--config", f"{party}.yaml", *options[party]]
        running.append(
            subprocess.Popen(
                [sys.executable, "-m", "veilgraph.cli", *own],
                cwd=folder,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        )
    told = [process.communicate(timeout=60)[0] for process in running]
    codes = [process.returncode for process in running]
    return [(code, " ".join(text.split())) for code, text in zip(codes, told, strict=True)]


def test_two_owners_run_a_table_of_many_batches(folder: Path) -> None:
    compile_verb(folder)
    write_configs(folder, PARTIES)
    rows = table(10)
    csv(folder / "clinic.csv", rows[:, [2, 0]], ("visits", "age"))
    csv(folder / "bank.csv", rows[:, [1, 3]], ("income", "rate"))
    own = {
        "clinic": ("--input", "@clinic.csv", "--output", "score=@answer.csv"),
        "bank": ("--input", "@bank.csv"),
        "vendor": ("--weights", "score.weights", "--rows", "10"),
    }
    ended = sessions(folder, own)
    assert [code for code, _ in ended] == [0, 0, 0], ended
    _, *lines = (folder / "answer.csv").read_text().splitlines()
    np.testing.assert_allclose(np.float32(lines), score(rows)[:, 0], atol=0.02)
    ended = sessions(folder, own | {"vendor": own["vendor"][:2]})
    assert [code for code, _ in ended] == [6, 6, 6], ended
    assert "runs 1 inference, and this party expects 3" in ended[0][1]


def test_what_a_party_says_of_rows_must_agree(folder: Path) -> None:
    plan = compile_verb(folder)
    write_configs(folder, PARTIES)
    given = csv(folder / "given.csv", table(10), NAMES)
    own = ("run", plan, "--party", "bank", "--config", folder / "bank.yaml")
    code, told = reason(*own, "--input", f"@{given}", "--rows", "11")
    assert code == 2
    assert "`X.bank` has 10 rows, and 11 are said to be there" in told
    code, told = reason(*own, "--input", f"@{given}", "--iterations", "2")
    assert code == 2
    assert "10 rows are 3 inferences, and --iterations asks for 2" in told
    array = folder / "bank.npy"
    np.save(array, table(10)[:, [1, 3]])
    code, told = reason(*own, "--input", f"X.bank=@{array}")
    assert code == 2
    assert "`X.bank` has shape 10x2, and the plan needs 4x2" in told


def test_no_row_is_asked_more_often_than_it_must_be() -> None:
    whole = np.arange(20.0).reshape(10, 2)
    batches = Batches.of({"X": whole}, ["X"], [X], [Y])
    assert batches.rows == 10
    asked = np.concatenate([own["X"] for own in batches.inputs])
    np.testing.assert_array_equal(asked, whole[[*range(10), 0, 1]])
    answers: list[dict[str, Any]] = [{"y": own["X"][:, :1]} for own in batches.inputs]
    np.testing.assert_array_equal(batches.joined(answers)["y"], whole[:, :1])
    np.testing.assert_array_equal(batches.joined(answers[:2])["y"], whole[:8, :1])
    exact = Batches.of({"X": whole[:4]}, ["X"], [X], [Y])
    assert exact.rows is None
    assert exact.joined(answers[:1]) == answers[0]


OTHER = Tensor("Z", (4, 1), 32, 8, "bob", 0, columns=("c",))
LONGER = Tensor("Z", (5, 1), 32, 8, "bob", 0, columns=("c",))
MEAN = Tensor("mean", (1,), 32, 8, "alice", 0)
TEN = np.ones((10, 2))


@pytest.mark.parametrize(
    ("arrays", "tables", "inputs", "outputs", "told"),
    [
        ({"X": TEN, "Z": TEN[:9]}, "XZ", [X, OTHER], [Y], "`X` has 10 rows, and `Z` has 9"),
        ({"X": TEN, "Z": TEN}, "XZ", [X, LONGER], [Y], "tables of different numbers of rows"),
        ({"X": TEN, "Z": TEN[:4]}, "X", [X, OTHER], [Y], "`Z` is no table in a file"),
        ({"X": TEN}, "X", [X], [MEAN], "`mean` has no row for each row of the table"),
        ({"X": TEN[:0]}, "X", [X], [Y], "A table without rows asks nothing"),
    ],
)
def test_tables_that_cannot_be_cut(
    arrays: Any, tables: str, inputs: list[Tensor], outputs: list[Tensor], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        Batches.of(arrays, list(tables), inputs, outputs)


def test_rows_of_a_plan_without_tables() -> None:
    with pytest.raises(UsageError, match="takes no table whose rows could be counted"):
        Batches.of({}, [], [Y], [], rows=10)
    batches = Batches.of({}, [], [X], [], rows=10)
    assert (len(batches.inputs), batches.rows) == (3, 10)
    assert X.shape[0] == ROWS
