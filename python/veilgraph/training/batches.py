"""Rows of a data set, and batches of them as a step takes them.

Class numbers become one-hot rows where they are owned: in secret that would cost comparisons.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.ir.batch_owners import ALL, BatchOwners
from veilgraph.ir.errors import UsageError
from veilgraph.ir.training import LABELS, Labels

Array = npt.NDArray[np.float32]
Rows = Mapping[str, Array]
Order = Mapping[str, npt.NDArray[np.int64]]  # row numbers, by owner as in `RowOrder`
SUM_SLACK = 2.0**-10  # of a row of labels that sums to 1
HINT = "Give an array of numbers with one row for each example."


def numbers(given: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    """Rows of an input as an array; UsageError for what is no array of real numbers, or one row."""
    try:
        found = np.asarray(given)
    except ValueError as error:
        raise UsageError(f"Rows of `{name}` have different lengths.", HINT) from error
    if found.dtype.kind not in "fiub":
        raise UsageError(f"Rows of `{name}` are {found.dtype}, and must be real numbers.", HINT)
    if not found.ndim:
        raise UsageError(f"`{name}` is one number, and has no rows.", HINT)
    return found


def one_hot(labels: npt.ArrayLike, classes: int) -> Array:
    """Rows of labels: class numbers as one-hot rows of `classes`, rows as they are.

    Raises:
        UsageError: class numbers that are none, with the number of the first such row; or rows of
            another length.
    """
    given = numbers(labels, LABELS)
    if given.ndim != 1 or classes == 1:
        rows = np.asarray(given, np.float32).reshape(len(given), -1)
        if rows.shape[1] != classes:
            raise UsageError(
                f"Rows of labels have {rows.shape[1]} numbers, and the model's output {classes}.",
                "Give class numbers, or a row of the output's length for each.",
            )
        return rows
    is_class = (given >= 0) & (given < classes) & (given == np.floor(given))
    if not is_class.all():
        row = int(np.flatnonzero(~is_class)[0])
        raise UsageError(
            f"The label of row {row} is {given[row]}, which is no class.",
            f"Give whole numbers from 0 to {classes - 1}.",
        )
    return np.eye(classes, dtype=np.float32)[given.astype(np.int64)]


def checked(
    given: Mapping[str, npt.ArrayLike],
    shapes: Mapping[str, tuple[int, ...]],
    labels: Labels,
    *,
    fill: bool = True,
) -> dict[str, Array]:
    """Rows of these inputs, as floats of the shapes that a step takes, B rows first.

    Args:
        fill: whether they must fill a batch; else one row is enough.

    Raises:
        UsageError: rows that are missing, of another shape, fewer than a batch, unlike in number,
            or not finite, with the number of the first such row; labels that the loss is not of.
    """
    found = {}
    for name, shape in shapes.items():
        if name not in given:
            raise UsageError(
                f"There are no rows of `{name}`.", f"Give rows of {', '.join(shapes)}."
            )
        is_label = name == LABELS and labels.classes > 0
        rows = numbers(given[name], name)
        if is_label and len(shape) == 2:
            rows = one_hot(rows, labels.classes)
        rows = rows.astype(np.float32, copy=False)
        if rows.shape[1:] != shape[1:]:
            raise UsageError(
                f"Rows of `{name}` are of shape {rows.shape[1:]}, and a step takes {shape[1:]}.",
                HINT,
            )
        if len(rows) < (shape[0] if fill else 1):
            raise UsageError(
                f"There are {len(rows)} rows of `{name}`, and a step takes {shape[0]}.",
                "Give more rows, or compile for a smaller batch.",
            )
        finite = np.isfinite(rows.reshape(len(rows), -1)).all(axis=1)
        if not finite.all():
            raise UsageError(
                f"Row {int(np.flatnonzero(~finite)[0])} of `{name}` is not finite.",
                "Look at the data: a step takes numbers alone.",
            )
        if is_label:
            _require_labels(rows, labels)
        found[name] = rows
    if len({len(rows) for rows in found.values()}) > 1:
        told = ", ".join(f"{len(rows)} of `{name}`" for name, rows in found.items())
        raise UsageError(f"Rows are unlike in number: {told}.", "Give a row of each an example.")
    return found


def decided(rows: Array, labels: Labels) -> Array:
    """Labels (..., numbers) as one-hot rows, or as 0 and 1, whichever they are nearest to."""
    if labels.loss == "cross_entropy":
        places = np.arange(rows.shape[-1]) == rows.argmax(axis=-1)[..., np.newaxis]
        return np.asarray(places, np.float32)
    return np.asarray(rows >= 0.5, np.float32)


def weighs(rows: Array) -> npt.NDArray[np.bool_]:
    """Which rows of labels sum to another number than 1."""
    sums: npt.NDArray[np.float64] = rows.sum(axis=1, dtype=np.float64)
    return np.asarray(np.abs(sums - 1) > SUM_SLACK)


def _require_labels(rows: Array, labels: Labels) -> None:
    """UsageError for the first row by which the loss's derivative would be another's."""
    flat = rows.reshape(len(rows), -1)
    if labels.decide:
        told, hint = "is no class", "Answers are compared with class numbers, or with 0 and 1."
        wrong = (flat != decided(rows, labels).reshape(flat.shape)).any(axis=1)
    elif labels.loss == "cross_entropy":
        told, hint = "is below 0", "Give class numbers, or shares of the classes."
        wrong = (flat < 0).any(axis=1)
        if not wrong.any() and not labels.weighted:
            told = "sums to {:.6g}, and not to 1"
            hint = "Compile with such rows too if the sum is to weigh a row."
            wrong = weighs(flat)
    elif labels.loss == "binary_cross_entropy":
        told, hint = "is no number from 0 to 1", "Give 0 or 1, or what is likely of both."
        wrong = ((flat < 0) | (flat > 1)).any(axis=1)
    else:
        return
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        said = told.format(flat[row].sum())
        raise UsageError(f"The label of row {row} {said}.", hint)


def orders(rows: int, batch: int, seed: int) -> Iterator[npt.NDArray[np.int64]]:
    """Row numbers of batch after batch, without end, shuffled each epoch; what is left over goes.

    The order is no secret, and the same for one seed at every party.
    """
    generator = np.random.default_rng(seed)
    while True:
        order = generator.permutation(rows)
        for start in range(0, rows - batch + 1, batch):
            yield order[start : start + batch]


def batches_of(rows: int, batch: int, count: int) -> Iterator[npt.NDArray[np.int64]]:
    """Row numbers by which all rows are shared, in `count` batches that each are whole.

    What fills no batch, and those that others still need, are shared beside rows of before.
    """
    for number in range(count):
        first = min(number * batch, rows - batch)
        yield np.arange(first, first + batch)


@dataclass(frozen=True)
class RowOrder:
    """Which rows go into which step.

    Attributes:
        rows: how many there are, by owner; under `ALL` where row i of each input is of one example.
        batch: how many of them a step takes.
        seeds: of the owners whose order is known here.
        is_public: whether all parties know all orders.
    """

    rows: Mapping[str, int]
    batch: Mapping[str, int]
    seeds: Mapping[str, int]
    is_public: bool = True

    @staticmethod
    def public(rows: Mapping[str, int], batch: Mapping[str, int], seed: int) -> RowOrder:
        """Of orders that all parties know, each owner's its own."""
        return RowOrder(rows, batch, {who: seed + number for number, who in enumerate(batch)})

    @staticmethod
    def of_all(rows: int, batch: int, seed: int) -> RowOrder:
        """Where row i of each input is of one example."""
        return RowOrder.public({ALL: rows}, {ALL: batch}, seed)

    @property
    def an_epoch(self) -> int:
        """Steps that take each row of the owner with the most batches; others begin anew sooner.

        What fills no batch is not taken.
        """
        return max(count // self.batch[who] for who, count in self.rows.items())

    def steps(self, first: int, count: int) -> Iterator[Order]:
        """Of `count` steps from `first` on."""
        every = {
            who: islice(orders(self.rows[who], self.batch[who], seed), first, None)
            for who, seed in self.seeds.items()
        }
        for _ in range(count):
            yield {who: next(numbers) for who, numbers in every.items()}

    def shared(self) -> Iterator[Order]:
        """By which all rows are shared, once."""
        count = max(-(-rows // self.batch[who]) for who, rows in self.rows.items())
        every = {who: batches_of(n, self.batch[who], count) for who, n in self.rows.items()}
        for _ in range(count):
            yield {who: next(numbers) for who, numbers in every.items()}


def picked(rows: Rows, order: Order, batch: BatchOwners) -> dict[str, Array]:
    """These rows of each input."""
    return {name: x[order[batch.owner(name)]] for name, x in rows.items()}
