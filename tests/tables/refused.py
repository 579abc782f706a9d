"""What is not computed of the estimators, each with the reason that is told."""

from __future__ import annotations

from collections.abc import Mapping

# Neither skl2onnx nor ONNX Runtime get this far: the words that one of them says.
NOT_CONVERTED: Mapping[str, str] = {
    "RadiusNeighborsClassifier-classes": "Invalid Y argument: index is out of range",
    "RadiusNeighborsRegressor-numbers": "Invalid Y argument: index is out of range",
    "GaussianProcessClassifier-two_classes": "is not a registered function/op",
}

# We refuse these: what the message says.
REFUSED: Mapping[str, str] = {
    "KNNImputer-gaps": "holds a NaN or an infinity",
}
