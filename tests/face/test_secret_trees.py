"""Trees whose structure is secret: what a plan shows of them, and that they answer as before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto
from skl2onnx import to_onnx
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from verbs import reason, run_verb

import veilgraph
from veilgraph.ir.errors import UsageError

ROWS = 8
SECRET = "secret-structure"


def patients() -> tuple[Any, Any]:
    columns, classes = load_breast_cancer(return_X_y=True)
    return columns.astype(np.float32), classes


def forest() -> ModelProto:
    columns, classes = patients()
    model = RandomForestClassifier(6, max_depth=4, random_state=0).fit(columns, classes)
    return to_onnx(model, columns[:1], options={"zipmap": False})


def boosted(of: int, size: float = 1.0) -> ModelProto:
    """Four trees of depth 2 that ask about column `of` and the next alone; targets times `size`."""
    columns, targets = load_diabetes(return_X_y=True)
    asked = np.zeros_like(columns, np.float32)
    asked[:, of : of + 2] = columns[:, of : of + 2]
    noise = np.random.default_rng(of).normal(size=len(targets)) / 100
    model = GradientBoostingRegressor(n_estimators=4, max_depth=2, random_state=of)
    return to_onnx(model.fit(asked, size * (targets / 100 + noise)), asked[:1])


@pytest.fixture(scope="module")
def secret_forest(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Path]:
    columns, _ = patients()
    samples = columns[:320].reshape(-1, ROWS, columns.shape[1])
    plan, weights = veilgraph.compile(
        forest(),
        shapes={"X": (ROWS, columns.shape[1])},
        calibrate={"X": samples},
        trees=SECRET,
    )
    path = tmp_path_factory.mktemp("forest") / "forest.plan"
    plan.save(path)
    return plan, weights, path


def test_models_of_equal_sizes_have_the_same_plan(tmp_path: Path) -> None:
    """Other columns, other splits: byte for byte the same plan, and other weights.

    What every plan says is the same too: the least power of two above the largest of all leaves.
    """
    written, secrets = [], []
    for i, model in enumerate((boosted(0), boosted(6, 0.7))):
        plan, weights = veilgraph.compile(model, shapes={"X": (ROWS, 10)}, trees=SECRET)
        plan.save(tmp_path / f"{i}.plan")
        written.append((tmp_path / f"{i}.plan").read_bytes())
        secrets.append(weights)
    assert written[0] == written[1]
    assert {name: array.shape for name, array in secrets[0].items()} == {
        name: array.shape for name, array in secrets[1].items()
    }
    alike = [np.array_equal(array, secrets[1][name]) for name, array in secrets[0].items()]
    assert not any(alike)


def test_a_secret_forest_answers_as_onnxruntime(secret_forest: tuple[Any, Any, Path]) -> None:
    columns, _ = patients()
    plan, weights, _ = secret_forest
    rows = columns[400 : 400 + ROWS]
    session = onnxruntime.InferenceSession(forest().SerializeToString())
    label, probabilities = session.run(None, {"X": rows})
    answers = veilgraph.simulate(plan, weights, {"X": rows}).outputs
    np.testing.assert_array_equal(answers["label"], label)
    np.testing.assert_allclose(answers["probabilities"], probabilities, atol=0.005)


def test_reveals_say_what_is_learnt_of_trees(secret_forest: tuple[Any, Any, Path]) -> None:
    _, _, path = secret_forest
    told = " ".join(run_verb("inspect", path, "--reveals").stdout.split())
    assert "there are 6 trees, the deepest of depth 4; their structure is secret" in told
    assert "which nodes ask the same" not in told


@pytest.mark.parametrize("trees", ["public-structure", SECRET])
def test_all_nodes_of_a_forest_are_compared_at_once(trees: str) -> None:
    """One comparison for the nodes of all trees and levels, and one for the classes."""
    columns, classes = patients()
    forest = RandomForestClassifier(12, max_depth=5, random_state=0).fit(columns, classes)
    plan, _ = veilgraph.compile(forest, shapes={"X": (1, columns.shape[1])}, trees=trees)
    assert [layer.op for layer in plan.layers].count("step") == 2


def test_what_has_no_secret_structure_is_refused() -> None:
    columns, classes = patients()
    model = LogisticRegression(max_iter=20).fit(columns[:, :2], classes)
    linear = to_onnx(model, columns[:1, :2], options={"zipmap": False})
    shapes = {"X": (ROWS, 2)}
    with pytest.raises(UsageError, match="no decision trees whose structure could be secret"):
        veilgraph.compile(linear, shapes=shapes, trees=SECRET)
    with pytest.raises(UsageError, match="The structure of trees can't be 'hidden'"):
        veilgraph.compile(linear, shapes=shapes, trees="hidden")
    with pytest.raises(UsageError, match="weights are public, and the structure that --trees"):
        veilgraph.compile(
            boosted(0), shapes={"X": (ROWS, 10)}, trees=SECRET, owners={"weights": "public"}
        )


def test_the_command_line_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(boosted(0).SerializeToString())
    given = ("compile", tmp_path / "model.onnx", "--shape", f"X={ROWS}x10", "-o")
    run_verb(*given, tmp_path / "secret.plan", "--trees", SECRET)
    told = run_verb("inspect", tmp_path / "secret.plan", "--reveals").stdout
    assert "there are 4 trees, the deepest of depth 2" in " ".join(told.split())
    run_verb(*given, tmp_path / "public.plan", "--trees", "public-structure")
    told = run_verb("inspect", tmp_path / "public.plan", "--reveals").stdout
    assert "the column that each node asks about" in " ".join(told.split())
    code, told = reason(*given, tmp_path / "no.plan", "--trees", "none")
    assert code == 2
    assert "`none` is none of public-structure, secret-structure" in told
