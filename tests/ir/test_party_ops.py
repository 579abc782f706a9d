"""The table of party operations: each answer is held against what the operation computes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import fields
from functools import cache, partial
from math import prod

import numpy as np
import pytest
from random_programs import RandomProgram

from veilgraph.ir.meaning.party import OPS, SOURCES, Array, reduce
from veilgraph.ir.party import ops
from veilgraph.ir.party.node import Node
from veilgraph.ir.party.ops import Holds, Masking, PartyOp, Runs
from veilgraph.ir.party.program import Program, apply
from veilgraph.ir.plan.tables import PartyPlan
from veilgraph.ir.types import Kind, Type, words
from veilgraph.kernels import KERNELS
from veilgraph.kernels.declared import DECLARED
from veilgraph.passes.plan.emit_party import EMIT

PROGRAMS = 60
pytestmark = pytest.mark.filterwarnings("ignore:overflow")  # NumPy warns of rank 0 alone
each_op = partial(pytest.mark.parametrize, "op", ids=str)
computed = [op for op in ops.ALL if op.operands != 0]


def those(**facts: object) -> list[PartyOp]:
    """The operations whose masking has these facts."""
    return [
        op for op in ops.ALL if all(getattr(op.masking, f) == value for f, value in facts.items())
    ]


@cache
def examples() -> dict[PartyOp, list[tuple[Node, list[Node]]]]:
    """Of each operation nodes, with their operands, of random programs."""
    found: dict[PartyOp, list[tuple[Node, list[Node]]]] = {op: [] for op in ops.ALL}
    for seed in range(PROGRAMS):
        program = RandomProgram(random.Random(seed)).grow(60).program
        program.share("s", (0, 2), (0,), (3,), words(8))
        left = program.state("t", (0, 2), (0,), (3,), words(8))
        program.keep(left + left, "t", (0, 2), (0,))
        for node in program.nodes:
            found[node.op].append((node, [program.nodes[i] for i in node.args]))
    return found


def result(node: Node, operands: list[Node], values: list[Array]) -> Array:
    value = OPS[node.op](node, values, [x.type for x in operands])
    return reduce(value, node.type.bits) if node.type.kind is Kind.WORDS else value


def numbers(x: Node, rng: np.random.Generator) -> Array:
    """Any elements of a node's type."""
    if x.type.kind is Kind.PLANES:
        return rng.integers(0, 2, (x.type.bits, *x.shape), np.uint8)
    if x.type.kind is Kind.BLOCKS:
        return rng.integers(0, 1 << 64, (*x.shape, x.type.per_element), np.uint64)
    return reduce(rng.integers(0, 1 << 63, x.shape, np.uint64), x.type.bits)


def runs_of(op: PartyOp, seed: int = 0) -> Iterator[tuple[Node, list[Node], list[Array], Array]]:
    rng = np.random.default_rng(seed)
    for node, operands in examples()[op]:
        values = [numbers(x, rng) for x in operands]
        yield node, operands, values, result(node, operands, values)


# Every question has an answer, and of the right kind


@each_op(ops.ALL)
def test_an_operation_answers_every_question(op: PartyOp) -> None:
    assert [f.name for f in fields(PartyOp)] == [
        *("name", "operands", "attributes", "makes", "alike", "fits", "phase", "runs", "kernel"),
        *("early", "keeps_zero", "listed", "masking"),
    ]
    assert examples()[op], "no random program has it"
    assert op.makes
    assert {type(each) for each in (op.alike, op.early, op.keeps_zero)} == {bool}
    assert op.kernel in ("", *KERNELS)
    assert op.listed in ("", *(f.name for f in fields(PartyPlan)))
    for node, operands in examples()[op]:
        assert {name: type(value) for name, value in node.attrs} == dict(op.attributes)
        assert node.type.kind in op.makes
        assert op.operands in (None, len(operands))
        assert not op.alike or {x.type for x in operands} <= {node.type}
        assert op.fits is None or op.fits(node, operands)


class _OfType:
    """A node that says nothing of its shape."""

    def __init__(self, node: Node) -> None:
        self.type, self._node = node.type, node

    def __getitem__(self, name: str) -> object:
        return self._node[name]


@each_op([op for op in ops.ALL if op.fusible and op is not ops.SEND and op.fits is not None])
def test_rules_of_what_may_be_fused_look_at_types_alone(op: PartyOp) -> None:
    """So `check_party` looks at nodes of one form once, whatever their shapes; a message is of one
    shape, which is all that its rule asks."""
    assert op.fits is not None
    for node, operands in examples()[op]:
        assert op.fits(_OfType(node), [*map(_OfType, operands)])  # type: ignore[arg-type, list-item]


def test_an_answer_cannot_be_left_out() -> None:
    with pytest.raises(TypeError, match=r"missing 1 required .* argument: 'masking'"):
        PartyOp(
            name="twice", operands=1, attributes={}, makes=ops.WORDS, alike=True, fits=None,
            phase=None, runs=Runs.FUSED, kernel="fused", early=False, keeps_zero=True,
            listed="",
        )  # type: ignore[call-arg]  # fmt: skip


def test_an_operation_is_not_its_name() -> None:
    """A comparison with a name would never hold, and a check that never holds is silent."""
    with pytest.raises(TypeError, match="compared with its declaration, not with 'add'"):
        assert ops.ADD == "add"
    with pytest.raises(TypeError, match="'sub'"):
        assert ops.ADD not in ("sub", "add")
    assert ops.ADD != ops.SUB
    assert ops.BY_NAME["add"] is ops.ADD


def test_each_has_a_meaning_and_what_emits_it() -> None:
    assert SOURCES.keys() == {op for op in ops.ALL if op.operands == 0}
    assert OPS.keys() == set(computed)
    steps = {op for op in ops.ALL if op.runs in (Runs.STEP, Runs.KEPT)} | {ops.CONST, ops.OUTPUT}
    kernels = {op for op in ops.ALL if op.kernel and op.name.startswith(op.kernel)}
    assert EMIT.keys() | kernels == steps
    assert not EMIT.keys() & kernels


@each_op(ops.ALL)
def test_sources_say_what_they_hold_and_when(op: PartyOp) -> None:
    is_source = op.operands == 0
    assert (op.masking.holds is not None) == is_source
    assert (op.phase is not None) == ((is_source and op is not ops.DRAW) or op is ops.KEEP)
    assert (op.runs in (Runs.LOADED, Runs.REMADE)) == is_source
    assert bool(op.listed) == (op.masking.holds is Holds.SECRET or op.is_root)


def test_what_programs_are_for_and_what_lies_in_parts() -> None:
    assert [op for op in ops.ALL if op.is_root] == [ops.OUTPUT, ops.KEEP]
    assert [op for op in ops.ALL if op.is_part] == [ops.SHARE, ops.STATE, ops.KEEP]


@each_op(ops.ALL)
def test_no_fact_of_masking_is_forgotten_of_what_has_one_operand(op: PartyOp) -> None:
    """Opaque is what mixes elements, and an end; all else of one operand is read through."""
    mixes = op in (ops.REDUCE_SUM, ops.POOL_SUM, ops.OUTPUT, ops.KEEP)
    if op.operands == 1 or op.runs is Runs.VIEW:
        assert (op.masking == Masking()) == mixes


# Each answer is what the operation computes


@each_op([op for op in computed if op.keeps_zero])
def test_zeros_are_kept(op: PartyOp) -> None:
    for node, operands in examples()[op]:
        zeros = [np.zeros_like(numbers(x, np.random.default_rng())) for x in operands]
        assert not result(node, operands, zeros).any()


@each_op([op for op in computed if op.elementwise and op is not ops.LOOKUP])
def test_element_wise_is_element_by_element(op: PartyOp) -> None:
    """The operation of reversed operands is the reversed result."""

    def turned(x: Array, type: Type) -> Array:
        lead = (type.bits,) if type.kind is Kind.PLANES else ()
        return x.reshape(*lead, prod(x.shape[len(lead) :]))[..., ::-1].reshape(x.shape)

    for node, operands, values, value in runs_of(op):
        if all(x.shape == node.shape for x in operands):
            reverse = [turned(v, x.type) for v, x in zip(values, operands, strict=True)]
            np.testing.assert_array_equal(result(node, operands, reverse), turned(value, node.type))


@each_op([op for op in ops.ALL if op.masking.adds])
def test_signs_are_those_of_the_sum(op: PartyOp) -> None:
    for node, _, values, value in runs_of(op):
        total = np.zeros(node.shape, np.uint64)
        for sign, x in zip(op.masking.adds, values, strict=True):
            total = total + np.int64(sign).view(np.uint64) * x
        np.testing.assert_array_equal(reduce(np.asarray(total), node.type.bits), value)


@each_op([op for op in ops.ALL if op.masking.xors])
def test_sums_modulo_2_are_those(op: PartyOp) -> None:
    for _, _, values, value in runs_of(op):
        assert len(op.masking.xors) == len(values)
        np.testing.assert_array_equal(np.bitwise_xor.reduce(np.broadcast_arrays(*values)), value)


@each_op(those(scales=True))
def test_a_multiple_is_one(op: PartyOp) -> None:
    for node, _, (x, y), value in runs_of(op):
        np.testing.assert_array_equal(reduce(x * y, node.type.bits), value)


@each_op([*those(passes=True), *those(narrows=True)])
def test_what_passes_is_what_came(op: PartyOp) -> None:
    for node, operands, (x,), value in runs_of(op):
        if op.masking.passes or node.type.bits <= operands[0].type.bits:
            kept = reduce(x, node.type.bits) if node.type.kind is Kind.WORDS else x
            np.testing.assert_array_equal(value.ravel(), kept.ravel())


@each_op(those(moves=True))
def test_moves_make_nothing_new(op: PartyOp) -> None:
    """Elements of a result are those of operands, or zeros; a selection has each at most once."""
    for node, operands in examples()[op]:
        if node.type.kind is not Kind.WORDS or node.type.bits < 13:
            continue
        count = sum(x.elements for x in operands)
        numbered = np.split(np.arange(1, count + 1, dtype=np.uint64),
                            np.cumsum([x.elements for x in operands])[:-1])  # fmt: skip
        values = [n.reshape(x.shape) for n, x in zip(numbered, operands, strict=True)]
        value = result(node, operands, values)
        assert set(value.ravel().tolist()) <= set(range(count + 1))
        if op.masking.selects:
            assert np.unique(value).size == value.size
            assert not value.size or value.min() > 0


@each_op([op for op in computed if op.masking.of_bits or op.masking.aligned_bits])
def test_bits_of_a_value_are_bits(op: PartyOp) -> None:
    """A bit of the operand is in one bit of the result at most, and in no other."""
    rng = np.random.default_rng(3)
    for node, operands, (x,), value in runs_of(op):
        if not x.size:
            continue
        if operands[0].type.kind is Kind.PLANES:
            flip = np.zeros_like(x)
            flip[rng.integers(len(x))] = 1
        else:
            flip = np.full_like(x, 1 << int(rng.integers(operands[0].type.bits)))
        changed = result(node, operands, [x ^ flip]) ^ value
        is_words = node.type.kind is Kind.WORDS
        counts = np.bitwise_count(changed) if is_words else changed.sum(axis=0)
        assert counts.max(initial=0) <= 1


@pytest.mark.parametrize("groups", [1, 2])
def test_multiply_adds_are_those_made(groups: int) -> None:
    """Of ones each multiplication adds one to the result, where nothing is padded."""
    p, ring = Program(("alice",)), words(64)
    a, b = p.draw((0,), (2, 3, 5), ring), p.draw((0,), (2, 5, 4), ring)
    image, filters = p.draw((0,), (1, 4, 6, 7), ring), p.draw((0,), (6, 4 // groups, 3, 2), ring)
    made = [
        apply(ops.MATMUL, (a, b, a, b), (2, 3, 4), ring),
        apply(ops.CONV2D, (image, filters), (1, 6, 4, 6), ring, strides=(1, 1), pads_low=(0, 0),
              dilations=(1, 1), groups=groups),
    ]  # fmt: skip
    for node in (p.nodes[value.at[0]] for value in made):
        operands = [p.nodes[i] for i in node.args]
        ones = [np.ones(x.shape, np.uint64) for x in operands]
        shapes = [node.shape, *(x.shape for x in operands)]
        counted = DECLARED[node.op.kernel].multiply_adds(shapes)
        assert counted == result(node, operands, ones).sum()


def test_what_holds_nothing_is_of_no_bits() -> None:
    """The facts of masking that a source or a sum has, and no other."""
    assert [op.name for op in those(holds=Holds.SECRET)] == [*("input", "weight", "share", "state")]
    assert [op.name for op in those(holds=Holds.PUBLIC)] == ["constant", "const"]
    assert those(holds=Holds.RANDOM) == [ops.DRAW]
    assert [op.name for op in those(passes=True)] == ["reshape", "send"]
