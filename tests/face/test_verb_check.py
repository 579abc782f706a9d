"""`veilgraph check`: exact integers beside ONNX Runtime, and what is told of a plan that is off."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import onnx
import pytest
from models import model
from onnx import helper
from verbs import Compiled, json_of, reason, run_verb

import veilgraph
from veilgraph.checks.checking import check
from veilgraph.checks.layer_errors import Check, LayerError, OutputError, proportion
from veilgraph.measuring.pricing import predict
from veilgraph.reports.html import page

FILES = (
    "digits.plan", "--weights", "digits.weights", "--model", "digits.onnx",
    "--inputs", "calibration.npz",
)  # fmt: skip


@pytest.fixture
def few(copied: Compiled) -> Compiled:
    """With four samples alone, for speed."""
    with np.load("calibration.npz", allow_pickle=False) as samples:
        np.savez(copied.folder / "few.npz", image=samples["image"][:4])
    (copied.folder / "few.npz").replace("calibration.npz")
    return copied


def test_every_node_is_compared(few: Compiled) -> None:
    content = json_of("check", *FILES)
    assert content["ok"]
    assert content["samples"] == 4
    assert content["first_drift"] is None
    assert content["excursions"] == []
    nodes = [layer["name"].partition("/")[0] for layer in content["layers"]]
    assert nodes == [
        "conv1", "relu1", "pool1", "conv2", "relu2", "pool2", "flatten", "fc1", "relu3", "fc2",
    ]  # fmt: skip
    factors = {layer["name"].partition("/")[0]: layer["factor"] for layer in content["layers"]}
    assert factors["conv1"] == pytest.approx(1)
    assert factors["pool1"] == pytest.approx(1 / 4)  # a mean of four, kept as their sum
    for layer in content["layers"]:
        assert 0 < layer["mean_error"] <= layer["worst_error"]
        assert 0 < layer["mean_relative_error"] < 0.01
        assert layer["relative_error"] < 0.01
        assert layer["headroom_bits"] > 1
    (output,) = content["outputs"]
    assert (output["agreeing"], output["decisions"]) == (4, 4)
    assert output["worst_error"] < 0.05
    assert output["mean_relative_error"] < 0.001
    assert content["encoding"].startswith("ring")


def test_table_says_the_same(few: Compiled) -> None:
    result = run_verb("check", *FILES)
    assert result.exit_code == 0
    assert "Output logits on 4 samples" in result.stdout
    assert "at the same place in 4 of 4." in result.stdout
    assert "No value left its range." in result.stdout
    assert "No layer drifts." in result.stdout
    assert "% of the mean size" in result.stdout
    assert "Encoding: ring" in result.stdout
    assert re.search(r"Compiled for a mean error of 0\.100%: 0\.\d+% on 4 samples", result.stdout)


def test_a_repeated_check_says_the_same(few: Compiled) -> None:
    assert json_of("check", *FILES) == json_of("check", *FILES)


def test_drift_is_named_and_fails(few: Compiled) -> None:
    result = run_verb("check", *FILES, "--tolerance", "1e-5", "--json")
    assert result.exit_code == 4
    content = json.loads(result.stdout)
    assert not content["ok"]
    assert content["first_drift"] == "conv1"
    drifting = [layer for layer in content["layers"] if layer["relative_error"] > 1e-5]
    assert all(layer["advice"].startswith("Probably --max-error") for layer in drifting)
    assert all(layer["advice"] == "" for layer in content["layers"] if layer not in drifting)
    assert result.stderr.startswith("Error: `conv1` is the first layer that drifts:")


def test_a_layer_that_drifts_is_no_error_where_outputs_do_not() -> None:
    """`compile` spares bits where outputs don't show it: that is told, and is a success."""
    layer = LayerError("relu", ("relu",), 24, 8, worst=0.06, largest=1.0)
    fine = OutputError("y", ("output",), 24, 8, worst=0.01, largest=1.0)
    off = OutputError("y", ("output",), 24, 8, worst=0.06, largest=1.0)
    assert Check([layer], [fine], {}, 4, 0.05, judges_layers=False).status() is None
    for found in (
        Check([layer], [off], {}, 4, 0.05, judges_layers=False),
        Check([layer], [fine], {}, 4, 0.05, judges_layers=True),
    ):
        status = found.status()
        assert status is not None
        assert "`relu` is the first layer that drifts" in status.message


def test_values_outside_their_range_are_named_and_fail(few: Compiled) -> None:
    with np.load("calibration.npz", allow_pickle=False) as samples:
        np.savez("calibration.npz", image=8 * samples["image"])
    result = run_verb("check", *FILES, "--json")
    assert result.exit_code == 4
    excursions = json.loads(result.stdout)["excursions"]
    assert (excursions[0]["name"], excursions[0]["op"]) == ("image", "input")
    assert excursions[0]["reached"] == [0, 8]
    assert any(each["op"] == "conv" or each["name"] == "relu1" for each in excursions)
    assert result.stderr.startswith("Error: Values left their range: ")
    assert "left [" in run_verb("check", *FILES).stdout


def test_a_sample_that_no_encoding_holds_fails(few: Compiled) -> None:
    with np.load("calibration.npz", allow_pickle=False) as samples:
        np.savez("calibration.npz", image=1e9 * samples["image"])
    code, told = reason("check", *FILES)
    assert code == 4
    assert "does not fit the plan's encoding" in told


def test_average_pools_are_compared_with_average_pools() -> None:
    node = helper.make_node
    proto = model(
        [
            node("Conv", ["x", "w"], ["a"], name="conv", pads=[1, 1, 1, 1]),
            node("MaxPool", ["a"], ["b"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
            node("MaxPool", ["b"], ["c"], name="dilated", kernel_shape=[2, 2], dilations=[2, 2]),
            node("Relu", ["c"], ["y"], name="relu"),
        ],
        {"x": (1, 2, 8, 8)},
        ["y"],
        {"w": np.random.default_rng(1).normal(size=(3, 2, 3, 3)).astype(np.float32)},
    )
    samples = {"x": np.random.default_rng(2).normal(size=(2, 1, 2, 8, 8)).astype(np.float32)}
    plan, weights = veilgraph.compile(proto, calibrate=samples, avgpool=True, max_error=1e-4)
    found = check(plan, weights, proto, samples)
    nodes = {layer.name.partition("/")[0]: layer for layer in found.layers}
    assert nodes["pool"].relative < 0.001
    assert nodes["relu"].relative < 0.001
    assert found.outputs[0].relative > 0.05  # the model as it is has max pools
    status = found.status()
    assert status is not None
    assert status.message.startswith("`y` is the first layer that drifts")


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ("other", "The model has no output `logits`, which the plan computes."),
        ("logits", "The model has another shape of output `logits` than the plan."),
    ],
)
def test_refuses_another_model(few: Compiled, output: str, sentence: str) -> None:
    node = helper.make_node("Relu", ["image"], [output], name="relu")
    onnx.save(model([node], {"image": (1, 1, 28, 28)}, [output]), "digits.onnx")
    code, told = reason("check", *FILES)
    assert code == 2
    assert sentence in told


@pytest.mark.parametrize("level", ["graph", "secret"])
def test_refuses_a_plan_without_its_programs(few: Compiled, level: str) -> None:
    plan, weights = few.without_text(level)
    code, told = reason("check", plan, "--weights", weights, *FILES[3:])
    assert code == 2
    assert "does not carry its programs" in told


@pytest.mark.parametrize("name", ["image.npy", "digits.plan", "calibration.npz"])
def test_refuses_what_is_no_model(few: Compiled, name: str) -> None:
    files = ("--weights", "digits.weights", "--model", name, "--inputs", "calibration.npz")
    code, told = reason("check", "digits.plan", *files)
    assert code == 2
    assert ", and no model.\nHint: " in told


def test_refuses_samples_of_another_shape(few: Compiled) -> None:
    np.savez("calibration.npz", image=np.zeros((2, 28, 28), np.float32))
    assert reason("check", *FILES)[0] == 2


def test_refuses_weights_of_another_plan(few: Compiled) -> None:
    shape = ("--shape", "image=1x1x28x28")
    run_verb("compile", "digits.onnx", "-o", "other.plan", *shape)
    code, _ = reason("check", "digits.plan", "--weights", "other.weights", *FILES[3:])
    assert code == 6


@pytest.mark.parametrize(
    ("found", "wanted", "factor"),
    [
        ([1, 2, 3], [2, 4, 6], 2.0),
        ([1, 2, 3], [1, 2, 3.1], None),
        ([0, 0], [0, 0], 1.0),
        ([0, 0], [0, 1], None),
        ([1, 2], [1, 2, 3], None),
        ([], [], 1.0),
    ],
)
def test_proportion(found: list[float], wanted: list[float], factor: float | None) -> None:
    given = proportion(np.array(found, np.float32), np.array(wanted, np.float32))
    assert given == (factor if factor is None else pytest.approx(factor))


def test_errors_add_up_over_samples() -> None:
    layer = LayerError("fc", ("matmul",), 64, 16, factor=0.5)
    layer.add(np.array([2.0, 4.0]), np.array([1.0, 2.5], np.float32))
    layer.add(np.array([8.0]), np.array([-5.0], np.float32))
    layer.add(np.zeros(0), np.zeros(0, np.float32))
    assert layer.worst == 9.0
    assert layer.mean == pytest.approx((0 + 0.5 + 9) / 3)
    assert layer.mean_relative == pytest.approx((0 + 0.5 + 9) / (1 + 2.5 + 5))
    assert layer.relative == pytest.approx(9 / 5)
    assert math.isinf(layer.headroom_bits)


@pytest.mark.parametrize("name", ["Sigmoid", "Gelu", "Exp", "Log", "Sqrt", "Softmax"])
def test_headroom_of_functions(name: str) -> None:
    """What is clipped for a function fills its window, and its tables are no values."""
    node = helper.make_node
    nodes = [node("Add", ["x", "x"], ["a"], "sum"), node(name, ["a"], ["y"], "function")]
    proto = model(nodes, {"x": (4, 16)}, ["y"])
    x = np.random.default_rng(1).uniform(0.5, 1.5, (4, 4, 16)).astype(np.float32)
    plan, weights = veilgraph.compile(proto, calibrate={"x": x})
    found = check(plan, weights, proto, {"x": x})
    assert [layer.name for layer in found.layers] == ["sum", "function"]
    assert all(1 <= layer.headroom_bits < 64 for layer in found.layers)
    titles = re.findall(r">([-.\d]+) bits of headroom", page(plan, predict(plan), found))
    assert titles
    assert all(float(bits) >= 1 for bits in titles)


def test_headroom_ends_where_an_operand_leaves_a_functions_window() -> None:
    node = helper.make_node
    nodes = [node("Add", ["x", "x"], ["a"], "sum"), node("Exp", ["a"], ["y"], "function")]
    proto = model(nodes, {"x": (4, 16)}, ["y"])
    x = np.random.default_rng(1).uniform(-1, 1, (4, 4, 16)).astype(np.float32)
    plan, weights = veilgraph.compile(proto, calibrate={"x": x})
    found = check(plan, weights, proto, {"x": 20 * x}, tolerance=math.inf)
    assert found.excursions
    assert found.layers[0].headroom_bits < 0
