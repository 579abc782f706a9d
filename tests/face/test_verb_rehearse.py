"""`veilgraph rehearse`: a plan beside float32; what its last line says; what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from training_cases import BATCH, CLASSES, DATA, RATE, Perceptron, X, Y, by_torch, logistic, trained
from verbs import json_of, reason, run_verb

import veilgraph
from veilgraph.checks.kept_ranges import ranges_file, save_ranges
from veilgraph.ir.errors import AccuracyError, UsageError, VeilgraphError
from veilgraph.measuring.pricing import predict
from veilgraph.reports import units
from veilgraph.runtime.store.weights import save_weights
from veilgraph.training.compiling import MAX_NOISE
from veilgraph.training.plan_steps import step_bytes
from veilgraph.training.rehearsal import measured_steps

EPOCHS, STEPS = 2, 20


def rehearsed(kind: str = "logistic", **others: Any) -> Any:
    plan, weights = trained(kind, "rep3")
    model = logistic() if kind == "logistic" else Perceptron().train()
    given = {"plan": plan, "weights": weights, "model": model, "data": DATA, "rate": RATE} | others
    return veilgraph.rehearse(**given)


@pytest.mark.parametrize("kind", ["logistic", "perceptron"])
def test_it_trains_as_parties_and_torch_do(kind: str) -> None:
    found = rehearsed(kind, epochs=EPOCHS)
    plan, weights = trained(kind, "rep3")
    parties = veilgraph.simulate_training(plan, weights, DATA, rate=RATE, epochs=EPOCHS)
    _, wanted = by_torch(kind, [RATE] * STEPS)
    assert found.steps == STEPS
    assert found.parameters.keys() == wanted.keys()
    for name, parameter in wanted.items():
        assert np.abs(found.parameters[name] - parties.parameters[name]).max() < 0.05
        assert np.abs(found.parameters[name] - parameter).max() < 0.05
    assert found.status() is None


def test_the_last_line_says_what_a_user_decides_by() -> None:
    """Decisions as torch makes them; the time is that of the steps to come."""
    found = rehearsed(epochs=EPOCHS, rows=600 * BATCH, network="wan")
    _, parameters = by_torch("logistic", [RATE] * STEPS)
    right = ((X @ parameters["w"] + parameters["b"]).argmax(1) == Y).mean()
    real, fixed = found.epochs[-1]
    assert real.right == round(right * len(X))
    assert abs(fixed.right - real.right) <= 2
    assert fixed.loss == pytest.approx(real.loss, abs=0.01)
    plan, _ = trained("logistic", "rep3")
    predicted = predict(plan, "wan", entry=plan.manifest.entries.index("step"))
    wanted = predicted.setup_seconds + EPOCHS * 600 * predicted.total_seconds
    assert found.seconds == pytest.approx(wanted)
    shares = [units.percent(each.right / len(X)) for each in (real, fixed)]
    assert found.line == (
        f"float {shares[0]}, fixed {shares[1]}, {units.size(step_bytes(plan))} a step, "
        f"{units.duration(wanted)} on wan for 1200 steps"
    )


def test_what_rounding_adds_is_what_was_allowed() -> None:
    """A plan that allows less adds less, down to where errors have a floor."""
    found = rehearsed("perceptron", epochs=EPOCHS)
    assert found.rounding_noise.keys() == found.parameters.keys()
    most = max(found.rounding_noise, key=found.rounding_noise.__getitem__)
    share = found.rounding_noise[most]
    assert 0 < share < MAX_NOISE
    assert found.rounding_steps.keys() == measured_steps(found.steps)
    each = [(x, n, name) for n, xs in found.rounding_steps.items() for name, x in xs.items()]
    alone, step, name = max(each)
    assert found.rounding_line == (
        f"Rounding added {units.percent(share)} to the variance of the updates of `{most}`, the "
        f"most of {len(found.rounding_noise)} parameters; in step {step + 1} alone "
        f"{units.percent(alone)} to that of `{name}`."
    )
    assert alone >= share, "all steps together are a mean of them"
    model = Perceptron().train()
    plan, weights = veilgraph.compile_training(
        model, DATA, batch=BATCH, rate=RATE, steps=STEPS, loss="cross_entropy", max_noise=0.0005
    )
    finer = veilgraph.rehearse(plan, weights, model, DATA, rate=RATE, epochs=EPOCHS)
    assert max(finer.rounding_noise.values()) < share / 2


def test_batches_that_are_all_alike_say_nothing_of_noise() -> None:
    found = rehearsed(data={name: np.repeat(x[:1], 3 * BATCH, 0) for name, x in DATA.items()})
    assert not found.rounding_noise
    assert found.rounding_line.startswith("All batches are alike")


def test_rows_apart_judge_both() -> None:
    test = {"x": X[: 2 * BATCH + 3], "labels": Y[: 2 * BATCH + 3]}
    (real, fixed), *_ = rehearsed(test=test).epochs
    assert real.decisions == fixed.decisions == 2 * BATCH


def test_a_loss_that_decides_nothing_is_told_itself() -> None:
    wanted = np.eye(CLASSES, dtype=np.float32)[Y]
    data = {"x": X, "labels": wanted}
    plan, weights = veilgraph.compile_training(
        logistic(), data, loss="mse", batch=BATCH, rate=RATE, steps=STEPS
    )
    found = veilgraph.rehearse(plan, weights, logistic(), data, rate=RATE, epochs=EPOCHS)
    real, fixed = found.epochs[-1]
    assert real.decisions == fixed.decisions == 0
    assert found.line.startswith(f"float loss {real.loss:.4g}, fixed loss {fixed.loss:.4g}, ")
    assert fixed.loss == pytest.approx(real.loss, rel=0.05)


def test_values_that_leave_their_range_are_told() -> None:
    found = rehearsed(rate=100 * RATE)
    error = found.status()
    assert isinstance(error, AccuracyError)
    assert "Values left the range that the plan has for them." in error.message
    assert "left [" in error.message


# The command line


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    plan, weights = trained("logistic", "rep3")
    plan.save(Path("model.plan"))
    save_weights(weights, Path("model.weights"), plan.digest)
    save_ranges(plan, ranges_file(Path("model.plan")))
    onnx.save(logistic(), "model.onnx")
    np.savez("rows.npz", x=X, labels=Y)
    return tmp_path


GIVEN = ("rehearse", "model.plan", "--weights", "model.weights", "--model", "model.onnx")
ROWS = ("--data", "rows.npz", "--rate", RATE)


def test_the_verb_says_what_the_function_found(folder: Path) -> None:
    found = rehearsed(epochs=EPOCHS, seed=3)
    answer = json_of(*GIVEN, *ROWS, "--epochs", EPOCHS, "--seed", 3)
    assert answer["ok"]
    assert answer["line"] == found.line
    assert [each["fixed"]["right"] for each in answer["epochs"]] == [
        fixed.right for _, fixed in found.epochs
    ]
    shown = run_verb(*GIVEN, *ROWS, "--epochs", EPOCHS, "--seed", 3, "--test", "rows.npz").stdout
    assert shown.splitlines()[0].split() == ["epoch", *["float", "loss", "fixed", "loss"],
                                             *["float", "right", "fixed", "right"]]  # fmt: skip
    assert "No value left its range in 20 steps." in shown
    assert shown.splitlines()[-1] == found.line


def test_the_verb_ends_with_code_4_where_values_left(folder: Path) -> None:
    result = run_verb(*GIVEN, "--data", "rows.npz", "--rate", 100 * RATE)
    assert result.exit_code == 4
    assert "Values left the range" in result.stderr
    result = run_verb(*GIVEN, "--data", "rows.npz", "--rate", 100 * RATE, "--json")
    assert result.exit_code == 4
    assert '"ok": false' in result.stdout


def test_the_verb_refuses(folder: Path) -> None:
    wrong = (*GIVEN, "--data", "no.npz", "--rate", RATE)
    assert reason(*wrong)[0] == 2
    assert "no.npz can't be read" in reason(*wrong)[1]
    for rate in ("0", "x", "0.1,0.05", "0.1@3", "0.1,0.05@3,0.01@2"):
        code, told = reason(*GIVEN, "--data", "rows.npz", "--rate", rate)
        assert code == 2
        assert "0.05@300" in told


# What is refused


def other_start() -> Any:
    model = logistic()
    weights = model.graph.initializer[0]
    weights.CopyFrom(onnx.numpy_helper.from_array(np.ones((6, 3), np.float32), weights.name))
    return model


def without_training() -> Any:
    x = {"x": X[:4, None]}
    plan, weights = veilgraph.compile(logistic(), calibrate=x)
    return {"plan": plan, "weights": weights}


WRONG: list[tuple[Any, str]] = [
    (without_training, "This plan does not train"),
    (lambda: {"model": Perceptron().train()}, "The model has no parameter `w`, which the plan"),
    (lambda: {"model": other_start()}, "Parameter `w` of the model is not what the plan begins"),
    (lambda: {"weights": {}}, "There are no weights `w.start`"),
    (lambda: {"data": {"x": X}}, "There are no rows of `labels`"),
    (lambda: {"test": {"x": X[:4], "labels": Y[:4]}}, "There are 4 rows of `x`, and a step takes"),
    (lambda: {"rows": 4}, "There are 4 rows, and a step takes 16"),
    (lambda: {"epochs": 0}, "Training for 0 epochs makes no sense"),
    (lambda: {"rate": -1.0}, "A learning rate of -1.0 makes no sense"),
    (lambda: {"rate": 1e-9}, "The rate 1e-09 of step 0 is too small for this plan"),
    (lambda: {"network": "moon"}, "moon"),
]


@pytest.mark.parametrize(("wrong", "told"), WRONG, ids=[told for _, told in WRONG])
def test_what_makes_no_sense_is_refused(wrong: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        rehearsed(**wrong())


def test_a_row_that_no_encoding_holds() -> None:
    with pytest.raises(VeilgraphError, match="does not fit the plan's encoding"):
        rehearsed(data={"x": 1e9 * X, "labels": Y})
