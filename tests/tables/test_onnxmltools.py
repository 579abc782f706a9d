"""What onnxmltools makes of XGBoost and LightGBM, by objective, against ONNX Runtime."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from lightgbm import LGBMClassifier, LGBMRegressor
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper
from sklearn.datasets import load_diabetes, load_iris
from test_estimators import check_equal
from xgboost import XGBClassifier, XGBRegressor

from veilgraph.frontend.onnx.classical.fitted import converted
from veilgraph.frontend.onnx.importer import import_model
from veilgraph.ir.errors import UsageError
from veilgraph.ir.meaning.graph import evaluate

Array = NDArray[Any]
TREES = {"n_estimators": 4, "max_depth": 3}
QUIET = {**TREES, "verbose": -1}
CLASSIFIERS = {
    "xgboost binary:logistic, 2": XGBClassifier(objective="binary:logistic", **TREES),
    "xgboost binary:logitraw, 2": XGBClassifier(objective="binary:logitraw", **TREES),
    "xgboost binary:hinge, 2": XGBClassifier(objective="binary:hinge", **TREES),
    "xgboost multi:softprob, 3": XGBClassifier(objective="multi:softprob", **TREES),
    "xgboost multi:softmax, 3": XGBClassifier(objective="multi:softmax", **TREES),
    "lightgbm binary, 2": LGBMClassifier(objective="binary", **QUIET),
    "lightgbm multiclass, 3": LGBMClassifier(objective="multiclass", **QUIET),
    "lightgbm multiclassova, 3": LGBMClassifier(objective="multiclassova", **QUIET),
}
REGRESSORS = {
    **{
        f"xgboost {name}": XGBRegressor(objective=name, **TREES)
        for name in (
            "reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror", "reg:logistic",
            "count:poisson", "reg:gamma", "reg:tweedie", "reg:squaredlogerror",
        )
    },
    **{
        f"lightgbm {name}": LGBMRegressor(objective=name, **QUIET)
        for name in (
            "regression", "regression_l1", "huber", "fair", "quantile", "mape", "poisson",
            "gamma", "tweedie",
        )
    },
}  # fmt: skip
MODELS = CLASSIFIERS | REGRESSORS
NOT_CONVERTED = ("xgboost binary:logitraw, 2", "lightgbm fair", "lightgbm mape")


@cache
def fitted(name: str) -> tuple[Any, Array]:
    """A fitted model, and rows to ask about."""
    if name in CLASSIFIERS:
        rows, targets = load_iris(return_X_y=True)
        kept = targets < int(name[-1])
        rows, targets = rows[kept], targets[kept]
    else:
        rows, targets = load_diabetes(return_X_y=True)
        targets = targets / (400 if "logistic" in name else 50)
    rows = rows.astype(np.float32)
    return MODELS[name].fit(rows, targets), rows[::3][:40]


def without_maps(proto: ModelProto) -> ModelProto:
    """Probabilities as a table, in place of a list of maps."""
    for node in proto.graph.node:
        if node.op_type == "ZipMap":
            node.op_type, node.domain = "Identity", ""
            del node.attribute[:]
    for info in proto.graph.output:
        if info.type.WhichOneof("value") != "tensor_type":
            info.type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    return proto


@pytest.mark.parametrize("name", NOT_CONVERTED)
def test_what_stops_before_us(name: str) -> None:
    with pytest.raises(UsageError, match="Its converter refuses this"):
        converted(fitted(name)[0])


@pytest.mark.parametrize("name", [name for name in MODELS if name not in NOT_CONVERTED])
def test_objectives(name: str) -> None:
    model, rows = fitted(name)
    proto = without_maps(converted(model))
    graph = import_model(proto, {"X": rows.shape})
    check_equal(proto, evaluate(graph, {"X": rows}), rows)
