"""The same source gives the same plan, weights and wheel, wherever and by whom it is made."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from verbs import DIGITS

ROOT = Path(__file__).parents[2]
OTHERS = {"TZ": "Asia/Tokyo", "USER": "other", "LC_ALL": "C", "PYTHONHASHSEED": "77"}


def made(folder: Path, command: Sequence[object], others: dict[str, str], umask: int) -> None:
    environment = {**os.environ, "HOME": str(folder), "PYTHONHASHSEED": "1", **others}
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)], cwd=folder, env=environment, umask=umask,
        capture_output=True, text=True,
    )  # fmt: skip
    assert not done.returncode, done.stderr


def test_plans_and_weights(tmp_path: Path) -> None:
    found = []
    for name, others, umask in (("a", {}, 0o022), ("deep/er", OTHERS, 0o077)):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        for file in ("digits.onnx", "calibration.npz"):
            shutil.copy(DIGITS / file, folder)
        made(
            folder,
            ("veilgraph", "compile", "digits.onnx", "-o", "digits.plan", "--shape",
             "image=1x1x28x28", "--calibrate", "calibration.npz"),
            others, umask,
        )  # fmt: skip
        found.append([(folder / f"digits.{kind}").read_bytes() for kind in ("plan", "weights")])
    assert found[0] == found[1]


@pytest.mark.slow
def test_wheels(tmp_path: Path) -> None:
    """Their contents: the dates of files in a wheel are those of the checkout."""
    found = []
    for name, others, umask in (("a", {}, 0o022), ("deep/er", OTHERS, 0o077)):
        folder = tmp_path / name
        left_out = shutil.ignore_patterns(".*", "__pycache__", "build", "out")
        shutil.copytree(ROOT, folder, ignore=left_out, symlinks=True)
        build = ("pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
        for source in (".", "packaging/client"):
            made(folder, (*build, "--wheel-dir", "wheels", source), others, umask)
        wheels = sorted((folder / "wheels").iterdir())
        files = [zipfile.ZipFile(wheel) for wheel in wheels]
        found.append([{n: file.read(n) for n in file.namelist()} for file in files])
    assert [len(each) for each in found] == [2, 2]
    assert found[0] == found[1]
