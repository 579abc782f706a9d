"""Models that scikit-learn, XGBoost, LightGBM and CatBoost fitted, run by all parties."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import skl2onnx
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import (
    BaggingClassifier,
    GradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from xgboost import XGBClassifier, XGBRegressor

import veilgraph
from veilgraph.frontend.onnx.classical import forest
from veilgraph.frontend.onnx.classical.fitted import converted
from veilgraph.ir.errors import AccuracyError, UsageError
from veilgraph.ir.plan.tables import Phase

ROWS = 32
Table = npt.NDArray[np.float32]


@cache
def table(load: Callable[..., Any]) -> tuple[Table, npt.NDArray[np.int64]]:
    """A data set's rows in a random order, and their targets."""
    columns, targets = load(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(columns))
    return columns[order].astype(np.float32), targets[order]


def answers(model: Any, load: Callable[..., Any]) -> tuple[dict[str, Any], Table]:
    """What the parties compute of a fitted model's first rows, and these rows."""
    columns, targets = table(load)
    model.fit(columns, targets)
    rows = columns[:ROWS]
    samples = columns[: 4 * ROWS].reshape(4, ROWS, -1)
    plan, weights = veilgraph.compile(
        model, shapes={"X": rows.shape}, calibrate={"X": samples}, max_error=1e-3
    )
    return veilgraph.simulate(plan, weights, {"X": rows}).outputs, rows


CLASSIFIERS = [
    (LogisticRegression(max_iter=500), load_iris),
    (make_pipeline(StandardScaler(), LogisticRegression()), load_breast_cancer),
    (DecisionTreeClassifier(max_depth=4), load_iris),
    (RandomForestClassifier(10, max_depth=4, random_state=0), load_breast_cancer),
    (GradientBoostingClassifier(n_estimators=5, random_state=0), load_iris),
    (XGBClassifier(n_estimators=5), load_breast_cancer),
    (LGBMClassifier(n_estimators=5, verbose=-1), load_iris),
]


@pytest.mark.parametrize(("model", "load"), CLASSIFIERS, ids=lambda x: type(x).__name__)
def test_classes_and_probabilities(model: Any, load: Callable[..., Any]) -> None:
    found, rows = answers(model, load)
    label, probabilities = found.values()
    assert (label == model.predict(rows)).all()
    np.testing.assert_allclose(probabilities, model.predict_proba(rows), atol=0.005)


def test_raw_columns_have_scales_of_their_own() -> None:
    """Areas in thousands, and smoothness below a tenth, which one scale would round to nothing."""
    columns, targets = table(load_breast_cancer)
    model = LogisticRegression(max_iter=20_000).fit(columns, targets)
    samples = {"X": columns[:64, np.newaxis]}
    plan, weights = veilgraph.compile(model, shapes={"X": (1, 30)}, calibrate=samples)
    (x,) = plan.programs["alice"].inputs
    assert min(x.column_exponents) < -12
    assert max(x.column_exponents) == 0
    assert plan.manifest.ring_bits <= 32
    assert plan.rounds(Phase.ONLINE) <= 10
    assert sum(plan.sent_bytes(Phase.ONLINE).values()) < 2000
    told = [d.what for d in plan.manifest.disclosures if "columns of X" in d.what]
    assert told[0].endswith(", ".join(map(str, x.column_exponents)))
    checked = veilgraph.check(plan, weights, converted(model), samples)
    assert checked.layers
    assert max(output.mean_relative for output in checked.outputs) < 0.005


def test_a_number_outside_its_column_is_refused() -> None:
    columns, targets = table(load_breast_cancer)
    model = LogisticRegression(max_iter=20_000).fit(columns, targets)
    samples = {"X": columns[:64, np.newaxis]}
    plan, weights = veilgraph.compile(model, shapes={"X": (1, 30)}, calibrate=samples)
    row = columns[:1].copy()
    row[0, 4] = 50.0  # smoothness, in the range of an area
    with pytest.raises(AccuracyError, match="`X` holds a number in row 0, column 4, outside"):
        veilgraph.simulate(plan, weights, {"X": row})


LOOKED_UP = [
    SVC(),
    GaussianNB(),
    MLPClassifier((6,), random_state=0),
    BaggingClassifier(n_estimators=3),
]


@pytest.mark.parametrize("model", LOOKED_UP, ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("names", [None, ("setosa", "versicolor", "virginica"), (7, 2, 9)])
def test_labels_that_are_looked_up(model: Any, names: tuple[Any, ...] | None) -> None:
    columns, targets = table(load_iris)
    classes = targets if names is None else np.array(names)[targets]
    model.fit(columns, classes)
    rows = columns[:16]
    samples = columns.reshape(-1, 1, 4)[:64].repeat(16, 1)
    plan, weights = veilgraph.compile(
        model, shapes={"X": rows.shape}, calibrate={"X": samples}, max_error=1e-3
    )
    name, label = next(iter(veilgraph.simulate(plan, weights, {"X": rows}).outputs.items()))
    texts = plan.labels.get(name)
    found = label.reshape(-1) if texts is None else [texts[int(i)] for i in label.reshape(-1)]
    assert bool(plan.labels) == (names is not None and isinstance(names[0], str))
    assert (np.asarray(found) == model.predict(rows)).all()


def test_probabilities_behind_a_zip_map_are_no_labels() -> None:
    columns, targets = table(load_iris)
    names = np.array(["setosa", "versicolor", "virginica"])[targets]
    fitted = DecisionTreeClassifier(max_depth=2).fit(columns, names)
    proto = skl2onnx.to_onnx(fitted, columns[:1], target_opset={"": 21, "ai.onnx.ml": 3})
    assert any(node.op_type == "ZipMap" for node in proto.graph.node)
    samples = {"X": columns[:32].reshape(8, 4, 4)}
    plan, _ = veilgraph.compile(proto, shapes={"X": (4, 4)}, calibrate=samples)
    assert plan.labels == {"output_label": ("setosa", "versicolor", "virginica")}


def test_large_ensembles_of_old_opsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """LightGBM's converter writes opset 8, in which a Slice has its bounds as attributes."""
    monkeypatch.setattr(forest, "MOST_PICKED", 0)
    found, rows = answers(LGBMRegressor(n_estimators=5, max_depth=3, verbose=-1), load_diabetes)
    (values,) = found.values()
    assert values.shape == (len(rows), 1)


REGRESSORS = [
    LinearRegression(),
    RandomForestRegressor(5, max_depth=4, random_state=0),
    XGBRegressor(n_estimators=5, max_depth=3),
    LGBMRegressor(n_estimators=5, verbose=-1),
    make_pipeline(StandardScaler(), SVR(C=100)),
]


@pytest.mark.parametrize("model", REGRESSORS, ids=lambda x: type(x).__name__)
def test_regressors(model: Any) -> None:
    found, rows = answers(model, load_diabetes)
    (value,) = found.values()
    expected = model.predict(rows)
    size = np.sqrt((expected**2).mean())
    np.testing.assert_allclose(value[:, 0], expected, atol=0.005 * size)


class Unknown(LogisticRegression):  # type: ignore[misc]
    """A class that no converter knows."""


def test_what_cannot_be_converted_is_refused() -> None:
    with pytest.raises(UsageError, match="This LogisticRegression isn't fitted"):
        veilgraph.compile(LogisticRegression(), shapes={"X": (1, 4)})
    with pytest.raises(UsageError, match="Its converter refuses this Unknown: Unable to find"):
        veilgraph.compile(Unknown().fit(*table(load_iris)), shapes={"X": (1, 4)})


def test_a_converter_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skl2onnx", None)
    model = LinearRegression().fit(*table(load_diabetes))
    with pytest.raises(UsageError, match="needs the package skl2onnx") as caught:
        veilgraph.compile(model, shapes={"X": (1, 10)})
    assert 'pip install "veilgraph[tables]"' in caught.value.hint


class CatBoostRegressor(DecisionTreeRegressor):  # type: ignore[misc]
    """Stands in for CatBoost's, whose package takes 270 MB: one tree, and what is made of its sum.

    Attributes:
        makes: that of the loss, which CatBoost's files leave out.
    """

    __module__ = "catboost.core"
    makes: Any = staticmethod(np.asarray)

    def predict(self, rows: Any) -> Any:
        return self.makes(super().predict(rows))

    def get_all_params(self) -> dict[str, str]:
        return {"loss_function": "RMSE" if self.makes is np.asarray else "Poisson"}


def catboost_file(model: Any) -> Any:
    """As `catboost.utils.convert_to_onnx_object` writes it: the sums of leaves, of `features`."""
    tree = DecisionTreeRegressor()
    tree.__dict__ |= model.__dict__
    proto = skl2onnx.to_onnx(tree, np.zeros((1, model.n_features_in_), np.float32))
    proto.graph.input[0].name = proto.graph.node[0].input[0] = "features"
    return proto


@pytest.fixture
def catboost(monkeypatch: pytest.MonkeyPatch) -> None:
    utils = SimpleNamespace(convert_to_onnx_object=catboost_file)
    monkeypatch.setitem(sys.modules, "catboost", SimpleNamespace(utils=utils))
    monkeypatch.setitem(sys.modules, "catboost.utils", utils)


@pytest.mark.usefixtures("catboost")
def test_a_model_of_catboost() -> None:
    model = CatBoostRegressor(max_depth=3, random_state=0)
    found, rows = answers(model, load_diabetes)
    (values,) = found.values()
    np.testing.assert_allclose(np.ravel(values), model.predict(rows), rtol=2e-3)


@pytest.mark.usefixtures("catboost")
def test_a_file_of_catboost_that_leaves_something_out() -> None:
    columns, targets = table(load_diabetes)
    model = CatBoostRegressor(max_depth=3, random_state=0).fit(columns, targets / targets.max())
    model.makes = np.exp
    with pytest.raises(UsageError, match="leaves out what its loss Poisson makes of the sums"):
        veilgraph.compile(model, shapes={"X": (4, columns.shape[1])})


def test_numbers_beside_a_threshold_as_near_as_float32_has_them() -> None:
    """A threshold, and the next number: 2^-28 apart."""
    rows = np.float32([[1 / 32], [1 / 16]] * 16)
    model = DecisionTreeClassifier().fit(rows, np.arange(32) % 2)
    limit = np.float32(model.tree_.threshold[0])
    rows = np.float32([[limit], [np.nextafter(limit, np.float32(1))]] * 16)
    assert model.predict(rows).tolist() == [0, 1] * 16
    plan, weights = veilgraph.compile(model, shapes={"X": rows.shape}, calibrate={"X": rows[None]})
    label, _ = veilgraph.simulate(plan, weights, {"X": rows}).outputs.values()
    assert label.tolist() == [0, 1] * 16
