"""The digits model, compiled once for all tests of the command line."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from verbs import DIGITS, Compiled, run_verb


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """Compiled by the command line; tests must not change it."""
    folder = tmp_path_factory.mktemp("digits")
    for name in ("digits.onnx", "calibration.npz"):
        shutil.copy(DIGITS / name, folder)
    with np.load(DIGITS / "heldout.npz", allow_pickle=False) as heldout:
        np.save(folder / "image.npy", heldout["images"][:1].astype(np.float32) / 255)
    samples = ("--calibrate", folder / "calibration.npz")
    shape = ("--shape", "image=1x1x28x28")
    model, plan = folder / "digits.onnx", folder / "digits.plan"
    exact = ("--max-error", "0.001")
    result = run_verb("compile", model, "-o", plan, *shape, *samples, *exact)
    assert result.exit_code == 0, result.stderr
    return Compiled(folder)


@pytest.fixture
def copied(digits: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiled:
    """A copy that a test may change, as the current directory."""
    folder = shutil.copytree(digits.folder, tmp_path / "copied")
    monkeypatch.chdir(folder)
    return Compiled(folder)
