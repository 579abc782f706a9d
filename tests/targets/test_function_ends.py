"""On which sides a function's window bounds what it takes."""

from __future__ import annotations

import pytest

from veilgraph.targets.functions.ends import Sides, limited_sides


@pytest.mark.parametrize(
    ("function", "has_lower", "has_upper", "expected"),
    [
        ("sigmoid", True, True, Sides.NEITHER),
        ("tanh", False, False, Sides.BOTH),
        ("exp", True, True, Sides.ABOVE),
        ("exp", False, True, Sides.BOTH),
        ("gelu", True, True, Sides.BOTH),
        ("no function at all", True, True, Sides.BOTH),
    ],
)
def test_a_window_bounds(function: str, has_lower: bool, has_upper: bool, expected: Sides) -> None:
    assert limited_sides(function, has_lower, has_upper) is expected
