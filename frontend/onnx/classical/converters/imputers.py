"""KNNImputer: in place of a missing number, the mean of the nearest fitted rows that have it.

skl2onnx picks the rows that lack something by their places, so shapes depend on data. Here all rows
and columns are imputed, and what is missing takes the result. With f and g for what a row and a
fitted row y have, as 1 and 0, and zeros in place of what they lack,

    d^2 = (x^2 g' - 2 x y' + f (y^2)') columns / (f g')      by columns that both have
    d^2 + far (1 - g)                                         of each column, so that who lacks it
                                                              comes last
    imputed = mean of y over the k nearest

A fitted row that shares no column with the row is far too, and does not count; where none of the k
does, the column's mean is taken. `far` is 64 times the largest d^2 among fitted rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilgraph.frontend.onnx.classical.converters.nodes import Nodes

FAR = 64.0  # times the largest square of a distance among fitted rows


def nearest_imputer(scope: Any, operator: Any, container: Any) -> None:
    """KNNImputer: [rows, columns] without gaps."""
    model = operator.raw_operator
    rows = np.asarray(model._fit_X, np.float32)
    has = ~np.isnan(rows)
    _require(model, has)
    rows = np.where(has, rows, 0).astype(np.float32)
    s, kept = Nodes(scope, operator, container), has.astype(np.float32)
    lacks = s.truth("IsNaN", s.x)
    x = s("Imputer", s.x, imputed_value_floats=[0.0], replaced_value_float=float("nan"))
    apart, shared = _apart(s, x, lacks, rows, kept)
    far = _far(rows, kept)
    if not kept.all():
        alone = s("Sub", s.constant(1.0), shared)
        apart = s("Add", apart, s("Mul", alone, s.constant(far)))
    columns = []
    for column in range(rows.shape[1]):
        last = s.constant((far * (1 - kept[:, column]))[np.newaxis])
        places, own = _nearest(s, s("Add", apart, last), rows[:, column], model.n_neighbors)
        if kept.all():
            counted = s("Mul", shared, s.constant(np.ones((1, model.n_neighbors))))
        else:
            counted = s("GatherElements", shared, places, axis=1)
        mean = s.constant(float(rows[has[:, column], column].mean()))
        columns.append(_mean(s, own, counted, mean))
    found = s("Concat", *columns, axis=1)
    s("Add", x, s("Mul", lacks, found), into=operator.outputs[0].full_name)


def _require(model: Any, has: NDArray[np.bool_]) -> None:
    """Raises NotImplementedError: an imputer of another kind."""
    if not np.isnan(model.missing_values) or model.metric != "nan_euclidean":
        raise NotImplementedError("it asks for another number than NaN, or has another metric")
    if model.weights != "uniform" or model.add_indicator:
        raise NotImplementedError("its neighbours have weights, or it adds columns")
    if (has.sum(axis=0) < model.n_neighbors).any():
        raise NotImplementedError("some column has fewer numbers than it has neighbours")


def _apart(
    s: Nodes, x: str, lacks: str, rows: NDArray[np.float32], kept: NDArray[np.float32]
) -> tuple[str, str]:
    """Squares of distances, [rows, fitted rows]; and 1 where two share a column.

    Where the fitted rows lack nothing, all of them share the same columns with a row: then squares
    aren't divided, for their order counts, and the latter is [rows, 1].
    """
    has = s("Sub", s.constant(1.0), lacks)
    given = s("Concat", s("Mul", x, x), x, has, axis=1)
    parts = np.concatenate([kept.T, -2 * rows.T, (rows**2).T])
    squares = s("Relu", s("MatMul", given, s.constant(parts)))
    if kept.all():
        return squares, s.truth("Greater", s.summed(has), s.constant(0.5))
    count = s("MatMul", has, s.constant(kept.T))
    over = s("Reciprocal", s("Max", count, s.constant(1.0)))
    scaled = s("Mul", s("Mul", squares, over), s.constant(float(rows.shape[1])))
    return scaled, s.truth("Greater", count, s.constant(0.5))


def _far(rows: NDArray[np.float32], kept: NDArray[np.float32]) -> float:
    counts = np.maximum(kept @ kept.T, 1)
    squares = (rows**2) @ kept.T + kept @ (rows**2).T - 2 * rows @ rows.T
    return float(FAR * rows.shape[1] * (squares / counts).max())


def _nearest(s: Nodes, apart: str, targets: NDArray[np.float32], count: int) -> tuple[str, str]:
    """Places of the nearest fitted rows, and what these have of a column: both [rows, k]."""
    values, places = s.new("nearest"), s.new("places")
    s("TopK", apart, s.integers(count), into=[values, places], axis=1, largest=0, sorted=1)
    own = s("ArrayFeatureExtractor", s.constant(targets[np.newaxis]), s("Flatten", places))
    return places, s("Reshape", own, s.integers(-1, count))


def _mean(s: Nodes, own: str, counted: str, otherwise: str) -> str:
    """The mean of the numbers that count, [rows, 1], or another number where none does."""
    apart = s.summed(s("Mul", s("Sub", own, otherwise), counted))
    count = s("Max", s.summed(counted), s.constant(1.0))
    return s("Add", otherwise, s("Mul", apart, s("Reciprocal", count)))
