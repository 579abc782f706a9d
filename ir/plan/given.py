"""What an owner gives, as numbers: text by tables of categories, what is missing by a secret flag.

    city      "Oslo"   ->  1            its place in the column's table; the plan has the table
    city      "Oslo"   ->  h, h'        halves of its hash; what cities there are is a weight
    income    NaN      ->  0, flag 1    two numbers

Of two numbers the second stands behind all columns.

It is done where the values are, before they are scaled and shared (runtime/encoding.py), and with
samples before a model is compiled for them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.ir.errors import UsageError

Array = npt.NDArray[Any]
SHOWN = 12  # categories in a hint
# Of a hash. Before them stands a 1, so that all are as large: plans tell how large weights are, to
# the power of two. Float32 holds them. Text that is none of n categories is taken for one with
# probability n / 2^44.
HALF_BITS = 22
NO_NUMBER = "Put a number in the place of each that is missing."
TEXT, OTHER = "U", "O"  # kinds of arrays: of text alone, or of whatever


class Cell(Enum):
    """What the cells of a column in a file may be."""

    NUMBER = auto()
    TEXT = auto()
    FLAGGED = auto()  # a number, or empty
    LACKING = auto()  # a number, or empty, or no column at all: 0


@dataclass(frozen=True)
class Given:
    """How the values of an input are written as numbers; as they are, where nothing is said.

    Attributes:
        categories: of text, the categories of each column, each written as its place; where there
            is one table, it is that of all.
        others: by table, whether any other text is written as the place behind the last one.
        flagged: the columns in which a number may be missing. Behind all columns stands one for
            each of these: 1 where the number is missing, for which 0 is written, and else 0.
        lacks: whether a column that is not given is 0, as a key that a dictionary has not.
        is_hashed: whether each column is text that is written as its hash, whose second halves
            stand behind all columns.
    """

    categories: tuple[tuple[str, ...], ...] = ()
    others: tuple[bool, ...] = ()
    flagged: tuple[int, ...] = ()
    lacks: bool = False
    is_hashed: bool = False

    @property
    def takes_text(self) -> bool:
        """Whether what is given is text."""
        return bool(self.categories) or self.is_hashed

    def shape(self, written: Sequence[int]) -> tuple[int, ...]:
        """The shape of what is given, by that of what it is written as."""
        *front, last = written or (0,)
        behind = last // 2 if self.is_hashed else len(self.flagged)
        return (*front, last - behind) if behind else tuple(written)

    def written(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of what is written, by that of what is given."""
        *front, last = shape or (0,)
        behind = last if self.is_hashed else len(self.flagged)
        return (*front, last + behind) if behind else tuple(shape)

    def of(self, columns: Sequence[int]) -> Given:
        """That of some columns of the table, in another order."""
        tables = list(columns) if len(self.categories) > 1 else range(len(self.categories))
        return Given(
            tuple(self.categories[i] for i in tables),
            tuple(self.others[i] for i in tables),
            tuple(n for n, i in enumerate(columns) if i in self.flagged),
            self.lacks,
            self.is_hashed,
        )

    def places(self, columns: Sequence[int], width: int) -> tuple[int, ...]:
        """Where some columns of a table of so many stand as they are written.

        Their flags, or second halves, are among them.
        """
        doubled = range(width) if self.is_hashed else self.flagged
        return (*columns, *(width + doubled.index(i) for i in columns if i in doubled))

    def cell(self, column: int) -> Cell:
        """What a cell of a column may be."""
        if self.takes_text:
            return Cell.TEXT
        if self.lacks:
            return Cell.LACKING
        return Cell.FLAGGED if column in self.flagged else Cell.NUMBER

    @property
    def highest(self) -> int:
        """The largest place of a category, or half of a hash."""
        if self.is_hashed:
            return (2 << HALF_BITS) - 1
        counts = (len(t) - 1 + o for t, o in zip(self.categories, self.others, strict=True))
        return max(counts, default=0)

    def numbers(self, array: Array, what: str, columns: Sequence[str] = ()) -> Array:
        """`array` [..., columns] as numbers.

        Args:
            what: the table, for messages.

        Raises:
            UsageError: text that is no category, no text where text is wanted, or a number that is
                missing where none may be.
        """
        if self.is_hashed:
            self._require_text(array, 0, what, columns)
            return np.concatenate(halves_of(array), axis=-1)
        if self.categories:
            return self._places(array, what, columns)
        if array.dtype.kind == OTHER:
            array = _floats(array, what, columns)
        if not self.flagged or not array.ndim:
            return array
        missing = np.isnan(array[..., list(self.flagged)])
        kept = np.array(array, np.float64)
        kept[..., list(self.flagged)] = np.where(missing, 0, kept[..., list(self.flagged)])
        return np.concatenate([kept, missing.astype(np.float64)], axis=-1)

    def _places(self, array: Array, what: str, columns: Sequence[str]) -> Array:
        found = np.empty(array.shape, np.float64)
        if len(self.categories) == 1:
            found[...] = self._of_table(array, 0, what, columns)
            return found
        if array.shape[-1:] != (len(self.categories),):
            raise UsageError(
                f"{what} has shape {'x'.join(map(str, array.shape)) or '()'}, and the plan "
                f"{len(self.categories)} columns of text.",
                "Give [rows, columns], in the model's order of columns.",
            )
        for column in range(len(self.categories)):
            found[..., column] = self._of_table(array[..., column], column, what, columns)
        return found

    def _of_table(self, array: Array, table: int, what: str, columns: Sequence[str]) -> Array:
        """Places of text in one table."""
        flat = array.reshape(-1)
        if array.dtype.kind != TEXT:
            self._require_text(array, table, what, columns)
        known = self._known(table)
        texts, inverse = np.unique(flat.astype(str), return_inverse=True)
        places = np.array([known.get(str(text), -1) for text in texts], np.float64)
        if self.others[table]:
            places[places < 0] = len(self.categories[table])
        found: Array = places[inverse.reshape(-1)].reshape(array.shape)
        if (found < 0).any():
            place = self._place(np.argwhere(found < 0)[0], table, array.ndim)
            raise UsageError(
                f"{what} holds text {where(place, columns)}that is no category of the model's.",
                self.hint(table),
            )
        return found

    def _require_text(self, array: Array, table: int, what: str, columns: Sequence[str]) -> None:
        for place, value in np.ndenumerate(array):
            if isinstance(value, str) and (value or not self.is_hashed):
                continue
            spot = where(self._place(place, table, array.ndim), columns)
            is_missing = value in (None, "") or (isinstance(value, float) and value != value)
            if is_missing:
                raise UsageError(
                    f"{what} has no text {spot}and the model says nothing of what is missing.",
                    self.hint(table),
                )
            raise UsageError(f"{what} holds {spot}what is no text.", self.hint(table))

    def _place(self, place: Sequence[int], table: int, rank: int) -> tuple[int, ...]:
        """In the whole array, of a place in a column of it."""
        whole = tuple(int(i) for i in place)
        return whole if len(self.categories) == 1 or self.is_hashed else (*whole, table)

    def _known(self, table: int) -> Mapping[str, int]:
        return {text: place for place, text in enumerate(self.categories[table])}

    def hint(self, column: int) -> str:
        """What a column's categories are."""
        if self.is_hashed:
            return "Give text; which categories the model knows, its owner keeps secret."
        texts = self.categories[column if len(self.categories) > 1 else 0]
        rest = f", and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
        return f"Its categories are {', '.join(map(repr, texts[:SHOWN]))}{rest}."

    def knows(self, text: str, column: int) -> bool:
        """Whether a text may be given in a column."""
        if self.is_hashed:
            return bool(text)
        table = column if len(self.categories) > 1 else 0
        return text in self.categories[table] or (bool(text) and self.others[table])


PLAIN = Given()
Encodings = Mapping[str, Given]  # by input; of those that are not given as numbers
NONE: Encodings = {}


def halves_of(texts: npt.ArrayLike) -> tuple[Array, Array]:
    """Text as the first 2 HALF_BITS bits of its SHA-256, in two integers of `texts`' shape.

    They are from 2^HALF_BITS to below 2^(HALF_BITS + 1).
    """
    found = np.asarray(texts)
    known, inverse = np.unique(found.astype(str), return_inverse=True)
    digests = [hashlib.sha256(str(text).encode()).digest() for text in known]
    hashes = [int.from_bytes(each) >> (8 * len(each) - 2 * HALF_BITS) for each in digests]
    lead = 1 << HALF_BITS
    first = np.array([lead + (each >> HALF_BITS) for each in hashes], np.float64)
    second = np.array([lead + each % lead for each in hashes], np.float64)
    at = inverse.reshape(found.shape)
    return first[at], second[at]


def where(place: Sequence[Any], columns: Sequence[str]) -> str:
    """A place in words, with a comma behind it; nothing for that of a single number."""
    if not len(place):
        return ""
    if len(place) != 2:
        return f"at [{', '.join(map(str, place))}], "
    column = f"`{columns[place[1]]}`" if columns else f"{place[1]}"
    return f"in row {place[0]}, column {column}, "


def _floats(array: Array, what: str, columns: Sequence[str]) -> Array:
    """Numbers in an array of anything, such as that of a data frame; None is NaN."""
    found = np.empty(array.shape, np.float64)
    for place, value in np.ndenumerate(array):
        if value is not None and not isinstance(value, int | float | np.number | np.bool_):
            spot = where(place, columns)
            raise UsageError(
                f"{what} holds {spot}what is no number.",
                "Give numbers; text is taken where the plan has its categories.",
            )
        found[place] = np.nan if value is None else float(value)
    return found


def as_rows(value: Any, keys: Sequence[str]) -> Any:
    """Dictionaries, one a row, as [rows, keys]; 0 for a key that one has not.

    Raises:
        UsageError: a key that is none.
    """
    rows = [value] if isinstance(value, Mapping) else value
    if not isinstance(rows, list | tuple) or not rows or not isinstance(rows[0], Mapping):
        return value
    at = {key: place for place, key in enumerate(keys)}
    found = np.zeros((len(rows), len(keys)))
    for number, row in enumerate(rows):
        for key, entry in row.items():
            if str(key) in at:  # the model passes over others
                found[number, at[str(key)]] = entry
    return found
