"""A second comparison of suite additive, for tests of choices: one function and one row.

The borrow goes through digits of two bits one after another, a merge of two in each round: fewer
bits than the suite's merges of several send, in more rounds.
"""

from __future__ import annotations

from dataclasses import replace
from operator import xor

import numpy as np
import pytest
from models import model
from onnx import ModelProto, helper

from veilgraph.ir.party.program import Value
from veilgraph.targets.blocks.borrow import first_level, merged
from veilgraph.targets.blocks.digits import Group, Split
from veilgraph.targets.blocks.window import Bit, opened_bit
from veilgraph.targets.parties import Provider
from veilgraph.targets.suite import Suite
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


def ripple(d: Provider, c: Value, r: Value, low: int, count: int, flip: Value | None = None) -> Bit:
    """[c < r] on `count` bits from `low` up, XOR `flip`.  ceil(count / 2) rounds; 2 bits each."""
    sizes = (*(2 for _ in range(count // 2)), *(1 for _ in range(count % 2)))
    below, *above = first_level(d, c, r, low, Split(sizes, 2))
    for digit in above:
        below = merged(d, Group(2, True), [below, digit])
    return opened_bit(d, below.G if flip is None else tuple(map(xor, below.G, d.deal(flip))))


def copy_of(name: str, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """A copy of a suite, in its place, to which a test may add."""
    suite = replace(SUITES[name], protocols=dict(SUITES[name].protocols))
    monkeypatch.setitem(SUITES, name, suite)
    return suite


def additive_with_two(monkeypatch: pytest.MonkeyPatch) -> Suite:
    """Suite additive with its first comparison and this one, in place of the suite."""
    suite = copy_of("additive", monkeypatch)
    suite.protocols["compare"] = suite.protocols["compare"][:1]
    suite.protocol("compare", variant="ripple")(ripple)
    return suite
