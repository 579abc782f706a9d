"""Values as sums: their terms, how often, and when a node is no sum of its operands."""

from __future__ import annotations

import numpy as np
import pytest

from veilgraph.ir.party.columns import columns_of
from veilgraph.ir.party.program import Program, Value
from veilgraph.ir.types import planes, words
from veilgraph.passes import _native as native
from veilgraph.passes.facts import facts_of
from veilgraph.passes.party.sums import MOST_TERMS, Sum, Sums

W = words(32)


def begun(bits: int = 32, shape: tuple[int, ...] = (5,)) -> tuple[Program, Value, Value]:
    """A program, a number of alice's and a draw of hers, the first of all."""
    p = Program(("alice", "bob"))
    type = words(bits)
    return p, p.source("input", "x", 0, shape, type), p.draw([0], shape, type)


def row(value: Value) -> int:
    """The node of a value that one party has."""
    ((_, found),) = value.at.items()
    return found


def summed(p: Program, value: Value, behind_messages: bool = True) -> Sum:
    return Sums(p).of(row(value), behind_messages)


def test_a_sum_through_messages_with_constants() -> None:
    p, x, r = begun()
    sent = p.send((x * 3 - r).only(0), 0, 1)
    y = p.source("input", "y", 1, (5,), W)
    total = summed(p, sent - y - y)
    assert total.terms == {row(x): 3, -1: -1, row(y): -2}
    assert not total.by_xor
    assert summed(p, sent - y, behind_messages=False).terms == {sent.at[1]: 1, row(y): -1}


def test_what_cancels_is_no_term() -> None:
    p, x, r = begun()
    assert summed(p, x + r - r).terms == {row(x): 1}


def test_bits_are_a_sum_modulo_2() -> None:
    p = Program(("alice",))
    a, b = (p.draw([0], (5,), planes(3)) for _ in range(2))
    total = summed(p, a ^ b ^ a)
    assert (total.terms, total.by_xor) == ({-2: 1}, True)


def test_what_is_of_another_length_or_wider_is_a_term() -> None:
    p, x, r = begun(20)
    one = p.source("input", "one", 0, (1,), words(20))
    broadcast, widened = x + one, (x + r).mod(40)
    assert summed(p, broadcast).terms == {row(broadcast): 1}
    assert summed(p, widened).terms == {row(widened): 1}
    assert summed(p, (x + r).mod(10)).terms == {row(x): 1, -1: 1}


def test_counts_are_modulo_2_to_the_64th() -> None:
    """No ring is wider: what is added 2^64 times isn't there."""
    p, x, r = begun(64)
    y = (x * (1 << 40) + r) * (1 << 24)
    assert summed(p, y).terms == {-1: 1 << 24}
    z = x * ((1 << 64) - 3)
    assert summed(p, z).terms == {row(x): -3}


def test_a_long_sum_is_left_as_it_is() -> None:
    p, x, r = begun()
    for _ in range(2 * MOST_TERMS):
        x = x + r
    assert len(summed(p, x).terms) == 2  # the draw, and what is too deep


def test_columns_of_no_program_are_refused() -> None:
    p, x, r = begun()
    row(x + r)
    columns = columns_of(p.nodes)
    nodes = len(columns)
    given = {
        "facts": facts_of(columns),
        "ops": columns.op,
        "tensors": columns.tensor,
        "attributes": columns.attributes,
        "numbers": columns.number,
        "elements": columns.elements,
        "is_same": np.zeros(nodes, np.uint8),
        "same": np.arange(nodes, dtype=np.int32),
        "same_here": np.arange(nodes, dtype=np.int32),
        "first": columns.first,
        "args": columns.args,
        "signs": np.zeros((256, 5), np.int64),
        "types": np.zeros((nodes, 5), np.int64),
        "values": np.zeros(nodes, np.int64),
        "most": 4,
    }
    native.Sums(**given)
    scales = np.ones((256, 5), np.int64)  # a source would be a product
    for name, wrong in (
        ("same", np.full(nodes, nodes, np.int32)),
        ("is_same", np.ones(nodes, np.uint8)),
        ("ops", columns.op[1:]),
        ("signs", scales),
        ("types", np.zeros((nodes, 4), np.int64)),
        ("values", np.zeros(0, np.int64)),
    ):
        with pytest.raises(ValueError, match=r"columns|rows|operand|numbers"):
            native.Sums(**{**given, name: wrong})
    with pytest.raises(IndexError):
        native.Sums(**given).of(nodes, behind_messages=True)
