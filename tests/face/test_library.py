"""The library: what it lists, shows and takes, and that it says what the verbs say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from verbs import Compiled, json_of

import veilgraph
from veilgraph.ir.errors import SecurityAbort, UsageError

SIMULATED = ("--weights", "digits.weights", "--input", "image=@image.npy")


def test_all_that_is_public_is_listed() -> None:
    assert set(veilgraph.__all__) < set(dir(veilgraph))
    for name in veilgraph.__all__:
        assert callable(getattr(veilgraph, name))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = veilgraph.nonsense


def test_each_result_is_shown_in_a_line(copied: Compiled) -> None:
    plan = copied.plan
    answer = veilgraph.simulate(plan, "digits.weights", {"image": "image.npy"})
    measured = veilgraph.bench(plan, iterations=1)
    for shown in (plan, veilgraph.inspect(plan), answer, measured):
        assert len(repr(shown)) < 200
        assert "\n" not in repr(shown)
    assert plan.digest[:12] in repr(plan)
    assert "image to logits" in repr(plan)
    assert "logits (1, 10)" in repr(answer)


def test_a_notebook_shows_tables(copied: Compiled) -> None:
    plan = copied.plan
    cost = plan.cost()
    html = plan._repr_html_()
    assert html.count("<tr>") == 4
    assert f"<td>online</td><td>{cost.online.rounds}</td>" in html
    assert veilgraph.inspect(plan)._repr_html_().count("<tr>") == 1 + len(
        veilgraph.inspect(plan).rows()
    )


def test_paths_do_what_objects_do(copied: Compiled) -> None:
    plan = copied.plan
    weights = veilgraph.load_weights("digits.weights", Path("digits.plan"))
    image = np.load("image.npy")
    ends = [
        veilgraph.simulate(plan, weights, {"image": image}),
        veilgraph.simulate("digits.plan", Path("digits.weights"), {"image": "image.npy"}),
    ]
    first, second = (answer.outputs["logits"] for answer in ends)
    np.testing.assert_allclose(first, second, atol=0.01)
    veilgraph.save_weights(weights, "again.weights", plan)
    assert Path("again.weights").read_bytes() == Path("digits.weights").read_bytes()


def test_rows_are_what_the_verbs_say(copied: Compiled) -> None:
    rows = veilgraph.inspect("digits.plan", "wan").rows()
    told = json_of("inspect", "digits.plan", "--network", "wan")["layers"]
    assert [row["layer"] for row in rows] == [layer["name"] for layer in told]
    assert [row["online_bytes"] for row in rows] == [layer["online_bytes"] for layer in told]
    assert all(isinstance(cell, str | int | float) for row in rows for cell in row.values())


def test_a_check_is_what_the_verb_says(copied: Compiled) -> None:
    with np.load("calibration.npz", allow_pickle=False) as samples:
        few = samples["image"][:2]
        np.savez("few.npz", image=few)
        np.save("few.npy", few)
    files = ("--weights", "digits.weights", "--model", "digits.onnx", "--inputs", "few.npz")
    told = json_of("check", "digits.plan", *files)
    given: tuple[Any, ...] = ("few.npz", {"image": few}, {"image": "few.npy"})
    for inputs in given:
        found = veilgraph.check("digits.plan", "digits.weights", "digits.onnx", inputs)
        names = [layer["name"] for layer in (*told["layers"], *told["outputs"])]
        assert [row["name"] for row in found.rows()] == names
        assert next(row["worst_error"] for row in found.rows()) == told["layers"][0]["worst_error"]
        assert repr(found) == "<Check on 2 samples: no layer drifts>"


def test_what_is_drawn_at_random_is_measured(copied: Compiled) -> None:
    measured = veilgraph.bench("digits.plan", iterations=2, warm_up=0)
    assert len(measured.runs) == 2
    assert measured.sent_bytes()["online"] == copied.plan.cost().online.sent_bytes


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda plan: veilgraph.simulate(3, {}, {}),
            "An object of type int is given in place of a plan.",
        ),
        (lambda plan: veilgraph.simulate(plan, None, {}), "are secret, and none were given"),
        (
            lambda plan: veilgraph.simulate(plan, 3, {}),
            "An object of type int is given in place of weights.",
        ),
        (
            lambda plan: veilgraph.simulate(plan, {}, "x"),
            "An object of type str is given in place of inputs.",
        ),
        (lambda plan: veilgraph.simulate(plan, {}, {"image": "no.npy"}), "no.npy can't be read"),
        (lambda plan: veilgraph.simulate("no.plan", {}, {}), "no.plan"),
        (
            lambda plan: veilgraph.save_weights({}, "w.weights", plan),
            "These are not the plan's weights: conv1",
        ),
        (lambda plan: veilgraph.compile(None), "type NoneType is given in place of a model."),
        (lambda plan: veilgraph.compile(np.ndarray), "ndarray is a class, and no model yet."),
        (lambda plan: compile_of(max_error="0.01"), "An error of '0.01' can't be allowed."),
        (lambda plan: compile_of(max_error=-1), "An error of -1 can't be allowed."),
        (lambda plan: compile_of(calibrate=ONE), "given as one ndarray, without a name."),
        (lambda plan: compile_of(calibrate={"x": ONE}), "no samples of `image`, but of x."),
        (lambda plan: compile_of(calibrate={"image": ONE[0]}), "`image` have shape (1, 1, 28, 28)"),
        (lambda plan: check_of(plan, {}), "Samples of `image` don't fit: none are given."),
        (lambda plan: check_of(plan, {"image": np.ones(3)}), "they have shape (3,)"),
        (lambda plan: check_of(plan, {"image": ONE, "x": ONE}), "The plan has no input `x`."),
    ],
)
def test_what_does_not_fit_is_told(
    copied: Compiled, call: Callable[[veilgraph.Plan], Any], sentence: str
) -> None:
    with pytest.raises(UsageError) as caught:
        call(copied.plan)
    assert sentence in caught.value.message


ONE = np.ones((1, 1, 1, 28, 28))


def compile_of(**options: Any) -> Any:
    return veilgraph.compile("digits.onnx", shapes={"image": (1, 1, 28, 28)}, **options)


def test_one_receiver_needs_no_list(copied: Compiled) -> None:
    plan, _ = compile_of(receivers={"logits": "carol"}, ring=64)
    assert plan.manifest.receivers == {"logits": ("carol",)}


def check_of(plan: veilgraph.Plan, inputs: Any) -> Any:
    return veilgraph.check(plan, "digits.weights", "digits.onnx", inputs)


def test_weights_of_another_plan_are_refused(copied: Compiled) -> None:
    veilgraph.compile("digits.onnx", shapes={"image": (1, 1, 28, 28)})[0].save("other.plan")
    with pytest.raises(SecurityAbort, match="weights of another plan"):
        veilgraph.simulate("other.plan", "digits.weights", {"image": "image.npy"})


def test_inputs_have_as_many_samples() -> None:
    from veilgraph.checks.checking import require_samples

    samples = {"a": np.ones((2, 3), np.float32), "b": np.ones((1, 3), np.float32)}
    with pytest.raises(UsageError, match="different numbers of samples"):
        require_samples(samples, {"a": (3,), "b": (3,)})
