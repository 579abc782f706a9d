"""Types of the native module; ir/party/native/bindings.cpp is its source."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Read = tuple[
    npt.NDArray[np.uint8], Int32s, Int32s, Int32s, Int64s, Int32s, Int64s, Int32s,
    list[str], list[str], list[str],
]  # fmt: skip

def read_lines(text: str, operations: Sequence[str], layers: int) -> Read | tuple[str, str]:
    """The nodes that lines of text say: columns op, place, type, attributes, number, layer, first
    and args of `veilgraph.ir.party.columns.Columns`, and the texts of places, types and attributes,
    each once. In a text of attributes # stands for the value of `number`.

    Args:
        operations: names, by their numbers.
        layers: how many there are.

    Returns:
        Of a text that says no nodes what is wrong, and the line.
    """

def first_of_forms(
    seen: Sequence[Int32s], own: Sequence[Int32s], first: Int64s, args: Int32s
) -> Int64s:
    """The first node of each form: of nodes alike in all columns whose operands are alike, in
    order, in the columns `seen`.

    Raises:
        ValueError: a node reads what is made after it.
    """
