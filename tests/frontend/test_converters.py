"""Converters of our own: what ONNX Runtime makes of them, against scikit-learn itself."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from models import run_onnx
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import KNNImputer
from sklearn.neighbors import (
    KNeighborsClassifier,
    KNeighborsRegressor,
    RadiusNeighborsClassifier,
    RadiusNeighborsRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer, StandardScaler

from veilgraph.frontend.onnx.classical.fitted import converted
from veilgraph.frontend.onnx.importer import import_model
from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph.table_options import TableOptions
from veilgraph.ir.meaning.graph import evaluate

Array = NDArray[Any]
BOOSTED = {"max_iter": 4, "max_leaf_nodes": 6}


def given(load: Any, lacking: bool = False) -> tuple[Array, Array]:
    """Rows as float32, and what is to be told of them."""
    rows, targets = load(return_X_y=True)
    rows = rows.astype(np.float32)
    if lacking:
        rows[np.random.default_rng(0).uniform(size=rows.shape) < 0.2] = np.nan
    return rows, targets


def says(model: Any, rows: Array, most: float = 2e-4) -> tuple[Array, ...]:
    """By ONNX Runtime; and by our program, which must say the same."""
    proto = converted(model)
    expected = run_onnx(proto, {"X": rows})
    graph = import_model(proto, {"X": rows.shape}, tables=TableOptions(lacks=True))
    numbers = graph.given["X"].numbers(rows, "rows") if "X" in graph.given else rows
    found = evaluate(graph, {"X": numbers.astype(np.float32)})
    for name, right in expected.items():
        if right.dtype.kind == "f":
            np.testing.assert_allclose(found[name].reshape(right.shape), right, atol=most)
    return tuple(expected.values())


@pytest.mark.parametrize("load", [load_iris, load_breast_cancer])
@pytest.mark.parametrize("lacking", [False, True])
def test_boosted_classifiers(load: Any, lacking: bool) -> None:
    rows, targets = given(load, lacking)
    model = HistGradientBoostingClassifier(**BOOSTED).fit(rows, targets)
    labels, shares = says(model, rows)
    np.testing.assert_array_equal(labels, model.predict(rows))
    np.testing.assert_allclose(shares, model.predict_proba(rows), atol=1e-5)


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "poisson", "gamma"])
def test_boosted_regressors(loss: str) -> None:
    rows, targets = given(load_diabetes, True)
    model = HistGradientBoostingRegressor(loss=loss, **BOOSTED).fit(rows, targets / 100)
    (numbers,) = says(model, rows)
    np.testing.assert_allclose(numbers[:, 0], model.predict(rows), rtol=1e-5)


def test_boosted_trees_ask_only_whether_a_number_is_missing() -> None:
    rows, _ = given(load_iris, True)
    targets = np.isnan(rows[:, 1]).astype(int)
    model = HistGradientBoostingClassifier(max_iter=20, max_leaf_nodes=3).fit(rows, targets)
    limits = [n["num_threshold"] for tree in model._predictors for n in tree[0].nodes]
    assert np.inf in limits
    labels, shares = says(model, rows)
    np.testing.assert_array_equal(labels, targets)
    np.testing.assert_allclose(shares, model.predict_proba(rows), atol=1e-5)


def test_boosted_trees_in_a_pipeline_with_labels_of_text() -> None:
    rows, targets = given(load_iris)
    names = np.array(["one", "two", "three"])[targets]
    model = make_pipeline(StandardScaler(), HistGradientBoostingClassifier(**BOOSTED))
    _, shares = says(model.fit(rows, names), rows)
    np.testing.assert_allclose(shares, model.predict_proba(rows), atol=1e-5)


def test_a_threshold_is_rounded_down() -> None:
    """No row between a threshold and its float32 goes the other way."""
    low = np.float32(1.0)
    high = np.nextafter(low, np.float32(2.0))
    rows = np.repeat([[low], [high]], 40, axis=0)
    model = HistGradientBoostingClassifier(max_iter=1).fit(rows, (rows[:, 0] > low).astype(int))
    (threshold,) = [n["num_threshold"] for n in model._predictors[0][0].nodes if not n["is_leaf"]]
    assert low < threshold < high
    assert says(model, rows)[0].tolist() == [0] * 40 + [1] * 40


def test_boosted_trees_of_categories_are_refused() -> None:
    rows, targets = given(load_iris)
    rows = np.round(rows)
    model = HistGradientBoostingClassifier(categorical_features=[0], **BOOSTED).fit(rows, targets)
    with pytest.raises(UsageError, match="it has columns of categories, which are not read"):
        converted(model)


def test_boosted_trees_without_a_split_are_refused() -> None:
    rows, targets = given(load_breast_cancer)
    model = HistGradientBoostingClassifier(max_iter=1, min_samples_leaf=500).fit(rows, targets)
    with pytest.raises(UsageError, match="no leaf of it speaks against a row"):
        converted(model)


def scattered() -> tuple[Array, Array, Array]:
    """Fitted rows, classes of two questions, and rows to ask about."""
    rows, targets = given(load_iris)
    rows = (rows + np.random.default_rng(0).uniform(-0.1, 0.1, rows.shape)).astype(np.float32)
    both = np.stack([targets, np.digitize(rows[:, 0], [5.3, 6.2])], axis=1)
    return rows[::2], both[::2], rows[1::2]


WEIGHTS, METRICS = ("uniform", "distance"), ("minkowski", "cityblock")


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("metric", METRICS)
def test_neighbours_of_one_question(weights: Any, metric: str) -> None:
    rows, targets, asked = scattered()
    model = KNeighborsClassifier(weights=weights, metric=metric).fit(rows, targets[:, 0])
    labels, shares = says(model, asked)
    np.testing.assert_array_equal(labels, model.predict(asked))
    np.testing.assert_allclose(shares, model.predict_proba(asked), atol=2e-3)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_neighbours_of_two_questions(weights: Any) -> None:
    rows, targets, asked = scattered()
    model = KNeighborsClassifier(weights=weights).fit(rows, targets)
    labels, shares = says(model, asked)
    assert (labels == model.predict(asked)).mean() > 0.99  # votes may be even
    np.testing.assert_allclose(shares, model.predict_proba(asked), atol=2e-3)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_neighbours_with_labels_of_text(weights: Any) -> None:
    rows, targets, asked = scattered()
    names = np.array(["one", "two", "three"])[targets[:, 0]]
    model = KNeighborsClassifier(weights=weights).fit(rows, names)
    _, shares = says(model, asked)
    np.testing.assert_allclose(shares, model.predict_proba(asked), atol=2e-3)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("several", [False, True])
def test_means_of_neighbours(weights: Any, several: bool) -> None:
    rows, _, asked = scattered()
    targets = rows[:, 2:] if several else rows[:, 3]
    model = KNeighborsRegressor(weights=weights).fit(rows[:, :3], targets)
    (found,) = says(model, asked[:, :3])
    expected = model.predict(asked[:, :3])
    np.testing.assert_allclose(found.reshape(expected.shape), expected, atol=4e-3)


def test_a_neighbour_that_is_the_row_itself() -> None:
    """All that counts is the row itself, but for what 1 / distance is bounded by."""
    rows, targets, _ = scattered()
    model = KNeighborsClassifier(weights="distance").fit(rows, targets[:, 0])
    _, shares = says(model, rows, 2e-2)  # distances that cancel are rounded as float32
    np.testing.assert_allclose(shares, model.predict_proba(rows), atol=2e-2)
    assert (shares.argmax(axis=1) == targets[:, 0]).all()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"metric": "chebyshev"}, "its distances are 'chebyshev'"),
        ({"weights": np.negative}, "its weights are a function"),
    ],
)
def test_neighbours_that_are_refused(options: dict[str, Any], reason: str) -> None:
    rows, targets, _ = scattered()
    with pytest.raises(UsageError, match=reason):
        converted(KNeighborsClassifier(**options).fit(rows, targets[:, 0]))


def test_questions_with_unlike_classes_are_refused() -> None:
    rows, targets, _ = scattered()
    unlike = np.stack([targets[:, 0], targets[:, 1] > 0], axis=1)
    with pytest.raises(UsageError, match="its questions have unlike numbers of classes"):
        converted(KNeighborsClassifier().fit(rows, unlike))


@pytest.mark.parametrize("outlier", ["most_frequent", 7])
@pytest.mark.parametrize("metric", METRICS)
def test_neighbours_within_a_radius(outlier: Any, metric: str) -> None:
    """Rows far from all others among them, which have none."""
    rows, targets, asked = scattered()
    asked = np.concatenate([asked, rows[:3] + 10])
    model = RadiusNeighborsClassifier(0.6, outlier_label=outlier, metric=metric)
    labels, shares = says(model.fit(rows, targets[:, 0]), asked)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of outliers
        np.testing.assert_allclose(shares, model.predict_proba(asked), atol=1e-5)
        np.testing.assert_array_equal(labels, model.predict(asked))


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (RadiusNeighborsClassifier(), "it has no outlier_label"),
        (RadiusNeighborsClassifier(weights="distance"), "its neighbours have weights"),
        (RadiusNeighborsRegressor(), "of a row without a neighbour within the radius it makes NaN"),
    ],
)
def test_radii_that_are_refused(model: Any, reason: str) -> None:
    rows, targets, _ = scattered()
    with pytest.raises(UsageError, match=reason):
        converted(model.fit(rows, targets[:, 0]))


@pytest.mark.parametrize("lacking", [False, True])
@pytest.mark.parametrize("neighbours", [1, 3])
def test_nearest_imputers(lacking: bool, neighbours: int) -> None:
    """Fitted on rows with gaps or without; one of the rows lacks all."""
    rows, _, asked = scattered()
    holes = np.random.default_rng(1).uniform(size=(2, *rows.shape)) < 0.15
    if lacking:
        rows = np.where(holes[0], np.float32(np.nan), rows)
    asked = np.where(holes[1], np.float32(np.nan), asked)
    asked[5] = np.nan
    model = KNNImputer(n_neighbors=neighbours).fit(rows)
    (found,) = says(model, asked)
    np.testing.assert_allclose(found, model.transform(asked), atol=1e-5)


def test_nearest_imputers_of_rows_far_away() -> None:
    """Who lacks the column still comes last, at many times what fitted rows are from each other."""
    rows, _, asked = scattered()
    rows = np.where(np.random.default_rng(1).uniform(size=rows.shape) < 0.3, np.nan, rows)
    asked = asked + 9 * (np.nanmax(rows, axis=0) - np.nanmin(rows, axis=0)).astype(np.float32)
    asked[::2, 1] = np.nan
    model = KNNImputer(n_neighbors=3).fit(rows)
    (found,) = says(model, asked)
    np.testing.assert_allclose(found, model.transform(asked), atol=1e-3)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"weights": "distance"}, "its neighbours have weights"),
        ({"add_indicator": True}, "it adds columns"),
        ({"missing_values": -1}, "it asks for another number than NaN"),
        ({"n_neighbors": 60}, "some column has fewer numbers than it has neighbours"),
    ],
)
def test_nearest_imputers_that_are_refused(options: dict[str, Any], reason: str) -> None:
    rows, _, _ = scattered()
    if "missing_values" not in options:
        rows[:20, 1] = np.nan
    with pytest.raises(UsageError, match=reason):
        converted(KNNImputer(**options).fit(rows))


def test_quantiles() -> None:
    """Of columns with many equal numbers, at these numbers, between and beyond them."""
    rows, _ = given(load_iris)
    model = QuantileTransformer(n_quantiles=20).fit(rows)
    beyond = np.concatenate([rows[:50], rows[:50] + 0.013, rows[:9] - 9, rows[:9] + 9])
    asked = beyond.astype(np.float32)
    (found,) = says(model, asked)
    np.testing.assert_allclose(found, model.transform(asked), atol=1e-4)


def test_quantiles_of_a_constant_column() -> None:
    rows = np.ones((30, 2), np.float32)
    rows[:, 1] = np.arange(30)
    model = QuantileTransformer(n_quantiles=10).fit(rows)
    (found,) = says(model, rows)
    np.testing.assert_allclose(found, model.transform(rows), atol=1e-4)


def test_quantiles_of_another_distribution_are_refused() -> None:
    rows, _ = given(load_iris)
    model = QuantileTransformer(n_quantiles=20, output_distribution="normal").fit(rows)
    with pytest.raises(UsageError, match="distribution is 'normal', and not uniform"):
        converted(model)
