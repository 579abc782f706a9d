"""The distribution veilgraph-client: built, put where nothing else of ours is, and asked with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import numpy as np
import pytest
from serving import SAMPLES, Hospital, answer_to, compiled, members, until

ROOT = Path(__file__).parents[2]
SITE = Path(sysconfig.get_paths()["purelib"])
# What the wheel depends on, and what that brings along.
NEEDED = ("numpy", "numpy.libs", "yaml", "_yaml", "click", "cryptography", "cffi", "_cffi_backend")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", folder, ROOT / "packaging" / "client"], check=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def alone(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages with the client, what it depends on, and nothing else."""
    folder = tmp_path_factory.mktemp("packages")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder)
    import cryptography

    for place in {SITE, Path(cryptography.__file__).parents[1]}:
        for path in place.iterdir():
            name = path.name.partition(".cpython")[0]
            if name in NEEDED and not (folder / path.name).exists():
                (folder / path.name).symlink_to(path)
    return folder


def run(alone: Path, *command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Python without this environment's packages."""
    environment = {"PYTHONPATH": str(alone), "PATH": os.environ["PATH"]}
    return subprocess.run(
        [sys.executable, "-S", "-s", *command],
        capture_output=True, text=True, env=environment, cwd=cwd, timeout=60,
    )  # fmt: skip


def test_it_has_python_alone(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    ours = [name for name in names if name.startswith("veilgraph/")]
    assert {Path(name).suffix for name in ours} == {".py", ".typed"}
    parts = {name.split("/")[1] for name in ours}
    assert not parts & {"frontend", "passes", "training", "compilation"}
    of_receipts = {f"veilgraph/verification/{name}.py" for name in ("__init__", "receipts")}
    assert {name for name in ours if name.startswith("veilgraph/verification/")} == of_receipts


def test_it_loads_without_what_only_unix_has(alone: Path) -> None:
    """As on Windows: no fcntl, no resource, no open flags of POSIX's."""
    script = """
import os, sys
import click, numpy, yaml, cryptography.x509, http.server, tempfile, asyncio  # load their own first
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
del os.O_NOFOLLOW, os.O_CLOEXEC
os.O_BINARY = 0
sys.platform = "win32"
import veilgraph.cli, veilgraph.serving.client
import veilgraph.commands.serving.infer, veilgraph.commands.trust.cert
"""
    done = run(alone, "-c", script)
    assert not done.returncode, done.stderr


def test_it_lists_its_own_verbs_alone(alone: Path) -> None:
    shown = run(alone, "-m", "veilgraph", "--help").stdout
    assert all(f"\n  {verb} " in shown for verb in ("infer", "gateway", "cert"))
    assert not any(word in shown for word in ("\n  compile ", "\n  simulate ", "\n  serve "))
    assert run(alone, "-m", "veilgraph", "--version").stdout.startswith("veilgraph, version 0.")


def test_what_it_does_not_have_is_named(alone: Path) -> None:
    done = run(alone, "-c", "import veilgraph; veilgraph.Session")
    assert "veilgraph-client has no Session: install veilgraph" in done.stderr
    assert run(alone, "-c", "import veilgraph; veilgraph.Nothing").returncode
    done = run(alone, "-m", "veilgraph", "compile", "model.onnx")
    assert (done.returncode, "No such verb: compile." in done.stderr) == (2, True)


def test_it_asks_a_service(alone: Path, tmp_path: Path) -> None:
    """From a key to an answer: what the parties serve is what NumPy computes."""
    plan, weights = compiled("rep3")
    hospital = Hospital(tmp_path, members(plan))
    hospital.put("small/1", plan, weights)
    made = run(alone, "-m", "veilgraph", "cert", "init", "nurse", "--dir", str(tmp_path))
    assert not made.returncode, made.stderr
    (tmp_path / "clients" / "nurse.crt").write_bytes((tmp_path / "nurse.crt").read_bytes())
    own = (tmp_path / "patient.yaml").read_text().replace("patient", "nurse")
    (tmp_path / "nurse.yaml").write_text(own)
    np.save(tmp_path / "x.npy", SAMPLES[0])
    with hospital.served() as services:
        until(lambda: all(each.served for each in services.values()))
        asked = ("infer", "small", "--config", "nurse.yaml", "--input", "x=@x.npy", "--json")
        done = run(alone, "-m", "veilgraph", *asked, cwd=tmp_path)
    assert not done.returncode, done.stderr
    answer = json.loads(done.stdout)
    assert answer["plan"] == plan.digest
    found = np.array(answer["outputs"]["y"]["values"])
    assert np.abs(found - answer_to(SAMPLES[0])).max() < 0.01
