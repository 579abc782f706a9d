"""Types of the native module; ir/party/native/bindings.cpp is its source."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.ir.party.node import Node

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Read = tuple[
    npt.NDArray[np.uint8], Int32s, Int32s, Int32s, Int64s, Int32s, Int64s, Int32s,
    list[str], list[str], list[str],
]  # fmt: skip

def count_lines(text: str, most: int) -> int:
    """How many lines a text ends; one more than `most` of one that ends more."""

def read_lines(text: str, operations: Sequence[str], layers: int) -> Read | tuple[str, str]:
    """The nodes that a program's text says, from the first line behind another that begins with %:
    columns op, place, type, attributes, number, layer, first and args of
    `veilgraph.ir.party.columns.Columns`, and the texts of places, types and attributes, each once.
    In a text of attributes # stands for the value of `number`.

    Args:
        operations: names, by their numbers.
        layers: how many there are.

    Returns:
        Of a text that says no nodes what is wrong, and the line.
    """

def print_lines(
    head: str,
    op: npt.NDArray[np.uint8],
    tensor: Int32s,
    attributes: Int32s,
    number: Int64s,
    place: Int32s,
    layer: Int32s,
    first: Int64s,
    args: Int32s,
    operations: Sequence[str],
    tensors: Sequence[str],
    places: Sequence[str],
    described: Sequence[tuple[str, str]],
) -> str:
    """The head, and behind it a line a node.

    Args:
        operations, tensors, places: what lines have where these columns have a number.
        described: the same of attributes, before the number that is counted and behind it.

    Raises:
        ValueError: columns of other lists, or of other lengths; a node that reads what is made
            after it.
    """

def first_of_forms(
    seen: Sequence[Int32s],
    own: Sequence[Int32s],
    by_type: npt.NDArray[np.uint8],
    tensors: Int32s,
    shapes: Int32s,
    types: Int32s,
    first: Int64s,
    args: Int32s,
) -> Int64s:
    """The first node of each form: of nodes alike in all columns and their tensors, whose operands
    are alike, in order, in the columns `seen` and their tensors.

    Args:
        by_type: of each node whether its tensor, and its operands', are alike by their types alone
            where they have one shape.
        tensors: of each node the number of its tensor.
        shapes, types: of each tensor the numbers of its shape and its type.

    Raises:
        ValueError: a node reads what is made after it.
    """

class NodeMaker:
    """Makes the nodes of columns, `veilgraph.ir.party.columns.Columns`, as objects.

    Args:
        node: makes one of its fields in order.
        operations, places, tensors, pairs: what the columns' numbers are of.
        counted: the attribute whose value is in the column `number`.

    Raises:
        ValueError: columns of other lists, or of other lengths.
    """

    def __init__(
        self,
        node: Callable[..., Node],
        operations: tuple[Any, ...],
        places: tuple[tuple[Any, ...], ...],
        tensors: tuple[tuple[Any, ...], ...],
        pairs: tuple[tuple[Any, ...], ...],
        counted: str,
        op: npt.NDArray[np.uint8],
        place: Int32s,
        tensor: Int32s,
        attributes: Int32s,
        number: Int64s,
        layer: Int32s,
        first: Int64s,
        args: Int32s,
    ) -> None: ...
    def node(self, row: int) -> Node:
        """The node of a row, made anew.

        Raises:
            IndexError: there is no such row.
        """

Block = tuple[
    npt.NDArray[np.uint8], Int32s, Int32s, Int32s, Int64s, Int64s, Int64s,
]  # fmt: skip

class Alike:
    """What nodes of one operation, of the same attributes and type, have in common."""

    def __init__(self, op: int, tensor: int, attributes: int) -> None: ...

class Rows:
    """The nodes of a program that is being made, as columns; of equal nodes one is made.

    Where a node is made is a party and a phase of an entry; what setup makes is of entry 0. Methods
    raise IndexError for nodes that are not there.

    Attributes:
        watched: a number of rows. Of what is made again it is noted whether one of these is equal.
        has_reused: whether one was, setup's apart.
    """

    watched: int
    has_reused: bool

    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def apply(
        self, alike: Alike, copies: Sequence[Mapping[int, int]], entry: int, layer: int
    ) -> dict[int, int]:
        """The nodes that are this operation, in the latest phase of its operands, at every party
        that holds all of them: by parties, in order. Those that are new are made.

        Args:
            copies: of each operand the rows of its copies, by parties.
        """

    def add(
        self,
        alike: Alike,
        party: int,
        args: Sequence[int],
        phase: int,
        entry: int,
        layer: int,
        number: int = -1,
    ) -> int:
        """The row of a new node, which none that is made later is equal to."""

    def once(
        self,
        alike: Alike,
        party: int,
        args: Sequence[int],
        phase: int,
        entry: int,
        layer: int,
        number: int = -1,
    ) -> int:
        """The row of the node that is equal, made if it is new."""

    def phase(self, row: int) -> int: ...
    def row(
        self, row: int
    ) -> tuple[tuple[int, int, int, int, int], tuple[int, int, int], tuple[int, ...]]:
        """Op, tensor, attributes, number and layer of a node; its place; its operands."""

    def arrays(
        self, first: int
    ) -> tuple[npt.NDArray[np.uint8], Int32s, Int32s, Int32s, Int64s, Int32s, Int64s, Int32s]:
        """Copies, from a row on: op, place, tensor, attributes, number, layer, first and args of
        `veilgraph.ir.party.columns.Columns`; `first` counts from the first of `args`.
        """

    def places(self) -> list[tuple[int, int, int]]:
        """Parties, phases and entries, by the numbers of places."""

    def know(self, rows: Int64s) -> None:
        """From now on these are found where nodes that are equal are made."""

    def knows(self, block: Block, rows: Int64s, at: Int64s) -> bool:
        """Whether some of these rows of a block would be found; they have no number.

        Args:
            at: as in `add_block`.
        """

    def add_block(
        self, block: Block, at: Int64s, draw: int, draws: int, sends: int, layer: int
    ) -> None:
        """Adds rows, by op, place, tensor, attributes, number, ends and args of
        `veilgraph.ir.party.columns.RowBlock`.

        Args:
            at: the rows of its operands, by their places.
            draw: the operation whose numbers count from `draws` on, those of others from `sends`.

        Raises:
            ValueError: columns are of other lengths.
        """
