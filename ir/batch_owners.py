"""A batch whose rows are several owners': which of them are whose.

    {"alice": 96, "bob": 32}
    x [128, 8]  ->  x.alice [96, 8] and x.bob [32, 8], put one below the other in secret

Rows lie apart here, as columns do in a table of several owners.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from veilgraph.ir.shapes import Shape

ALL = ""  # in an owner's place: row i of each input is of one example


@dataclass(frozen=True)
class BatchOwners:
    """Who gives how many rows of each batch.

    Attributes:
        rows: by owner; {} where all rows of an input are one owner's.
    """

    rows: Mapping[str, int] = field(default_factory=dict)

    def parts(self, name: str) -> dict[str, slice]:
        """What an input of rows is given as, and which rows of a batch each part has."""
        if not self.rows:
            return {name: slice(None)}
        ends = accumulate(self.rows.values())
        owned = zip(self.rows.items(), ends, strict=True)
        return {part_of(name, who): slice(end - count, end) for (who, count), end in owned}

    def owners(self, name: str) -> dict[str, str]:
        """Of each part of an input its owner; {} where the input is in one part."""
        return {part_of(name, who): who for who in self.rows}

    def owner(self, part: str) -> str:
        """Whose a part of an input is; `ALL` where inputs are in one part."""
        return part.rpartition(".")[2] if self.rows else ALL

    def whole(self, part: str) -> str:
        """Of which input it is a part."""
        return part.rpartition(".")[0] if self.rows else part

    def shapes(self, name: str, shape: Shape) -> dict[str, Shape]:
        """Of each part, given that of a batch."""
        counts = self.rows.values() or shape[:1]
        return {
            part: (count, *shape[1:]) for part, count in zip(self.parts(name), counts, strict=True)
        }

    def split(self, batch: Mapping[str, Any], axis: int = 0) -> dict[str, Any]:
        """Arrays of the parts in place of those of whole batches; `axis` is that of rows."""
        ahead = (slice(None),) * axis
        return {
            part: x[(*ahead, rows)]
            for name, x in batch.items()
            for part, rows in self.parts(name).items()
        }


def part_of(name: str, who: str) -> str:
    """What an owner's rows of an input are called in a plan."""
    return f"{name}.{who}"
