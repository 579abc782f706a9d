"""`prepare`, `run --store` and `compile --compare-suites`."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from click.testing import CliRunner

from veilgraph.cli import main
from veilgraph.measuring.processes import write_configs

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
COMPILED = ["--shape", "image=1x1x28x28", "--calibrate", str(DIGITS / "calibration.npz")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan for two parties and a dealer, and everybody's files."""
    folder = tmp_path_factory.mktemp("prepare")
    options = ["--suite", "additive", "--parties", "alice,bob", "--dealer", "dave"]
    plan = str(folder / "digits.plan")
    done = CliRunner().invoke(
        main, ["compile", str(DIGITS / "digits.onnx"), "-o", plan, *options, *COMPILED]
    )
    assert done.exit_code == 0, done.output
    write_configs(folder, ("alice", "bob", "dave"))
    with np.load(DIGITS / "heldout.npz") as heldout:
        np.save(folder / "image.npy", heldout["images"][:1].astype(np.float32) / 255)
    return folder


def at_all(folder: Path, verb: str, parties: dict[str, list[str]]) -> dict[str, dict[str, Any]]:
    """Runs a verb at each party, as a process each; what each prints as JSON."""
    started = {}
    for party, options in parties.items():
        command = [sys.executable, "-m", "veilgraph", verb, str(folder / "digits.plan")]
        own = ["--party", party, "--config", str(folder / f"{party}.yaml"), "--json", *options]
        started[party] = subprocess.Popen([*command, *own], stdout=subprocess.PIPE)
    printed = {party: process.communicate(timeout=60)[0] for party, process in started.items()}
    assert all(process.returncode == 0 for process in started.values())
    return {party: json.loads(text) for party, text in printed.items()}


def test_prepare_then_run_without_the_dealer(folder: Path) -> None:
    stores = {p: ["--store", str(folder / f"{p}.store")] for p in ("alice", "bob")}
    ahead = {party: [*stores.get(party, []), "--count", "2"] for party in ("alice", "bob", "dave")}
    ahead["bob"] += ["--weights", str(folder / "digits.weights")]
    prepared = at_all(folder, "prepare", ahead)
    assert {party: report["prepared"] for party, report in prepared.items()} == dict.fromkeys(
        ("alice", "bob", "dave"), 2
    )
    assert [prepared[p]["store_bytes"] != 0 for p in prepared] == [True, True, False]
    assert not (folder / "dave.store").exists()
    image = ["--input", f"image=@{folder / 'image.npy'}"]
    logits = ["--output", f"logits=@{folder / 'logits.npy'}"]
    own = {"alice": [*stores["alice"], *image, *logits], "bob": stores["bob"]}
    for party, report in at_all(folder, "run", own).items():
        sent = report["sent_bytes"]
        assert isinstance(sent, dict)
        assert sent["setup"] == sent["offline"] == {}  # these were ahead of time
        assert [link.partition("->")[0] for link in sent["online"]] == [party]
    assert np.load(folder / "logits.npy").shape == (1, 10)


def test_a_store_of_fixed_roles(tmp_path: Path) -> None:
    """Party 2 of rep3 has sent its parts of products ahead: of the weights that the store has."""
    fixed = ["--roles", "fixed", "--prepared", "--network", "wan"]
    model, plan = str(DIGITS / "digits.onnx"), str(tmp_path / "digits.plan")
    done = CliRunner().invoke(main, ["compile", model, "-o", plan, *fixed, *COMPILED])
    assert done.exit_code == 0, done.output
    names = ("alice", "bob", "carol")
    write_configs(tmp_path, names)
    stores = {party: ["--store", str(tmp_path / f"{party}.store")] for party in names}
    ahead = {party: [*store, "--count", "2"] for party, store in stores.items()}
    ahead["bob"] += ["--weights", str(tmp_path / "digits.weights")]
    at_all(tmp_path, "prepare", ahead)
    with np.load(DIGITS / "heldout.npz") as heldout:
        images = heldout["images"][:2].astype(np.float32) / 255
    session = onnxruntime.InferenceSession(model)
    for image in images[:, np.newaxis]:
        np.save(tmp_path / "image.npy", image)
        own = {party: list(store) for party, store in stores.items()}
        own["alice"] += ["--input", f"image=@{tmp_path / 'image.npy'}"]
        own["alice"] += ["--output", f"logits=@{tmp_path / 'logits.npy'}"]
        reports = at_all(tmp_path, "run", own)
        assert all(not report["sent_bytes"]["offline"] for report in reports.values())
        assert "alice->carol" not in reports["alice"]["sent_bytes"]["online"]
        (expected,) = session.run(["logits"], {"image": image})
        np.testing.assert_allclose(np.load(tmp_path / "logits.npy"), expected, atol=0.05)


def test_what_prepare_says(folder: Path) -> None:
    ahead = {
        "alice": ["--store", str(folder / "alice.one")],
        "bob": ["--store", str(folder / "bob.one"), "--weights", str(folder / "digits.weights")],
        "dave": [],
    }
    said, logged = dict.fromkeys(ahead, ""), dict.fromkeys(ahead, "")

    def work(party: str) -> None:
        own = ["--party", party, "--config", str(folder / f"{party}.yaml"), *ahead[party]]
        command = [sys.executable, "-m", "veilgraph", "prepare", str(folder / "digits.plan"), *own]
        done = subprocess.run([*command, "--count", "1", "-vv"], capture_output=True, timeout=60)
        said[party] = done.stdout.decode()
        logged[party] = done.stderr.decode()

    with ThreadPoolExecutor(len(ahead)) as threads:
        list(threads.map(work, ahead))
    assert said["alice"].startswith("1 inference prepared in ")
    assert said["dave"].startswith("dealt 1 inference in ")
    assert said["dave"].endswith("the dealer keeps nothing.\n")
    for party, told in logged.items():
        assert f"{party}: offline phase 1 of 1, " in told
        assert "1 of 1 prepared" in told
    assert logged["alice"].endswith("each of its inferences can be used once.\n")


@pytest.mark.parametrize(
    ("party", "store", "said"),
    [("dave", ["--store", "s"], "keeps nothing"), ("bob", [], "where bob keeps what is prepared")],
)
def test_prepare_refuses_before_it_connects(
    folder: Path, party: str, store: list[str], said: str
) -> None:
    own = ["--party", party, "--config", str(folder / f"{party}.yaml"), "--count", "1", *store]
    done = CliRunner().invoke(main, ["prepare", str(folder / "digits.plan"), *own])
    assert done.exit_code == 2
    assert said in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--party", "alice", "--count", "1"), "needs --party, --config and --count"),
        (("--gpu-arch", "sm_75"), "GPUs of sm_75 are too old"),
        (("--gpu-arch", "sm_90,90", "--cubins", "k"), "`90` is no GPU architecture"),
    ],
)
def test_prepare_refuses_what_is_half_said(folder: Path, options: tuple[str], said: str) -> None:
    done = CliRunner().invoke(main, ["prepare", str(folder / "digits.plan"), *options])
    assert done.exit_code == 2
    assert said in done.stderr


def test_kernels_are_compiled_for_each_architecture(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a program in nvcc's place, which writes down how it was called."""
    nvcc = tmp_path / "nvcc"
    nvcc.write_text('#!/bin/sh\nfor last; do :; done; echo "$@" > "$last"\n')
    nvcc.chmod(0o700)
    monkeypatch.setattr("veilgraph.commands.prepare.find_nvcc", lambda: nvcc)
    cubins = tmp_path / "cubins"
    options = ["prepare", str(folder / "digits.plan"), "--cubins", str(cubins)]
    done = CliRunner().invoke(main, [*options, "--gpu-arch", "sm_80,sm_90", "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    files = list(cubins.glob("*.cubin"))
    of_hopper = [file for file in files if file.name.endswith("-sm_90.cubin")]
    assert report["files"] == len(files) > report["kernels"] >= len(of_hopper) > 0
    assert [file for file in files if "-arch=sm_90a " in file.read_text()] == of_hopper
    again = CliRunner().invoke(main, [*options, "--gpu-arch", "sm_90a,sm_90"])
    count = len(of_hopper)
    assert f"{count} kernels for sm_90: {count} files in {cubins}." in again.stdout


def test_kernels_need_a_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("veilgraph.commands.prepare.find_nvcc", lambda: None)
    options = ["--gpu-arch", "sm_90", "--cubins", str(folder / "cubins")]
    done = CliRunner().invoke(main, ["prepare", str(folder / "digits.plan"), *options])
    assert done.exit_code == 2
    assert "There is no nvcc on this machine." in done.stderr
    assert not (folder / "cubins").exists()


def test_compare_suites_shows_each_with_its_trust() -> None:
    model = str(DIGITS / "digits.onnx")
    done = CliRunner().invoke(main, ["compile", model, "--compare-suites", "--json", *COMPILED])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["suites"]
    shown = [(s["suite"], s["computing_parties"], s["dealer"]) for s in found]
    assert shown == [("rep3", 3, False), ("additive", 2, True), ("additive", 3, True)]
    assert all(s["sent_bytes"]["online"] > 0 and s["trust"] for s in found)
    assert all(s["sent_bytes"]["setup"] > 0 for s in found)
    assert all(list(s["online_seconds"]) == ["lan", "wan"] for s in found)


def test_compare_suites_as_a_table() -> None:
    model = str(DIGITS / "digits.onnx")
    options = ["--compare-suites", "--network", "wan", *COMPILED]
    done = CliRunner().invoke(main, ["compile", model, *options])
    assert "who may be curious" in done.stdout
    assert "setup, once" in done.stdout
    assert "wan online" in done.stdout
    assert "lan online" not in done.stdout


@pytest.mark.parametrize(
    "options",
    [
        ("--output", "y.plan"),
        ("--suite", "additive"),
        ("--parties", "a,b,c"),
        ("--dealer", "x"),
        ("--owner", "image=a"),
        ("--reveal", "logits=a"),
        ("--dump-phases", "phases"),
    ],
)
def test_compare_suites_refuses_what_it_would_ignore(options: tuple[str, str]) -> None:
    model = str(DIGITS / "digits.onnx")
    done = CliRunner().invoke(main, ["compile", model, "--compare-suites", *options])
    assert done.exit_code == 2
    assert f"{options[0]} makes no sense with --compare-suites." in done.stderr
