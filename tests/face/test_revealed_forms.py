"""`compile --reveal-as`: receivers learn a class, and no scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models import model
from onnx import TensorProto, helper
from verbs import DIGITS, json_of, reason, run_verb

import veilgraph
from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan.tables import Phase
from veilgraph.passes.graph.reveal_as import Form

SHAPE = ("--shape", "image=1x1x28x28")
SAMPLES = ("--calibrate", DIGITS / "calibration.npz")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits model that reveals a class, a digit, and samples."""
    found = tmp_path_factory.mktemp("classes")
    made = ("compile", DIGITS / "digits.onnx", "-o", found / "class.plan", *SHAPE, *SAMPLES)
    result = run_verb(*made, "--reveal-as", "argmax")
    assert result.exit_code == 0, result.stderr
    with np.load(DIGITS / "heldout.npz", allow_pickle=False) as heldout:
        np.save(found / "image.npy", heldout["images"][:1].astype(np.float32) / 255)
    with np.load(DIGITS / "calibration.npz", allow_pickle=False) as samples:
        np.savez(found / "few.npz", image=samples["image"][:6])
    return found


def test_the_answer_is_the_class_alone(folder: Path) -> None:
    given = ("--weights", folder / "class.weights", "--input", f"image=@{folder / 'image.npy'}")
    content = json_of("simulate", folder / "class.plan", *given)
    assert content["outputs"]["logits"] == {"shape": [1], "values": [1.0]}


def test_inspect_says_what_is_revealed(folder: Path) -> None:
    told = run_verb("inspect", folder / "class.plan", "--reveals").stdout
    assert "output logits, its argmax alone" in told
    content = json_of("inspect", folder / "class.plan")
    assert content["options"]["reveal_as"] == {"logits": "argmax"}
    assert [output["shape"] for output in content["outputs"]] == [[1]]
    assert "before argmax" not in veilgraph.Plan.load(folder / "class.plan").ir["secret"]


def test_check_counts_decisions(folder: Path) -> None:
    files = ("--weights", folder / "class.weights", "--model", DIGITS / "digits.onnx")
    result = run_verb("check", folder / "class.plan", *files, "--inputs", folder / "few.npz")
    assert result.exit_code == 0, result.stderr
    assert "Output logits on 6 samples: 6 of 6 decisions are the model's." in result.stdout


@pytest.mark.parametrize("text", ["topk:3", "softmax"])
def test_other_forms_are_the_models_too(text: str) -> None:
    with np.load(DIGITS / "heldout.npz", allow_pickle=False) as heldout:
        image = heldout["images"][:1].astype(np.float32) / 255
    plan, weights = veilgraph.compile(
        DIGITS / "digits.onnx",
        shapes={"image": (1, 1, 28, 28)},
        calibrate=DIGITS / "calibration.npz",
        reveal_as={"logits": text},
    )
    plain, same = veilgraph.compile(
        DIGITS / "digits.onnx", shapes={"image": (1, 1, 28, 28)}, ring=64
    )
    found = veilgraph.simulate(plan, weights, {"image": image}).outputs["logits"]
    logits = veilgraph.simulate(plain, same, {"image": image}).outputs["logits"]
    np.testing.assert_allclose(found, Form.parse(text).of(logits), atol=0.01)


def test_a_class_of_thousands() -> None:
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((3, 1, 2500), np.float32)
    proto = model([helper.make_node("Relu", ["x"], ["y"])], {"x": (1, 2500)}, ["y"])
    plan, weights = veilgraph.compile(proto, calibrate={"x": samples}, reveal_as="topk:3")
    for x in samples:
        found = veilgraph.simulate(plan, weights, {"x": x}).outputs["y"]
        np.testing.assert_array_equal(found, Form.parse("topk:3").of(x))


@pytest.mark.parametrize("text", ["topk:2", "argmax"])
def test_the_rankings_tables_are_no_disclosure(text: str) -> None:
    """Nor is a public number of the model left out, nor a long list told in full."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Add", ["r", "part"], ["a"]),
        helper.make_node("CumSum", ["a", "axis"], ["y"]),
    ]
    numbers = {"part": np.float32(0.75), "axis": np.array(1)}
    proto = model(nodes, {"x": (1, 40)}, ["y"], numbers)
    samples = np.random.default_rng(0).standard_normal((3, 1, 40), np.float32)
    plan, _ = veilgraph.compile(proto, calibrate={"x": samples}, reveal_as=text, public=("part",))
    told = [d.what for d in plan.manifest.disclosures if d.what.startswith("constant ")]
    assert any("= [0.75" in what for what in told)
    assert any(what.endswith("...], 1600 numbers") for what in told)
    assert not any("y:" in what for what in told)


def test_both_suites_decide() -> None:
    with np.load(DIGITS / "heldout.npz", allow_pickle=False) as heldout:
        image = heldout["images"][:1].astype(np.float32) / 255
    plan, weights = veilgraph.compile(
        DIGITS / "digits.onnx",
        suite="additive",
        dealer="dan",
        shapes={"image": (1, 1, 28, 28)},
        calibrate=DIGITS / "calibration.npz",
        reveal_as="topk:2",
    )
    found = veilgraph.simulate(plan, weights, {"image": image}).outputs["logits"]
    assert found.shape == (1, 2)
    assert found[0, 0] == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("max",), "Nothing can be revealed as 'max'."),
        (("scores=argmax",), "The model has no output `scores` to reveal."),
        (("topk:11",), "can't be revealed as topk:11."),
        (("argmax", "logits=argmax"), "names one output, and gives a form for all."),
        (("logits=argmax", "logits=softmax"), "--reveal-as names `logits` twice."),
    ],
)
def test_what_makes_no_sense(options: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    given = [word for option in options for word in ("--reveal-as", option)]
    code, told = reason(
        "compile", DIGITS / "digits.onnx", "-o", tmp_path / "x.plan", *SHAPE, *given
    )
    assert code == 2
    assert sentence in told


def test_the_form_is_checked_in_python_too() -> None:
    with pytest.raises(UsageError, match="argmax, topk:5 or softmax"):
        veilgraph.compile(DIGITS / "digits.onnx", shapes={"image": (1, 1, 28, 28)}, reveal_as="top")


def test_an_argmax_of_the_model_takes_the_rounds_of_a_revealed_one() -> None:
    """Of ten classes: all pairs at once, and their losses."""
    rng = np.random.default_rng(4)
    weights = {"w": rng.normal(size=(16, 10)).astype(np.float32)}
    x = rng.normal(size=(3, 1, 16)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "scores")]
    scores = model(nodes, {"x": (1, 16)}, ["h"], weights)
    nodes.append(helper.make_node("ArgMax", ["h"], ["y"], "place", axis=1))
    places = model(nodes, {"x": (1, 16)}, ["y"], weights)
    places.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    revealed, _ = veilgraph.compile(scores, calibrate={"x": x}, reveal_as="argmax")
    plan, values = veilgraph.compile(places, calibrate={"x": x})
    assert plan.rounds(Phase.ONLINE) <= revealed.rounds(Phase.ONLINE)
    for sample in x:
        found = veilgraph.simulate(plan, values, {"x": sample}).outputs["y"]
        assert found.ravel() == (sample @ weights["w"]).argmax()
