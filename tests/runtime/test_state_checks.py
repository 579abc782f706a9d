"""`check` of entries and states: a counter's runs beside the model's, and weights of one name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from counters import ENTRIES, STATE, STEP, SUITES, W, X, counter, model, node
from onnx import numpy_helper

import veilgraph
from veilgraph.checks.layer_errors import Check
from veilgraph.cli import main
from veilgraph.ir.errors import AccuracyError, UsageError

UNIT = 2.0**-12


def checked(entry: str, samples: dict[str, Any], suite: str = "rep3") -> Check:
    plan, weights = counter(suite)
    return veilgraph.check(plan, weights, ENTRIES[entry], samples, entry=entry)


@pytest.mark.parametrize("suite", SUITES)
def test_samples_are_runs_one_after_the_other(suite: str) -> None:
    """The sums of plan and model, each of its own: a rounding of x a run, and none besides."""
    found = checked("step", {"x": X}, suite)
    assert (found.status(), found.samples) == (None, 100)
    (total,) = found.outputs
    assert total.largest == pytest.approx(X.sum(axis=0).max(), rel=1e-6)
    assert 0 < total.worst < 100 * UNIT


def test_a_state_that_samples_give_is_theirs_in_each_run() -> None:
    count = np.arange(4, dtype=np.float32).reshape(4, 1, 1) * np.ones((4, 1, 4), np.float32)
    (total,) = checked("reveal", {"count": count}).outputs
    assert (total.largest, total.worst) == (3, 0)
    (total,) = checked("step", {"x": X[:4], "count": count}).outputs
    assert total.largest == pytest.approx((X[:4] + count).max(), rel=1e-6)


def test_a_state_that_no_run_changes_is_zero() -> None:
    found = checked("reveal", {})
    assert (found.samples, found.outputs[0].largest) == (1, 0)
    assert checked("start", {"start": X}).outputs[0].largest == pytest.approx(X.max(), rel=1e-6)


def test_a_state_that_leaves_its_range_is_told() -> None:
    found = checked("reveal", {"count": np.full((2, 1, 4), 1500, np.float32)})
    assert ("count", "state") in found.excursions
    assert isinstance(found.status(), AccuracyError)
    told = found.excursions["count", "state"]
    assert (told.high, told.count) == (1500, 8)
    assert checked("step", {"x": X}).excursions == {}


@pytest.mark.parametrize(
    ("entry", "samples", "told"),
    [
        ("reveal", {"x": X}, "The plan has no input `x`"),
        ("step", {"count": X}, "Samples of `x` don't fit: none are given"),
        ("step", {"x": X, "count": X[:, :, :2]}, "Samples of `count` don't fit: they have shape"),
        ("step", {"x": X, "count": X[:5]}, "Inputs have different numbers of samples"),
        ("stepp", {"x": X}, "The plan has no entry `stepp`"),
    ],
)
def test_samples_that_do_not_fit_an_entry(entry: str, samples: dict[str, Any], told: str) -> None:
    plan, weights = counter("rep3")
    with pytest.raises(UsageError, match=told):
        veilgraph.check(plan, weights, STEP, samples, entry=entry)


def test_the_model_is_the_entrys() -> None:
    plan, weights = counter("rep3")
    with pytest.raises(UsageError, match="has no output `total`, which the plan computes"):
        veilgraph.check(plan, weights, STEP, {"count": X}, entry="reveal")


def product(factor: float, output: str) -> Any:
    """x times `w`, which is another number in each entry that has one."""
    found = model([node("Mul", "x", "w", output)], ["x"], [output])
    found.graph.initializer[0].CopyFrom(numpy_helper.from_array(factor * W, "w"))
    return found


@pytest.mark.parametrize("public", [False, True])
def test_entries_have_weights_of_one_name(public: bool) -> None:
    """The third entry's are the second's, and named for it."""
    models = {"a": product(1, "p"), "b": product(2, "q"), "c": product(2, "r")}
    owners = {"weights": "public"} if public else {}
    plan, weights = veilgraph.compile(models, calibrate={"x": X}, owners=owners)
    for entry, (factor, name) in {"a": (1, "p"), "b": (2, "q"), "c": (2, "r")}.items():
        found = veilgraph.check(plan, weights, models[entry], {"x": X}, entry=entry)
        assert (found.status(), found.outputs[0].name) == (None, name)
        assert found.outputs[0].largest == pytest.approx(abs(factor * W * X).max(), rel=1e-6)
        assert found.outputs[0].mean_relative < 0.01
        assert name == "p" or "b.w" in weights


def two_products() -> Any:
    """y up to 6, and z a thousandth of it."""
    found = model([node("Mul", "x", "w", "y"), node("Mul", "x", "v", "z")], ["x"], ["y", "z"])
    found.graph.initializer.append(numpy_helper.from_array(W / 1000, "v"))
    return found


def test_exact_ranges_are_those_of_the_entrys_own_layers() -> None:
    """Behind another entry's, and where y, truncated as bob is told it, has no layer but z has."""
    wide = two_products()
    receivers = {"count_next": ["bob"], "y": ["bob"], "z": ["alice", "bob"]}
    plan, weights = veilgraph.compile(
        {"step": STEP, "wide": wide},
        state=STATE,
        calibrate={"x": X},
        receivers=receivers,
        frac_bits=14,
    )
    assert plan.ranges
    samples = {"x": X}
    assert veilgraph.check(plan, weights, wide, samples, entry="wide").excursions == {}
    tight = tuple((low / 8, high / 8) for low, high in plan.ranges)
    found = veilgraph.check(replace(plan, ranges=tight), weights, wide, samples, entry="wide")
    assert {name for name, _ in found.excursions} == {"y", "z", "z as revealed"}


# On the command line


def verb(folder: Path, *words: str) -> Any:
    files = [str(folder / "a.plan"), "--weights", str(folder / "a.weights")]
    return CliRunner().invoke(main, ["check", *files, *words])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    plan, weights = counter("rep3")
    plan.save(tmp_path / "a.plan")
    veilgraph.save_weights(weights, tmp_path / "a.weights", plan)
    for name, each in ENTRIES.items():
        (tmp_path / f"{name}.onnx").write_bytes(each.SerializeToString())
    np.savez(tmp_path / "steps.npz", x=X)
    np.savez(tmp_path / "counts.npz", count=X)
    return tmp_path


@pytest.mark.parametrize(
    ("entry", "samples"), [("step", "steps"), ("reveal", "counts"), (None, "steps")]
)
def test_the_verb_compares_an_entry(folder: Path, entry: str | None, samples: str) -> None:
    named = ["--entry", entry] if entry else []
    given = ["--model", str(folder / f"{entry or 'step'}.onnx")]
    given += ["--inputs", str(folder / f"{samples}.npz")]
    page = ["--html", str(folder / "page.html")]
    shown = verb(folder, *named, *given, *page, "--json")
    assert shown.exit_code == 0, shown.output
    values = json.loads(shown.stdout)
    assert (values["entry"], values["ok"], values["samples"]) == (entry or "step", True, 100)
    assert "count" in (folder / "page.html").read_text()


def test_the_verb_refuses_samples_of_another_entry(folder: Path) -> None:
    given = ["--model", str(folder / "reveal.onnx"), "--inputs", str(folder / "steps.npz")]
    shown = verb(folder, "--entry", "reveal", *given)
    assert (shown.exit_code, "arrays that are no input: x" in shown.output) == (2, True)
