"""Power transforms as skl2onnx writes them: what is read, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from models import run_onnx
from numpy.typing import NDArray
from onnx import ModelProto
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PowerTransformer

from veilgraph.frontend.onnx.classical.fitted import converted
from veilgraph.frontend.onnx.importer import import_model
from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph.program import kind_of
from veilgraph.ir.meaning.graph import evaluate

Array = NDArray[Any]
SKEWED = np.random.default_rng(0).gamma(2.0, size=(60, 4)).astype(np.float32)
SIGNED = (SKEWED - SKEWED.mean(axis=0)).astype(np.float32)
SIGNED[0] = 0  # what is written divides it by itself


def same(proto: ModelProto, rows: Array) -> list[str]:
    """The program's kinds of operations, if it computes what ONNX Runtime does."""
    graph = import_model(proto, {"X": rows.shape})
    found = evaluate(graph, {"X": rows})
    for name, expected in run_onnx(proto, {"X": rows}).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-4)
    return [kind_of(op) for op in graph.operations]


@pytest.mark.parametrize("standardize", [True, False])
def test_yeo_johnson(standardize: bool) -> None:
    model = PowerTransformer(standardize=standardize).fit(SIGNED)
    kinds = same(converted(model), SIGNED)
    assert (kinds.count("exp"), kinds.count("log")) == (1, 1)


def test_box_cox() -> None:
    kinds = same(converted(PowerTransformer(method="box-cox").fit(SKEWED)), SKEWED)
    assert (kinds.count("exp"), kinds.count("log")) == (1, 1)


def test_a_transform_before_a_model() -> None:
    targets = (SIGNED.sum(axis=1) > 0).astype(int)
    model = make_pipeline(PowerTransformer(), LogisticRegression()).fit(SIGNED, targets)
    same(converted(model), SIGNED)


def test_an_exponent_of_zero_is_refused() -> None:
    """There what is written divides by zero, and makes zeros of a column."""
    model = PowerTransformer().fit(SIGNED)
    model.lambdas_[1] = 0.0
    with pytest.raises(UsageError, match="holds inf, and is no mask"):
        import_model(converted(model), {"X": SIGNED.shape})
