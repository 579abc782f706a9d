"""Where comparisons beside a function leave its window to bound what it takes.

Such a comparison takes the function's value at an end for all operands beyond it. That is exact
where the function is flat, and where a power of e is 0; a power of e above its end is lost.
"""

from __future__ import annotations

from enum import Enum

from veilgraph.targets.functions.catalogue import FUNCTIONS, Tail


class Sides(Enum):
    """Which operands a function's window bounds."""

    NEITHER = "neither"
    ABOVE = "above"
    BOTH = "both"


def limited_sides(function: str, has_lower: bool, has_upper: bool) -> Sides:
    """The sides on which the operand of `function` must stay within its window.

    Args:
        has_lower, has_upper: whether a comparison decides below, or above.
    """
    known = FUNCTIONS.get(function)
    tail = Tail.NONE if known is None else known.tail
    if tail is Tail.FLAT and (has_lower or has_upper):
        return Sides.NEITHER
    return Sides.ABOVE if tail is Tail.ZERO and has_lower else Sides.BOTH
