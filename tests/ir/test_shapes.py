"""Shape rules: results, and a reason for everything that doesn't fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from veilgraph.ir import shapes

SIDE: dict[str, Any] = {"strides": (1, 1), "pads_low": (0, 0), "pads_high": (0, 0)}


@pytest.mark.parametrize(
    ("inferred", "expected"),
    [
        (shapes.broadcast((2, 1, 3), (4, 1), ()), (2, 4, 3)),
        (shapes.broadcast((0, 3), (1, 3)), (0, 3)),
        (shapes.matmul((5, 2, 3), (3, 4)), (5, 2, 4)),
        (shapes.matmul((3,), (3, 4)), (4,)),
        (shapes.matmul((2, 3), (3,)), (2,)),
        (shapes.matmul((3,), (3,)), ()),
        (shapes.matmul((5, 1, 2, 3), (4, 3, 6)), (5, 4, 2, 6)),
        (shapes.window((9, 8), (3, 2), (2, 3), (1, 0), (0, 1), (2, 1)), (3, 3)),
        (
            shapes.conv((2, 4, 9, 8), (6, 2, 3, 3), (6,), dilations=(1, 1), groups=2, **SIDE),
            (2, 6, 7, 6),
        ),
        (shapes.pool((1, 2, 5, 5), kernel=(2, 2), dilations=(1, 1), **SIDE), (1, 2, 4, 4)),
        (shapes.batch_norm((2, 3), (3,), (3,)), (2, 3)),
        (shapes.reduce((2, 3, 4), (0, 2), True), (1, 3, 1)),
        (shapes.reduce((2, 3, 4), (0, 2), False), (3,)),
        (shapes.reshape((2, 6), (3, 4)), (3, 4)),
        (shapes.transpose((2, 3, 4), (2, 0, 1)), (4, 2, 3)),
        (shapes.concat([(2, 3), (2, 1)], 1), (2, 4)),
        (shapes.slice_((5, 6), (4, 0), (-2, 3), (3, 2)), (3, 2)),
        (shapes.pad((2, 3), (0, 1), (2, 0)), (4, 4)),
        (shapes.expand((3, 1), (2, 3, 5)), (2, 3, 5)),
    ],
)
def test_results(inferred: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert inferred == expected


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (lambda: shapes.broadcast((2,), (3,)), "don't broadcast"),
        (lambda: shapes.matmul((), (3,)), "rank 1 or more"),
        (lambda: shapes.matmul((2, 3), (4, 5)), "3 and 4 differ"),
        (lambda: shapes.window((9, 9), (0, 1), (1, 1), (0, 0), (0, 0), (1, 1)), "kernel"),
        (lambda: shapes.window((9, 9), (1, 1), (0, 1), (0, 0), (0, 0), (1, 1)), "strides"),
        (lambda: shapes.window((9, 9), (1, 1), (1, 1), (-1, 0), (0, 0), (1, 1)), "pads_low"),
        (lambda: shapes.window((2, 9), (3, 1), (1, 1), (0, 0), (0, 0), (1, 1)), "doesn't fit"),
        (lambda: shapes.window((9, 9), (1, 1, 1), (1, 1), (0, 0), (0, 0), (1, 1)), "kernel"),  # type: ignore[arg-type]
        (
            lambda: shapes.conv((1, 4, 9), (6, 4, 3, 3), None, groups=1, dilations=(1, 1), **SIDE),
            "conv needs",
        ),
        (
            lambda: shapes.conv(
                (1, 4, 9, 9), (6, 3, 3, 3), None, groups=1, dilations=(1, 1), **SIDE
            ),
            "channels in",
        ),
        (
            lambda: shapes.conv(
                (1, 4, 9, 9), (5, 2, 3, 3), None, groups=2, dilations=(1, 1), **SIDE
            ),
            "5 channels out",
        ),
        (
            lambda: shapes.conv(
                (1, 4, 9, 9), (6, 4, 3, 3), (5,), groups=1, dilations=(1, 1), **SIDE
            ),
            "bias",
        ),
        (lambda: shapes.pool((1, 4, 9), kernel=(1, 1), dilations=(1, 1), **SIDE), "a pool needs"),
        (
            lambda: shapes.pool((1, 4, 9, 9), (2, 2), (1, 1), (2, 0), (0, 0), (1, 1)),
            "only padding",
        ),
        (
            lambda: shapes.pool((1, 4, 9, 9), (2, 2), (3, 1), (0, 0), (2, 0), (1, 1)),
            "only padding",
        ),
        (lambda: shapes.batch_norm((4,), (4,)), "batch_norm needs"),
        (lambda: shapes.batch_norm((1, 4), (3,), (4,)), "parameters"),
        (lambda: shapes.axis_in(2, 2), "outside rank 2"),
        (lambda: shapes.reduce((2, 3), (1, 1), True), "distinct"),
        (lambda: shapes.reduce((2, 3), (), True), "distinct"),
        (lambda: shapes.reduce((2, 3), (-1,), True), "outside rank"),
        (lambda: shapes.reshape((2, 3), (5,)), "element count"),
        (lambda: shapes.transpose((2, 3), (0, 0)), "permutes"),
        (lambda: shapes.concat([(2, 3), (3, 3)], 1), "don't join"),
        (lambda: shapes.concat([(2, 3)], 2), "outside rank"),
        (lambda: shapes.slice_((5,), (0, 0), (1,), (2,)), "one start"),
        (lambda: shapes.slice_((5,), (0,), (0,), (2,)), "not legal"),
        (lambda: shapes.slice_((5,), (3,), (1,), (3,)), "leaves 5"),
        (lambda: shapes.slice_((5,), (1,), (-1,), (3,)), "leaves 5"),
        (lambda: shapes.pad((2,), (-1,), (0,)), "negative"),
        (lambda: shapes.pad((2,), (), ()), "one low"),
        (lambda: shapes.expand((3,), (2,)), "don't broadcast"),
        (lambda: shapes.expand((3, 1), (3,)), "doesn't expand"),
    ],
)
def test_refusals(rule: Callable[[], object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        rule()
