"""Nodes as columns are the nodes, and a form that is looked at once stands for all nodes of it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import RandomProgram

from veilgraph.ir.party import ops
from veilgraph.ir.party._native import first_of_forms
from veilgraph.ir.party.columns import Columns, Nodes, Rows, columns_of, nodes_of
from veilgraph.ir.party.legality import IllegalParty, _first_of_forms, check_party
from veilgraph.ir.party.node import Node, base_of
from veilgraph.ir.party.program import Program, Value
from veilgraph.ir.party.text import parse_program, print_program
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.types import words

W = words(32)


def fields(node: Node) -> tuple[object, ...]:
    return tuple(getattr(node, name) for name in Node.__slots__)


def chains(count: int) -> Program:
    """As many times the same: an input is masked and sent, and its receiver adds to it."""
    p = Program(("alice", "bob", "carol"))
    for number in range(count):
        x = p.source("input", f"x{number}", 0, (4,), W)
        sent = p.send((x * 3 - p.draw((0, 2), (4,), W)).only(0), 0, 1)
        p.output(((sent >> 1) + 1).only(1), 1, f"y{number}", 0)
    return p


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 40))
def test_columns_and_back(choices: random.Random, operations: int) -> None:
    made = RandomProgram(choices).grow(operations).program
    columns = Columns.of(made.nodes)
    assert [fields(columns.node(i)) for i in range(len(columns))] == [*map(fields, made.nodes)]
    read = columns_of(parse_program(print_program(made)).nodes)
    for column in ("party", "stage", "phase", "entry", "elements", "steps", "op", "layer", "args"):
        np.testing.assert_array_equal(getattr(read, column), getattr(columns, column))
    bases, _ = columns.behind_views(np.arange(len(columns)))
    assert bases.tolist() == [base_of(made.nodes, i).id for i in range(len(columns))]
    for op in (ops.DRAW, ops.SEND):
        every = [node.id for node in made.nodes if node.op is op]
        assert columns.rows_of(op).tolist() == every
        assert [node.id for node in nodes_of(Nodes(columns), op)] == every


@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("op", lambda c: c.op + np.uint8(200)),
        ("place", lambda c: c.place + 100),
        ("tensor", lambda c: c.tensor - 1),
        ("attributes", lambda c: c.attributes + 100),
        ("number", lambda c: c.number[1:]),
        ("layer", lambda c: c.layer[1:]),
        ("first", lambda c: c.first[:0]),
        ("first", lambda c: c.first[::-1].copy()),
        ("first", lambda c: c.first + len(c.args)),
        ("places", lambda c: [()] * len(c.places)),
        ("tensors", lambda c: []),
        ("pairs", lambda c: [[] for _ in c.pairs]),
    ],
)
def test_no_node_is_made_of_columns_of_another_program(
    column: str, change: Callable[[Columns], object]
) -> None:
    columns = columns_of(chains(2).nodes)
    with pytest.raises(ValueError, match=r"columns are of other|operands are out of order"):
        replace(columns, **{column: change(columns)}).node(0)


@pytest.mark.parametrize("row", [-1, 1 << 40])
def test_there_is_no_node_of_no_row(row: int) -> None:
    with pytest.raises(IndexError):
        columns_of(chains(2).nodes).node(row)


def test_a_chain_of_views_as_long_as_a_program() -> None:
    """20,000 chunks, each of all but the first word of the one before."""
    p, count = Program(("alice",)), 20_000
    value = p.source("input", "x", 0, (2 * count,), W)
    for _ in range(count):
        value = value.chunk(1, value.elements - 1)
    columns, start = columns_of(p.nodes), time.process_time()
    base, at = columns.behind_views(np.arange(len(columns)))
    assert time.process_time() - start < 1
    assert not base.any()
    assert at.tolist() == [*range(count + 1)]


@pytest.mark.parametrize("looked_at", [0, 3, 12])
def test_nodes_are_made_once_however_they_are_looked_at(looked_at: int) -> None:
    """One by one, all at once, and those that are added between."""
    p = chains(2)
    single = [p.nodes[i] for i in range(looked_at)]
    every = [*p.nodes]
    assert [fields(node) for node in every] == [fields(p.rows.node(i)) for i in range(len(every))]
    assert all(a is b for a, b in zip(single, every, strict=False))
    p.source("input", "z", 0, (4,), W)
    more = [*p.nodes]
    assert len(more) == len(every) + 1
    assert [*map(id, more[:-1])] == [*map(id, every)]
    assert more[-1]["name"] == "z"


@pytest.mark.parametrize("as_list", [False, True])
def test_a_program_that_was_read_may_grow(as_list: bool) -> None:
    p, read = chains(2), parse_program(print_program(chains(2)))
    if as_list:
        read.nodes = [*read.nodes]
    for program in (p, read):
        number = next(node.id for node in program.nodes if node.op is ops.SEND)
        value = Value(program, {1: number}, (4,), W)
        doubled = value + value
        program.output((value + value) * doubled, 1, "z", 0)
    assert print_program(read) == print_program(p)
    assert [fields(node) for node in read.nodes] == [fields(node) for node in p.nodes]
    assert len(read.nodes) == len(columns_of(read.nodes)) == len(p.nodes)


def test_nodes_of_a_text_may_be_changed() -> None:
    nodes = parse_program(print_program(chains(2))).nodes
    assert isinstance(nodes, Nodes)
    first, last, count = nodes[0], nodes[-1], len(nodes)
    assert nodes[0] is first
    assert nodes[-2:] == [nodes[count - 2], last]
    nodes[0] = replace(first, layer=7)
    nodes.append(replace(last, id=count))
    del nodes[count]
    nodes.insert(count, replace(last, id=count, layer=9))
    assert [node.id for node in nodes] == [*range(count + 1)]
    assert (nodes.columns.layer[0], nodes.columns.layer[count]) == (7, 9)
    with pytest.raises(IndexError):
        nodes[count + 1]


@pytest.mark.parametrize(
    ("op", "change", "reason"),
    [
        (ops.SHR, {"attrs": (("bits", 32),)}, "do not fit it"),
        (ops.SHR, {"attrs": (("bits", 1), ("more", 1))}, "attributes are others"),
        (ops.ADD, {"type": words(31)}, "changes a type"),
        (ops.SUB, {"party": 1}, "what another party has"),
        (ops.SUB, {"phase": Phase.OFFLINE}, "a later phase makes"),
        (ops.SEND, {"party": 0}, "does not cross"),
        (ops.DRAW, {"party": 1}, "a key that it does not have"),
        (ops.DRAW, {"shape": (5,)}, "is another elsewhere"),
        (ops.DRAW, {"attrs": (("number", 99),)}, "no such draw"),
        (ops.DRAW, {"attrs": (("number", 0),)}, ""),
    ],
)
def test_one_of_many_alike_is_illegal(
    op: ops.PartyOp, change: dict[str, object], reason: str
) -> None:
    """Each block is as legal as the first, but for one node of the last."""
    p = chains(8)
    check_party(p)
    node = next(node for node in reversed(p.nodes) if node.op is op)
    p.nodes[node.id] = replace(node, **change)  # type: ignore[arg-type]
    if not reason:
        check_party(p)  # a mask twice is legal, and for verify_masking to see
        return
    with pytest.raises(IllegalParty, match=reason):
        check_party(p)


def test_operands_of_one_form_are_alike() -> None:
    columns = Columns.of(chains(8).nodes)
    seen, first, args = [columns.place], columns.first, columns.args
    own = [columns.op.astype(np.int32), columns.attributes]
    by_tensor = np.zeros(len(columns), np.uint8)
    number = np.arange(len(columns.tensors), dtype=np.int32)
    of = columns.tensor, number, number
    found = first_of_forms(seen, own, by_tensor, *of, first, args).tolist()
    named = [i for i, n in enumerate(chains(8).nodes) if n.op in (ops.INPUT, ops.OUTPUT)]
    assert len([i for i in found if i not in named]) == len(chains(1).nodes) - 2
    with pytest.raises(ValueError, match="other lengths"):
        first_of_forms([columns.place[1:]], own, by_tensor, *of, first, args)
    with pytest.raises(ValueError, match="is not there"):
        first_of_forms(seen, own, by_tensor, columns.tensor, number[1:], number[1:], first, args)
    late = np.full_like(args, len(columns) - 1)
    with pytest.raises(ValueError, match="made after it"):
        first_of_forms(seen, own, by_tensor, *of, first, late)
    with pytest.raises(ValueError, match="another program"):
        first_of_forms(seen, own, by_tensor, *of, first, args[1:])


def test_what_may_be_fused_is_of_one_form_in_all_shapes() -> None:
    """Unless its operands have several: those it repeats, or refuses."""
    p = Program(("alice",))
    shapes = [(4,), (5,), (6, 2)]
    for shape in shapes:
        x, y = (p.node(ops.INPUT, 0, (), shape, W, Phase.ONLINE, name=f"{n}{shape}") for n in "xy")
        p.node(ops.ADD, 0, (x, y), shape, W, Phase.ONLINE)
    one = p.node(ops.INPUT, 0, (), (1,), W, Phase.ONLINE, name="one")
    for x, shape in zip((0, 3, 6), shapes, strict=True):
        p.node(ops.ADD, 0, (x, one), shape, W, Phase.ONLINE)
    columns = Columns.of(p.nodes)
    sums = columns.rows_of(ops.ADD).tolist()
    for by_place in (False, True):
        found = _first_of_forms(columns, by_place=by_place)
        assert [row for row in found if row in sums] == [sums[0], *sums[3:]]


def test_of_equal_nodes_one_is_made() -> None:
    """Among as many as tables of them grow by; of another number, place, operand or attribute none
    is equal.
    """
    rows = Rows()
    add = rows.alike(ops.ADD, (), (4,), W)
    count = 5000
    made = [rows.once(add, i % 3, (i, i // 2), 1 + i % 2, 0, 7) for i in range(count)]
    assert made == [*range(count)]
    again = [rows.once(add, i % 3, (i, i // 2), 1 + i % 2, 0, 8) for i in range(count)]
    assert again == made
    others = [
        rows.once(rows.alike(ops.SUB, (), (4,), W), 0, (0, 0), 1, 0, 0),
        rows.once(rows.alike(ops.ADD, (), (5,), W), 0, (0, 0), 1, 0, 0),
        rows.once(rows.alike(ops.ADD, (("bits", 1),), (4,), W), 0, (0, 0), 1, 0, 0),
        rows.once(add, 1, (0, 0), 1, 0, 0),
        rows.once(add, 0, (0, 0), 2, 0, 0),
        rows.once(add, 0, (0, 0), 1, 1, 0),
        rows.once(add, 0, (0, 0), 1, 0, 0, 3),
        rows.once(add, 0, (0,), 1, 0, 0),
        rows.once(add, 0, (), 1, 0, 0),
        rows.once(add, 0, (0, 0), 0, 0, 0),
    ]
    assert others == [*range(count, count + 10)]
    assert rows.once(add, 0, (0, 0), 0, 5, 0) == others[-1]  # setup is of every entry
    assert not rows.has_reused
    rows.watched = others[-1]
    assert rows.once(add, 0, (0, 0), 0, 0, 0) == others[-1]
    assert not rows.has_reused
    assert rows.once(add, 0, (0, 0), 1, 0, 0) == 0
    assert rows.has_reused


def test_a_node_is_made_where_all_operands_are() -> None:
    rows = Rows()
    add = rows.alike(ops.ADD, (), (4,), W)
    x, y = {2: 0, 0: 1}, {0: 2, 1: 3, 2: 4}
    for phase in (Phase.OFFLINE, Phase.SETUP, Phase.ONLINE, Phase.ONLINE, Phase.OFFLINE):
        rows.add(add, 0, (), phase, 0, 0)
    assert rows.apply(add, [x, y], 0, 0) == {0: 5, 2: 6}
    assert [rows.node(i).phase for i in (5, 6)] == [Phase.ONLINE, Phase.OFFLINE]
    assert [*rows.apply(add, [x, y], 0, 1)] == [0, 2]
    assert rows.apply(add, [{0: 1}, {1: 3}], 0, 0) == {}
    assert len(rows) == 7
    with pytest.raises(IndexError):
        rows.apply(add, [{0: 7}], 0, 0)
    with pytest.raises(TypeError):
        rows.apply(add, [{0: "1"}], 0, 0)  # type: ignore[dict-item]
    with pytest.raises(IndexError):
        rows.row(7)


def test_a_block_of_others_is_not_added() -> None:
    rows = Rows()
    add = rows.alike(ops.ADD, (), (4,), W)
    for args in ((), (0,), (0, 1)):
        rows.once(add, 0, args, Phase.ONLINE, 0, 0)
    block, at = rows.block(0, np.ones(3, bool)), np.arange(3, 6)
    rows.extend(block, at, 0, 0, 0)
    assert [rows.node(i).args for i in (3, 4, 5)] == [(), (3,), (3, 4)]
    assert rows.knows(block.columns, np.array([1]), np.arange(3))
    assert not rows.knows(block.columns, np.array([1]), np.array([3]))
    rows.know(np.array([4]))
    assert rows.knows(block.columns, np.array([1]), np.array([3]))
    assert rows.once(add, 0, (3,), Phase.ONLINE, 0, 0) == 4
    wrong = [
        (block, np.arange(1), IndexError),
        (block, np.array([0, 9, 0]), IndexError),
        (block, np.array([-1, 0, 0]), IndexError),
        (replace(block, args=block.args - 1), at, IndexError),
        (replace(block, place=block.place + 1), at, IndexError),
        (replace(block, ends=block.ends + 1), at, ValueError),
        (replace(block, ends=block.ends[::-1].copy()), at, ValueError),
        (replace(block, tensor=block.tensor[1:]), at, ValueError),
    ]
    for other, operands, error in wrong:
        with pytest.raises(error):
            rows.extend(other, operands, 0, 0, 0)
    with pytest.raises(IndexError):
        rows.knows(block.columns, np.array([3]), at)
    with pytest.raises(IndexError):
        rows.know(np.array([6]))
    assert len(rows) == 6
