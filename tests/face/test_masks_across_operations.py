"""What one operation of a plan drew or sent is used in another: each mutant is refused.

All blocks of these plans are alike, so a verifier that looked at each alone would accept them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from models import model
from onnx import helper
from small_plans_to_verify import retold

import veilgraph
from veilgraph.ir.errors import SecurityAbort
from veilgraph.ir.party import ops
from veilgraph.ir.party.node import Node
from veilgraph.ir.party.program import Program
from veilgraph.ir.party.text import parse_program
from veilgraph.passes.party.sums import Sums
from veilgraph.plans import Plan
from veilgraph.verification.verify import verify

WEIGHTS = np.random.default_rng(0).normal(size=(2, 4, 4)).astype(np.float32)
DEALERS = {"rep3": None, "additive": "dora"}


@pytest.fixture(scope="module", params=DEALERS)
def plan(request: pytest.FixtureRequest) -> Plan:
    """Twice a product and a ReLU, of one shape in one ring."""
    nodes = [
        helper.make_node("MatMul", ["x", "u"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["c"]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    twice = model(nodes, {"x": (1, 4)}, ["y"], {"u": WEIGHTS[0], "v": WEIGHTS[1]})
    suite = request.param
    return veilgraph.compile(twice, suite=suite, dealer=DEALERS[suite], ring=32)[0]


def masks(program: Program) -> set[int]:
    """The draws that a message has as a term, and its receiver does not know."""
    sums, found = Sums(program), set()
    for node in program.nodes:
        if node.op is ops.SEND:
            own = {drawn(sums, term) for term in sums.of(node.args[0]).terms} - {None}
            found |= {d for d in own if node.party not in program.draws[d].holders}
    return found


def drawn(sums: Sums, term: int) -> int | None:
    """The number of the draw that a term is, or has elements of; None for any other."""
    if term < 0:
        return -1 - term
    node = sums.program.nodes[sums.walks.selected[term]]
    return int(node["number"]) if node.op is ops.DRAW else None


def alike(program: Program) -> Iterator[tuple[Node, Node]]:
    """Draws of two operations, of the same holders, shape and phase."""
    found: dict[object, dict[int, Node]] = defaultdict(dict)
    for node in (n for n in program.nodes if n.op is ops.DRAW):
        holders = program.draws[node["number"]].holders
        found[holders, node.shape, node.type, node.phase].setdefault(node["number"], node)
    for each in found.values():
        yield from ((a, b) for a, b in pairwise(each.values()) if a.layer != b.layer)


def test_a_mask_of_another_operation_hides_nothing(plan: Plan) -> None:
    program = parse_program(plan.ir["party"])
    hiding, refused = masks(program), 0
    for kept, gone in alike(program):

        def reuse(p: Program, new: Node = kept, old: int = gone["number"]) -> None:
            for node in [*p.nodes]:
                if node.op is ops.DRAW and node["number"] == old:
                    p.nodes[node.id] = replace(node, attrs=new.attrs)

        if {kept["number"], gone["number"]} <= hiding:
            with pytest.raises(SecurityAbort, match="is not hidden from"):
                verify(retold(plan, reuse))
            refused += 1
    assert refused >= 4


def resent(program: Program) -> Iterator[tuple[Node, Node]]:
    """A message, and one of a later operation, from the same party to the other one."""
    sends = [node for node in program.nodes if node.op is ops.SEND]
    for first in sends:
        sender = program.nodes[first.args[0]].party
        for later in (n for n in sends if n.id > first.id and n.layer != first.layer):
            alike = (later.shape, later.type, later.stage) == (first.shape, first.type, first.stage)
            is_same = program.nodes[later.args[0]].party == sender
            if alike and is_same and later.party != first.party:
                yield first, later
                break


def test_a_message_of_another_operation_is_not_sent_to_a_third(plan: Plan) -> None:
    """In place of what is sent there: then either sees what the other's mask hides."""
    refused = 0
    for first, later in resent(parse_program(plan.ir["party"])):

        def resend(p: Program, new: Node = first, old: Node = later) -> None:
            p.nodes[old.id] = replace(old, args=new.args)

        with pytest.raises(SecurityAbort, match=r"is not hidden from|that no output needs"):
            verify(retold(plan, resend))
        refused += 1
    assert refused >= 4
