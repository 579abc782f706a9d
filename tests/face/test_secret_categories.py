"""Categories that are their owner's: text is hashed where it is given, and compared in secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto
from test_text_columns import (
    CASES,
    CITIES,
    ENCODERS,
    NAMES,
    ROWS,
    csv,
    expected,
    labels,
    model_of,
    named,
    one_hot,
    pipeline,
    samples,
    table,
    texts,
)
from verbs import ran, reason

import veilgraph
from veilgraph.frontend.onnx.importer import import_model
from veilgraph.ir.errors import UnsupportedError, UsageError
from veilgraph.ir.graph.table_options import Categories, TableOptions
from veilgraph.ir.plan import given as given_module
from veilgraph.ir.plan.given import HALF_BITS, Given, halves_of
from veilgraph.ir.plan.tables import Phase

SECRET = TableOptions(categories=Categories.SECRET)
ENCODER = model_of([one_hot(["x"], "y", CITIES, 0)], {"x": 1})
SHAPES = {"x": (ROWS, 1)}


@pytest.mark.parametrize("case", CASES)
def test_encoders_say_what_they_say_of_public_categories(case: str) -> None:
    proto, given, _ = CASES[case]
    feeds = given or {"x": texts()}
    shapes = {name: array.shape for name, array in feeds.items()}
    calibrate = {name: array[np.newaxis] for name, array in feeds.items()}
    plan, weights = veilgraph.compile(
        proto, shapes=shapes, calibrate=calibrate, categories="secret"
    )
    found = veilgraph.simulate(plan, weights, feeds).outputs["y"]
    np.testing.assert_allclose(found, expected(proto, feeds), atol=0.01)
    inputs = {t.name: t for p in plan.programs.values() for t in p.inputs}
    assert {n: (t.given, t.given_shape) for n, t in inputs.items()} == {
        name: (Given(is_hashed=True), shapes[name]) for name in inputs
    }


@pytest.mark.parametrize("encoder", ENCODERS, ids=str)
def test_pipelines_of_text(encoder: Any) -> None:
    fitted = pipeline(encoder=encoder)
    plan, weights = veilgraph.compile(
        fitted, shapes={"X0": (ROWS, 1)}, calibrate=samples(), categories="secret"
    )
    given = {name: array[0] for name, array in samples().items()}
    label, probabilities = veilgraph.simulate(plan, weights, given).outputs.values()
    (names,) = plan.labels.values()
    assert [names[int(i)] for i in label] == fitted.predict(table()[:ROWS]).tolist()
    np.testing.assert_allclose(probabilities, fitted.predict_proba(table()[:ROWS]), atol=0.005)


def test_text_that_is_no_category_has_no_hit() -> None:
    """No party learns that it is none, so nobody can refuse it."""
    plan, weights = veilgraph.compile(ENCODER, shapes=SHAPES, categories="secret")
    x = np.array([["Oslo"], ["Paris"], ["oslo"], ["Rome"]], object)
    found = veilgraph.simulate(plan, weights, {"x": x}).outputs["y"]
    assert found.reshape(ROWS, -1).tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 0], [0, 0, 1]]


def test_the_price() -> None:
    calibrate = {"x": texts()[np.newaxis]}
    plan, _ = veilgraph.compile(ENCODER, shapes=SHAPES, calibrate=calibrate, categories="secret")
    assert plan.rounds(Phase.ONLINE) == 4
    assert sum(plan.sent_bytes(Phase.ONLINE).values()) == 752


def test_a_plan_has_neither_categories_nor_their_hashes(tmp_path: Path) -> None:
    other = model_of([one_hot(["x"], "y", ("Bern", "Kyiv", "Riga"), 0)], {"x": 1})
    graphs = [import_model(proto, SHAPES, tables=SECRET) for proto in (ENCODER, other)]
    assert graphs[0].text() == graphs[1].text()
    assert any((graphs[0].weights[n] != graphs[1].weights[n]).all() for n in graphs[0].weights)
    saved = []
    for name, proto in (("one", ENCODER), ("other", other)):
        plan, _ = veilgraph.compile(proto, shapes=SHAPES, categories="secret")
        plan.save(tmp_path / f"{name}.plan")
        saved.append((tmp_path / f"{name}.plan").read_bytes())
    assert saved[0] == saved[1]


def test_what_is_told() -> None:
    plan, _ = veilgraph.compile(ENCODER, shapes=SHAPES, categories="secret")
    told = [d.what for d in plan.manifest.disclosures if "categories" in d.what]
    assert told == [
        "x is text, of which owners write 44 bits of its hash; how many categories the model "
        "knows of it"
    ]


def test_halves_are_those_of_the_hash() -> None:
    """sha256("abc") = ba7816bf 8f01..., of FIPS 180-4."""
    first, second = halves_of([["abc"]])
    assert first.shape == (1, 1)
    halves = [int(half[0, 0]) - (1 << HALF_BITS) for half in (first, second)]
    assert halves[0] << HALF_BITS | halves[1] == 0xBA7816BF8F0


BAD: dict[str, tuple[Any, str]] = {
    "numbers": (np.ones((ROWS, 1)), "`x` holds in row 0, column 0, what is no text"),
    "missing": (np.array([["Oslo"], [None], ["Rome"], ["Oslo"]], object), "no text in row 1, col"),
    "empty": (np.array([["Oslo"], ["Rome"], [""], ["Oslo"]]), "`x` has no text in row 2, col"),
    "too many": (texts(1, count=5), "`x` has shape 5x1, and the plan needs 4x1"),
}


@pytest.mark.parametrize("case", BAD)
def test_text_that_does_not_fit(case: str) -> None:
    plan, weights = veilgraph.compile(ENCODER, shapes=SHAPES, categories="secret")
    given, told = BAD[case]
    with pytest.raises(UsageError, match=told) as caught:
        veilgraph.simulate(plan, weights, {"x": given})
    if "too many" not in case:
        assert caught.value.hint.startswith("Give text; which categories the model knows")


def flat() -> ModelProto:
    """A LabelEncoder of text that is no table."""
    proto = model_of([labels(["x"], "y", [1.0, 2.0, 3.0])], {"x": 1})
    del proto.graph.input[0].type.tensor_type.shape.dim[1]
    return proto


REFUSED: dict[str, tuple[ModelProto, dict[str, Any], str]] = {
    "no table": (flat(), {"shapes": {"x": (ROWS,)}}, "Input `x` is no table, and its categories"),
    "no text": (
        model_of([labels(["x"], "y", [1.0, 2.0, 3.0])], {}),
        {"shapes": {}},
        "no columns of text whose categories could be secret",
    ),
    "public weights": (ENCODER, {"owners": {"weights": "public"}}, "The weights are public, and"),
    "neither": (ENCODER, {"categories": "hidden"}, "Categories of text can't be 'hidden'"),
}
REFUSED["no text"][0].graph.input.append(
    onnx.helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, 1])
)
REFUSED["no text"][0].graph.node[0].CopyFrom(onnx.helper.make_node("Neg", ["x"], ["y"], "negative"))


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_secret(case: str) -> None:
    proto, options, told = REFUSED[case]
    with pytest.raises(UsageError, match=told):
        veilgraph.compile(proto, **{"shapes": SHAPES, "categories": "secret", **options})


def test_categories_that_cannot_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = model_of([one_hot(["x"], "y", ("", "Oslo"), 0)], {"x": 1})
    with pytest.raises(UnsupportedError, match="The empty text is one of its categories"):
        veilgraph.compile(empty, shapes=SHAPES, categories="secret")
    monkeypatch.setattr(given_module, "HALF_BITS", 0)
    with pytest.raises(UnsupportedError, match="Two of its categories have the same hash"):
        veilgraph.compile(ENCODER, shapes=SHAPES, categories="secret")


def test_from_calibration_to_an_answer(tmp_path: Path) -> None:
    onnx.save(named(pipeline()), tmp_path / "score.onnx")
    rows, plan = csv(tmp_path / "rows.csv", table()), tmp_path / "score.plan"
    options = ("--categories", "secret", "--shape", f"age={ROWS}x1", "--calibrate", rows)
    ran("compile", tmp_path / "score.onnx", "-o", plan, *options)
    weights, answer = ("--weights", tmp_path / "score.weights"), tmp_path / "answer.csv"
    given = csv(tmp_path / "given.csv", table()[:11])
    ran("simulate", plan, *weights, "--input", f"@{given}", "--output", f"label=@{answer}")
    _, *found = answer.read_text().splitlines()
    assert found == pipeline().predict(table()[:11]).tolist()
    compared = ("--model", tmp_path / "score.onnx", "--inputs", rows)
    assert "No layer drifts" in ran("check", plan, *weights, *compared)
    assert "Oslo" not in ran("inspect", plan, "--reveals")
    assert "online" in ran("bench", plan, "--iterations", "1")
    bad = table()[:ROWS]
    bad[2, 1] = ""
    code, said = reason("simulate", plan, *weights, "--input", f"@{csv(tmp_path / 'b.csv', bad)}")
    assert code == 2
    assert f"Row 3 of {tmp_path / 'b.csv'} has no text under `city`." in said


def test_columns_of_two_owners() -> None:
    proto = CASES["tables that differ"][0]
    given = texts(2)
    plan, weights = veilgraph.compile(
        proto,
        shapes={"x": (ROWS, 2)},
        columns={"x": NAMES[:2]},
        owners={NAMES[0]: "bob", "x": "carol"},
        calibrate={"x": given[np.newaxis]},
        categories="secret",
    )
    assert {t.name: t.given.is_hashed for p in plan.programs.values() for t in p.inputs} == {
        "x.bob": True,
        "x.carol": True,
    }
    found = veilgraph.simulate(plan, weights, {"x": given}).outputs["y"]
    np.testing.assert_allclose(found, expected(proto, {"x": given}), atol=0.01)
    report = veilgraph.check(plan, weights, proto, {"x": given[np.newaxis]})
    assert report.status() is None
