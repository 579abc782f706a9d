"""HistGradientBoosting models of scikit-learn as tree ensembles of ai.onnx.ml.

skl2onnx's own converter stops at flags that protobuf takes for no integers. It also leaves out the
exponential of Poisson and gamma losses, and reads categories as numbers. Here

    raw        = baseline + sum of leaves
    prediction = raw, exp(raw), logistic(raw) or softmax(raw), as the loss's link says

A node asks x <= t in float64. The numbers of a row are float32 here, so t is rounded down to
float32: that changes no answer. A threshold of infinity asks only whether a number is missing. It
becomes a question of 0 times the column, which is missing where the column is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilgraph.frontend.onnx.classical.converters.nodes import TEXT, Nodes

TRANSFORMS = {"HalfBinomialLoss": "LOGISTIC", "HalfMultinomialLoss": "SOFTMAX"}
OPERATORS = {"IdentityLink": "Identity", "LogLink": "Exp"}  # what undoes a link


@dataclass
class _Nodes:
    """Nodes of all trees.

    Attributes:
        fields: what the operators have of nodes, by its name there.
        leaves: tree, node, target and number of each leaf.
        width: how many columns there are.
        only_missing: columns of which some node asks only whether a number is missing.
    """

    width: int
    fields: dict[str, list[Any]] = field(default_factory=dict)
    leaves: list[tuple[int, int, int, float]] = field(default_factory=list)
    only_missing: list[int] = field(default_factory=list)

    def add(self, tree: int, target: int, number: int, node: Any) -> None:
        leaf = bool(node["is_leaf"])
        if not leaf and node["is_categorical"]:
            raise NotImplementedError("its trees ask for categories, which are not read")
        column, threshold = self._question(node)
        values = {
            "treeids": tree,
            "nodeids": number,
            "featureids": 0 if leaf else column,
            "values": 0.0 if leaf else threshold,
            "modes": "LEAF" if leaf else "BRANCH_LEQ",
            "truenodeids": 0 if leaf else int(node["left"]),
            "falsenodeids": 0 if leaf else int(node["right"]),
            "missing_value_tracks_true": int(not leaf and bool(node["missing_go_to_left"])),
            "hitrates": 1.0,
        }
        for name, value in values.items():
            self.fields.setdefault(f"nodes_{name}", []).append(value)
        if leaf:
            self.leaves.append((tree, number, target, float(node["value"])))

    def _question(self, node: Any) -> tuple[int, float]:
        column, threshold = int(node["feature_idx"]), float(node["num_threshold"])
        if np.isfinite(threshold):
            return column, _rounded_down(threshold)
        if column not in self.only_missing:
            self.only_missing.append(column)
        return self.width + self.only_missing.index(column), 0.0


def boosted_classifier(scope: Any, operator: Any, container: Any) -> None:
    """HistGradientBoostingClassifier: labels, and probabilities or raw scores by class."""
    model = operator.raw_operator
    nodes = _nodes(model)
    classes = np.asarray(model.classes_)
    raw = container.get_options(model, {"raw_scores": False})["raw_scores"]
    if len(classes) == 2 and all(value >= 0 for *_, value in nodes.leaves):
        # The operator would ask for scores above one half then, and not above zero.
        raise NotImplementedError("no leaf of it speaks against a row")
    attributes = _fields(nodes, "class") | {
        "base_values": _floats(model._baseline_prediction),
        "post_transform": "NONE" if raw else TRANSFORMS[type(model._loss).__name__],
    }
    if classes.dtype.kind in TEXT:
        attributes["classlabels_strings"] = [str(label) for label in classes]
    else:
        attributes["classlabels_int64s"] = [int(label) for label in classes]
    s = Nodes(scope, operator, container)
    into = [output.full_name for output in operator.outputs]
    s("TreeEnsembleClassifier", _columns(s, nodes), into=into, **attributes)


def boosted_regressor(scope: Any, operator: Any, container: Any) -> None:
    """HistGradientBoostingRegressor: [rows, 1]."""
    model = operator.raw_operator
    nodes, s = _nodes(model), Nodes(scope, operator, container)
    raw = s(
        "TreeEnsembleRegressor",
        _columns(s, nodes),
        base_values=_floats(model._baseline_prediction),
        n_targets=1,
        **_fields(nodes, "target"),
    )
    s(OPERATORS[type(model._loss.link).__name__], raw, into=operator.outputs[0].full_name)


def _nodes(model: Any) -> _Nodes:
    """Raises NotImplementedError: it reads categories."""
    if getattr(model, "_preprocessor", None) is not None:
        raise NotImplementedError("it has columns of categories, which are not read")
    found = _Nodes(int(model.n_features_in_))
    for tree, target, predictor in _trees(model):
        for number, node in enumerate(predictor.nodes):
            found.add(tree, target, number, node)
    return found


def _trees(model: Any) -> Iterator[tuple[int, int, Any]]:
    """Each tree's number, and the target that it adds to."""
    number = 0
    for targets in model._predictors:
        for target, predictor in enumerate(targets):
            yield number, target, predictor
            number += 1


def _fields(nodes: _Nodes, prefix: str) -> dict[str, Any]:
    """Attributes of the nodes and leaves; leaves by `prefix`."""
    trees, numbers, targets, values = zip(*nodes.leaves, strict=True)
    return nodes.fields | {
        f"{prefix}_treeids": list(trees),
        f"{prefix}_nodeids": list(numbers),
        f"{prefix}_ids": list(targets),
        f"{prefix}_weights": _floats(values),
    }


def _columns(s: Nodes, nodes: _Nodes) -> str:
    """The input, and 0 times each column that is asked whether it is missing."""
    count = len(nodes.only_missing)
    if not count:
        return s.x
    asked = s("ArrayFeatureExtractor", s.x, s.integers(*nodes.only_missing))
    zeros = s("Scaler", asked, offset=[0.0] * count, scale=[0.0] * count)
    return s("Concat", s.x, zeros, axis=1)


def _rounded_down(threshold: float) -> float:
    """The largest float32 that is at most the threshold."""
    rounded = np.float32(threshold)
    return float(rounded if rounded <= threshold else np.nextafter(rounded, np.float32(-np.inf)))


def _floats(values: Any) -> list[float]:
    found: NDArray[np.float32] = np.asarray(values, np.float32).reshape(-1)
    return [float(value) for value in found]
