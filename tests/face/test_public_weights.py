"""Weights that every party has: in the plan, linear layers local, and said where it matters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from verbs import DIGITS, json_of, reason, run_verb

import veilgraph
from veilgraph.cli import main
from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan.tables import Phase
from veilgraph.targets.target import target

SHAPE = ("--shape", "image=1x1x28x28")
SAMPLES = ("--calibrate", DIGITS / "calibration.npz")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits model with public weights, and a digit."""
    found = tmp_path_factory.mktemp("public")
    made = ("compile", DIGITS / "digits.onnx", "-o", found / "open.plan", *SHAPE, *SAMPLES)
    result = run_verb(*made, "--owner", "weights=public", "--max-error", "0.001")
    assert result.exit_code == 0, result.stderr
    assert "weights are public" in result.stderr
    assert "holds them as real numbers, for `check`" in result.stdout
    with np.load(DIGITS / "heldout.npz", allow_pickle=False) as heldout:
        np.save(found / "image.npy", heldout["images"][:1].astype(np.float32) / 255)
    return found


def test_parties_over_tls_need_no_weights_file(folder: Path) -> None:
    given = ("--input", f"image=@{folder / 'image.npy'}", "--processes")
    content = json_of("simulate", folder / "open.plan", *given)
    assert int(np.argmax(content["outputs"]["logits"]["values"])) == 1
    assert sum(content["sent_bytes"]["setup"].values()) == 0


def test_it_costs_less_than_private_weights(folder: Path) -> None:
    private, _ = veilgraph.compile(
        DIGITS / "digits.onnx",
        shapes={"image": (1, 1, 28, 28)},
        calibrate=DIGITS / "calibration.npz",
        max_error=0.001,
    )
    public = veilgraph.Plan.load(folder / "open.plan")
    sent = [
        {phase: sum(plan.sent_bytes(phase).values()) for phase in Phase}
        for plan in (private, public)
    ]
    assert sent[1][Phase.SETUP] == 0 < sent[0][Phase.SETUP]
    assert sent[1][Phase.ONLINE] < 0.7 * sent[0][Phase.ONLINE]
    adds = [sum(layer.multiply_adds for layer in plan.layers) for plan in (private, public)]
    assert adds[1] < 0.7 * adds[0]


def test_inspect_says_that_the_weights_are_disclosed(folder: Path) -> None:
    assert "public, in the plan" in run_verb("inspect", folder / "open.plan").stdout
    told = run_verb("inspect", folder / "open.plan", "--reveals").stdout
    assert "the weights: all 431080 numbers, as they are encoded" in told
    content = json_of("inspect", folder / "open.plan")
    assert content["weights_owner"] == "public"
    (entry,) = (e for e in content["disclosures"] if e["what"].startswith("the weights"))
    assert entry["to"] == "every party"


def test_check_compares_public_weights_too(folder: Path) -> None:
    with np.load(DIGITS / "calibration.npz", allow_pickle=False) as samples:
        np.savez(folder / "few.npz", image=samples["image"][:2])
    files = ("--weights", folder / "open.weights", "--model", DIGITS / "digits.onnx")
    content = json_of("check", folder / "open.plan", *files, "--inputs", folder / "few.npz")
    assert content["ok"]
    assert content["outputs"][0]["mean_relative_error"] < 0.001


def test_bench_makes_no_weights_up(folder: Path) -> None:
    content = json_of("bench", folder / "open.plan", "--iterations", "1")
    assert content["random"] == ["image"]


def test_simulate_asks_for_weights_that_a_party_owns(folder: Path) -> None:
    plan = folder / "private.plan"
    made = run_verb("compile", DIGITS / "digits.onnx", "-o", plan, *SHAPE)
    assert made.exit_code == 0
    code, told = reason("simulate", plan, "--input", f"image=@{folder / 'image.npy'}")
    assert code == 2
    assert "This plan's weights are secret, and none were given." in told


@pytest.mark.parametrize("dealer", [None, "dan"])
def test_both_suites_compute_with_public_weights(dealer: str | None) -> None:
    with np.load(DIGITS / "heldout.npz", allow_pickle=False) as heldout:
        image = heldout["images"][:1].astype(np.float32) / 255
        label = int(heldout["labels"][0])
    plan, _ = veilgraph.compile(
        DIGITS / "digits.onnx",
        suite="additive" if dealer else "rep3",
        parties=("alice", "bob") if dealer else None,
        dealer=dealer,
        owners={"weights": "public"},
        shapes={"image": (1, 1, 28, 28)},
        calibrate=DIGITS / "calibration.npz",
    )
    answer = veilgraph.simulate(plan, {}, {"image": image})
    assert int(answer.outputs["logits"].argmax()) == label


def test_compare_owners_shows_all_three() -> None:
    options = ["--compare-owners", "--network", "wan", *map(str, (*SHAPE, *SAMPLES))]
    done = CliRunner().invoke(main, ["compile", str(DIGITS / "digits.onnx"), *options])
    assert done.exit_code == 0, done.stderr
    assert "who has the weights" in done.stdout
    assert "everyone" in done.stdout
    assert "no party: shared from files" in done.stdout
    content = json_of("compile", DIGITS / "digits.onnx", *options)
    private, shared, public = content["owners"]
    assert [c["weights_owner"] for c in content["owners"]] == ["bob", "shared", "public"]
    assert shared["sent_bytes"]["setup"] == 0 < private["sent_bytes"]["setup"]
    assert public["sent_bytes"]["online"] < private["sent_bytes"]["online"]
    assert public["sent_bytes"]["setup"] == 0


def test_compare_owners_writes_nothing(tmp_path: Path) -> None:
    code, told = reason(
        "compile", DIGITS / "digits.onnx", "--compare-owners", "-o", tmp_path / "x.plan"
    )
    assert code == 2
    assert "--output makes no sense with --compare-owners." in told


def test_only_weights_can_be_public() -> None:
    with pytest.raises(UsageError, match="public owns `x`, and is no party"):
        target(owners={"x": "public"})
    with pytest.raises(UsageError, match="and none of them `public` or `shared`"):
        target(parties=("alice", "public", "carol"))
