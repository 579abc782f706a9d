"""A suite of four parties, in tests alone: keys of three holders, and parts held by all but one.

x = x[0] + x[1] + x[2] + x[3]; party i lacks part i, and key i. It shows what such a suite needs of
the house: one more form, and draws of three holders. It is secure against one curious party, and
its products are made for being read, not for speed.
"""

from __future__ import annotations

from veilgraph.ir.party.node import Shape
from veilgraph.ir.party.program import Value
from veilgraph.ir.types import Type
from veilgraph.targets.blocks.linear import LINEAR, additive, bilinear_with_public, product
from veilgraph.targets.parties import (
    Form,
    Member,
    Operation,
    Parties,
    Sharing,
    all_but,
    minus,
    plus,
)
from veilgraph.targets.suite import Security, Suite

HELD_BY_THREE = Form("held by three", all_but(0), keeper=lambda part, parts: (part + 1) % parts)


def share(p: Parties, source: Member, x: Value) -> Sharing:
    """Parts 1 to 3 are drawn, part 0 is the rest, sent to all of its holders that lack it."""
    own = p.role(source)
    drawn = [p.draw([i for i in p if i != j], x.shape, x.type) for j in p]
    known = [drawn[j] if j != own else p.program.const(0, x.shape, x.type) for j in p]
    kept = next(j for j in p if j != own)
    rest = x
    for j in p:
        if j not in (own, kept):
            rest = minus(rest, p.at(known[j], source))
    for receiver in p:
        if receiver not in (own, kept):
            rest = p.send(p.at(rest, *_holding(p, rest)), source, receiver)
    parts = [rest if j == kept else known[j] for j in p]
    return Sharing(tuple(p.at(parts[j], *(i for i in p if i != j)) for j in p), HELD_BY_THREE)


def _holding(p: Parties, value: Value) -> list[Member]:
    return [Member(party) for party in value.at]


def from_shares(p: Parties, name: str, shape: Shape, type: Type) -> Sharing:
    """Of a weight that was dealt before the session."""
    parts = (p.share(name, j, 4, [i for i in p if i != j], shape, type) for j in p)
    return Sharing(tuple(parts), HELD_BY_THREE)


def reveal(p: Parties, receiver: Member, x: Sharing) -> Value:
    """All parts, under a zero sharing by the keys of pairs."""
    parts = list(additive(p, x).parts)
    for i in p:
        for j in range(i + 1, len(p)):
            pad = p.draw((i, j), x.shape, x.type)
            parts[i], parts[j] = plus(parts[i], p.at(pad, i)), minus(parts[j], p.at(pad, j))
    own = p.role(receiver)
    total = None if own is None else parts[own]
    for i in p:
        if i != own:
            sent = p.at(p.send(parts[i], i, receiver, declared="reveal"), receiver)
            total = sent if total is None else total + sent
    assert total is not None
    return total


FOUR = Suite(
    name="four",
    security=Security((4, 4), "semi-honest", "one of four parties may be curious", coalition=1),
    summary="four parties, for tests",
    share=share,
    from_shares=from_shares,
    reveal=reveal,
)


@FOUR.protocol("mul", "matmul", "conv")
def bilinear(p: Parties, op: Operation, x: Sharing, y: Sharing) -> Sharing:
    """Each product of two parts at a party that holds both."""
    if x.form.is_public or y.form.is_public:
        return bilinear_with_public(p, op, x, y)
    at: list[list[tuple[Value, Value]]] = [[] for _ in p]
    for i in p:
        for j in p:
            at[next(k for k in p if k not in (i, j))].append((x[i], y[j]))
    zero = p.program.const(0, op.shape, op.type)
    return Sharing(tuple(p.at(product(op, at[i]) if at[i] else zero, i) for i in p), Form.ADDITIVE)


FOUR.include(LINEAR)
