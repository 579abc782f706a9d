"""`veilgraph demo`: three processes read held-out digits as ONNX Runtime does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from verbs import DIGITS, reason, run_verb

from veilgraph.measuring.demo import drawing, find_examples, run_demo


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What the demo prints, and the folder that it leaves."""
    out = tmp_path_factory.mktemp("demo") / "out"
    result = run_verb("demo", "--digits", 5, "--examples", DIGITS, "--out", out)
    assert result.exit_code == 0, result.stderr
    return result.stdout, out


def test_answers_stand_beside_onnx_runtimes_and_labels(shown: tuple[str, Path]) -> None:
    text, _ = shown
    with np.load(DIGITS / "heldout.npz", allow_pickle=False) as heldout:
        labels = heldout["labels"][:5].tolist()
    rows = [line.split() for line in text.splitlines() if line[:6].strip().isdecimal()]
    assert [int(row[1]) for row in rows] == labels
    assert all(row[2] == row[3] for row in rows)
    assert "5 of 5 answers are ONNX Runtime's" in text


def test_cost_is_measured_and_predicted(shown: tuple[str, Path]) -> None:
    text, _ = shown
    (heading,) = [line for line in text.splitlines() if line.startswith("phase")]
    assert heading.split() == ["phase", "rounds", "sent", "by", "all", "measured", "predicted"]
    (online,) = [line for line in text.splitlines() if line.startswith("online")]
    assert online.count("ms") == 2


def test_folder_has_what_the_printed_commands_need(shown: tuple[str, Path]) -> None:
    text, out = shown
    names = {file.name for file in out.iterdir()}
    assert {"digits.plan", "digits.weights", "image.npy", "alice.yaml", "bob.key"} <= names
    assert f"veilgraph run {out}/digits.plan --party bob" in text
    again = run_verb("demo", "--digits", 1, "--examples", DIGITS, "--out", out)
    assert again.exit_code == 0  # keys that are there stay


def test_examples_are_found_above(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DIGITS)
    assert find_examples() == DIGITS


def test_the_installed_package_has_the_digits(tmp_path: Path) -> None:
    """In a folder with nothing else, on a host with no compiler in reach."""
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "veilgraph", "demo", "--digits", "2"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert "2 of 2 answers are ONNX Runtime's" in done.stdout, done.stderr
    assert {path.name for path in tmp_path.iterdir()} <= {".cache"}


def test_refuses_where_no_digits_are(tmp_path: Path) -> None:
    code, told = reason("demo", "--examples", tmp_path)
    assert code == 2
    assert "The digits are not in" in told


def test_refuses_more_digits_than_there_are() -> None:
    from veilgraph.ir.errors import UsageError

    with pytest.raises(UsageError, match="There are 1000 held-out digits, not 1001"):
        run_demo(DIGITS, 1001, None)


def test_refuses_a_folder_that_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run_verb("demo", "--examples", DIGITS, "--digits", 1, "--out", tmp_path / "file" / "x")
    assert result.exit_code == 2
    assert "can't be made" in result.stderr


def test_drawing_shows_upper_and_lower_halves() -> None:
    images = np.zeros((6, 1, 28, 28), np.uint8)
    images[0, 0, 0, 0] = 255  # upper left: the upper half of the first character
    images[1, 0, 3, 3] = 255  # the lower half of the second character
    images[5, 0, 0:4, 0:2] = 255
    lines = drawing(images)
    assert len(lines) == 14
    assert lines[0] == "▀" + " " * 15 + " ▄"
    assert lines[7] == "█"
