"""`check --labels` and `check --avgpool`: right decisions, before and after."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from models import model
from onnx import helper
from verbs import json_of, reason, run_verb

import veilgraph
from veilgraph.runtime.store.weights import save_weights

SHAPE = (1, 1, 4, 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Which half of an image has its brightest spot: max pools see it, average pools don't."""
    found = tmp_path_factory.mktemp("halves")
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], name="pool", kernel_shape=[4, 2], strides=[4, 2]),
        helper.make_node("Flatten", ["p"], ["y"], name="flat"),
    ]
    proto = model(nodes, {"x": SHAPE}, ["y"])
    onnx.save(proto, found / "halves.onnx")
    samples = np.full((6, *SHAPE), 0.25, np.float32)
    samples[:, 0, 0, :, :2] = 0.5  # the left half is brighter in the mean
    samples[:3, 0, 0, 0, 3] = 1.0  # of three the right one has the brightest spot
    np.savez(found / "samples.npz", x=samples)
    np.save(found / "labels.npy", np.array([1, 1, 1, 0, 0, 1]))
    plan, weights = veilgraph.compile(proto, calibrate={"x": samples})
    plan.save(found / "halves.plan")
    save_weights(weights, found / "halves.weights", plan.digest)
    return found


def files(folder: Path) -> tuple[object, ...]:
    return (
        folder / "halves.plan", "--weights", folder / "halves.weights",
        "--model", folder / "halves.onnx", "--inputs", folder / "samples.npz",
    )  # fmt: skip


def test_right_decisions_are_counted_before_and_after(folder: Path) -> None:
    given = ("--labels", folder / "labels.npy", "--avgpool")
    told = json_of("check", *files(folder), *given)["accuracy"]
    assert told["decisions"] == 6
    assert told["plan"] == told["model"] == pytest.approx(5 / 6)
    assert told["with_average_pools"] == pytest.approx(2 / 6)
    assert told["same_with_average_pools"] == pytest.approx(3 / 6)
    text = run_verb("check", *files(folder), *given).stdout
    assert "Right of 6 labelled decisions: 83.3% of the plan's, 83.3% of the model's." in text
    assert "With average pools the model keeps 3 of 6 decisions, 33.3% right." in text


def test_without_labels_agreement_is_told(folder: Path) -> None:
    text = run_verb("check", *files(folder), "--avgpool").stdout
    assert "With average pools the model keeps 3 of 6 decisions." in text
    assert json_of("check", *files(folder))["accuracy"] is None


def test_a_revealed_class_is_a_decision(folder: Path, tmp_path: Path) -> None:
    with np.load(folder / "samples.npz") as samples:
        given = {"x": samples["x"]}
    plan, weights = veilgraph.compile(folder / "halves.onnx", calibrate=given, reveal_as="topk:2")
    plan.save(tmp_path / "halves.plan")
    save_weights(weights, tmp_path / "halves.weights", plan.digest)
    told = json_of(
        "check", tmp_path / "halves.plan", "--weights", tmp_path / "halves.weights",
        "--model", folder / "halves.onnx", "--inputs", folder / "samples.npz",
        "--labels", folder / "labels.npy",
    )["accuracy"]  # fmt: skip
    assert told["plan"] == pytest.approx(5 / 6)


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (np.zeros(6), "labels are integers"),
        (np.zeros(2, int), "has labels for 2 samples, and there are 6"),
        (np.zeros((6, 3), int), "A sample has 3 labels, and the model decides 1 times."),
    ],
)
def test_labels_that_do_not_fit(
    folder: Path, tmp_path: Path, labels: np.ndarray, sentence: str
) -> None:
    np.save(tmp_path / "labels.npy", labels)
    code, told = reason("check", *files(folder), "--labels", tmp_path / "labels.npy")
    assert code == 2
    assert sentence in told


def test_a_model_that_decides_nothing(tmp_path: Path) -> None:
    proto = model([helper.make_node("Relu", ["x"], ["y"])], {"x": (3, 1)}, ["y"])
    onnx.save(proto, tmp_path / "one.onnx")
    samples = np.ones((2, 3, 1), np.float32)
    np.savez(tmp_path / "samples.npz", x=samples)
    plan, weights = veilgraph.compile(proto, calibrate={"x": samples})
    plan.save(tmp_path / "one.plan")
    save_weights(weights, tmp_path / "one.weights", plan.digest)
    code, told = reason(
        "check", tmp_path / "one.plan", "--weights", tmp_path / "one.weights",
        "--model", tmp_path / "one.onnx", "--inputs", tmp_path / "samples.npz", "--avgpool",
    )  # fmt: skip
    assert code == 2
    assert "Output y decides nothing" in told
