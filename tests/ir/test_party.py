"""The party level: who holds what, what merges and what never does, its text and its grammar."""

from __future__ import annotations

import random
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import RandomProgram

from veilgraph.ir.party import (
    Node,
    PlacementError,
    Program,
    Value,
    broadcast_pattern,
    join,
    select,
    stack,
)
from veilgraph.ir.party_legality import IllegalParty, check_party
from veilgraph.ir.party_text import parse_program, print_program
from veilgraph.ir.plan import Phase
from veilgraph.ir.types import planes, words

W = words(32)


def program() -> Program:
    return Program(("alice", "bob", "carol"))


def source(p: Program, owner: int = 0, shape: tuple[int, ...] = (4,), name: str = "x") -> Value:
    return p.source("input", name, owner, shape, W)


# Placement


def test_operations_happen_where_all_operands_are() -> None:
    p = program()
    shared, own = p.draw((0, 1), (4,), W), source(p)
    assert sorted((shared + own).at) == [0]
    assert sorted((shared + 3).at) == [0, 1]
    assert sorted((own * shared + p.draw((0, 2), (4,), W)).at) == [0]


def test_a_value_that_nobody_holds_together_is_an_error() -> None:
    p = program()
    with pytest.raises(PlacementError, match="no party holds all operands"):
        _ = source(p) + p.draw((1, 2), (4,), W)


def test_only_a_send_adds_a_holder() -> None:
    p = program()
    x = source(p)
    assert sorted(p.send(x, 0, 2).at) == [0, 2]
    assert sorted(x.at) == [0]
    with pytest.raises(PlacementError, match="party 1 does not hold"):
        p.send(x, 1, 2)
    with pytest.raises(PlacementError, match="holds this value already"):
        p.send(p.send(x, 0, 2), 0, 2)
    with pytest.raises(PlacementError):
        p.send(x, 0, 0)
    with pytest.raises(PlacementError):
        p.output(x, 1, "y", 0)
    with pytest.raises(PlacementError):
        x.only(1)


# What merges


def test_equal_nodes_are_made_once() -> None:
    p = program()
    x, r = source(p), p.draw((0,), (4,), W)
    first = x + r
    count = len(p.nodes)
    assert (x + r).at == first.at
    assert len(p.nodes) == count
    assert (r + x).at != first.at


def test_draws_and_sends_never_merge() -> None:
    p = program()
    draws = [p.draw((0, 1), (4,), W) for _ in range(3)]
    assert len({d.at[0] for d in draws}) == 3
    assert [draw.number for draw in p.draws] == [0, 1, 2]
    sends = [p.send(draws[0], 0, 2) for _ in range(2)]
    assert sends[0].at[2] != sends[1].at[2]


def test_phases_follow_operands() -> None:
    p = program()
    with p.in_phase(Phase.SETUP):
        r = p.draw((0,), (4,), W)
    w, x, s = p.source("weight", "w", 0, (4,), W), source(p), p.draw((0,), (4,), W)
    assert (w + r).phase == Phase.SETUP
    assert (w + s).phase == Phase.OFFLINE
    assert (w + r + x).phase == Phase.ONLINE
    assert p.send(w + s, 0, 1).phase == Phase.OFFLINE


def test_layers_are_noted() -> None:
    p = program()
    x = source(p)
    with p.in_layer("conv1"):
        y = x + 1
    z = y + 2
    assert [p.layers[p.nodes[v.at[0]].layer] for v in (y, z)] == ["conv1", ""]


# Public numbers


def test_arithmetic_with_zero_and_one_is_never_computed() -> None:
    p = program()
    x, zero, one = source(p), p.const(0, (4,), W), p.const(1, (), W)
    assert (x + zero).at == (zero + x).at == (x - zero).at == (x * one).at == x.at
    assert (x * zero).constant_value() == (zero * x).constant_value() == 0
    assert (zero.bits(0, 3) & x.bits(0, 3)).constant_value() is None
    for made in (-zero, zero.mod(7), zero << 3, zero.reshape((2, 2)), join([zero, zero], (8,))):
        assert made.constant_value() == 0
    no_bits = p.const(0, (4,), planes(2))
    assert (no_bits & x.bits(0, 2)).constant_value() == 0
    assert (x.bits(0, 2) ^ no_bits).at == x.bits(0, 2).at


def test_a_sum_with_zero_has_the_shape_of_both() -> None:
    p = program()
    x = source(p, shape=(3,))
    assert (x + p.const(0, (2, 3), W)).shape == (2, 3)
    assert (p.const(0, (2, 3), W) - x).shape == (2, 3)
    assert (x * p.const(1, (2, 1), W)).shape == (2, 3)


def test_shifts_beyond_the_ring_are_zero() -> None:
    p = program()
    x = source(p)
    assert (x << 32).constant_value() == (x >> 32).constant_value() == 0
    assert (x << 0).at == (x >> 0).at == x.at


@pytest.mark.parametrize("value", [-1, 2**32 + 5, 2**40])
def test_constants_are_reduced(value: int) -> None:
    p = program()
    assert p.const(value, (), W).constant_value() == value % 2**32


# Types and shapes


def test_rings_and_shapes_must_fit() -> None:
    p = program()
    x = source(p)
    with pytest.raises(TypeError, match="meets"):
        _ = x + p.draw((0,), (4,), words(31))
    with pytest.raises(TypeError, match="do not broadcast"):
        _ = x + p.draw((0,), (3,), W)
    with pytest.raises(ValueError, match="bits 30"):
        x.bits(30, 3)
    with pytest.raises(ValueError, match="planes"):
        x.bits(0, 4).plane(2, 2, 2)
    for bits in (0, 65, -1):
        with pytest.raises(ValueError, match="1 to 64 bits"):
            words(bits)


def test_views_of_all_of_it_are_the_value_itself() -> None:
    p = program()
    x = source(p)
    bits = x.bits(3, 5)
    assert x.reshape((4,)) is x
    assert x.chunk(0, 4) is x
    assert bits.plane(0, 5) is bits
    assert x.mod(32) is x
    assert stack([bits]) is bits
    assert join([x], (4,)) is x
    assert select(x.bits(0), x, x).shape == (4,)


SMALL = [(), (1,), (2,), (3,), (1, 1), (2, 1), (1, 3), (2, 3), (1, 2, 1), (2, 1, 3), (2, 2, 3)]


@pytest.mark.parametrize("target", [(2, 3), (2, 2, 3), (4, 2, 1, 3), (1, 1), (3,)])
@pytest.mark.parametrize("shape", SMALL)
def test_broadcast_pattern(shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    """Where there is a pattern it says which element of the source each of the target is."""
    numbers = np.arange(prod(shape)).reshape(shape)
    try:
        expected = np.broadcast_to(numbers, target).ravel()
    except ValueError:
        return
    pattern = broadcast_pattern(shape, target)
    if pattern is not None:
        inner, period = pattern
        np.testing.assert_array_equal(np.arange(prod(target)) // inner % period, expected)
    else:
        assert 1 in shape[1:-1] or len(shape) > 2


def test_a_broadcast_without_a_pattern_is_a_step_of_its_own() -> None:
    p = program()
    x, y = source(p, shape=(2, 4, 3)), source(p, shape=(2, 1, 3), name="y")
    assert "broadcast" in [p.nodes[i].op for i in p.nodes[(x + y).at[0]].args]


# Text


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 30))
def test_text_and_back(choices: random.Random, operations: int) -> None:
    made = RandomProgram(choices).grow(operations).program
    read = parse_program(print_program(made))
    assert (read.parties, read.draws) == (made.parties, made.draws)
    assert [fields(node) for node in read.nodes] == [fields(node) for node in made.nodes]
    check_party(made)


def fields(node: Node) -> tuple[object, ...]:
    return tuple(getattr(node, name) for name in Node.__slots__)


@pytest.mark.parametrize(
    "name", ['a "quoted" one', '"', " x ", "a, b = [1, 2]", "} : {", "two\nlines", "ü%0"]
)
def test_text_of_odd_names(name: str) -> None:
    p = program()
    with p.in_layer(name):
        p.output(source(p, name=name) + 1, 0, name, 3)
    read = parse_program(print_program(p))
    assert read.layers == p.layers
    assert [fields(node) for node in read.nodes] == [fields(node) for node in p.nodes]


def test_the_text_of_some_nodes() -> None:
    p = program()
    x = source(p)
    p.output(x + 1, 0, "y", 0)
    text = print_program(p, [x.at[0]])
    assert text.splitlines()[-1] == ('%0 = input {name = "x"} : words<32>[4] @alice online 0')


@pytest.mark.parametrize("line", ["%0 = add", "%1 = input {name = 1} : words<8>[] @alice online 0",
                                  "nonsense"])  # fmt: skip
def test_text_that_is_no_program(line: str) -> None:
    with pytest.raises(ValueError, match=r"not a node|out of order"):
        parse_program(f"parties alice\n{line}\n")


# Grammar


def test_illegal_nodes() -> None:
    p = program()
    x = source(p)
    bob = p.draw((1,), (4,), W)
    for op, party, args, type, phase, reason in (
        ("add", 0, (99,), W, Phase.ONLINE, "made after it"),
        ("divide", 0, (x.at[0],), W, Phase.ONLINE, "no such operation"),
        ("add", 0, (x.at[0], bob.at[1]), W, Phase.ONLINE, "another party"),
        ("neg", 0, (x.at[0],), W, Phase.OFFLINE, "later phase"),
        ("pack", 0, (x.at[0],), W, Phase.ONLINE, "makes planes"),
        ("add", 0, (x.at[0], x.at[0]), planes(2), Phase.ONLINE, "makes words"),
        ("send", 0, (x.at[0],), W, Phase.ONLINE, "does not cross"),
        ("send", 1, (x.at[0],), words(31), Phase.ONLINE, "does not cross"),
        ("const", 0, (x.at[0],), W, Phase.ONLINE, "no operands"),
    ):
        wrong = Node(len(p.nodes), op, party, args, (), (4,), type, phase, 0)
        with pytest.raises(IllegalParty, match=reason):
            check_party(_with(p, wrong))


def test_a_draw_from_another_key_is_illegal() -> None:
    p = program()
    drawn = p.nodes[p.draw((0, 1), (4,), W).at[0]]
    with pytest.raises(IllegalParty, match="a key that it does not have"):
        check_party(_with(p, replace(drawn, id=len(p.nodes), party=2)))


def _with(p: Program, node: Node) -> Program:
    other = Program(p.parties)
    other.nodes, other.draws = [*p.nodes, node], p.draws
    return other
