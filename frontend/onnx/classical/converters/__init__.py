"""Converters of our own, where skl2onnx's stop or write something else than what was fitted.

skl2onnx takes them as `custom_conversion_functions`, by class, so they work in pipelines too. Each
is a function of skl2onnx's scope, operator and container.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from veilgraph.frontend.onnx.classical.converters.histogram_trees import (
    boosted_classifier,
    boosted_regressor,
)
from veilgraph.frontend.onnx.classical.converters.imputers import nearest_imputer
from veilgraph.frontend.onnx.classical.converters.neighbours import (
    neighbours_classifier,
    neighbours_regressor,
    radius_classifier,
    radius_regressor,
)
from veilgraph.frontend.onnx.classical.converters.quantiles import quantile_transformer

Converter = Callable[[Any, Any, Any], None]


def converters() -> Mapping[type, Converter]:
    """By class of scikit-learn, which is imported here."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.impute import KNNImputer
    from sklearn.neighbors import (
        KNeighborsClassifier,
        KNeighborsRegressor,
        RadiusNeighborsClassifier,
        RadiusNeighborsRegressor,
    )
    from sklearn.preprocessing import QuantileTransformer

    return {
        HistGradientBoostingClassifier: boosted_classifier,
        HistGradientBoostingRegressor: boosted_regressor,
        KNNImputer: nearest_imputer,
        KNeighborsClassifier: neighbours_classifier,
        KNeighborsRegressor: neighbours_regressor,
        RadiusNeighborsClassifier: radius_classifier,
        RadiusNeighborsRegressor: radius_regressor,
        QuantileTransformer: quantile_transformer,
    }
