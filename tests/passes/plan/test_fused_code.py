"""Fused programs of small chains, instruction by instruction; registers and streams."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from veilgraph.ir.party.program import Program, Value, select, stack
from veilgraph.ir.types import planes, words
from veilgraph.kernels.fused.declaration import INSTRUCTION
from veilgraph.kernels.fused.instructions import Op
from veilgraph.passes.party.batch_rounds import batch_rounds
from veilgraph.passes.plan.fuse_local import fuse_local
from veilgraph.passes.plan.fused_code import Code, fused_code, keys_of, keys_of_draws
from veilgraph.passes.plan.fused_templates import fused_actions

W = words(32)


def program() -> Program:
    return Program(("alice", "bob"))


def source(p: Program, bits: int = 32, name: str = "x", shape: tuple[int, ...] = (6,)) -> Value:
    return p.source("input", name, 0, shape, words(bits))


def compiled(p: Program, *values: Value, party: int = 0, action: int = 0) -> Code:
    """The program of one fused action of a party, for these outputs."""
    for number, value in enumerate(values):
        p.output(value.only(party), party, f"y{number}", 0)
    steps = fuse_local(batch_rounds(p))
    fused = fused_actions(steps)
    own = np.flatnonzero(fused.party == party)[[action]]
    (code,) = fused_code(
        steps, keys_of_draws(steps.schedule.columns, p, keys_of(p)), fused.take(own)
    )
    return code


def instructions(code: Code) -> list[np.void]:
    table = code.params[4:].view(INSTRUCTION)
    assert len(table) == code.params[3]
    return list(table)


def ops(code: Code) -> list[Op]:
    return [Op(int(row["op"])) for row in instructions(code)]


def test_a_chain() -> None:
    """Loads what memory has, draws where it draws, stores what is needed later."""
    p = program()
    x, r = source(p), p.draw((0,), (6,), W)
    code = compiled(p, (x - r) * 5 + 7)
    assert ops(code) == [Op.LOAD, Op.DRAW, Op.SUB, Op.MUL_CONST, Op.ADD_CONST, Op.STORE]
    assert code.params[0] == 6
    assert len(code.streams) == 2


def test_what_is_above_the_ring_is_masked_only_where_it_is_read() -> None:
    p = program()
    x = source(p, bits=20)
    y = x * 3 + x
    code = compiled(p, y >> 4, y.mod(40))
    assert ops(code).count(Op.AND_CONST) == 2
    masks = [int(row["immediate"]) for row in instructions(code) if row["op"] == Op.AND_CONST]
    assert masks == [(1 << 20) - 1] * 2
    assert Op.AND_CONST not in ops(compiled(program_of_sums()))


def program_of_sums() -> Program:
    p = program()
    x = source(p, bits=20)
    p.output(x * 3 + x - 5, 0, "sum", 0)
    return p


@pytest.mark.parametrize(
    ("bits", "masked"), [(31, True), (32, False), (40, True), (63, True), (64, False)]
)
def test_whole_words_are_never_masked(bits: int, masked: bool) -> None:
    p = program()
    assert (Op.AND_CONST in ops(compiled(p, (source(p, bits) * 3) >> 1))) == masked


def test_a_subtracted_constant_is_an_addition() -> None:
    p = program()
    code = compiled(p, source(p) - 9)
    (row,) = [row for row in instructions(code) if row["op"] == Op.ADD_CONST]
    assert int(row["immediate"]) % 2**32 == 2**32 - 9


def test_planes_taken_and_stacked_cost_nothing() -> None:
    p = program()
    bits = source(p).bits(0, 8)
    even, odd = bits.plane(0, 4, 2), bits.plane(1, 4, 2)
    code = compiled(p, stack([even & odd, even ^ odd]).to_words(8))
    expected = [Op.LOAD, Op.PACK, Op.AND_BITS, Op.XOR_BITS, Op.UNPACK]
    assert sorted(set(ops(code))) == sorted({*expected, Op.STORE})
    gate = next(row for row in instructions(code) if row["op"] == Op.AND_BITS)
    assert (int(gate["a_step"]), int(gate["b_step"]), int(gate["count"])) == (2, 2, 4)


def test_registers_are_used_again() -> None:
    p = program()
    x = source(p)
    y = x
    for number in range(200):
        y = y * x + number
    assert compiled(p, y).params[1] <= 3


def test_a_value_used_twice_by_one_node() -> None:
    p = program()
    x = source(p)
    code = compiled(p, (x * x) * (x * x))
    assert ops(code) == [Op.LOAD, Op.MUL, Op.MUL, Op.STORE]


def test_operands_are_loaded_once_for_each_way_of_repeating_them() -> None:
    p = program()
    x, row = source(p, shape=(2, 6)), source(p, name="row", shape=(6,))
    code = compiled(p, (x + row) * row)
    loads = [row for row in instructions(code) if row["op"] == Op.LOAD]
    assert [(int(r["b"]), int(r["c"])) for r in loads] == [(0, 0), (1, 6)]
    p = program()
    x, column = source(p, shape=(2, 3, 4)), source(p, name="column", shape=(3, 1))
    code = compiled(p, (x + column).reshape((3, 8)) + column)
    loads = [row for row in instructions(code) if row["op"] == Op.LOAD]
    assert [(int(r["b"]), int(r["c"])) for r in loads] == [(0, 0), (4, 3), (8, 3)]


@pytest.mark.parametrize(("bits", "lane"), [(1, 8), (8, 8), (9, 16), (17, 32), (33, 64), (64, 64)])
def test_lanes_of_draws(bits: int, lane: int) -> None:
    p = program()
    r = p.draw((0,), (6,), words(bits))
    code = compiled(p, r * r)
    (drawn,) = [row for row in instructions(code) if row["op"] == Op.DRAW]
    assert (int(drawn["count"]), int(drawn["word"])) == (lane, 32 if bits <= 32 else 64)


def test_draws_of_planes() -> None:
    p = program()
    g = p.draw((0,), (6,), planes(5))
    (drawn,) = [r for r in instructions(compiled(p, g.to_words(5))) if r["op"] == Op.DRAW_BITS]
    assert int(drawn["count"]) == 5


def test_widening_and_narrowing() -> None:
    p = program()
    x = source(p, bits=20)
    assert ops(compiled(p, x.mod(50).mod(10) * 3)).count(Op.WIDEN) == 1
    p = program()
    narrowed = compiled(p, source(p, bits=50).mod(10) * 3)
    assert ops(narrowed) == [Op.LOAD, Op.NARROW, Op.MUL_CONST, Op.STORE]


def test_too_many_planes_for_a_ring_are_masked() -> None:
    p = program()
    code = compiled(p, source(p).bits(0, 20).to_words(13).mod(40))
    assert Op.AND_CONST in ops(code)


def test_a_choice() -> None:
    p = program()
    x, y = source(p), source(p, name="y")
    assert Op.SELECT in ops(compiled(p, select(x.bits(31), x, y)))


def test_a_message_is_packed_by_the_program_that_makes_it() -> None:
    p = program()
    sent = p.send(source(p, bits=20) + 1, 0, 1)
    p.output(sent.only(1) * 3, 1, "y", 0)
    code = compiled(p)
    assert ops(code) == [Op.LOAD, Op.ADD_CONST, Op.STORE]
    assert code.messages.tolist() == [0, 1]


def runs(first: Sequence[int], second: Sequence[int]) -> list[tuple[int, ...]]:
    """The instructions of a gate over planes of a value: where they begin in it, and how they go on
    from plane to plane; then how many planes there are.
    """
    p = program()
    bits = source(p).bits(0, 16)
    a, b = (stack([bits.plane(i, 1, 1) for i in order]) for order in (first, second))
    code = compiled(p, (a & b).to_words(32))
    gates = [row for row in instructions(code) if row["op"] == Op.AND_BITS]
    fields = ("a", "a_step", "b", "b_step", "count")
    return [tuple(int(row[name]) for name in fields) for row in gates]


def test_runs_of_registers() -> None:
    order = [4, 5, 6, 9, 11, 13, 2]
    assert runs(order, order) == [(4, 1, 4, 1, 3), (9, 2, 9, 2, 3), (2, 1, 2, 1, 1)]
    assert runs([7], [7]) == [(7, 1, 7, 1, 1)]
    assert runs([0, 1, 2], [5, 7, 9]) == [(0, 1, 5, 2, 3)]
    assert runs([0, 1, 2], [5, 7, 8]) == [(0, 1, 5, 2, 2), (2, 1, 8, 1, 1)]


def test_a_program_of_too_many_registers_is_refused() -> None:
    p = program()
    x = source(p)
    sums = [x + number for number in range(1025)]
    total = sums[-1]
    for each in sums[:-1]:
        total = total * each
    with pytest.raises(ValueError, match="more than 1024 registers"):
        compiled(p, total)
