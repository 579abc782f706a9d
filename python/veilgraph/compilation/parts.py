"""Columns of a table: their names, and a table whose columns are several owners'.

    owners={"income,age": "bank", "history": "bureau"}
    X [rows, 3]  ->  X.bank [rows, 2] and X.bureau [rows, 1], put side by side again in secret

`take_apart.py` lets a model's graph read the parts. What is here, hosts without a compiler use too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilgraph.ir.errors import UsageError
from veilgraph.ir.plan.given import NONE, PLAIN, Encodings, Given
from veilgraph.ir.plan.tables import WEIGHTS
from veilgraph.plans import Plan

Columns = Mapping[str, Sequence[str]]
Places = Mapping[str, tuple[int, ...]]
PARTS = "parts"  # an option of the manifest: `Parts.of`
COMMA = ","  # between columns of one owner


@dataclass(frozen=True)
class Parts:
    """Which columns of a model's input are whose.

    Attributes:
        of: by input of the model, the places of the columns of each of its parts, by the part's
            name.
        columns: the names of the columns, by input or part; of those whose names are known.
    """

    of: Mapping[str, Places] = field(default_factory=dict)
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @staticmethod
    def in_plan(plan: Plan) -> Parts:
        """Those of a plan."""
        stated = plan.manifest.options.get(PARTS)
        known: Any = stated if isinstance(stated, Mapping) else {}
        return Parts(
            {name: {part: tuple(at) for part, at in of.items()} for name, of in known.items()}
        )

    @property
    def names(self) -> set[str]:
        """Of all parts."""
        return {part for places in self.of.values() for part in places}

    def whole(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """Shapes of the model's inputs, given those of a plan's."""
        found = {name: shape for name, shape in shapes.items() if name not in self.names}
        for name, places in self.of.items():
            rows = [shapes[part][0] for part in places if part in shapes]
            if rows:
                found[name] = (rows[0], sum(map(len, places.values())))
        return found

    def named(self, columns: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
        """The columns of the model's inputs, given those of a plan's."""
        found = {name: tuple(own) for name, own in columns.items() if name not in self.names}
        for name, places in self.of.items():
            at = {i: columns[part][n] for part, own in places.items() for n, i in enumerate(own)}
            found[name] = tuple(at[i] for i in sorted(at))
        return found

    def split(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Arrays of the parts in place of each whole one; the last axis is that of columns.

        Of a data frame each part takes its own columns by name, when it is encoded.

        Raises:
            UsageError: an array of another width than the parts have together.
        """
        found = {name: array for name, array in arrays.items() if name not in self.of}
        for name in self.of.keys() & arrays.keys():
            places = self.of[name]
            if hasattr(arrays[name], "columns"):
                found |= dict.fromkeys(places, arrays[name])
                continue
            array = _table(name, arrays[name], sum(map(len, places.values())))
            found |= {part: array[..., list(at)] for part, at in places.items()}
        return found

    def joined(
        self, arrays: Mapping[str, NDArray[Any]], encodings: Encodings = NONE
    ) -> dict[str, NDArray[Any]]:
        """Whole arrays in place of those of their parts, as these encodings write them."""
        found = {name: array for name, array in arrays.items() if name not in self.names}
        for name, places in self.of.items():
            width, flags = sum(map(len, places.values())), list[int]()
            known = {part: encodings.get(part, PLAIN) for part in places}
            for part, at in places.items():
                flags += [at[i] for i in known[part].flagged]
            is_hashed = any(given.is_hashed for given in known.values())
            given = Given(flagged=tuple(sorted(flags)), is_hashed=is_hashed)
            order = np.argsort([i for own in places.values() for i in given.places(own, width)])
            found[name] = np.concatenate([arrays[part] for part in places], axis=-1)[..., order]
        return found


def _table(name: str, given: Any, columns: int) -> NDArray[Any]:
    hint = f"Give [rows, {columns}], in the model's order of columns."
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise UsageError(f"`{name}` is no array: its rows have different lengths.", hint) from error
    if not array.ndim or array.shape[-1] != columns:
        shape = "x".join(map(str, array.shape)) or "()"
        raise UsageError(f"`{name}` has shape {shape}, and the model {columns} columns.", hint)
    return array


def parts_of(owners: Mapping[str, str], columns: Columns) -> tuple[dict[str, str], Parts]:
    """Owners by input, and the parts that inputs fall into, given owners by column too.

    Args:
        owners: by input, or by columns with commas between them. An input's name and "weights"
            mean what they always mean, whatever columns are called.
        columns: the names of each table's columns, in the model's order.

    Raises:
        UsageError: names that are none; or a column that is named twice, or has no owner where
            others have.
    """
    if not isinstance(columns, Mapping) or isinstance(next(iter(columns.values()), ()), str):
        raise UsageError(
            "Names of columns are given without the input that they are of.",
            'Give them by input: {"X": ["age", "income"]}.',
        )
    columns = {name: tuple(map(str, own)) for name, own in columns.items()}
    reserved = {WEIGHTS, *columns}
    tables = {c: name for name, named in columns.items() for c in named if c not in reserved}
    found: dict[str, str] = {}
    given: dict[str, dict[str, str]] = {name: {} for name in columns}
    for names, who in owners.items():
        for name in (part.strip() for part in names.split(COMMA)):
            own = given[tables[name]] if name in tables else found
            if name in own:
                raise UsageError(f"`{name}` has two owners.", "Name it once.")
            own[name] = who
    parts, named = {}, {name: tuple(own) for name, own in columns.items()}
    for table, by_column in given.items():
        if by_column:
            _require_names(columns)
            whose = _owners(table, columns[table], by_column, found.pop(table, None))
            parts[table] = places = dict(_places(table, whose))
            found |= {f"{table}.{who}": who for who in whose}
            named |= {part: tuple(columns[table][i] for i in at) for part, at in places.items()}
    return found, Parts(parts, named)


def _owners(
    table: str, columns: Sequence[str], given: Mapping[str, str], rest: str | None
) -> list[str]:
    """The owner of each column."""
    lacking = [column for column in columns if column not in given]
    if lacking and rest is None:
        raise UsageError(
            f"{', '.join(lacking)} of `{table}` {'have' if len(lacking) > 1 else 'has'} no owner.",
            f"Name one for each column, or for all others: --owner {table}=PARTY.",
        )
    return [given.get(column, str(rest)) for column in columns]


def _places(table: str, whose: Sequence[str]) -> Iterator[tuple[str, tuple[int, ...]]]:
    for who in dict.fromkeys(whose):
        yield f"{table}.{who}", tuple(i for i, each in enumerate(whose) if each == who)


def _require_names(columns: Columns) -> None:
    seen: set[str] = set()
    for name in (column for named in columns.values() for column in named):
        if not name or COMMA in name or name != name.strip():
            raise UsageError(
                f"A column is named {name!r}.", "Name columns without commas and outer spaces."
            )
        if name in seen:
            raise UsageError(f"Two columns are named `{name}`.", "Name each column once.")
        seen.add(name)
