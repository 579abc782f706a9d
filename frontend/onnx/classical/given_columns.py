"""What is known of columns of text, and of missing numbers, while a model is read."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from veilgraph.frontend.lowering.operands import Unsupported
from veilgraph.ir.graph.table_options import Categories
from veilgraph.ir.plan.given import Given

Sources = NDArray[np.int64]  # [1, ...], of a tensor [rows, ...]


@dataclass
class Texts:
    """What is known of text while tables are found.

    Attributes:
        tables: the place of each category, by column of an input.
        others: whether every node so far says what other text is, by column.
        places: the input and its column that each column is.
        sources: of each tensor of text, the column of an input that each of its columns is.
        given: how owners write inputs of text, by input.
        refused: why a node may not read text, by its name.
        categories: whether everybody may know tables.
    """

    tables: list[dict[str, int]] = field(default_factory=list)
    others: list[bool] = field(default_factory=list)
    places: list[tuple[str, int]] = field(default_factory=list)
    sources: dict[str, Sources] = field(default_factory=dict)
    given: dict[str, Given] = field(default_factory=dict)
    refused: dict[str, Unsupported] = field(default_factory=dict)
    categories: Categories = Categories.PUBLIC

    def column(self, name: str, place: int) -> int:
        """A new one: that of an input at a place."""
        self.places.append((name, place))
        self.tables.append({})
        self.others.append(True)
        return len(self.tables) - 1


@dataclass
class Missing:
    """What is known of missing numbers.

    Attributes:
        given: how owners write inputs in which numbers may be missing.
        flags: the tensor, [rows, columns], that is 1 where a number of another is missing; of those
            tensors that nodes ask it of.
        zeros: tensors that are 0 where a number is missing.
    """

    given: dict[str, Given] = field(default_factory=dict)
    flags: dict[str, str] = field(default_factory=dict)
    zeros: set[str] = field(default_factory=set)
