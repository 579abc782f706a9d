"""Suites without a mask, compiled through the public door: no plan comes out.

The stage of the compiler is what is tested here; which mutants it has to refuse, and why the others
tell nothing, is in test_mutants.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from models import model
from onnx import helper
from test_mutants import mutant

import veilgraph
from veilgraph.ir.party.program import Value
from veilgraph.ir.plan.tables import Phase
from veilgraph.passes.party import expand_protocols
from veilgraph.passes.party.verify_masking import MaskingError
from veilgraph.targets.parties import Form, Member, Operation, Parties, Sharing
from veilgraph.targets.suite import Suite
from veilgraph.targets.suites import SUITES
from veilgraph.targets.suites.rep3 import masked
from veilgraph.targets.variants import Variant

REP3, ADDITIVE = SUITES["rep3"], SUITES["additive"]
PERCEPTRON = model(
    [
        helper.make_node("Gemm", ["x", "w", "b"], ["z"]),
        helper.make_node("Relu", ["z"], ["a"]),
        helper.make_node("Gemm", ["a", "v", "c"], ["y"]),
    ],
    {"x": (1, 4)},
    ["y"],
    {
        "w": np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3),
        "b": np.array([0.1, -0.2, 0.3], np.float32),
        "v": np.linspace(1, -1, 6, dtype=np.float32).reshape(3, 2),
        "c": np.array([0.5, -0.5], np.float32),
    },
)
DEALERS = {"rep3": None, "additive": "dora"}


def compiled(
    suite: str, receivers: tuple[str, ...] = ("alice",), comparison: str = "merges"
) -> veilgraph.Plan:
    """For one receiver an output is rounded as it is revealed, for several before that."""
    plan, _ = veilgraph.compile(
        PERCEPTRON,
        suite=suite,
        dealer=DEALERS[suite],
        ring=32,
        receivers={"y": receivers},
        protocols={"compare": comparison},
    )
    return plan


# Draws that mask nothing


@pytest.mark.parametrize(
    ("comparison", "fault"),
    [
        *product(["merges"], ["missing", "of the setup", "known to 1"]),
        *product(["tree"], ["of the setup", "known to 1"]),  # no block is missing: none is constant
    ],
)
@pytest.mark.parametrize("suite", ["rep3", "additive"])
def test_no_plan_without_a_mask(
    suite: str, comparison: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few draws; which have to be refused, and why, is in test_mutants.py."""
    refused = 0
    for number in range(1, 24, 2):
        monkeypatch.setattr(expand_protocols, "Program", mutant(number, fault))
        try:
            compiled(suite, comparison=comparison)
        except MaskingError:
            refused += 1
    assert refused >= 2


# Protocols that say too much


def shares_in_the_clear(p: Parties, source: Member, x: Value) -> Sharing:
    zero = p.program.const(0, x.shape, x.type)
    parts = [p.at(zero, j - 1, j) for j in p]
    owner = source.party
    parts[owner] = p.send(x, owner, owner - 1)
    return Sharing(tuple(parts), Form.REPLICATED)


def masked_from_the_setup(p: Parties, source: Member, x: Value) -> Sharing:
    with p.program.in_phase(Phase.SETUP):
        share: Sharing = REP3.share(p, source, x)
    return share


def truncated_in_the_open(p: Parties, op: Operation, z: Sharing) -> Sharing:
    """Parties 0 and 1 learn z."""
    total = p.at(z[0] + p.send(z[1], 1, 0) + p.send(z[2], 2, 0), 0)
    done: Sharing = REP3.share(p, Member(0), (total >> int(op["bits"])).mod(op.ring_bits))
    return done


def opened_without_a_mask(p: Parties, op: Operation, z: Sharing) -> Sharing:
    c = (p.provider.opened(z.parts) >> int(op["bits"])).mod(op.ring_bits)
    zero = p.program.const(0, c.shape, c.type)
    return Sharing(tuple(p.at(c if i == 0 else zero, i) for i in p), Form.ADDITIVE)


def told_to_one_more(p: Parties, receiver: Member, x: Sharing) -> Value:
    """The output goes to another party too, under the same name."""
    found: Value = REP3.reveal(p, receiver, x)
    other: Value = REP3.reveal(p, Member(receiver.party + 1), x)
    p.program.output(other, receiver.party + 1, "y", 0)
    return found


def told_with_an_extra(p: Parties, receiver: Member, x: Sharing) -> Value:
    """A second output, of a name that nobody asked for."""
    found: Value = REP3.reveal(p, receiver, x)
    p.program.output(found + 1, p.index(receiver), "more", 0)
    return found


def told_twice(p: Parties, receiver: Member, x: Sharing) -> Value:
    found: Value = REP3.reveal(p, receiver, x)
    p.program.output(found * found, p.index(receiver), "y", 0)
    return found


def told_a_mask(p: Parties, receiver: Member, x: Sharing) -> Value:
    """What two parts of a masked sharing add up to."""
    a = masked(p, x)
    i = receiver.party
    return p.at(a[i] + p.send(a[i + 1], i + 1, i, "reveal"), i)


def told_in_parts(p: Parties, receiver: Member, x: Sharing) -> Value:
    """Parts of a product, not masked: together they say more than their sum."""
    square = Operation("mul", x.shape, x.type.bits, {})
    x = REP3.offered("mul")(p, square, x, x)
    total = x[receiver.party]
    for i in p:
        if i != receiver.party:
            total = total + p.send(p.at(x[i], i), i, receiver, declared="reveal")
    return p.at(total, receiver)


def rounded_in_the_open(p: Parties, op: Operation, receiver: Member, z: Sharing) -> Value:
    """The receiver is told all of z, and rounds it itself."""
    return (told_in_parts(p, receiver, z) >> int(op["bits"])).mod(op.ring_bits)


def rounded_for_one_more(p: Parties, op: Operation, receiver: Member, z: Sharing) -> Value:
    found: Value = REP3.reveal_truncated(p, op, receiver, z)
    other: Value = REP3.reveal_truncated(p, op, Member(receiver.party + 1), z)
    p.program.output(other, receiver.party + 1, "y", 0)
    return found


SAYING_TOO_MUCH: tuple[tuple[Suite, str, Callable[..., Any], str], ...] = (
    (REP3, "share", shares_in_the_clear, "is not hidden from"),
    (REP3, "share", masked_from_the_setup, "is not hidden from"),
    (REP3, "truncate_relu", truncated_in_the_open, "is not hidden from"),
    (REP3, "reveal", told_to_one_more, "output 'y' is not for carol"),
    (REP3, "reveal", told_with_an_extra, "output 'more' is not for alice"),
    (REP3, "reveal", told_twice, "output 'y' stands twice at alice"),
    (REP3, "reveal", told_a_mask, "output 'y' tells alice draw"),
    (ADDITIVE, "truncate_relu", opened_without_a_mask, "is not hidden from"),
    (REP3, "reveal", told_in_parts, "is not hidden from"),
    (REP3, "reveal_truncated", rounded_in_the_open, "is not hidden from|ends in no output"),
    (REP3, "reveal_truncated", rounded_for_one_more, "output 'y' is not for bob"),
)


@pytest.mark.parametrize(
    ("suite", "op", "protocol", "message"),
    SAYING_TOO_MUCH,
    ids=[f"{s.name}-{f.__name__}" for s, _, f, _ in SAYING_TOO_MUCH],
)
def test_no_plan_of_a_suite_that_says_too_much(
    suite: Suite,
    op: str,
    protocol: Callable[..., Any],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if op in suite.protocols:
        spoilt = replace(suite, protocols={**suite.protocols, op: (Variant("spoilt", protocol),)})
    else:
        spoilt = replace(suite, **{op: protocol})
    monkeypatch.setitem(SUITES, suite.name, spoilt)
    with pytest.raises(MaskingError, match=message):
        compiled(suite.name, ("alice", "bob") if op == "reveal" else ("alice",))


@pytest.mark.parametrize("suite", ["rep3", "additive"])
def test_the_suites_as_they_are_make_plans(suite: str) -> None:
    assert compiled(suite).manifest.suite == suite
