"""Blocks of 128 bits: drawn, masked by XOR, sent and unmasked, from text to interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from interpreters import check_interpreters

from veilgraph.ir.party import ops
from veilgraph.ir.party.legality import IllegalParty, check_party
from veilgraph.ir.party.node import Node, Shape
from veilgraph.ir.party.ops import PartyOp
from veilgraph.ir.party.program import Program, Value, apply, join
from veilgraph.ir.party.text import parse_program, print_program
from veilgraph.ir.plan.tables import LARGE_MESSAGE_BYTES, Phase
from veilgraph.ir.types import Kind, Type, blocks, planes, words
from veilgraph.passes.party.batch_rounds import batch_rounds
from veilgraph.passes.party.expand_protocols import Expanded
from veilgraph.passes.party.verify_masking import MaskingError, verify_masking, verify_view
from veilgraph.passes.plan.lower import costs

ALICE, BOB, CAROL = range(3)
TAKES_BLOCKS = {ops.DRAW, ops.XOR, ops.RESHAPE, ops.CHUNK, ops.JOIN, ops.SEND}


def two_parties() -> Program:
    return Program(("alice", "bob"))


def masked_seed(p: Program, shape: Shape) -> tuple[Value, Value]:
    """A seed of alice's, and what bob has of it: sent under a mask that both draw."""
    seed, mask = p.draw({ALICE}, shape, blocks()), p.draw({ALICE, BOB}, shape, blocks())
    return seed, p.send(seed ^ mask, ALICE, BOB).only(BOB) ^ mask


def show(p: Program, value: Value, party: int, name: str) -> None:
    """Has an interpreter read the arena where words of `value` are: the grammar lets no plan."""
    node = value.node_at(party)
    shape = (*value.shape, 2)
    p.node(ops.OUTPUT, party, (node.id,), shape, words(64), node.phase, name=name, frac_bits=0)


# Through the text, the grammar and interpreters


def test_the_text_and_the_grammar_have_blocks() -> None:
    p = two_parties()
    masked_seed(p, (3, 5))
    check_party(p)
    text = print_program(p)
    assert "%3 = xor %0 %1 : blocks<128>[3, 5] @alice offline 0" in text
    assert print_program(parse_program(text)) == text
    check_party(parse_program(text))


@pytest.mark.parametrize("wrong", ["blocks<64>", "blocks<129>", "blocks<0>", "seeds<128>"])
def test_the_text_has_no_other_blocks(wrong: str) -> None:
    p = two_parties()
    masked_seed(p, (3,))
    with pytest.raises(ValueError, match=r"there is no type|not a node"):
        parse_program(print_program(p).replace("blocks<128>", wrong))


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (129,)])
def test_the_receiver_has_the_senders_blocks(shape: Shape, phase: Phase) -> None:
    p = two_parties()
    with p.in_phase(phase):
        seed, received = masked_seed(p, shape)
        show(p, seed, ALICE, "drawn")
        show(p, received, BOB, "received")
    receivers = {"drawn": [ALICE], "received": [BOB]}
    verify_masking(batch_rounds(p), [(ALICE,), (BOB,)], receivers)
    first, second = check_interpreters(Expanded(p), [{}, {}])
    for run in (first, second):
        drawn, received_words = run.outputs[ALICE, "drawn"], run.outputs[BOB, "received"]
        np.testing.assert_array_equal(drawn, received_words)
        assert drawn.size == len(np.unique(drawn)) == 2 * seed.elements
    again = np.array_equal(first.outputs[ALICE, "drawn"], second.outputs[ALICE, "drawn"])
    assert again == (phase == Phase.SETUP)


def test_a_large_message_goes_in_parts() -> None:
    p = two_parties()
    seed, received = masked_seed(p, (LARGE_MESSAGE_BYTES // 16 + 5001,))
    show(p, received, BOB, "received")
    check_interpreters(Expanded(p), [{}], threads=2)
    assert seed.elements * 128 == costs(batch_rounds(p))[0].bits[Phase.OFFLINE]


def test_blocks_are_cut_and_joined() -> None:
    """Views into the middle of a block's neighbours, of what is drawn and what is received."""
    p = two_parties()
    _, received = masked_seed(p, (3, 5))
    other = p.draw({BOB}, (4,), blocks())
    parts = [received.chunk(3, 7), other, received.reshape((15,)), other.chunk(1, 2)]
    joined = join(parts, (4, 7))
    show(p, joined, BOB, "joined")
    show(p, joined.chunk(7, 5) ^ under_a_mask(p, received), BOB, "mixed")
    check_party(without_outputs(p))
    run = check_interpreters(Expanded(p), [{}])[0]
    got = run.outputs[BOB, "joined"].reshape(-1, 2)
    np.testing.assert_array_equal(got[:7], got[11 + 3 : 11 + 10])
    np.testing.assert_array_equal(got[7 + 1 : 7 + 3], got[26:])


def under_a_mask(p: Program, received: Value) -> Value:
    """The last five of bob's blocks, under a mask that both draw."""
    return received.chunk(10, 5) ^ p.draw({ALICE, BOB}, (5,), blocks())


def without_outputs(p: Program) -> Program:
    """The program up to what the grammar refuses, as `show` puts it in."""
    other = Program(p.parties)
    other.draws = p.draws
    ids: dict[int, int] = {}
    for node in p.nodes:
        if node.op is not ops.OUTPUT:
            ids[node.id] = len(other.nodes)
            args = tuple(ids[arg] for arg in node.args)
            other.nodes.append(replace(node, id=ids[node.id], args=args))
    return other


# What takes blocks


def test_seven_operations_make_blocks() -> None:
    makers = TAKES_BLOCKS | {ops.POINT_WORDS}
    assert {op for op in ops.ALL if Kind.BLOCKS in op.makes} == makers


@pytest.mark.parametrize(
    "op", [op for op in ops.ALL if op not in TAKES_BLOCKS and op.operands != 0], ids=str
)
def test_nothing_else_reads_blocks(op: PartyOp) -> None:
    """Of blocks nothing but blocks is made, whatever a text says that it makes."""
    count = op.operands or 2
    for type in (blocks(), words(64), words(32), planes(1), planes(128)):
        p = two_parties()
        args = tuple(p.draw({ALICE}, (4,), blocks()).at[ALICE] for _ in range(count))
        attrs = {n: (0,) if kind is tuple else kind() for n, kind in op.attributes.items()}
        p.node(op, ALICE, args, (4,), type, Phase.OFFLINE, **attrs)
        with pytest.raises(
            IllegalParty,
            match=rf"%{count} = {op}: it[s]? (makes|moves|changes|looks|operands|is there)",
        ):
            check_party(p)


@pytest.mark.parametrize("op", [ops.CONST, ops.INPUT, ops.WEIGHT, ops.SHARE, ops.CONSTANT], ids=str)
def test_no_source_but_a_draw_makes_blocks(op: PartyOp) -> None:
    p = two_parties()
    attrs = {name: kind() for name, kind in op.attributes.items()}
    assert op.phase is not None
    p.node(op, ALICE, (), (4,), blocks(), op.phase, **attrs)
    with pytest.raises(IllegalParty, match="it makes "):
        check_party(p)


@pytest.mark.parametrize(
    "of",
    [
        lambda x, y: x + y,
        lambda x, y: x - y,
        lambda x, y: x * y,
        lambda x, y: x & y,
        lambda x, y: ~x,
        lambda x, y: -x,
        lambda x, y: x >> 1,
        lambda x, y: x << 1,
        lambda x, y: x + 1,
        lambda x, y: x.program.const(0, x.shape, x.type),
        lambda x, y: x ^ x.program.draw({ALICE}, (4,), words(64)),
        lambda x, y: x.program.draw({ALICE}, (4,), planes(128)) ^ x,
        lambda x, y: join([x, x.program.draw({ALICE}, (4,), words(64))], (8,)),
        lambda x, y: apply(ops.CONCAT, (x, y), (8,), x.type, axis=0),
    ],
)
def test_values_of_blocks_meet_blocks_in_xor_alone(of: Callable[[Value, Value], Value]) -> None:
    p = two_parties()
    x, y = (p.draw({ALICE}, (4,), blocks()) for _ in range(2))
    with pytest.raises(TypeError, match=r"there is no \w+ of blocks<128>|meets"):
        of(x, y)


def test_a_block_is_not_repeated() -> None:
    p = two_parties()
    x, y = p.draw({ALICE}, (4,), blocks()), p.draw({ALICE}, (1,), blocks())
    p.node(ops.XOR, ALICE, (x.at[ALICE], y.at[ALICE]), (4,), blocks(), Phase.OFFLINE)
    with pytest.raises(IllegalParty, match="do not fit its shape"):
        check_party(p)


# Masks


def seen(send: Callable[[Program, Value, Value], Sequence[Value]]) -> Program:
    """Carol gets what `send` makes of four secret blocks of alice's and a mask of as many.

    The secret is an input here: the grammar has none yet, but proofs of masking are not to rely
    on that.
    """
    p = Program(("alice", "bob", "carol"))
    secret = p.source("input", "secret", ALICE, (4,), blocks())
    mask = p.draw({ALICE, BOB}, (4,), blocks())
    for number, value in enumerate(send(p, secret, mask)):
        show(p, p.send(value, ALICE, CAROL).only(CAROL), CAROL, f"seen{number}")
    return p


HIDDEN: dict[str, Callable[[Program, Value, Value], Sequence[Value]]] = {
    "masked": lambda p, x, m: [x ^ m],
    "masked, cut": lambda p, x, m: [(x ^ m).chunk(1, 2)],
    "masked in another order of shapes": lambda p, x, m: [
        x.reshape((2, 2)) ^ m.reshape((2, 2)),
    ],
    "each joined part is masked": lambda p, x, m: [
        join([x ^ m, x ^ p.draw({BOB, ALICE}, (4,), blocks())], (8,))
    ],
    "a mask beside the secret that it does not mask": lambda p, x, m: [
        m,
        x ^ p.draw({ALICE}, (4,), blocks()),
    ],
}
TOLD: dict[str, Callable[[Program, Value, Value], Sequence[Value]]] = {
    "not masked": lambda p, x, m: [x],
    "part of it is not masked": lambda p, x, m: [join([x ^ m, x], (8,))],
    "the mask is sent, too": lambda p, x, m: [x ^ m, m],
    "one mask for two": lambda p, x, m: [x ^ m, x.reshape((2, 2)) ^ m.reshape((2, 2)) ^
        p.source("input", "z", ALICE, (2, 2), blocks())],
    "masked twice with one mask": lambda p, x, m: [x ^ m ^ m],
    "a block of the mask twice": lambda p, x, m: [
        x ^ join([m.chunk(0, 2), m.chunk(0, 2)], (4,)),
    ],
    "carol knows the mask": lambda p, x, m: [x ^ p.draw({ALICE, CAROL}, (4,), blocks())],
}  # fmt: skip


@pytest.mark.parametrize("case", HIDDEN)
def test_masked_blocks_are_hidden(case: str) -> None:
    verify_view(batch_rounds(seen(HIDDEN[case])), (CAROL,))


@pytest.mark.parametrize("case", TOLD)
def test_blocks_that_are_not_masked_are_refused(case: str) -> None:
    with pytest.raises(MaskingError, match="is not hidden from carol"):
        verify_view(batch_rounds(seen(TOLD[case])), (CAROL,))


@pytest.mark.parametrize("type", [words(64), planes(128)])
def test_words_and_planes_mask_no_blocks(type: Type) -> None:
    """As if a text had them in one XOR, and its grammar had not been asked."""
    p = Program(("alice", "bob", "carol"))
    secret = p.source("input", "secret", ALICE, (4,), blocks())
    mask = p.draw({ALICE, BOB}, (4,), type)
    args = (secret.at[ALICE], mask.at[ALICE])
    node: Node = p.nodes[p.node(ops.XOR, ALICE, args, (4,), blocks(), Phase.ONLINE)]
    value = Value(p, {ALICE: node.id}, (4,), blocks())
    show(p, p.send(value, ALICE, CAROL).only(CAROL), CAROL, "seen")
    with pytest.raises(MaskingError, match="is not hidden from carol"):
        verify_view(batch_rounds(p), (CAROL,))
