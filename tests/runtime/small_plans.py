"""A small plan with all there is: y = truncate(x w) for bob, its sum for alice; rep3."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from interpreters import plan_of

from veilgraph.ir.party.program import Program, Value
from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import Pace, Phase
from veilgraph.ir.types import words
from veilgraph.passes.party.expand_protocols import Expanded
from veilgraph.targets.parties import Member, Operation, Parties, Sharing
from veilgraph.targets.suite import Suite
from veilgraph.targets.suites import SUITES

REP3 = SUITES["rep3"]
Integers = npt.NDArray[np.int64]
X: Integers = np.arange(-12, 12).reshape(4, 6) * 16
W: Integers = np.arange(-9, 9).reshape(6, 3) * 16


def small_plan(ring_bits: int = 40) -> Plan:
    """Input x of alice [4, 6], weight w of carol [6, 3]; outputs y of bob and total of alice."""
    program = Program(("alice", "bob", "carol"))
    p, suite = Parties(program, (0, 1, 2)), REP3
    x = shared(p, "input", "x", 0, X.shape, ring_bits)
    w = shared(p, "weight", "w", 2, W.shape, ring_bits)
    y = suite.offered("matmul")(p, Operation("matmul", (4, 3), ring_bits, {}), x, w)
    y = suite.offered("truncate")(p, Operation("truncate", (4, 3), ring_bits, {"bits": 4}), y)
    axes = {"axes": (0, 1), "keepdims": False}
    total = suite.offered("reduce_sum")(p, Operation("reduce_sum", (), ring_bits, axes), y)
    program.output(revealed(p, 1, y), 1, "y", 4)
    program.output(revealed(p, 0, total), 0, "total", 4)
    plan = plan_of(Expanded(program))
    ranged = tuple(replace(t, low=-1000.0, high=1000.0) for t in plan.party("alice").inputs)
    alice = replace(plan.party("alice"), inputs=ranged)
    owners = {"x": "alice", "weights": "carol"}
    manifest = replace(plan.manifest, owners=owners, ring_bits=ring_bits)
    return replace(plan, manifest=manifest, programs={**plan.programs, "alice": alice})


LARGE = 300_000


def large_plan(elements: int = LARGE) -> Plan:
    """y = max(x, 0) for bob of so many numbers of alice: messages that are sent in pieces."""
    program = Program(("alice", "bob", "carol"))
    p = Parties(program, (0, 1, 2))
    x = shared(p, "input", "x", 0, (elements,), 64)
    window = {"window_bits": 24, "dropped_bits": 0}
    y = REP3.offered("relu")(p, Operation("relu", (elements,), 64, window), x)
    program.output(revealed(p, 1, y), 1, "y", 4)
    return plan_of(Expanded(program))


ROWS = 250_000
MIXED: Integers = np.arange(16).reshape(4, 4) * 16


def mixed_plan() -> Plan:
    """y = truncate(x w) for bob, x of alice in so many rows of four, w of carol: messages that are
    aligned.
    """
    program = Program(("alice", "bob", "carol"))
    p, suite = Parties(program, (0, 1, 2)), REP3
    x = shared(p, "input", "x", 0, (ROWS, 4), 64)
    w = shared(p, "weight", "w", 2, MIXED.shape, 64)
    with program.in_layer("mixed"):
        y = suite.offered("matmul")(p, Operation("matmul", (ROWS, 4), 64, {}), x, w)
        y = suite.offered("truncate")(p, Operation("truncate", (ROWS, 4), 60, {"bits": 4}), y)
    program.output(revealed(p, 1, y), 1, "y", 4)
    return plan_of(Expanded(program), pace=Pace(10_000, 1_000_000))


FILTERED: Integers = np.arange(-75, 75).reshape(2, 3, 5, 5) * 16
FILTERS: Integers = np.arange(-54, 54).reshape(4, 3, 3, 3) * 16


def filtered_plan() -> Plan:
    """y = images x of alice, filtered by weights w of carol, for bob."""
    program = Program(("alice", "bob", "carol"))
    p = Parties(program, (0, 1, 2))
    x = shared(p, "input", "x", 0, FILTERED.shape, 40)
    w = shared(p, "weight", "w", 2, FILTERS.shape, 40)
    attrs = {"strides": (2, 1), "pads_low": (1, 1), "dilations": (1, 1), "groups": 1}
    y = REP3.offered("conv")(p, Operation("conv", (2, 4, 3, 5), 40, attrs), x, w)
    program.output(revealed(p, 1, y), 1, "y", 8)
    return plan_of(Expanded(program))


def shared(
    p: Parties,
    role: str,
    name: str,
    owner: int,
    shape: tuple[int, ...],
    ring_bits: int,
    suite: Suite = REP3,
) -> Sharing:
    phase = Phase.SETUP if role == "weight" else Phase.ONLINE
    with p.program.in_phase(phase):
        value = p.program.source(role, name, owner, shape, words(ring_bits))
        made: Sharing = suite.share(p, Member(owner), value)
    return made


def revealed(p: Parties, receiver: int, x: Sharing, suite: Suite = REP3) -> Value:
    value: Any = suite.reveal(p, Member(receiver), x)
    assert isinstance(value, Value)
    return value


def check_answer(y: npt.NDArray[np.float32], x: Integers = X, w: Integers = W) -> None:
    """y, of four fraction bits, is x w / 2^4 rounded down or up."""
    units = y * 16 - (x @ w >> 4)
    assert set(np.unique(units)) <= {0, 1}
