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

from veilgraph.ir.errors import ResourceLimitError
from veilgraph.ir.meaning.party import evaluate, uniform_draws
from veilgraph.ir.party import ops
from veilgraph.ir.party import text as party_text
from veilgraph.ir.party._native import print_lines
from veilgraph.ir.party.columns import columns_of
from veilgraph.ir.party.legality import IllegalParty, check_party
from veilgraph.ir.party.node import Node, broadcast_pattern
from veilgraph.ir.party.program import PlacementError, Program, Value, join, look_up, select, stack
from veilgraph.ir.party.text import parse_program, print_program
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.types import Type, planes, words

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


def test_what_parties_compute_of_the_same_arrays_is_computed_once() -> None:
    """Of what was sent too; of another width, or of other arrays, it is not."""
    p = program()
    x, y = source(p), source(p, name="y")
    everywhere = p.send(p.send(x, 0, 1), 0, 2)
    squared, narrow, other = everywhere * everywhere, everywhere.mod(8), y * y
    numbers = {"x": np.arange(4, dtype=np.uint64) + 300, "y": np.arange(4, dtype=np.uint64) + 300}
    values = evaluate(p, numbers, uniform_draws(np.random.default_rng(1))).values
    first, *others = (values[squared.at[i]] for i in range(3))
    assert all(each is first for each in others)
    assert values[other.at[0]] is not first
    assert (values[narrow.at[1]] == numbers["x"] % 256).all()


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
    assert ops.BROADCAST in [p.nodes[i].op for i in p.nodes[(x + y).at[0]].args]


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


def test_text_is_printed_in_any_alphabet() -> None:
    p = Program(("zoë", "данило"))
    source(p)
    head, node, _ = print_program(p).split("\n")
    assert head == "parties zoë данило"
    assert node == '%0 = input {name = "x"} : words<32>[4] @zoë online 0'


def test_columns_of_other_lists_are_not_printed() -> None:
    p = program()
    source(p) + 1
    columns = columns_of(p.nodes)
    numbers = columns.op, columns.tensor, columns.attributes, columns.number, columns.place
    operands = columns.layer, columns.first, columns.args
    lists = [["op"] * len(ops.ALL), ["t"] * len(columns.tensors), ["p"] * len(columns.places)]
    lists.append([("", "")] * len(columns.pairs))
    assert print_lines("", *numbers, *operands, *lists).count("\n") == len(columns)
    for i, column in enumerate(numbers):
        wrong = [*numbers]
        wrong[i] = column[1:]
        with pytest.raises(ValueError, match="other lists"):
            print_lines("", *wrong, *operands, *lists)
    for i in range(len(lists)):
        fewer = [*lists]
        fewer[i] = []
        with pytest.raises(ValueError, match="other lists"):
            print_lines("", *numbers, *operands, *fewer)
    with pytest.raises(ValueError, match="other program"):
        print_lines("", *numbers, columns.layer, columns.first[1:], columns.args, *lists)


INPUT = '%0 = input {name = "x"} : words<8>[3] @alice online 0'


@pytest.mark.parametrize(
    "line",
    [
        "%0 = add",
        "nonsense",
        "",
        INPUT.replace("%0", "%1"),
        INPUT.replace("%0", "%0" * 99),
        INPUT.replace("%0", "%\u0660"),
        INPUT.replace('"x"', "[" * 99999),
        INPUT.replace('"x"', "true"),
        INPUT.replace('"x"', '"x", name = "y"'),
        INPUT.replace('"x"', "[1,,2]"),
        INPUT.replace("= input", "= divide"),
        INPUT.replace("words<8>", "words<65>"),
        INPUT.replace("words<8>", "planes<99999>"),
        INPUT.replace("[3]", "[" + "9" * 30 + "]"),
        INPUT.replace("[3]", "[1048576, 1048576, 2]"),
        INPUT.replace("[3]", "[" + "1, " * 33 + "1]"),
        INPUT.replace("[3]", "[-1]"),
        INPUT.replace("alice", "bob"),
        INPUT.replace("online", "later"),
        INPUT.replace("online 0", "online 1"),
        "layer 99999999999 x",
        "layer 0 x",
        'layer 1 "x"',
        "layer 1 ",
        'layer 1 "unended',
        "draw 1 alice online",
        "draw 0 online",
        "draw 0 eve online",
        "draw 0 alice alice online",
        "draw 0 alice",
        "parties alice",
    ],
)
def test_text_that_is_no_program(line: str) -> None:
    with pytest.raises(ValueError, match=r"^.{5,500}$") as caught:
        parse_program(f"parties alice\n{line}\n")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "line",
    [
        "",
        "parties",
        "parties alice alice",
        "parties a-b",
        "parties  a",
        "party alice",
        "parties " + " ".join("abcdefghijklmnopq"),
    ],
)
def test_text_without_parties(line: str) -> None:
    with pytest.raises(ValueError, match="does not name its parties"):
        parse_program(line + "\n" + INPUT)


def test_text_of_more_lines_than_a_host_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(party_text, "MOST_LINES", 3)
    with pytest.raises(ValueError, match="more than 3 lines"):
        parse_program("parties alice\n" + "%\n" * 4)


def test_a_program_that_no_host_reads_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    p = program()
    source(p)
    lines = print_program(p).count("\n")
    monkeypatch.setattr(party_text, "MOST_LINES", lines - 1)
    with pytest.raises(ResourceLimitError, match=f"has {lines} lines, and hosts read {lines - 1}"):
        print_program(p)


# Grammar


def test_illegal_nodes() -> None:
    p = program()
    x = source(p)
    bob = p.draw((1,), (4,), W)
    at, low = x.at[0], (("low", 0),)
    sent = (("declared", ""), ("number", 9))
    for op, party, args, attrs, type, phase, reason in (
        ("add", 0, (99,), (), W, Phase.ONLINE, "made after it"),
        ("neg", 0, (at,), low, W, Phase.ONLINE, "its attributes are others"),
        ("shl", 0, (at,), (("bits", "2"),), W, Phase.ONLINE, "its attributes are others"),
        ("pad", 0, (at,), (("high", (0,)), ("low", ("0",))), W, Phase.ONLINE, "are others"),
        ("add", 0, (at,), (), W, Phase.ONLINE, "another number of operands"),
        ("join", 0, (), (), W, Phase.ONLINE, "another number of operands"),
        ("add", 0, (at, bob.at[1]), (), W, Phase.ONLINE, "another party"),
        ("neg", 0, (at,), (), W, Phase.OFFLINE, "later phase"),
        ("neg", 1, (bob.at[1],), (), W, Phase.ONLINE, "an earlier phase"),
        ("pack", 0, (at,), low, W, Phase.ONLINE, "makes planes"),
        ("add", 0, (at, at), (), planes(2), Phase.ONLINE, "makes words"),
        ("add", 0, (at, at), (), words(31), Phase.ONLINE, "changes a type"),
        ("send", 0, (at,), sent, W, Phase.ONLINE, "does not cross"),
        ("send", 1, (at,), sent, words(31), Phase.ONLINE, "does not cross"),
        ("send", 1, (at,), sent, W, Phase.OFFLINE, "in another phase"),
        ("send", 1, (at,), (("declared", "ok"), sent[1]), W, Phase.ONLINE, "declares what there"),
        ("const", 0, (at,), (("value", 1),), W, Phase.SETUP, "no operands"),
        ("const", 0, (), (("value", 1 << 32),), W, Phase.SETUP, "no element"),
        ("constant", 0, (), (("number", 0),), planes(3), Phase.SETUP, "it makes words"),
        ("input", 0, (), (("name", "z"),), W, Phase.SETUP, "in another phase"),
        ("draw", 0, (), (("number", 7),), W, Phase.OFFLINE, "no such draw"),
        ("draw", 1, (), (("number", 0),), words(8), Phase.OFFLINE, "another elsewhere"),
        ("draw", 1, (), (("number", 0),), W, Phase.ONLINE, "another elsewhere"),
    ):
        wrong = Node(len(p.nodes), ops.BY_NAME[op], party, args, attrs, (4,), type, phase, 0)
        with pytest.raises(IllegalParty, match=reason):
            check_party(_with(p, wrong))


def test_illegal_states_and_entries() -> None:
    p = program()
    part = (("name", "s"), ("of", 2), ("part", 0))
    (state,) = p.state("s", (0, 2), (0,), (4,), W).at.values()
    (made,) = (source(p) + source(p)).at.values()
    (drawn,) = p.draw((0,), (4,), W).at.values()
    with p.in_entry(1):
        (other,) = source(p).at.values()
    for op, args, attrs, phase, entry, reason in (
        (ops.STATE, (), part, Phase.SETUP, 0, "in another phase"),
        (ops.KEEP, (drawn,), part, Phase.OFFLINE, 0, "in another phase"),
        (ops.KEEP, (state,), part, Phase.ONLINE, 0, "it keeps what lies where a state does"),
        (ops.KEEP, (), part, Phase.ONLINE, 0, "another number of operands"),
        (ops.KEEP, (made,), part[:2], Phase.ONLINE, 0, "its attributes are others"),
        (ops.CONST, (), (("value", 1),), Phase.SETUP, 1, "what setup makes is of every entry"),
        (ops.NEG, (other,), (), Phase.ONLINE, 0, "it reads what another entry makes"),
    ):
        wrong = Node(len(p.nodes), op, 0, args, attrs, (4,), W, phase, 0, entry)
        with pytest.raises(IllegalParty, match=reason):
            check_party(_with(p, wrong))


def test_entries_are_read_as_they_are_printed() -> None:
    p = program()
    p.keep(source(p) + source(p), "s", (0, 2), (0,))
    with p.in_entry(12):
        p.keep(p.state("s", (0, 2), (0,), (4,), W) + source(p), "s", (0, 2), (0,))
    text = print_program(p)
    read = parse_program(text)
    assert "@alice online12 " in text
    assert [node.entry for node in read.nodes] == [node.entry for node in p.nodes]
    assert print_program(read) == text
    for false in ("online012", "online64", "online0"):
        with pytest.raises(ValueError, match="there is no phase"):
            parse_program(text.replace("online12", false))


@pytest.mark.parametrize(
    ("op", "shapes", "shape", "attrs"),
    [
        ("add", [(4,), (3,)], (4,), {}),
        ("add", [(2, 4), (4,)], (4,), {}),
        ("shr", [(4,)], (4,), {"bits": 32}),
        ("lookup", [(4,), (4,)], (4,), {}),  # no public table
        ("reshape", [(4,)], (5,), {}),
        ("chunk", [(4,)], (3,), {"start": 2}),
        ("chunk", [(4,)], (2,), {"start": -1}),
        ("join", [(4,), (4,)], (7,), {}),
        ("concat", [(2, 3), (2, 4)], (2, 8), {"axis": 1}),
        ("concat", [(2, 3), (3, 4)], (2, 7), {"axis": 1}),
        ("concat", [(2,), (2,)], (4,), {"axis": 1}),
        ("transpose", [(2, 3)], (3, 2), {"permutation": (1, 1)}),
        ("transpose", [(2, 3)], (2, 3), {"permutation": (1, 0)}),
        ("slice", [(4,)], (2,), {"starts": (3,), "steps": (1,)}),
        ("slice", [(4,)], (2,), {"starts": (0,), "steps": (-1,)}),
        ("slice", [(4,)], (2,), {"starts": (), "steps": ()}),
        ("pad", [(4,)], (5,), {"low": (2,), "high": (-1,)}),
        ("pad", [(4,)], (5,), {"low": (1,), "high": (1,)}),
        ("broadcast", [(2, 3)], (2, 4), {}),
        ("reduce_sum", [(2, 3)], (2, 3), {"axes": (1,)}),
        ("reduce_sum", [(2, 3)], (2, 1), {"axes": (-1,)}),
        ("matmul", [(1, 2, 3), (1, 4, 5)], (1, 2, 5), {}),
        ("matmul", [(1, 2, 3)], (1, 2, 3), {}),
        ("matmul", [(2, 3), (3, 4)], (2, 4), {}),
        ("pool_sum", [(1, 1, 4, 4)], (1, 2, 2, 2),
         {"kernel": (2, 2), "strides": (2, 2), "pads_low": (0, 0)}),
        ("pool_sum", [(1, 1, 4, 4)], (1, 1, 2, 2),
         {"kernel": (2, 2), "strides": (0, 2), "pads_low": (0, 0)}),
        ("conv2d", [(1, 3, 4, 4), (2, 2, 1, 1)], (1, 2, 4, 4),
         {"strides": (1, 1), "pads_low": (0, 0), "dilations": (1, 1), "groups": 1}),
        ("conv2d", [(1, 3, 4, 4), (2, 3, 1, 1)], (1, 2, 4, 4),
         {"strides": (1, 1), "pads_low": (0, -1), "dilations": (1, 1), "groups": 1}),
        ("conv2d", [(1, 3, 4, 4), (2, 3, 1, 1)], (1, 2, 4, 4),
         {"strides": (1, 1), "pads_low": (0, 0), "dilations": (1, 1), "groups": 0}),
        ("output", [(4,)], (2, 2), {"name": "y", "frac_bits": 0}),
    ],
)  # fmt: skip
def test_operands_that_do_not_fit(
    op: str, shapes: list[tuple[int, ...]], shape: tuple[int, ...], attrs: dict[str, object]
) -> None:
    p = program()
    args = tuple(source(p, shape=s, name=f"x{i}").at[0] for i, s in enumerate(shapes))
    pairs = tuple(sorted(attrs.items()))
    wrong = Node(len(p.nodes), ops.BY_NAME[op], 0, args, pairs, shape, W, Phase.ONLINE, 0)
    with pytest.raises(IllegalParty, match=r"fit|looks up in no table"):
        check_party(_with(p, wrong))


@pytest.mark.parametrize(
    ("op", "type", "attrs"),
    [
        ("pack", planes(3), {"low": 30}),
        ("planes", planes(3), {"start": 0, "step": 1}),
        ("unpack", W, {}),
        ("stack", planes(3), {}),
    ],
)
def test_bits_that_are_not_there(op: str, type: Type, attrs: dict[str, int]) -> None:
    p = program()
    x = source(p)
    wrong = Node(
        1, ops.BY_NAME[op], 0, (x.at[0],), tuple(attrs.items()), (4,), type, Phase.ONLINE, 0
    )
    with pytest.raises(IllegalParty, match="do not fit"):
        check_party(_with(p, wrong))


def test_an_index_of_planes_is_illegal() -> None:
    """A kernel would read the register of words that has the number of the planes'."""
    p = program()
    table, index = p.constant(0, (8,), W), source(p).bits(0, 3)
    args = (index.at[0], table.at[0])
    wrong = Node(len(p.nodes), ops.LOOKUP, 0, args, (), (4,), W, Phase.ONLINE, 0)
    with pytest.raises(IllegalParty, match="at no words"):
        check_party(_with(p, wrong))


def test_a_table_that_is_not_in_memory_is_illegal() -> None:
    """A table of one number is that number; as a node it would be looked up where nothing lies."""
    p = program()
    index, table = source(p), p.const(5, (8,), W)
    assert look_up(table, index).constant_value() == 5
    args = (index.at[0], table.at[0])
    wrong = Node(len(p.nodes), ops.LOOKUP, 0, args, (), (4,), W, Phase.ONLINE, 0)
    with pytest.raises(IllegalParty, match="no table"):
        check_party(_with(p, wrong))


@pytest.mark.parametrize("op", ["join", "chunk", "broadcast"])
def test_moving_planes_is_illegal(op: str) -> None:
    """Each plane is padded, so a part of a plane lies nowhere."""
    p = program()
    bits = source(p).bits(0, 1)
    attrs = (("start", 0),) if op == "chunk" else ()
    wrong = Node(
        len(p.nodes), ops.BY_NAME[op], 0, (bits.at[0],), attrs, (4,), planes(1), Phase.ONLINE, 0
    )
    with pytest.raises(IllegalParty, match="moves words alone"):
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
