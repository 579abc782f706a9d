"""A second comparison of suite additive, for tests of choices: one function and one row.

The borrow goes through digits of two bits one after another, a merge of two in each round: fewer
bits than the suite's merges of several send, in more rounds.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from models import model
from onnx import ModelProto, helper

from veilgraph.ir.party.program import Value
from veilgraph.targets.blocks.borrow import first_level, merged
from veilgraph.targets.blocks.digits import Group, Split
from veilgraph.targets.blocks.window import Parts
from veilgraph.targets.suite import Provider, Suite
from veilgraph.targets.suites import SUITES

PERCEPTRON: ModelProto = model(
    [
        helper.make_node("Gemm", ["x", "w"], ["z"]),
        helper.make_node("Relu", ["z"], ["a"], name="hidden"),
        helper.make_node("Gemm", ["a", "v"], ["y"]),
    ],
    {"x": (1, 4)},
    ["y"],
    {
        "w": np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3),
        "v": np.linspace(1, -1, 6, dtype=np.float32).reshape(3, 2),
    },
)


def ripple(d: Provider, c: Value, r: Value, low: int, count: int) -> Parts:
    """[c < r] on `count` bits from `low` up.  ceil(count / 2) - 1 rounds; 2 bits each."""
    sizes = (*(2 for _ in range(count // 2)), *(1 for _ in range(count % 2)))
    below, *above = first_level(d, c, r, low, Split(sizes, 2))
    for digit in above:
        below = merged(d, Group(2, True), [below, digit])
    return below.G


def copy_of(name: str, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """A copy of a suite, in its place, to which a test may add."""
    suite = replace(SUITES[name], protocols=dict(SUITES[name].protocols))
    monkeypatch.setitem(SUITES, name, suite)
    return suite


def additive_with_two(monkeypatch: pytest.MonkeyPatch) -> Suite:
    """Suite additive with both comparisons, in place of the suite."""
    suite = copy_of("additive", monkeypatch)
    suite.protocol("compare", variant="ripple")(ripple)
    return suite
