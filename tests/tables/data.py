"""Data that estimators are fitted on: rows of scikit-learn's data sets, or made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris

Array = NDArray[Any]


@dataclass(frozen=True)
class Data:
    """Rows in a random order and what is to be told of them.

    Attributes:
        rows: [rows, columns], or [rows].
        targets: [rows], or [rows, targets]; None where the rows are told.
        asked: rows to ask about; the first of `rows` if None.
    """

    rows: Array
    targets: Array | None
    asked: Array | None = None


def _loaded(load: Callable[..., Any], rows: int, dtype: type = np.float32) -> Data:
    columns, targets = load(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(columns))[:rows]
    return Data(columns[order].astype(dtype), targets[order])


def classes() -> Data:
    """Three classes, four columns."""
    return _loaded(load_iris, 150)


def scattered() -> Data:
    """Three classes, four columns, no two distances between rows alike; half of them are asked."""
    data = classes()
    noise = np.random.default_rng(2).uniform(-0.1, 0.1, data.rows.shape)
    rows = (data.rows + noise).astype(np.float32)
    return Data(rows[::2], data.targets[::2], rows[1::2])


def two_classes() -> Data:
    """Two classes, eight columns of like size."""
    data = _loaded(load_breast_cancer, 400)
    columns = data.rows[:, [0, 1, 4, 5, 6, 7, 8, 9]]
    return Data(columns / columns.max(axis=0), data.targets)


def six_classes() -> Data:
    """Six classes, 64 columns from 0 to 1."""
    data = _loaded(load_digits, 600)
    kept = data.targets < 6
    return Data(data.rows[kept] / 16, data.targets[kept])


def numbers() -> Data:
    """A number, ten columns."""
    return _loaded(load_diabetes, 400)


def new_numbers() -> Data:
    """As `numbers`, and rows to ask about that nothing was fitted on."""
    data = numbers()
    return Data(data.rows[:300], data.targets[:300], data.rows[300:])


def positive() -> Data:
    """A number above zero, ten columns."""
    data = numbers()
    return Data(data.rows * 10, data.targets / 100)


def two_numbers() -> Data:
    """Two numbers a row."""
    data = numbers()
    return Data(data.rows, np.stack([data.targets, data.rows[:, 2] * 500], axis=1))


def two_questions() -> Data:
    """Two questions of three classes each."""
    data = classes()
    second = np.digitize(data.rows[:, 0], [5.3, 6.2])
    return Data(data.rows, np.stack([data.targets, second], axis=1))


def counts() -> Data:
    """Three classes, four columns of small whole numbers."""
    data = classes()
    return Data(np.round(data.rows * 2), data.targets)


def flags() -> Data:
    """Three classes, four columns of zeros and ones."""
    data = classes()
    return Data((data.rows > data.rows.mean(axis=0)).astype(np.float32), data.targets)


def categories() -> Data:
    """Three classes, four columns of a few numbered categories."""
    data = classes()
    limits = np.quantile(data.rows, [0.3, 0.6], axis=0)
    return Data((data.rows[:, np.newaxis] > limits).sum(axis=1).astype(np.int64), data.targets)


def texts() -> Data:
    """Three classes, four columns of a few named categories."""
    data = categories()
    names = np.array(["low", "middle", "high"], dtype=object)
    return Data(names[data.rows], data.targets)


def gaps() -> Data:
    """Three classes, four columns, and a tenth of the cells missing."""
    data = classes()
    missing = np.random.default_rng(1).uniform(size=data.rows.shape) < 0.1
    return Data(np.where(missing, np.float32(np.nan), data.rows), data.targets)


def scattered_gaps() -> Data:
    """As `scattered`, and a tenth of the cells missing: no two distances that count are alike."""
    data = scattered()
    holes = np.random.default_rng(1).uniform(size=(2, *data.rows.shape)) < 0.1
    rows, asked = (
        np.where(h, np.float32(np.nan), x)
        for h, x in zip(holes, (data.rows, data.asked), strict=True)
    )
    return Data(rows, data.targets, asked)


def squares() -> Data:
    """Positive definite products of rows, as kernels are."""
    rows = classes().rows[:40] / 4
    return Data(rows @ rows.T, classes().targets[:40])


def labels() -> Data:
    """Classes as the column itself."""
    return Data(classes().targets * 3 + 1, None)


DATA: Mapping[str, Callable[[], Data]] = {
    made.__name__: made
    for made in (
        *(
            classes,
            scattered,
            two_classes,
            six_classes,
            numbers,
            new_numbers,
            positive,
            two_numbers,
            two_questions,
            counts,
            flags,
        ),
        *(categories, texts, gaps, scattered_gaps, squares, labels),
    )
}
