"""Weights that no party has: shares in a file a party, from `compile` to three processes."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from verbs import DIGITS, json_of, reason, run_verb

import veilgraph
from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.ir.plan.tables import Phase
from veilgraph.measuring.processes import write_configs
from veilgraph.targets.target import target

PARTIES = ("alice", "bob", "carol")
SHAPE = ("--shape", "image=1x1x28x28")
SAMPLES = ("--calibrate", DIGITS / "calibration.npz")
OPTIONS = (*SHAPE, *SAMPLES, "--max-error", "0.001", "--owner", "weights=shared")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits model with shared weights, keys for three parties, and a digit."""
    found = tmp_path_factory.mktemp("shared")
    result = run_verb("compile", DIGITS / "digits.onnx", "-o", found / "digits.plan", *OPTIONS)
    assert result.exit_code == 0, result.stderr
    assert "weights are shared from files" in result.stderr
    assert "digits.carol.shares: one each" in result.stdout.replace("\n", " ")
    assert "digits.weights stays here, for `check`" in result.stdout.replace("\n", " ")
    with np.load(DIGITS / "heldout.npz", allow_pickle=False) as heldout:
        np.save(found / "image.npy", heldout["images"][:1].astype(np.float32) / 255)
    write_configs(found, PARTIES)
    return found


def reference(folder: Path) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(DIGITS / "digits.onnx")
    (expected,) = session.run(["logits"], {"image": np.load(folder / "image.npy")})
    return np.asarray(expected)


def at_all(
    folder: Path, verb: str, options: Mapping[str, list[str]]
) -> dict[str, tuple[int, str, str]]:
    """Runs a verb at each party, as a process each: exit code, output and error."""
    started = {}
    for party, own in options.items():
        named = ["--party", party, "--config", f"{party}.yaml", "--json", *own]
        command = [sys.executable, "-m", "veilgraph", verb, "digits.plan", *named]
        pipe = subprocess.PIPE
        started[party] = subprocess.Popen(command, cwd=folder, text=True, stdout=pipe, stderr=pipe)
    done = {party: process.communicate(timeout=60) for party, process in started.items()}
    return {party: (started[party].returncode, *told) for party, told in done.items()}


def own_shares(party: str) -> list[str]:
    return ["--weights", f"digits.{party}.shares"]


INPUT = ["--input", "image=@image.npy"]


# Three hosts


def test_three_processes_with_a_file_each(folder: Path) -> None:
    """The logits are as exact as with weights of bob's, and setup sends nothing."""
    options = {party: own_shares(party) for party in PARTIES}
    options["alice"] += INPUT
    done = at_all(folder, "run", options)
    assert [code for code, _, _ in done.values()] == [0, 0, 0], done
    reports = {party: json.loads(out) for party, (_, out, _) in done.items()}
    logits = np.array(reports["alice"]["outputs"]["logits"]["values"])
    assert abs(logits - reference(folder)).max() < 0.01
    assert all(report["sent_bytes"]["setup"] == {} for report in reports.values())


def test_prepared_ahead_of_time_the_store_has_the_shares(folder: Path) -> None:
    options = {p: [*own_shares(p), "--store", f"{p}.store", "--count", "1"] for p in PARTIES}
    done = at_all(folder, "prepare", options)
    assert [code for code, _, _ in done.values()] == [0, 0, 0], done
    stores = {party: ["--store", f"{party}.store"] for party in PARTIES}
    stores["alice"] += INPUT
    done = at_all(folder, "run", stores)
    assert [code for code, _, _ in done.values()] == [0, 0, 0], done
    logits = np.array(json.loads(done["alice"][1])["outputs"]["logits"]["values"])
    assert abs(logits - reference(folder)).max() < 0.01


def test_a_mix_of_two_dealings_is_refused(folder: Path, tmp_path: Path) -> None:
    """The same model compiled again is the same plan, and the shares of both add up to nothing."""
    again = tmp_path / "digits.plan"
    assert run_verb("compile", DIGITS / "digits.onnx", "-o", again, *OPTIONS).exit_code == 0
    assert veilgraph.Plan.load(again).digest == veilgraph.Plan.load(folder / "digits.plan").digest
    mixed = shutil.copytree(folder, tmp_path / "mixed")
    shutil.copy(tmp_path / "digits.bob.shares", mixed / "digits.bob.shares")
    options = {party: own_shares(party) for party in PARTIES}
    options["alice"] += INPUT
    done = at_all(mixed, "run", options)
    assert [code for code, _, _ in done.values()] == [6, 6, 6], done
    for party in ("alice", "carol"):
        told = done[party][2].replace("\n", " ")
        assert "bob has shares of the weights from another dealing than this party." in told


def refused(folder: Path, party: str, *own: object) -> tuple[int, str]:
    config = folder / f"{party}.yaml"
    code, told = reason("run", folder / "digits.plan", "--party", party, "--config", config, *own)
    return code, told.replace("\n", " ")


def test_files_that_are_refused_before_anybody_is_waited_for(folder: Path, tmp_path: Path) -> None:
    assert refused(folder, "carol") == (
        2,
        "Error: carol loads its shares of the weights, and they were not given. Hint: Give "
        "model.carol.shares, which `compile` wrote beside the plan, with --weights. ",
    )
    code, told = refused(folder, "carol", "--weights", folder / "digits.bob.shares")
    assert (code, "is bob's, and this is carol" in told) == (6, True)
    code, told = refused(folder, "carol", "--weights", folder / "digits.weights")
    assert (code, "holds no shares at rest" in told) == (2, True)
    code, told = refused(folder, "carol", "--weights", folder / "none.shares")
    assert (code, "can't be read: No such file" in told) == (2, True)
    cut = tmp_path / "cut.shares"
    cut.write_bytes((folder / "digits.carol.shares").read_bytes()[:-1])
    code, told = refused(folder, "carol", "--weights", cut)
    assert (code, "was changed, or is cut short" in told) == (6, True)


def test_shares_of_another_plan_are_refused(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "digits.plan"
    made = run_verb("compile", DIGITS / "digits.onnx", "-o", other, *SHAPE, *OPTIONS[-2:])
    assert made.exit_code == 0
    code, told = refused(folder, "carol", "--weights", tmp_path / "digits.carol.shares")
    assert (code, "belongs to another plan" in told) == (6, True)


def test_shares_that_are_encrypted_to_certificates(folder: Path, tmp_path: Path) -> None:
    """Who compiles says in whose hands a file is safe; the parties do what they did before."""
    plan, named = tmp_path / "digits.plan", [f"{p}={folder / p}.crt" for p in PARTIES]
    given = [each for name in named for each in ("--certificate", name)]
    made = run_verb("compile", DIGITS / "digits.onnx", "-o", plan, *OPTIONS, *given[:4])
    told = made.stderr.replace("\n", " ")
    assert "Whoever gets" in told
    assert "digits.carol.shares has what is in it" in told
    assert "digits.bob.shares has what" not in told
    made = run_verb("compile", DIGITS / "digits.onnx", "-o", plan, *OPTIONS, *given)
    assert "Whoever gets" not in made.stderr
    hosts = shutil.copytree(folder, tmp_path / "hosts")
    for party in PARTIES:
        shutil.copy(tmp_path / f"digits.{party}.shares", hosts)
    options = {party: own_shares(party) for party in PARTIES}
    options["alice"] += INPUT
    done = at_all(hosts, "run", options)
    assert [code for code, _, _ in done.values()] == [0, 0, 0], done
    logits = np.array(json.loads(done["alice"][1])["outputs"]["logits"]["values"])
    assert abs(logits - reference(folder)).max() < 0.01


def test_certificates_that_make_no_sense(folder: Path, tmp_path: Path) -> None:
    compiling = ("compile", DIGITS / "digits.onnx", "-o", tmp_path / "digits.plan", *SHAPE)
    shared = ("--owner", "weights=shared")
    alice = ("--certificate", f"alice={folder / 'alice.crt'}")
    for options, sentence in (
        (alice, "this plan has none"),
        ((*shared, *alice, *alice), "names `alice` twice"),
        ((*shared, *alice, "--certificate", f"bob={folder / 'alice.crt'}"), "have the same key"),
        ((*shared, "--certificate", f"alice={folder / 'alice.key'}"), "holds no certificate"),
        ((*shared, "--certificate", f"dave={folder / 'alice.crt'}"), "names `dave`"),
    ):
        code, told = reason(*compiling, *options)
        assert (code, sentence in told.replace("\n", " ")) == (2, True), told
    assert list(tmp_path.iterdir()) == []


# Where it was compiled


def test_only_their_party_may_read_the_files(folder: Path) -> None:
    for party in PARTIES:
        file = folder / f"digits.{party}.shares"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_simulate_check_and_bench(folder: Path, tmp_path: Path) -> None:
    plan, weights = folder / "digits.plan", ("--weights", folder / "digits.weights")
    given = ("--input", f"image=@{folder / 'image.npy'}")
    for links in ((), ("--processes",)):
        content = json_of("simulate", plan, *weights, *given, *links)
        logits = np.array(content["outputs"]["logits"]["values"])
        assert abs(logits - reference(folder)).max() < 0.01
        assert content["sent_bytes"]["setup"] == {}
    code, told = reason("simulate", plan, *given)
    assert (code, "weights are secret, and none were given" in told) == (2, True)
    shares = ("--weights", folder / "digits.alice.shares")
    code, told = reason("simulate", plan, *shares, *given)
    assert (code, "one party's shares of the weights" in told.replace("\n", " ")) == (2, True)
    with np.load(DIGITS / "calibration.npz", allow_pickle=False) as samples:
        np.savez(tmp_path / "few.npz", image=samples["image"][:2])
    model = ("--model", DIGITS / "digits.onnx", "--inputs", tmp_path / "few.npz")
    assert json_of("check", plan, *weights, *model)["ok"]
    assert json_of("bench", plan, "--iterations", "1")["random"] == ["image", "weights"]
    assert json_of("bench", plan, *weights, "--iterations", "1")["random"] == ["image"]


def test_inspect_says_who_could_put_the_weights_together(folder: Path) -> None:
    plan = folder / "digits.plan"
    assert "no party's, shared from files" in run_verb("inspect", plan).stdout
    assert "no party: who compiled" in run_verb("inspect", plan, "--reveals").stdout
    content = json_of("inspect", plan)
    assert content["weights_owner"] == "shared"
    (entry,) = (e for e in content["disclosures"] if e["what"].startswith("the weights"))
    assert entry["what"] == "the weights: all 431080 numbers, as they are encoded"
    assert entry["to"] == "any 2 parties together"


def test_what_it_costs_beside_weights_of_one_party(folder: Path) -> None:
    """Nothing in setup; online a little more, since no part of a weight is zero."""
    shared = veilgraph.Plan.load(folder / "digits.plan")
    private, _ = veilgraph.compile(
        DIGITS / "digits.onnx",
        shapes={"image": (1, 1, 28, 28)},
        calibrate=DIGITS / "calibration.npz",
        max_error=0.001,
        roles="rotated",  # as they are chosen to be for shared weights
    )
    sent = [{p: sum(plan.sent_bytes(p).values()) for p in Phase} for plan in (private, shared)]
    assert sent[1][Phase.SETUP] == 0 < sent[0][Phase.SETUP]
    assert shared.rounds(Phase.SETUP) == 0
    assert sent[0][Phase.ONLINE] < sent[1][Phase.ONLINE] < 1.2 * sent[0][Phase.ONLINE]
    # Of an owner's weights one part is zero: whoever has nothing but that hands nothing over.
    # Whether parties take turns in roles is chosen for each, and is worth three rounds either way.
    assert abs(shared.rounds(Phase.ONLINE) - private.rounds(Phase.ONLINE)) <= 3


@pytest.mark.parametrize("parties", [("alice", "bob"), PARTIES])
def test_with_a_dealer_too(folder: Path, parties: tuple[str, ...]) -> None:
    plan, weights = veilgraph.compile(
        DIGITS / "digits.onnx",
        suite="additive",
        parties=parties,
        dealer="dan",
        owners={"weights": "shared"},
        shapes={"image": (1, 1, 28, 28)},
        calibrate=DIGITS / "calibration.npz",
    )
    assert set(veilgraph.deal(plan, weights)) == set(parties)
    (told,) = (d for d in plan.manifest.disclosures if d.what.startswith("the weights"))
    assert told.to == "all parties together"
    answer = veilgraph.simulate(plan, weights, {"image": np.load(folder / "image.npy")})
    expected = reference(folder)
    assert abs(answer.outputs["logits"] - expected).max() < 0.02 * abs(expected).max()


def test_the_model_is_not_written_over(tmp_path: Path) -> None:
    model = tmp_path / "digits.bob.shares"
    shutil.copy(DIGITS / "digits.onnx", model)
    code, told = reason("compile", model, "-o", tmp_path / "digits.plan", *SHAPE, *OPTIONS[-2:])
    assert (code, "is the model itself" in told.replace("\n", " ")) == (2, True)
    assert [file.name for file in tmp_path.iterdir()] == ["digits.bob.shares"]


def test_names_that_would_mean_two_things() -> None:
    with pytest.raises(UsageError, match="shared owns `x`, and is no party"):
        target(owners={"x": "shared"})
    with pytest.raises(UsageError, match="none of them `public` or `shared`"):
        target(parties=("alice", "shared", "carol"))


# From Python


def test_a_session_takes_what_deal_made(folder: Path) -> None:
    plan = veilgraph.Plan.load(folder / "digits.plan")
    zeros = {t.name: np.zeros(t.shape) for t in plan.secret_weights}
    dealt = veilgraph.deal(plan, zeros)
    with pytest.raises(SecurityAbort, match="are bob's, and this is alice"):
        veilgraph.Session(plan, "alice", folder / "alice.yaml", weights=dealt["bob"])
    with pytest.raises(UsageError, match="they were not given"):
        veilgraph.Session(plan, "alice", folder / "alice.yaml", weights=zeros)
    private, _ = veilgraph.compile(DIGITS / "digits.onnx", shapes={"image": (1, 1, 28, 28)})
    assert veilgraph.deal(private, {}) == {}
    with pytest.raises(UsageError, match="bob loads no shares of weights"):
        veilgraph.Session(private, "bob", folder / "bob.yaml", weights=dealt["bob"])
