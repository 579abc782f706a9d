"""Linear models: scores = X C^T + intercepts."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, TensorProto

from veilgraph.frontend.lowering.operands import Unsupported
from veilgraph.frontend.onnx.classical.forest import numbers
from veilgraph.frontend.onnx.classical.scores import OneScore, classified, transformed
from veilgraph.frontend.onnx.nodes import Steps


def classifier(s: Steps) -> list[NodeProto]:
    """LinearClassifier: labels, and scores by class."""
    classes = s.attribute("classlabels_ints", []) or s.attribute("classlabels_strings", [])
    count = max(1, len(numbers(s, "intercepts")) or len(classes))
    one = OneScore(0.0, shares=True) if count == 1 and len(classes) == 2 else None
    if one and s.attribute("post_transform", "NONE") == "SOFTMAX":
        raise Unsupported("Its softmax is of one score.", "Convert it with LOGISTIC.")
    return classified(s, _scores(s, count), one)


def regressor(s: Steps) -> list[NodeProto]:
    """LinearRegressor: a column a target."""
    scores = _scores(s, s.attribute("targets", 1))
    return s.finish(transformed(s, scores, s.attribute("post_transform", "NONE")))


def _scores(s: Steps, targets: int) -> str:
    coefficients = numbers(s, "coefficients").reshape(targets, -1)
    x = s("Cast", s.operand(0), to=TensorProto.FLOAT)
    scores = s("MatMul", x, s.weight(coefficients.T, "coefficients"))
    intercepts = numbers(s, "intercepts")
    if not intercepts.any():
        return scores
    return s("Add", scores, s.weight(intercepts[np.newaxis], "intercepts"))
