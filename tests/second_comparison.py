"""A second comparison of suite additive, for tests of choices: one function and one row.

The borrow goes through one digit after another, in D - 1 rounds of one gate where the suite's tree
takes ceil(log2 D) rounds of nearly two.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from models import model
from onnx import ModelProto, helper

from veilgraph.ir.party.program import Value
from veilgraph.targets.blocks.carry import picked, xor
from veilgraph.targets.suite import Parties, Sharing, Suite
from veilgraph.targets.suites import SUITES
from veilgraph.targets.suites.additive import and_planes, digits

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


def ripple(p: Parties, c: Value, r: Value, low: int, count: int) -> Sharing:
    """[c < r] on `count` bits from `low` up.  D - 1 rounds; 2 (D - 1) bits."""
    G, P = digits(p, c, r, low, count)
    below = picked(G, 0, 1)
    for digit in range(1, G.type.bits):
        assert P is not None
        passed = and_planes(p, picked(P, digit - 1, 1), below)
        below = xor(picked(G, digit, 1), passed)
    return below


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
