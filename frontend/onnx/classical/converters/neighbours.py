"""Nearest neighbours of scikit-learn.

skl2onnx writes negative distances where nearer neighbours are to count more, and then weighs all
alike. Of two questions it writes a division by what is known. Here, with q the squares of the
distances of the k nearest, the first of them the nearest,

    r_i   = sqrt((q_1 + e^2) / (q_i + e^2))        in (0, 1]; left out where all count alike
    share = sum of r_i that vote so / sum of r_i

which is what 1 / distance gives, but for e, which a distance of zero needs. It is 1/256 of the
mean distance of fitted rows from their k-th neighbours: with less, no ring has room for a distance
of zero. So shares are off by the sum of e / d_i at most, where the nearest is the row itself, and
by squares of that where it is no nearer than e. Distances that are no roots get
(d_1 + e) / (d_i + e) in their place.

Where all neighbours within a radius vote, skl2onnx picks rows by -1 where there are none. Here a
product of who is near and what they vote for counts them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilgraph.frontend.onnx.classical.converters.nodes import Nodes

ROOTS = {("euclidean", 2), ("minkowski", 2), ("l2", 2)}  # metric and p
SIZES = {("cityblock", 2), ("manhattan", 2), ("l1", 2), ("minkowski", 1)}
NEAR = 1 / 256  # of the mean distance of a fitted row's k-th neighbour


def neighbours_classifier(scope: Any, operator: Any, container: Any) -> None:
    """KNeighborsClassifier: labels, [rows] or [rows, questions], and shares by class.

    Of several questions shares are [questions, rows, classes].
    """
    s, model = Nodes(scope, operator, container), operator.raw_operator
    into_labels, into_shares = (output.full_name for output in operator.outputs)
    several = isinstance(model.classes_, list)
    classes = model.classes_ if several else [model.classes_]
    if len({len(own) for own in classes}) > 1:
        raise NotImplementedError("its questions have unlike numbers of classes")
    nearest, weights = _nearest(s, model)
    labels, shares = [], []
    for column, own in zip(_targets(model, np.int64), classes, strict=True):
        table = _votes(s, _of_nearest(s, nearest, column, model), weights, len(own))
        labels.append(s.best(table, own))
        shares.append(_shared(s, table, weights, model))
    if several:
        s("Concat", *labels, into=into_labels, axis=1)
        tables = [s("Unsqueeze", share, s.integers(0)) for share in shares]
        s("Concat", *tables, into=into_shares, axis=0)
    else:
        s("Reshape", labels[0], s.integers(-1), into=into_labels)
        s("Identity", shares[0], into=into_shares)


def neighbours_regressor(scope: Any, operator: Any, container: Any) -> None:
    """KNeighborsRegressor: means of the neighbours' numbers, [rows, targets]."""
    s, model = Nodes(scope, operator, container), operator.raw_operator
    nearest, weights = _nearest(s, model)
    means = []
    for column in _targets(model, np.float32):
        numbers = _of_nearest(s, nearest, column, model)
        total = s.summed(s("Mul", numbers, weights) if weights else numbers)
        means.append(_shared(s, total, weights, model))
    s("Concat", *means, into=operator.outputs[0].full_name, axis=1)


def radius_classifier(scope: Any, operator: Any, container: Any) -> None:
    """RadiusNeighborsClassifier: labels, [rows], and shares by class; a label for outliers."""
    s, model = Nodes(scope, operator, container), operator.raw_operator
    if isinstance(model.classes_, list) or model.weights != "uniform":
        raise NotImplementedError("it has several questions, or its neighbours have weights")
    if model.outlier_label_ is None:
        raise NotImplementedError(
            "it has no outlier_label, so a row without a neighbour has no answer"
        )
    classes, outlier = np.asarray(model.classes_), model.outlier_label_[0]
    near = s.truth("LessOrEqual", _distances(s, model), s.constant(_radius(model)))
    voted = np.equal.outer(_targets(model, np.int64)[0], np.arange(len(classes)))
    votes = s("MatMul", near, s.constant(voted.astype(np.float32)))
    nobody = s("Relu", s("Sub", s.constant(1.0), s.summed(votes)))
    if outlier in classes:
        wanted = (classes == outlier).astype(np.float32)[np.newaxis]
        votes = s("Add", votes, s("Mul", nobody, s.constant(wanted)))
        label = s.best(votes, classes)
    else:
        label = s.best(s("Concat", votes, nobody, axis=1), np.append(classes, outlier))
    into_label, into_shares = (output.full_name for output in operator.outputs)
    s("Reshape", label, s.integers(-1), into=into_label)
    total = s("Max", s.summed(votes), s.constant(1.0))
    s("Div", votes, total, into=into_shares)


def radius_regressor(scope: Any, operator: Any, container: Any) -> None:
    """Raises NotImplementedError: no number says that a row has no neighbour."""
    raise NotImplementedError(
        "of a row without a neighbour within the radius it makes NaN, which no share of a number is"
    )


def _targets(model: Any, dtype: Any) -> NDArray[Any]:
    """What the fitted rows were fitted to, [targets, rows]."""
    return np.asarray(model._y, dtype).reshape(len(model._fit_X), -1).T


def _nearest(s: Nodes, model: Any) -> tuple[str, str]:
    """Places of the nearest fitted rows, [rows, k], and their weights; "" where all are alike."""
    weights, apart = model.weights, _distances(s, model)
    if weights not in ("uniform", "distance", None):
        raise NotImplementedError("its weights are a function")
    values, places = s.new("nearest"), s.new("places")
    into = [values, places]
    s("TopK", apart, s.integers(model.n_neighbors), into=into, axis=1, largest=0, sorted=1)
    if weights != "distance":
        return places, ""
    distances, _ = model.kneighbors()
    near = max(float(distances[:, -1].mean()) * NEAR, float(np.finfo(np.float32).tiny))
    if not _of_roots(model):
        raised = s("Add", values, s.constant(near))
        return places, s("Mul", s("Reciprocal", raised), s.sliced(raised, 0, 1))
    raised = s("Add", values, s.constant(near**2))
    over = s("Reciprocal", s("Sqrt", raised))
    first = s("Mul", s.sliced(raised, 0, 1), s.sliced(over, 0, 1))
    return places, s("Mul", over, first)


def _distances(s: Nodes, model: Any) -> str:
    """From the fitted rows, [rows, fitted rows]: squares where distances are roots of these."""
    rows = np.asarray(model._fit_X, np.float32)
    if _of_roots(model):
        return s("CDist", s.x, s.constant(rows), metric="sqeuclidean")
    wide = s("Unsqueeze", s.x, s.integers(1))
    sizes = s("Abs", s("Sub", wide, s.constant(rows[np.newaxis])))
    return s("ReduceSum", sizes, s.integers(2), keepdims=0)


def _of_roots(model: Any) -> bool:
    """Whether distances are Euclidean, or else sums of differences' sizes.

    Raises NotImplementedError: they are of another kind.
    """
    metric = (model.metric, model.p)
    if metric not in ROOTS | SIZES or model.metric_params:
        raise NotImplementedError(f"its distances are {model.metric!r}")
    return metric in ROOTS


def _radius(model: Any) -> float:
    return float(model.radius**2 if _of_roots(model) else model.radius)


def _of_nearest(s: Nodes, nearest: str, targets: NDArray[Any], model: Any) -> str:
    """What the nearest rows have of a target, [rows, k]."""
    flat = s("Flatten", nearest)
    picked = s("ArrayFeatureExtractor", s.constant(targets), flat)
    return s("Reshape", picked, s.integers(-1, model.n_neighbors))


def _votes(s: Nodes, own: str, weights: str, classes: int) -> str:
    """Sums of weights by class, [rows, classes]."""
    votes = []
    for number in range(classes):
        equal = s.truth("Equal", own, s.integers(number))
        votes.append(s.summed(s("Mul", equal, weights) if weights else equal))
    return s("Concat", *votes, axis=1)


def _shared(s: Nodes, table: str, weights: str, model: Any) -> str:
    """Sums over what all neighbours weigh together."""
    if weights:
        return s("Div", table, s.summed(weights))
    return s("Mul", table, s.constant(1 / model.n_neighbors))
