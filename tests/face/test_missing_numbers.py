"""Numbers that are missing: a secret flag where the model asks for it, refused elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pyarrow
import pyarrow.parquet
import pytest
from lightgbm import LGBMClassifier
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from verbs import ran, reason
from xgboost import XGBClassifier

import veilgraph
from veilgraph.frontend.onnx.classical.expand import DOMAIN
from veilgraph.frontend.onnx.classical.fitted import converted
from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan.given import Given

ROWS, COLUMNS = 8, 4
Array = NDArray[Any]


def table(count: int = 320) -> tuple[Array, Array]:
    """Raw columns of unlike sizes, a seventh of their cells missing, and classes."""
    columns, targets = load_breast_cancer(return_X_y=True)
    columns = columns[:count, :COLUMNS].astype(np.float32)
    missing = np.random.default_rng(0).random(columns.shape) < 0.15
    return np.where(missing, np.float32(np.nan), columns), targets[:count]


def samples() -> Array:
    return table()[0].reshape(-1, ROWS, COLUMNS)


MODELS: Mapping[str, Any] = {
    "imputed": make_pipeline(SimpleImputer(), LogisticRegression(max_iter=5000)),
    "scaled, then imputed": make_pipeline(
        StandardScaler(), SimpleImputer(strategy="median"), LogisticRegression()
    ),
    "imputed for trees": make_pipeline(
        SimpleImputer(), RandomForestClassifier(5, max_depth=3, random_state=0)
    ),
    "XGBoost": XGBClassifier(n_estimators=4, max_depth=3),
    "LightGBM": LGBMClassifier(n_estimators=4, num_leaves=6, verbose=-1),
}
CASES = [(name, trees) for name in MODELS for trees in ("public", "secret")]


@pytest.mark.parametrize(("name", "trees"), CASES)
def test_rows_in_which_numbers_are_missing(name: str, trees: str) -> None:
    if trees == "secret" and "Logistic" in str(MODELS[name]):
        pytest.skip("there are no trees")
    columns, targets = table()
    fitted = MODELS[name].fit(columns, targets)
    plan, weights = veilgraph.compile(
        fitted,
        shapes={"X": (ROWS, COLUMNS)},
        calibrate={"X": samples()},
        trees=f"{trees}-structure",
    )
    (x,) = plan.programs["alice"].inputs
    assert (x.given, x.shape) == (Given(flagged=(0, 1, 2, 3)), (ROWS, 2 * COLUMNS))
    assert min(x.column_exponents) < -4
    assert not any(x.column_exponents[COLUMNS:])
    for rows in (columns[:ROWS], np.full((ROWS, COLUMNS), np.nan, np.float32)):
        label, probabilities = veilgraph.simulate(plan, weights, {"X": rows}).outputs.values()
        wanted = fitted.predict_proba(rows)
        assert (label == fitted.predict(rows)).all()
        np.testing.assert_allclose(probabilities, wanted, atol=0.005)
    told = [d.what for d in plan.manifest.disclosures if "may be missing" in d.what]
    assert told == ["the columns of X in which a number may be missing: 0, 1, 2, 3"]
    checked = veilgraph.check(plan, weights, converted(fitted), {"X": samples()[:4]})
    assert checked.status() is None


def test_trees_take_numbers_alone_where_samples_lack_none() -> None:
    columns, targets = table()
    fitted = XGBClassifier(n_estimators=2, max_depth=2).fit(columns, targets)
    whole = np.nan_to_num(samples())
    plan, weights = veilgraph.compile(fitted, shapes={"X": (ROWS, COLUMNS)}, calibrate={"X": whole})
    assert plan.programs["alice"].inputs[0].given == Given()
    with pytest.raises(UsageError, match=r"not finite: nan in row \d, column \d"):
        veilgraph.simulate(plan, weights, {"X": columns[:ROWS]})


def test_an_imputer_takes_missing_numbers_that_no_sample_lacks() -> None:
    """What takes their place counts in ranges, whatever samples show."""
    columns, targets = table()
    filled = np.nan_to_num(columns, nan=1.0)
    imputer = SimpleImputer().fit(columns)
    imputer.statistics_[:] = 500.0
    fitted = make_pipeline(imputer, LogisticRegression(max_iter=5000).fit(filled, targets))
    plan, weights = veilgraph.compile(
        fitted, shapes={"X": (3, COLUMNS)}, calibrate={"X": filled[:30].reshape(10, 3, COLUMNS)}
    )
    rows = filled[:3].copy()
    rows[:, 1] = np.nan
    _, found = veilgraph.simulate(plan, weights, {"X": rows}).outputs.values()
    np.testing.assert_allclose(found, fitted.predict_proba(rows), atol=0.01)


# Graphs


def model_of(
    nodes: Sequence[NodeProto], literals: Mapping[str, Array], opset: int = 21
) -> ModelProto:
    x = helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, COLUMNS])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    known = [numpy_helper.from_array(array, name) for name, array in literals.items()]
    graph = helper.make_graph(nodes, "main", [x], [y], known)
    versions = [helper.make_opsetid(DOMAIN, 3), helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10)


def node(operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> NodeProto:
    domain = DOMAIN if operator in ("Imputer", "Scaler") or "Tree" in operator else ""
    return helper.make_node(operator, inputs, [output], output, domain=domain, **attributes)


def tree(mode: str, tracks: int, x: str = "X") -> NodeProto:
    """A tree of one question, of the second column."""
    return node(
        "TreeEnsembleRegressor", [x], "y", n_targets=1, nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2], nodes_featureids=[1, 0, 0], nodes_values=[0.5, 0.0, 0.0],
        nodes_modes=[mode, "LEAF", "LEAF"], nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0], nodes_missing_value_tracks_true=[tracks, 0, 1],
        target_treeids=[0, 0], target_nodeids=[1, 2], target_ids=[0, 0],
        target_weights=[1.0, 2.0],
    )  # fmt: skip


IMPUTER = {"imputed_value_floats": [2.0, 3.0], "replaced_value_float": np.nan}
GRAPHS: Mapping[str, ModelProto] = {
    "IsNaN": model_of(
        [node("IsNaN", ["X"], "is"), node("Where", ["is", "two", "X"], "y")], {"two": np.float32(2)}
    ),
    "some columns": model_of(
        [
            node("Gather", ["X", "some"], "part", axis=1),
            node("Imputer", ["part"], "filled", **IMPUTER),
            node("Slice", ["X", "one", "two", "one"], "other"),
            node("Concat", ["other", "filled"], "y", axis=1),
        ],
        {"some": np.array([3, 0]), "one": np.array([1]), "two": np.array([2])},
    ),
    "an old opset": model_of(
        [
            node("Slice", ["X"], "part", axes=[1], starts=[0], ends=[2]),
            node("Imputer", ["part"], "y", **IMPUTER),
        ],
        {},
        8,
    ),
    **{
        f"BRANCH_{mode}, {tracks}": model_of([tree(f"BRANCH_{mode}", tracks)], {})
        for mode in ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")
        for tracks in (0, 1)
    },
}


@pytest.mark.parametrize("name", GRAPHS)
def test_nodes_that_ask_what_is_missing(name: str) -> None:
    proto = GRAPHS[name]
    rows = np.random.default_rng(0).integers(0, 3, (ROWS, COLUMNS)).astype(np.float32) / 2
    asked = rows.copy()
    asked[::2, 0], asked[1::2, 1], asked[3, 3] = np.nan, np.nan, np.nan
    if name in ("some columns", "an old opset"):
        keeps = [1, 2] if name == "some columns" else [2, 3]
        asked[:, keeps] = rows[:, keeps]
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    if name.endswith(", 0"):  # no node says where such a row goes
        plan, weights = veilgraph.compile(proto, shapes={"X": rows.shape})
        with pytest.raises(UsageError, match="not finite: nan in row 0, column 0"):
            veilgraph.simulate(plan, weights, {"X": asked})
        return
    plan, weights = veilgraph.compile(
        proto, shapes={"X": rows.shape}, calibrate={"X": np.stack([rows, asked])}
    )
    (wanted,) = session.run(None, {"X": asked})
    found = veilgraph.simulate(plan, weights, {"X": asked}).outputs["y"]
    np.testing.assert_allclose(found, wanted, atol=0.01)


def test_a_tree_that_says_of_some_nodes_alone() -> None:
    proto = model_of([tree("BRANCH_LEQ", 1)], {})
    (given,) = (a for a in proto.graph.node[0].attribute if "missing" in a.name)
    del given.ints[1:]
    with pytest.raises(UsageError, match="It says of some nodes alone where a row goes"):
        veilgraph.compile(proto, shapes={"X": (2, COLUMNS)})


# Files, and several owners

NAMES = ("radius", "texture", "perimeter", "area")


def csv(path: Path, rows: Array) -> Path:
    """NaN becomes an empty cell."""
    lines = [",".join("" if x != x else str(x) for x in row) for row in rows.tolist()]
    path.write_text("\n".join([",".join(NAMES), *lines]))
    return path


def test_empty_cells_of_two_owners(tmp_path: Path) -> None:
    columns, targets = table()
    fitted = MODELS["imputed"].fit(columns, targets)
    onnx.save(converted(fitted), tmp_path / "m.onnx")
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    csv(tmp_path / "rows.csv", columns)
    plan, weights = tmp_path / "m.plan", tmp_path / "m.weights"
    owners = ("--owner", "texture,area=bank", "--owner", "X=clinic", "--owner", "weights=vendor")
    options = ("--parties", "clinic,bank,vendor", "--columns", f"X={tmp_path / 'names.txt'}")
    calibrate = ("--calibrate", tmp_path / "rows.csv", "--shape", f"X={ROWS}x{COLUMNS}")
    ran("compile", tmp_path / "m.onnx", "-o", plan, *owners, *options, *calibrate)
    loaded = veilgraph.Plan.load(plan)
    inputs = [tensor for program in loaded.programs.values() for tensor in program.inputs]
    assert {t.name: (t.columns, t.given.flagged) for t in inputs} == {
        "X.clinic": (("radius", "perimeter"), (0, 1)),
        "X.bank": (("texture", "area"), (0, 1)),
    }
    given = csv(tmp_path / "given.csv", columns[:11])
    answer = tmp_path / "answer.csv"
    source = ("simulate", plan, "--weights", weights)
    ran(*source, "--input", f"@{given}", "--output", f"probabilities=@{answer}")
    _, *lines = answer.read_text().splitlines()
    found = np.array([line.split(",") for line in lines], np.float64)
    np.testing.assert_allclose(found, fitted.predict_proba(columns[:11]), atol=0.005)
    arrow = {n: pyarrow.array(columns[:11, i], from_pandas=True) for i, n in enumerate(NAMES)}
    pyarrow.parquet.write_table(pyarrow.table(arrow), tmp_path / "given.parquet")
    parquet = tmp_path / "given.parquet"
    ran(*source, "--input", f"@{parquet}", "--output", f"probabilities=@{answer}")
    assert len(answer.read_text().splitlines()) == 12
    checked = ("--model", tmp_path / "m.onnx", "--inputs", tmp_path / "rows.csv")
    assert "No layer drifts" in ran("check", plan, "--weights", weights, *checked)
    np.savez(tmp_path / "rows.npz", X=columns[: 2 * ROWS].reshape(2, ROWS, COLUMNS))
    ran("check", plan, "--weights", weights, *checked[:3], tmp_path / "rows.npz")
    assert "online" in ran("bench", plan, "--iterations", "1")
    given.write_text(given.read_text().replace(",,", ",inf,", 1))
    code, told = reason(*source, "--input", f"@{given}")
    assert code == 2
    assert "which is no number" in told


def test_samples_that_lack_numbers_in_files(tmp_path: Path) -> None:
    """In each kind of file trees find that they have to take such rows."""
    columns, targets = table()
    fitted = XGBClassifier(n_estimators=2, max_depth=2).fit(columns, targets)
    arrow = {n: pyarrow.array(columns[:, i], from_pandas=True) for i, n in enumerate(NAMES)}
    pyarrow.parquet.write_table(pyarrow.table(arrow), tmp_path / "rows.parquet")
    np.savez(tmp_path / "rows.npz", X=samples())
    files = [csv(tmp_path / "rows.csv", columns), tmp_path / "rows.parquet", tmp_path / "rows.npz"]
    for file in files:
        plan, _ = veilgraph.compile(
            fitted, shapes={"X": (ROWS, COLUMNS)}, calibrate=file, columns={"X": NAMES}
        )
        assert plan.programs["alice"].inputs[0].given.flagged
