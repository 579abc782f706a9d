"""The digits example: its model is valid and accurate, its data files are what the README says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
NODES = ["conv1", "relu1", "pool1", "conv2", "relu2", "pool2", "flatten", "fc1", "relu3", "fc2"]


def load(name: str) -> dict[str, NDArray[np.generic]]:
    """All arrays of one of the example's .npz files."""
    with np.load(DIGITS / name, allow_pickle=False) as archive:
        return dict(archive)


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return onnx.load(DIGITS / "digits.onnx")


@pytest.fixture(scope="module")
def session() -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(DIGITS / "digits.onnx", providers=["CPUExecutionProvider"])


def test_model_is_valid_and_small(model: onnx.ModelProto) -> None:
    onnx.checker.check_model(model, full_check=True)
    assert (DIGITS / "digits.onnx").stat().st_size < 2_000_000


def test_model_names_its_nodes(model: onnx.ModelProto) -> None:
    assert [node.name for node in model.graph.node] == NODES


def test_model_is_the_lenet_of_the_workloads(model: onnx.ModelProto) -> None:
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    assert shapes == {
        "conv1.weight": (20, 1, 5, 5),
        "conv1.bias": (20,),
        "conv2.weight": (50, 20, 5, 5),
        "conv2.bias": (50,),
        "fc1.weight": (500, 800),
        "fc1.bias": (500,),
        "fc2.weight": (10, 500),
        "fc2.bias": (10,),
    }


def test_onnx_runtime_reads_the_heldout_digits(session: onnxruntime.InferenceSession) -> None:
    heldout = load("heldout.npz")
    x = heldout["images"].astype(np.float32) / 255
    (logits,) = session.run(["logits"], {"image": x})
    assert np.count_nonzero(logits.argmax(axis=1) == heldout["labels"]) == 993  # the README's
    second, first = np.sort(logits, axis=1)[:, -2:].T
    assert np.min(first - second) > 0.13
    assert np.abs(logits).max() < 5.3


def test_batch_is_free(session: onnxruntime.InferenceSession) -> None:
    x = load("heldout.npz")["images"][:3].astype(np.float32) / 255
    (together,) = session.run(["logits"], {"image": x})
    alone = [session.run(["logits"], {"image": row[np.newaxis]})[0][0] for row in x]
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_heldout_digits_are_a_hundred_of_each_class() -> None:
    heldout = load("heldout.npz")
    assert heldout["images"].shape == (1000, 1, 28, 28)
    assert heldout["images"].dtype == heldout["labels"].dtype == np.uint8
    assert np.bincount(heldout["labels"]).tolist() == [100] * 10


def test_calibration_digits_fit_the_model_input() -> None:
    image = load("calibration.npz")["image"]
    assert image.shape == (64, 1, 1, 28, 28)
    assert image.dtype == np.float32
    assert image.min() == 0
    assert image.max() == 1


def test_no_calibration_digit_is_held_out() -> None:
    calibration = np.rint(load("calibration.npz")["image"] * 255).astype(np.uint8)
    heldout = {digit.tobytes() for digit in load("heldout.npz")["images"]}
    assert len(heldout) == 1000
    assert not any(digit.tobytes() in heldout for digit in calibration)
