"""Every estimator that skl2onnx's own tests build, against ONNX Runtime, by name."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
from data import DATA
from estimators import BY_NAME, Case
from models import run_onnx
from numpy.typing import NDArray
from onnx import ModelProto
from refused import NOT_COMPUTED
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType
from sklearn.svm import SVC, NuSVC

import veilgraph
from veilgraph.frontend.onnx.classical.fitted import converted as converted_by_us
from veilgraph.frontend.onnx.importer import import_model
from veilgraph.ir.graph.table_options import TableOptions
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.plan.given import PLAIN

Array = NDArray[Any]
ROWS = 100
TYPES = {"f": FloatTensorType, "i": Int64TensorType, "O": StringTensorType}
COMPUTED = [name for name in BY_NAME if name not in NOT_COMPUTED]
SLOW_TO_FIT = ("IsolationForest-classes", "LogisticRegressionCV-classes", "RFECV-classes")
LEAST_ROWS, MOST_ERROR = 0.995, 0.005
TIGHTER = {"NuSVC-classes": 3e-4}  # its rounding is uneven: at 0.001 one row in 100 may be off
LEAST_APART = 0.005  # of a distance
PROMISED = 1e-3  # in the mean, so that no number is off by more than MOST_ERROR


def expected_of(proto: ModelProto, rows: Array) -> dict[str, Array]:
    """By ONNX Runtime; a sequence is what it was made of."""
    parts = {n.output[0]: n.input for n in proto.graph.node if n.op_type == "SequenceConstruct"}
    found = dict[str, Array]()
    for name, given in run_onnx(proto, {"X": rows}).items():
        found |= dict(zip(parts[name], given, strict=True)) if name in parts else {name: given}
    return found


@cache
def converted(name: str) -> tuple[ModelProto, Array]:
    """A fitted estimator as ONNX, and rows for it that are no ties."""
    case, data = BY_NAME[name], DATA[BY_NAME[name].data]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # estimators that are stopped early say so
        told = [data.rows] if data.targets is None else [data.rows, data.targets]
        fitted = case.estimator.fit(*told)
        proto = _converted(case, fitted, data.rows)
    rows = (data.rows if data.asked is None else data.asked)[:ROWS]
    return proto, rows[_apart(fitted, rows)]


def _apart(fitted: Any, rows: Array) -> Array:
    """Rows whose answer is no matter of rounding.

    No two neighbours that count are as far, and no vote of a support vector machine is near 0.
    """
    if isinstance(fitted, SVC | NuSVC):
        fitted.decision_function_shape = "ovo"
        votes = fitted.decision_function(rows).reshape(len(rows), -1)
        size = max(1.0, float(np.abs(votes).max()))
        return np.asarray((np.abs(votes) > MOST_ERROR * size).all(axis=1))
    if not hasattr(fitted, "kneighbors"):
        return np.ones(len(rows), bool)
    count = fitted.n_neighbors
    distances, _ = fitted.kneighbors(rows, count + 1)
    ordered = 0 if not hasattr(fitted, "predict") else count - 1
    apart: Array = (np.diff(distances)[:, ordered:] > LEAST_APART * distances[:, 1:2]).all(axis=1)
    return apart


def _converted(case: Case, fitted: Any, rows: Array) -> ModelProto:
    if case.ours:
        return converted_by_us(fitted)
    types = [("X", TYPES[rows.dtype.kind]([None, *rows.shape[1:]]))]
    for options in ({**case.options, "zipmap": False}, case.options):
        try:
            return to_onnx(
                fitted,
                initial_types=types,
                options={id(fitted): options} if options else None,
                target_opset={"": 21, "ai.onnx.ml": 3},
            )
        except NameError as error:  # no classifier: it has no such option
            if "zipmap" not in str(error):
                raise
    raise AssertionError("an option of the case that its converter lacks")


def check_equal(proto: ModelProto, found: dict[str, Array], rows: Array) -> None:
    """Classes of all but one row in 200 are equal, and numbers within half a percent.

    A row whose two best scores differ by less than that may go to either class, and so may one
    whose only score is nearer to zero.
    """
    expected = expected_of(proto, rows)
    assert set(found) == set(expected)
    scores = [x for x in expected.values() if x.dtype.kind == "f" and x.ndim == 2]
    for name, right in expected.items():
        given = np.asarray(found[name]).reshape(right.shape)
        if right.dtype.kind == "f":
            size = max(1.0, float(np.abs(right).max(initial=0)))
            np.testing.assert_allclose(given / size, right / size, atol=MOST_ERROR, rtol=0)
            continue
        equal = (given == right).reshape(len(right), -1).all(axis=1)
        tied = np.zeros(len(right), bool)
        for score in scores if given.size == len(right) else ():
            best = np.sort(score, axis=1)[:, -2:]
            lead = best[:, -1] - best[:, 0] if score.shape[1] > 1 else np.abs(score[:, 0])
            tied |= lead < MOST_ERROR
        assert (equal | tied).mean() >= LEAST_ROWS


def fast(names: list[str]) -> list[str]:
    """A third of them, for every day; `-m slow` has them all, and by all parties."""
    return [name for name in names if name not in SLOW_TO_FIT][::3]


@pytest.mark.parametrize("name", fast(COMPUTED))
def test_programs_compute_what_estimators_do(name: str) -> None:
    proto, rows = converted(name)
    graph = import_model(proto, {"X": rows.shape}, tables=TableOptions(lacks=True))
    numbers = graph.given.get("X", PLAIN).numbers(rows, "rows")
    check_equal(proto, evaluate(graph, {"X": numbers.astype(np.float32)}), rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPUTED)
def test_parties_compute_what_estimators_do(name: str) -> None:
    proto, rows = converted(name)
    plan, weights = veilgraph.compile(
        proto,
        shapes={"X": rows.shape},
        calibrate={"X": rows[np.newaxis]},
        max_error=PROMISED,
    )
    answer = veilgraph.simulate(plan, weights, {"X": rows})
    check_equal(proto, answer.outputs, rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", NOT_COMPUTED)
def test_the_others_stop(name: str) -> None:
    with pytest.raises(Exception, match=NOT_COMPUTED[name]):
        run_onnx(*_with_feeds(name))


def _with_feeds(name: str) -> tuple[ModelProto, dict[str, Array]]:
    proto, rows = converted(name)
    return proto, {"X": rows}


def test_the_list_names_cases() -> None:
    assert set(NOT_COMPUTED) <= set(BY_NAME)
