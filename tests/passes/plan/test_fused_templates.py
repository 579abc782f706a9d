"""Fused programs from templates are those that actions have alone."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import RandomProgram

from veilgraph.ir.party.program import Program, Value
from veilgraph.ir.types import words
from veilgraph.passes.party.batch_rounds import batch_rounds
from veilgraph.passes.plan.fuse_local import LocalSteps, fuse_local
from veilgraph.passes.plan.fused_code import Code, FusedCode
from veilgraph.passes.plan.fused_templates import FusedPrograms, Templates


def both(steps: LocalSteps, templates: Templates) -> list[tuple[Code, Code]]:
    """Each fused action's program, alone and from templates."""
    found = []
    draws = steps.schedule.program.draws
    for party, segments in enumerate(steps.segments):
        holders = sorted({d.holders for d in draws if party in d.holders}, key=sorted)
        keys = {who: number for number, who in enumerate(holders)}
        alone = FusedCode(steps, party, keys)
        shared = FusedPrograms(steps, party, keys, templates)
        for segment in segments:
            for action in segment.actions:
                if action.fused:
                    at = action, segment.position
                    found.append((alone.compile(*at), shared.compile(*at)))
    return found


def check(*programs: Program) -> tuple[int, int]:
    """How many fused actions there are, and how many templates made them."""
    templates: Templates = {}
    found = [pair for p in programs for pair in both(fuse_local(batch_rounds(p)), templates)]
    for alone, shared in found:
        assert alone.elements == shared.elements
        assert alone.streams == shared.streams
        np.testing.assert_array_equal(alone.params, shared.params)
    return len(found), len(templates)


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 40))
def test_random_programs(choices: random.Random, operations: int) -> None:
    """A form says all that its program depends on: templates of one program serve another."""
    check(*(RandomProgram(choices).grow(operations).program for _ in range(4)))


def masked(p: Program, x: Value, times: int = 3) -> Value:
    """A chain that draws, sends and computes."""
    mask = p.draw((0, 2), x.shape, x.type)
    return p.send((x * times - mask).only(0), 0, 1)


def chains(*sizes: int, times: tuple[int, ...] = (), bits: int = 32) -> Program:
    p = Program(("alice", "bob", "carol"))
    for number, size in enumerate(sizes):
        x = p.source("input", f"x{number}", 0, (size,), words(bits))
        y = masked(p, x, times[number] if times else 3)
        p.output((y + 1).only(1), 1, f"y{number}", 0)
    return p


def test_chains_of_other_lengths_and_draws_share_a_program() -> None:
    actions, templates = check(chains(5, 8, 5))
    assert actions == 3 * templates


def test_another_constant_is_another_program() -> None:
    _, alike = check(chains(5, 6))
    _, differing = check(chains(5, 6, times=(3, 5)))
    assert differing == alike + 1


def test_broadcasts_differ_by_how_they_repeat() -> None:
    p = Program(("alice",))
    x = p.source("input", "x", 0, (6, 4), words(32))
    for name, shape in (("rows", (4,)), ("columns", (6, 1)), ("again", (4,))):
        y = p.source("input", name, 0, shape, words(32))
        p.output((x + y) * 3, 0, name, 0)
    assert check(p) == (3, 2)


def test_one_operand_twice_is_not_two_operands() -> None:
    p = Program(("alice", "bob"))
    r, s, t = (p.draw((0,), (5,), words(32)) for _ in range(3))
    x, y = (p.source("input", name, 0, (5,), words(32)) for name in "xy")
    for number, value in enumerate((r * r, s * t, x * x, x * y)):
        p.output(value, 0, f"y{number}", 0)
    assert check(p) == (4, 4)
