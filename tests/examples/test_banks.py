"""The example of two banks: each gives its columns, and one of them learns classes."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from click.testing import CliRunner

from veilgraph.cli import main
from veilgraph.measuring.processes import write_configs

TRAIN = Path(__file__).parents[2] / "examples" / "banks" / "train.py"
PARTIES = ("bank", "bureau", "auditor")
OWNERS = ("age,income,savings,loan=bank", "history,late,debt=bureau", "weights=bureau")
LEAST_ALIKE = 0.995  # of rows, ties apart: a column may lie on a threshold


def compiled(folder: Path) -> None:
    owned = [part for owner in OWNERS for part in ("--owner", owner)]
    files = {"--columns": f"X={folder}/columns.txt", "--calibrate": f"{folder}/calibration.csv"}
    given = [part for pair in files.items() for part in pair]
    whose = ["--parties", ",".join(PARTIES), *owned, "--reveal", "label=bank"]
    plan = [f"{folder}/trees.onnx", "-o", f"{folder}/trees.plan", "--shape", "X=256x7"]
    done = CliRunner().invoke(main, ["compile", *plan, *given, *whose])
    assert done.exit_code == 0, done.output


def ran(folder: Path, rows: int) -> dict[str, str]:
    """What each party tells, each a process of its own, over TLS on loopback."""
    own = {
        "bank": ("--input", "@bank.csv", "--output", "label=@answers.csv"),
        "bureau": ("--input", "@bureau.csv", "--weights", "trees.weights"),
        "auditor": ("--rows", str(rows)),
    }
    verb = [sys.executable, "-m", "veilgraph.cli", "run", "trees.plan"]
    running = {
        party: subprocess.Popen(
            [*verb, "--party", party, "--config", f"{party}.yaml", *own[party]],
            cwd=folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for party in PARTIES
    }
    told = {party: process.communicate(timeout=300)[0] for party, process in running.items()}
    for party, process in running.items():
        assert process.returncode == 0, told[party]
    return told


@pytest.mark.parametrize("rows", [700, pytest.param(20_000, marks=pytest.mark.slow)])
def test_two_banks_decide_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--rows", str(rows), "--out", str(tmp_path)])
    runpy.run_path(str(TRAIN), run_name="__main__")
    compiled(tmp_path)
    write_configs(tmp_path, PARTIES)
    told = ran(tmp_path, rows)
    assert f"label, {rows}: answers.csv" in told["bank"]
    for party in ("bureau", "auditor"):
        assert f"{party} receives no output." in told[party]

    halves = [np.loadtxt(tmp_path / f"{name}.csv", delimiter=",", skiprows=1)[:, 1:]
              for name in ("bank", "bureau")]  # fmt: skip
    session = onnxruntime.InferenceSession(tmp_path / "trees.onnx")
    (expected,) = session.run(None, {"X": np.hstack(halves).astype(np.float32)})
    header, *answers = (tmp_path / "answers.csv").read_text().splitlines()
    assert header == "label"
    assert set(answers) == {"approved", "declined"}
    assert len(answers) == rows
    assert np.mean(np.array(answers) == expected) >= LEAST_ALIKE
