"""A counter at three hosts by verbs alone: entries compiled, prepared, run, saved and revealed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, save

from veilgraph.cli import main
from veilgraph.measuring.processes import write_configs

NAMES = ("alice", "bob", "carol")
RUNS = 100
X = np.array([[1.5, -0.25, 3.0, 0.0]], np.float32)
SUITES = {"rep3": [], "additive": ["--parties", "alice,bob", "--dealer", "carol"]}


def model(op: str, inputs: Sequence[str], output: str) -> Any:
    given, found = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, X.shape) for name in names]
        for names in (inputs, [output])
    )
    graph = helper.make_graph([helper.make_node(op, inputs, [output])], "g", given, found)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@dataclass(frozen=True)
class Hosts:
    """The hosts' files, and the parties that keep the count; others only deal."""

    folder: Path
    keeping: tuple[str, ...]

    def online(self, options: Mapping[str, str]) -> Sequence[str]:
        """Who runs with these options: from stores, only those that have one."""
        return self.keeping if "store" in options else NAMES

    def given(self, name: str, store: str | None = None) -> list[str]:
        """A party's own options of `run`."""
        kept = ["--state-file", f"{name}.count"] if name in self.keeping else []
        return [*kept, *(["--store", f"{name}.{store}"] if store else [])]


@pytest.fixture(scope="module", params=SUITES)
def compiled(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Hosts:
    """A counter's plan, compiled and verified once, and everybody's files; no test changes them."""
    folder = tmp_path_factory.mktemp("count")
    save(model("Add", ["count", "x"], "count_next"), folder / "step.onnx")
    save(model("Identity", ["count"], "total"), folder / "reveal.onnx")
    np.savez(folder / "samples.npz", x=np.repeat(X[np.newaxis], 8, axis=0))
    np.save(folder / "x.npy", X)
    options = [
        *("-o", "count.plan", "--entry", "step=step.onnx", "--entry", "reveal=reveal.onnx"),
        *("--state", "count=count_next", "--state-range", "count=-1000:1000"),
        *("--calibrate", "samples.npz", "--reveal", "total=bob", "--frac-bits", "12"),
        *("--suite", request.param, *SUITES[request.param]),
    ]
    assert verb(folder, "compile", *options).returncode == 0
    assert verb(folder, "verify", "count.plan").returncode == 0  # masks, over any number of runs
    return Hosts(folder, NAMES if request.param == "rep3" else NAMES[:2])


@pytest.fixture
def hosts(compiled: Hosts, tmp_path: Path) -> Hosts:
    """A copy for one test, whose parties have keys of their own."""
    folder = shutil.copytree(compiled.folder, tmp_path / "hosts")
    write_configs(folder, NAMES)
    return replace(compiled, folder=folder)


def verb(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "veilgraph", *words], cwd=folder, timeout=60, check=False
    )


def at_hosts(
    folder: Path, name: str, parties: Mapping[str, Sequence[str]], *words: str
) -> dict[str, dict[str, Any]]:
    """A verb at each party, as a process each; what each prints as JSON."""
    started = {
        party: subprocess.Popen(
            [
                *(sys.executable, "-m", "veilgraph", name, "count.plan", "--party", party),
                *("--config", f"{party}.yaml", "--json", *own, *words),
            ],
            cwd=folder,
            stdout=subprocess.PIPE,
        )
        for party, own in parties.items()
    }
    printed = {party: process.communicate(timeout=60)[0] for party, process in started.items()}
    assert all(process.returncode == 0 for process in started.values())
    return {party: json.loads(text) for party, text in printed.items()}


def stepped(hosts: Hosts, runs: int, **options: str) -> None:
    """Runs of `step` at all that are there online; each keeps its part of the count in a file."""
    own = {name: hosts.given(name, **options) for name in hosts.online(options)}
    own["alice"] += ["--input", "x=@x.npy"]
    at_hosts(hosts.folder, "run", own, "--entry", "step", "--iterations", str(runs))


def revealed(hosts: Hosts, **options: str) -> Any:
    """What another session tells bob of the files."""
    own = {name: hosts.given(name, **options) for name in hosts.online(options)}
    for name in hosts.keeping:
        own[name] += ["--resume"]
    own["bob"] += ["--output", "total=@total.npy"]
    at_hosts(hosts.folder, "run", own, "--entry", "reveal")
    return np.load(hosts.folder / "total.npy")


def test_a_counter_grows_for_a_hundred_runs_and_another_session_reveals_it(hosts: Hosts) -> None:
    stepped(hosts, RUNS)
    assert np.abs(revealed(hosts) - RUNS * X).max() < 0.05


def test_entries_are_prepared_and_run_from_stores(hosts: Hosts) -> None:
    for entry, count in (("step", 3), ("reveal", 1)):
        own = {
            name: ["--store", f"{name}.{entry}"] if name in hosts.keeping else [] for name in NAMES
        }
        at_hosts(hosts.folder, "prepare", own, "--entry", entry, "--count", str(count))
    stepped(hosts, 3, store="step")
    assert np.abs(revealed(hosts, store="reveal") - 3 * X).max() < 0.05


def test_prepare_refuses_an_entry_that_is_not_there(hosts: Hosts) -> None:
    own = ["--party", "alice", "--config", str(hosts.folder / "alice.yaml"), "--count", "1"]
    store = ["--store", str(hosts.folder / "alice.store"), "--entry", "steps"]
    done = CliRunner().invoke(main, ["prepare", str(hosts.folder / "count.plan"), *own, *store])
    assert (done.exit_code, "The plan has no entry `steps`." in done.stderr) == (2, True)
    assert "Did you mean step?" in " ".join(done.stderr.split())
    assert not (hosts.folder / "alice.store").exists()
