"""Lowered programs, interpreted with known keys, do and send what the oracle does."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interpreters import check_interpreters, known_keys, plan_of, run_interpreters
from random_programs import RandomProgram

from veilgraph.ir.party import ops
from veilgraph.ir.party.ops import PartyOp
from veilgraph.ir.party.program import Program, Value, apply, join
from veilgraph.ir.plan.tables import Pace, Phase
from veilgraph.ir.types import words
from veilgraph.passes.party.expand_protocols import Expanded

W = words(32)
Inputs = dict[str, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 40), st.integers(1, 4))
def test_random_programs(choices: random.Random, operations: int, parties: int) -> None:
    """Two inferences of a session: all operations, phases, parties, widths and rounds' times."""
    made = RandomProgram(choices, parties)
    expanded = made.grow(operations)
    pace = Pace(choices.choice((0, 1, 100)), choices.choice((0, 1)))
    batches = [made.inputs(), made.inputs()]
    check_interpreters(expanded, batches, made.weight_values(), pace=pace)


def check(build: Callable[[Program], Inputs], threads: int = 1) -> None:
    program = Program(("alice", "bob", "carol"))
    inputs = build(program)
    check_interpreters(Expanded(program), [inputs, inputs], threads=threads)


def source(program: Program, name: str, shape: Sequence[int], owner: int = 0) -> Value:
    return program.source("input", name, owner, tuple(shape), W)


@pytest.mark.parametrize("elements", [0, 1, 3, 5, 7, 63, 65])
def test_padding_of_a_message_is_zero(elements: int) -> None:
    """An odd number of 32-bit words is padded: not with what lay in memory before."""

    def build(program: Program) -> Inputs:
        x = source(program, "x", (4, elements))
        sums = apply(ops.REDUCE_SUM, (x * x + 0x70000000,), (1, elements), W, axes=(0,))
        program.output(program.send(sums, 0, 1).only(1), 1, "y", 0)
        return {"x": np.arange(4 * elements).reshape(4, elements)}

    check(build)


def test_one_operand_broadcast_in_two_ways() -> None:
    """A reshape in a fused chain changes how an operand is repeated."""

    def build(program: Program) -> Inputs:
        a, b = source(program, "a", (2, 3, 4)), source(program, "b", (3, 1))
        program.output((a + b).reshape((3, 8)) + b, 0, "y", 0)
        return {"a": np.arange(24).reshape(2, 3, 4), "b": np.array([[100], [200], [300]])}

    check(build)


def test_outputs_that_are_public_constants() -> None:
    program = Program(("alice", "bob"))
    expanded = Expanded(program)
    for value, bits in ((np.arange(6).reshape(2, 3), 40), (np.arange(-3, 2), 32)):
        expanded.constants.append(value)
        expanded.constant_rings.append(bits)
    whole = program.constant(0, (2, 3), words(40))
    part = program.constant(1, (5,), W)
    program.output(whole.reshape((6,)), 0, "y0", 0)
    program.output(part.chunk(1, 3), 1, "y1", 0)
    program.output(program.const(-7, (4,), words(24)), 1, "y2", 0)
    check_interpreters(expanded, [{}, {}])


def test_public_constants_begin_at_multiples_of_64_bytes() -> None:
    """Kernels read them in place, and each is aligned as all memory of a plan is."""
    program = Program(("alice",))
    expanded = Expanded(program)
    for number, count in enumerate((3, 17, 2)):
        expanded.constants.append(np.arange(count) + 10 * number)
        expanded.constant_rings.append(32)
        program.output(program.constant(number, (count,), W), 0, f"y{number}", 0)
    found = np.frombuffer(plan_of(expanded).constants, "<u4")
    np.testing.assert_array_equal(found[:3], [0, 1, 2])
    np.testing.assert_array_equal(found[16:33], np.arange(10, 27))
    np.testing.assert_array_equal(found[48:], [20, 21])


def test_an_output_that_is_the_input() -> None:
    def build(program: Program) -> Inputs:
        x = source(program, "x", (3, 2))
        program.output(x, 0, "same", 0)
        program.output(x.chunk(2, 3), 0, "part", 0)
        return {"x": np.arange(6).reshape(3, 2) - 3}

    check(build)


def test_chunks_joined_in_any_order() -> None:
    """A join is made in place where it can be: not for a value that is in it twice."""

    def build(program: Program) -> Inputs:
        x = source(program, "x", (10,))
        a, b = x.chunk(0, 4) * 3, x.chunk(4, 6) + 1
        for number, parts in enumerate(([a, b], [b, a], [a, a, b], [b, x, b])):
            size = sum(part.elements for part in parts)
            program.output(join(parts, (size,)), 0, f"y{number}", 0)
        program.output(a * b.chunk(0, 4), 0, "z", 0)
        return {"x": np.arange(10)}

    check(build)


@pytest.mark.parametrize("elements", [511, 512, 513, 4097, 70_000])
def test_several_blocks_and_threads(elements: int) -> None:
    def build(program: Program) -> Inputs:
        x = source(program, "x", (elements,))
        r = program.draw((0, 1), (elements,), words(17))
        sent = program.send((x.mod(17) + r).only(0), 0, 1)
        bits = program.send((sent - r).bits(3, 5), 1, 2)
        program.output(bits.to_words(9), 2, "y", 0)
        return {"x": np.arange(elements) * 997}

    check(build, threads=3)


def test_setup_draws_are_of_the_session_and_others_of_the_inference() -> None:
    program = Program(("alice", "bob"))
    for phase in Phase:
        with program.in_phase(phase):
            drawn = program.draw((0, 1), (70,), words(40))
        program.output(drawn.only(0), 0, phase.name, 0)
        program.output((drawn * 1 + 0).only(1), 1, f"{phase.name} of bob", 0)
    plan = plan_of(Expanded(program))
    first, second = run_interpreters(plan, known_keys(2, 3), [{}, {}])
    for phase in Phase:
        same = phase == Phase.SETUP
        for party, name in ((0, phase.name), (1, f"{phase.name} of bob")):
            assert (first.outputs[party, name] == second.outputs[party, name]).all() == same
        np.testing.assert_array_equal(
            first.outputs[0, phase.name], first.outputs[1, f"{phase.name} of bob"]
        )


def products(
    *extents: tuple[int, ...], op: PartyOp, shape: tuple[int, ...], **attrs: object
) -> int:
    """The multiply-adds that a plan says of one op on operands of these extents."""
    program = Program(("alice",))
    operands = [source(program, f"x{i}", extent) for i, extent in enumerate(extents)]
    program.output(apply(op, operands, shape, W, **attrs), 0, "y", 0)
    return sum(layer.multiply_adds for layer in plan_of(Expanded(program)).layers)


def test_products_of_matrices_are_counted() -> None:
    """Rows times columns times what is summed, in each matrix of a batch, for each pair."""
    assert products((1, 3, 5), (1, 5, 7), op=ops.MATMUL, shape=(1, 3, 7)) == 3 * 5 * 7
    pairs = ((2, 3, 5), (2, 5, 7), (2, 3, 5), (2, 5, 7))
    assert products(*pairs, op=ops.MATMUL, shape=(2, 3, 7)) == 2 * 2 * 3 * 5 * 7


@pytest.mark.parametrize(("groups", "inner"), [(1, 6 * 3 * 2), (2, 3 * 3 * 2), (6, 3 * 2)])
def test_products_of_a_convolution_are_counted(groups: int, inner: int) -> None:
    """Each result sums over its group's channels and a window of 3x2: 12 maps of 5x8 from 7x9."""
    geometry = {"strides": (1, 1), "pads_low": (0, 0), "dilations": (1, 1), "groups": groups}
    image, kernel, shape = (2, 6, 7, 9), (12, 6 // groups, 3, 2), (2, 12, 5, 8)
    one = products(image, kernel, op=ops.CONV2D, shape=shape, **geometry)
    assert one == 2 * 12 * 5 * 8 * inner
    two = products(image, kernel, image, kernel, op=ops.CONV2D, shape=shape, **geometry)
    assert two == 2 * one
