"""Fused programs from templates are those that actions have alone."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import RandomProgram

from veilgraph.ir.party.program import Program, Value
from veilgraph.ir.types import words
from veilgraph.passes.party.batch_rounds import batch_rounds
from veilgraph.passes.plan import fused_templates
from veilgraph.passes.plan.fuse_local import LocalSteps, fuse_local
from veilgraph.passes.plan.fused_code import fused_code, keys_of, keys_of_draws
from veilgraph.passes.plan.fused_templates import forms, fused_actions, fused_programs

Code = tuple[list[tuple[int, int]], list[int]]  # streams and whether messages, parameters


def alone(steps: LocalSteps) -> list[Code]:
    """Each fused action's program, compiled by itself."""
    program = steps.schedule.program
    keys = keys_of_draws(steps.schedule.columns, program, keys_of(program))
    actions, found = fused_actions(steps), []
    for number in range(len(actions)):
        (made,) = fused_code(steps, keys, actions.take(np.array([number])))
        streams = zip(made.streams.tolist(), made.messages.tolist(), strict=True)
        found.append(([*streams], made.params.tolist()))
    return found


def shared(steps: LocalSteps) -> list[Code]:
    """Each fused action's program, of its form."""
    found = []
    for programs in fused_programs(steps):
        stream = param = 0
        for streams, params in programs.counts:
            rows = slice(stream, stream + streams)
            own = programs.streams[rows].tolist(), programs.messages[rows].tolist()
            values = programs.params[param : param + params].tolist()
            found.append(([*zip(*own, strict=True)], values))
            stream, param = stream + streams, param + params
    return found


def check(program: Program) -> tuple[int, int]:
    """How many fused actions there are, and how many forms they have."""
    steps = fuse_local(batch_rounds(program))
    assert shared(steps) == alone(steps)
    form, *_ = forms(steps, fused_actions(steps))
    return len(form), len({*form.tolist()})


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 160))
def test_random_programs(choices: random.Random, operations: int) -> None:
    """A form says all that its program depends on: the program of one action serves another."""
    check(RandomProgram(choices).grow(operations).program)


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


def test_another_program_has_no_template_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    check(chains(5, 8))

    def compiles(*_: object) -> None:
        raise AssertionError("what was compiled before is compiled again")

    monkeypatch.setattr(fused_templates, "fused_code", compiles)
    fused_programs(fuse_local(batch_rounds(chains(6, 7, 9))))


@pytest.mark.parametrize("most", [1, 1 << 12])
def test_programs_that_say_other_things_share_nothing(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their constants and types have the same places in lists, and few are kept."""
    monkeypatch.setattr(fused_templates, "MOST_KEPT", most)
    for times, bits in ((3, 32), (5, 32), (3, 40), (3, 64), (3, 32)):
        check(chains(5, times=(times,), bits=bits))


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
