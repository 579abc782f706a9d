"""The example of three hospitals: each trains with its rows, and one receives the model."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from veilgraph.cli import main
from veilgraph.measuring.processes import write_configs

HOSPITALS = Path(__file__).parents[2] / "examples" / "hospitals"
PARTIES = ("north", "east", "south")
CHANCE = 0.1  # of ten digits


def compiled(steps: int) -> None:
    how = f"--batch north=64,east=40,south=24 --momentum 0.9 --rate 0.05 --rehearse {steps}"
    whose = "--parties north,east,south --reveal parameters=north --reveal loss=north"
    files = "lenet.onnx -o lenet.plan --train cross_entropy --calibrate rehearsed.npz"
    done = CliRunner().invoke(main, ["compile", *f"{files} {how} {whose}".split()])
    assert done.exit_code == 0, done.output


def trained(epochs: int) -> dict[str, str]:
    """What each party tells, each a process of its own, over TLS on loopback."""
    own = {"north": ["--output", "lenet.safetensors"], "east": ["--weights", "lenet.weights"]}
    verb = [sys.executable, "-m", "veilgraph.cli", "train", "lenet.plan", "--trust-author"]
    how = ["--rate", "0.05", "--epochs", str(epochs), "--reveal"]
    running = {}
    for party in PARTIES:
        files = ["--config", f"{party}.yaml", "--data", f"{party}.npz"]
        files += ["--save", f"{party}.checkpoint", *own.get(party, [])]
        running[party] = subprocess.Popen(
            [*verb, "--party", party, *how, *files],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    told = {party: process.communicate(timeout=500)[0] for party, process in running.items()}
    for party, process in running.items():
        assert process.returncode == 0, told[party]
    return told


@pytest.mark.parametrize(
    ("few", "epochs", "least"),
    [(True, 4, 3 * CHANCE), pytest.param(False, 3, 0.88, marks=pytest.mark.slow)],
)
def test_three_hospitals_train_one_model(
    few: bool,
    epochs: int,
    least: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A network that knew nothing reads digits that it never saw."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["rows.py", *(["--few"] if few else [])])
    runpy.run_path(str(HOSPITALS / "rows.py"), run_name="__main__")
    with np.load("public.npz") as public:
        some = {name: np.resize(x, (max(128, len(x)), *x.shape[1:])) for name, x in public.items()}
        np.savez("rehearsed.npz", **some)  # of few rows, some twice: a batch is 128
    an_epoch = (400 if few else 2_000) // 64
    compiled(epochs * an_epoch)
    write_configs(tmp_path, PARTIES)
    told = trained(epochs)
    assert f"{epochs * an_epoch} steps in " in told["north"]
    assert "the mean loss of the last epoch is" not in told["east"]
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["right.py", "lenet.safetensors"])
    runpy.run_path(str(HOSPITALS / "right.py"), run_name="__main__")
    said = capsys.readouterr().out
    found = re.fullmatch(r"(\d+) of (\d+) digits are right: .*%\n", said)
    assert found is not None, said
    assert int(found[1]) >= least * int(found[2])
