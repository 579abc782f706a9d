"""Which columns of a fitted scikit-learn pipeline are text, as its encoders say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np


def text_columns(model: Any) -> frozenset[int]:
    """The places of columns that an encoder has categories of text for."""
    columns = getattr(model, "n_features_in_", None)
    return frozenset() if columns is None else frozenset(_of(model, list(range(columns))))


def _of(step: Any, columns: Sequence[int]) -> Iterator[int]:
    """Of a step that reads these columns of the model's input."""
    categories = getattr(step, "categories_", None)
    if categories is not None and len(categories) == len(columns):
        for column, own in zip(columns, categories, strict=True):
            if np.asarray(own).dtype.kind in "OSU":
                yield column
    elif hasattr(step, "steps"):
        yield from _of_steps([each for _, each in step.steps], columns)
    elif hasattr(step, "transformers_"):
        for _, each, chosen in step.transformers_:
            yield from _of(each, [columns[i] for i in _places(step, chosen, len(columns))])
    elif hasattr(step, "transformer_list"):
        for _, each in step.transformer_list:
            yield from _of(each, columns)


def _of_steps(steps: Sequence[Any], columns: Sequence[int]) -> Iterator[int]:
    """Of the first step of several that encodes; those before it keep columns where they are."""
    for step in steps:
        found = list(_of(step, columns))
        if found or not _keeps_columns(step, len(columns)):
            yield from found
            return


def _keeps_columns(step: Any, columns: int) -> bool:
    return step == "passthrough" or getattr(step, "n_features_in_", None) == columns


def _places(transformer: Any, chosen: Any, count: int) -> list[int]:
    """The places that a ColumnTransformer's choice of columns names."""
    names = list(getattr(transformer, "feature_names_in_", ()))
    if isinstance(chosen, slice):
        return list(range(count))[chosen]
    if isinstance(chosen, str | int | np.integer):
        chosen = [chosen]
    listed = np.asarray(chosen)
    if listed.dtype.kind == "b":
        return [int(place) for place in np.flatnonzero(listed)]
    return [names.index(each) if isinstance(each, str) else int(each) for each in listed.tolist()]
