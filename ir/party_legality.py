"""The grammar of the party level: what a pass or a suite may leave behind."""

from __future__ import annotations

from veilgraph.ir.party import (
    BIT_OPS,
    ELEMENTWISE,
    LAYOUT,
    LOADED,
    SUMS,
    VIEWS,
    WORD_OPS,
    Node,
    Program,
)
from veilgraph.ir.types import Kind

OPS = ELEMENTWISE | VIEWS | LAYOUT | SUMS | {"matmul", "conv2d"}
SOURCES = LOADED | {"const", "draw"}
ENDS = frozenset(("send", "output"))
ALL = OPS | SOURCES | ENDS
MAKES_WORDS = WORD_OPS | SUMS | {"matmul", "conv2d"}


class IllegalParty(AssertionError):
    """A node that the party level doesn't allow: a bug in a suite or a pass."""


def check_party(program: Program) -> None:
    """Every node reads what its own party has, made before it; only sends cross.

    Raises:
        IllegalParty: with the node and the reason.
    """
    for node in program.nodes:
        reason = _illegal(program, node)
        if reason:
            raise IllegalParty(f"%{node.id} = {node.op}: {reason}")


def _illegal(program: Program, node: Node) -> str:
    operands = [program.nodes[i] for i in node.args if i < node.id]
    if len(operands) < len(node.args):
        return "it reads what is made after it"
    if node.op not in ALL:
        return "there is no such operation"
    if node.op in SOURCES:
        return _illegal_source(program, node)
    if node.op == "send":
        (sent,) = operands
        same = (sent.type, sent.shape) == (node.type, node.shape)
        return "" if sent.party != node.party and same else "it does not cross, or changes"
    if any(operand.party != node.party for operand in operands):
        return "it reads what another party has"
    if any(operand.phase > node.phase for operand in operands):
        return "it reads what a later phase makes"
    return _illegal_kind(node)


def _illegal_source(program: Program, node: Node) -> str:
    if node.args:
        return "a source has no operands"
    if node.op == "draw" and node.party not in program.draws[node["number"]].holders:
        return "a party draws from a key that it does not have"
    return ""


def _illegal_kind(node: Node) -> str:
    words = node.type.kind is Kind.WORDS
    if node.op in BIT_OPS and words:
        return "it makes planes"
    if node.op in MAKES_WORDS and not words:
        return "it makes words"
    return ""
