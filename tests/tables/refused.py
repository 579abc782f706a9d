"""What is not computed of the estimators, each with the reason that is told."""

from __future__ import annotations

from collections.abc import Mapping

# The words of what stops first: a converter, skl2onnx's or ours, or ONNX Runtime.
NOT_COMPUTED: Mapping[str, str] = {
    "RadiusNeighborsRegressor-numbers": "of a row without a neighbour within the radius it makes",
    "GaussianProcessClassifier-two_classes": "is not a registered function/op",
}
