"""Models that scikit-learn, XGBoost, LightGBM or CatBoost fitted, through their own converters.

The input is called X, [rows, columns]. Where a pipeline encodes columns of text, each column is an
input of its own, [rows, 1], by its name, or X0, X1, ... A classifier has its labels and its
probabilities as outputs, the latter as a table with a column a class.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from veilgraph.frontend.onnx.classical.converters import converters
from veilgraph.frontend.onnx.classical.text_columns import text_columns
from veilgraph.frontend.onnx.nodes import attributes_of
from veilgraph.ir.errors import UsageError

INPUT = "X"
MAKERS = ("sklearn", "xgboost", "lightgbm", "catboost")
ERRORS_ALONE = 4  # of what ONNX Runtime prints
CHECKED_ROWS = 32  # on which a file is held against the model that it was made of
NEWEST = 3  # version of ai.onnx.ml that converters and ONNX Runtime share


def maker(model: object) -> str:
    """The package that the model's class is of, or extends; "" where it is none of these."""
    packages = [base.__module__.partition(".")[0] for base in type(model).__mro__]
    named = [name for name in MAKERS if name in packages]
    return next((name for name in packages if name in named), "")


def columns_of(model: object) -> dict[str, tuple[str, ...]]:
    """The names that a fitted model's columns had, by input; none where they had none."""
    if maker(model) == "sklearn" and text_columns(model):
        return {}  # each is an input
    names = getattr(model, "feature_names_in_", None) if maker(model) else None
    return {} if names is None else {INPUT: tuple(map(str, names))}


def converted(model: Any) -> ModelProto:
    """The fitted model as ONNX.

    Raises:
        UsageError: it isn't fitted, its converter isn't installed, or refuses it.
    """
    kind = type(model).__name__
    columns = _columns(model)
    if columns is None:
        raise UsageError(f"This {kind} isn't fitted.", "Call its fit, and compile it then.")
    try:
        return _CONVERTERS[maker(model)](model, columns)
    except ImportError as error:
        raise UsageError(
            f"Converting a {kind} to ONNX needs the package {error.name}.",
            'Install it: pip install "veilgraph[tables]".',
        ) from error
    except Exception as error:  # converters raise what comes
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise UsageError(
            f"Its converter refuses this {kind}: {reason}.",
            "Convert it to ONNX in another way, and compile the file.",
        ) from error


def _columns(model: Any) -> int | None:
    """How many columns a fitted model reads; None where it doesn't say."""
    for name in ("n_features_in_", "num_features", "num_feature"):
        try:
            found = getattr(model, name)
            return int(found() if callable(found) else found)
        except Exception:  # of models that aren't fitted, properties raise
            continue
    return None


def _of_sklearn(model: Any, columns: int) -> ModelProto:
    skl2onnx = importlib.import_module("skl2onnx")
    types = importlib.import_module("skl2onnx.common.data_types")
    options = {"zipmap": False} if hasattr(model, "predict_proba") else None
    inputs = [(INPUT, types.FloatTensorType([None, columns]))]
    texts = text_columns(model)
    if texts:
        of = (types.FloatTensorType, types.StringTensorType)
        names = getattr(model, "feature_names_in_", [f"{INPUT}{i}" for i in range(columns)])
        inputs = [(str(name), of[i in texts]([None, 1])) for i, name in enumerate(names)]
    proto: ModelProto = skl2onnx.convert_sklearn(
        model,
        name=type(model).__name__,
        initial_types=inputs,
        options=options,
        target_opset={"": 21, "ai.onnx.ml": NEWEST},
        custom_conversion_functions=converters(),
    )
    return proto


def _of_onnxmltools(converter: str) -> Callable[[Any, int], ModelProto]:
    def convert(model: Any, columns: int) -> ModelProto:
        tools = importlib.import_module("onnxmltools")
        types = importlib.import_module("onnxmltools.convert.common.data_types")
        initial = [(INPUT, types.FloatTensorType([None, columns]))]
        proto: ModelProto = getattr(tools, converter)(model, initial_types=initial)
        return proto

    return convert


def _of_catboost(model: Any, columns: int) -> ModelProto:
    """By CatBoost itself, which names the input "features"."""
    utils = importlib.import_module("catboost.utils")
    proto: ModelProto = utils.convert_to_onnx_object(model)
    old = proto.graph.input[0].name
    proto.graph.input[0].name = INPUT
    for node in proto.graph.node:
        node.input[:] = [INPUT if name == old else name for name in node.input]
    _require_whole(model, proto, columns)
    return proto


def _require_whole(model: Any, proto: ModelProto, columns: int) -> None:
    """ValueError unless a file of CatBoost's says what the model does.

    Of some losses, such as Poisson, the file has the sums of leaves alone.
    """
    runtime = importlib.import_module("onnxruntime")
    quiet = runtime.SessionOptions()
    quiet.log_severity_level = ERRORS_ALONE
    session = runtime.InferenceSession(proto.SerializeToString(), quiet)
    rows = _around_thresholds(proto, columns)
    *_, found = session.run(None, {INPUT: rows})
    if isinstance(found, list):  # of a ZipMap
        found = [list(row.values()) for row in found]
    predict = getattr(model, "predict_proba", model.predict)
    expected = np.asarray(predict(rows), np.float64).reshape(len(rows), -1)
    told = np.asarray(found, np.float64).reshape(len(rows), -1)
    if told.shape != expected.shape or not np.allclose(told, expected, rtol=1e-3, atol=1e-4):
        loss = model.get_all_params().get("loss_function")
        raise ValueError(f"the file leaves out what its loss {loss} makes of the sums of leaves")


def _around_thresholds(proto: ModelProto, columns: int) -> NDArray[np.float32]:
    """Rows of numbers next to the thresholds of each column's nodes, on both sides."""
    known: list[set[float]] = [{0.0} for _ in range(columns)]
    for node in proto.graph.node:
        given = attributes_of(node)
        asked = zip(given.get("nodes_featureids", ()), given.get("nodes_values", ()), strict=True)
        for column, number in asked:
            known[column].add(number)
    rows = np.zeros((CHECKED_ROWS, columns), np.float32)
    for column, numbers in enumerate(known):
        thresholds = np.array(sorted(numbers), np.float32)
        places = (np.arange(CHECKED_ROWS) * (2 * column + 1)) % len(thresholds)
        side = np.where(np.arange(CHECKED_ROWS) % 2, np.inf, -np.inf).astype(np.float32)
        rows[:, column] = np.nextafter(thresholds[places], side)
    return rows


_CONVERTERS: Mapping[str, Callable[[Any, int], ModelProto]] = {
    "sklearn": _of_sklearn,
    "xgboost": _of_onnxmltools("convert_xgboost"),
    "lightgbm": _of_onnxmltools("convert_lightgbm"),
    "catboost": _of_catboost,
}
