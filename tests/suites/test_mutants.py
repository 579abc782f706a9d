"""Each draw and each message of each protocol spoilt in turn: refused, or it tells nothing.

A mutant is the traced program with one draw or one message changed, so no text of a suite is
copied here. What verify_masking accepts all the same is enumerated: every secret, and every choice
of all that a coalition does not know, must give it the same view.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from receivers import asked
from test_views import (
    ADDITIVE_OF_2,
    ADDITIVE_OF_3,
    ADDITIVE_OF_5,
    REP3_OF_3,
    REVEALED,
    TINY,
    Case,
    other_parts,
)
from views import (
    ENUMERATED_BITS,
    Protocol,
    Sources,
    draw_nodes,
    exact_view,
    given,
    needed,
    unknown_bits,
)

from veilgraph.ir.party import ops
from veilgraph.ir.party.node import Shape
from veilgraph.ir.party.program import Program, Value
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.types import Kind, Type, words
from veilgraph.passes.party.sums import Sums
from veilgraph.passes.party.verify_masking import MaskingError, coalitions, verify_masking
from veilgraph.targets.parties import Member, Parties, Sharing
from veilgraph.targets.suites import rep3_rotation

DRAWS = ("missing", "narrow", "even", "of the setup", "used before")
SENDS = ("bare", "declared otherwise")


class Mutant(Program):
    """A program of which one draw, or one message, is not what it should be: number `target`.

    "known to 1" and "sent to 1 too" name a party.
    """

    target = -1
    fault = ""

    def __init__(self, parties: Sequence[str]) -> None:
        super().__init__(parties)
        self.asked = self.sent = 0
        self.drawn: dict[tuple[Any, ...], Value] = {}

    def draw(self, holders: Iterable[int], shape: Shape, type: Type) -> Value:
        own, number, self.asked = frozenset(holders), self.asked, self.asked + 1
        key = own, shape, type, self.phase
        if number == self.target and self.fault.startswith(("known", *DRAWS)):
            return self._spoilt(own, shape, type, self.drawn.get(key))
        made = super().draw(own, shape, type)
        self.drawn.setdefault(key, made)
        return made

    def _spoilt(self, own: frozenset[int], shape: Shape, type: Type, before: Value | None) -> Value:
        if self.fault == "of the setup":
            with self.in_phase(Phase.SETUP):
                return super().draw(own, shape, type)
        if self.fault == "used before" and before is not None:
            return before
        if self.fault == "even" and type.kind is Kind.WORDS and type.bits > 1:
            return super().draw(own, shape, type) << 1
        if self.fault == "narrow" and type.kind is Kind.WORDS and type.bits > 1:
            return super().draw(own, shape, words(type.bits - 1)).mod(type.bits)
        if self.fault.startswith("known to"):
            return super().draw({*own, int(self.fault.split()[-1])}, shape, type).only(*own)
        return self.const(0, shape, type).only(*own)

    def send(self, value: Value, sender: int, receiver: int, declared: str = "") -> Value:
        number, self.sent = self.sent, self.sent + 1
        if number != self.target or not self.fault.startswith(("sent", *SENDS)):
            return super().send(value, sender, receiver, declared)
        if self.fault == "declared otherwise":
            return super().send(value, sender, receiver, "" if declared else "reveal")
        if self.fault == "bare":
            bare = super().send(self._without_mask(value.only(sender)), sender, receiver, declared)
            return Value(self, value.at | {receiver: bare.at[receiver]}, value.shape, value.type)
        third = int(self.fault.split()[2])
        sent = super().send(value, sender, receiver, declared)
        if third not in sent.at:
            told = super().send(value.only(sender), sender, third)
            self.output(needed(told.only(third)), third, f"more{number}", 0)
        return sent

    def _without_mask(self, value: Value) -> Value:
        """The value less the draws that were added to it."""
        ((party, node),) = value.at.items()
        for term in Sums(self).of(node).terms:
            mask = next((v for v in self.drawn.values() if self._is_draw(v, party, term)), None)
            if mask is None or (mask.shape, mask.type) != (value.shape, value.type):
                continue
            value = value ^ mask if value.type.kind is Kind.PLANES else value - mask
        return value.only(party)

    def _is_draw(self, value: Value, party: int, term: int) -> bool:
        return party in value.at and self.nodes[value.at[party]]["number"] == -1 - term


def mutant(target: int, fault: str) -> type[Program]:
    return type("OneMutant", (Mutant,), {"target": target, "fault": fault})


def mutants(protocol: Protocol) -> Iterator[tuple[int, str]]:
    """Each place and fault: of the draws that are made, and of all messages."""
    schedule = protocol.trace(1)
    program, parties = schedule.program, range(len(schedule.program.parties))
    before = set()
    for number, (draw, type) in sorted(draw_nodes(schedule).items()):
        yield from ((number, fault) for fault in ("missing", "of the setup"))
        if type.kind is Kind.WORDS and type.bits > 1:
            yield from ((number, fault) for fault in ("narrow", "even"))
        if (draw.holders, type, draw.phase) in before:
            yield number, "used before"
        before.add((draw.holders, type, draw.phase))
        yield from ((number, f"known to {i}") for i in parties if i not in draw.holders)
    for node in (n for n in program.nodes if n.op is ops.SEND):
        number, sender = int(node["number"]), program.nodes[node.args[0]].party
        yield from ((number, fault) for fault in SENDS)
        thirds = (i for i in parties if i not in (sender, node.party))
        yield from ((number, f"sent to {i} too") for i in thirds)


class Given(Case):
    """A secret of party 0, and what the suite shares it in."""

    def _body(self, p: Parties, elements: int) -> Iterable[Value]:
        x = p.program.source("input", "x0.0", 0, (elements,), words(self.bits))
        sharing: Sharing = self.setting.suite.share(p, Member(0), x)
        return sharing.parts

    def sources(self, secrets: Sequence[int], coalition: Sequence[int], seed: int) -> Sources:
        return {"x0": [secrets[0]]}

    def coalitions(self) -> list[tuple[int, ...]]:
        return [c for c in super().coalitions() if 0 not in c]


class Told(Case):
    """A sharing that is revealed to party 1."""

    def _body(self, p: Parties, elements: int) -> Iterable[Value]:
        x = given(p, "x0", elements, self.bits, self.form)
        p.program.output(self.setting.suite.reveal(p, Member(1), x), 1, "y", 0)
        return []


TOLD = tuple(Told(c.setting, "reveal", 2, c.form) for c in REVEALED)
QUICK = (
    Given(REP3_OF_3, "share", 3),
    *(c for c in TOLD if c.setting not in (ADDITIVE_OF_3, ADDITIVE_OF_5)),
    *(c for c in TINY if c.op in ("mul", "truncate") and c.setting != ADDITIVE_OF_3),
    *(c for c in TINY if c.op == "relu" and c.setting == ADDITIVE_OF_2),
)
SLOW = tuple(c for c in (*TOLD, *TINY) if c not in QUICK)


@pytest.fixture(autouse=True)
def one_role_a_party(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rep3_rotation, "SMALLEST_CHUNK", 1 << 40)


def is_refused(protocol: Protocol, every: Sequence[Sequence[int]]) -> bool:
    schedule = protocol.trace(1)
    try:
        verify_masking(schedule, every, asked(schedule.program))
    except MaskingError:
        return True
    return False


def tells(case: Case, number: int, fault: str) -> bool:
    """Whether a mutant's view depends on the secret, for some coalition.

    A draw of the setup is seen again and again: it tells nothing if all may know it.
    """
    count = len(case.setting.target.everyone)
    faults = [f"known to {i}" for i in range(count)] if fault == "of the setup" else [fault]
    return any(_tells(case, case.protocol(mutant(number, one))) for one in faults)


def _tells(case: Case, protocol: Protocol) -> bool:
    enumerated = 0
    for coalition in case.coalitions():
        if unknown_bits(protocol.trace(1), coalition) > ENUMERATED_BITS:
            continue
        enumerated += 1
        for alike in worlds(case, coalition):
            views = (exact_view(protocol, coalition, sources, seed) for sources, seed in alike)
            first = next(views)
            if not all(np.array_equal(view, first) for view in views):
                return True
    assert enumerated, "no view was looked at"
    return False


def worlds(case: Case, coalition: Sequence[int]) -> Iterator[list[tuple[Sources, int]]]:
    """Sources, and a seed of what the coalition knows, by what it may tell apart."""
    secrets = range(1 << case.bits)
    if isinstance(case, Told) and 1 in coalition:
        for secret in secrets:
            yield [(other_parts(case, secret, coalition, seed), 0) for seed in range(3)]
        return
    second = range(2) if case.operands == 2 else range(1)
    for seed in range(2):
        yield [(case.sources([s, t], coalition, seed), seed) for s in secrets for t in second]


def check(case: Case) -> int:
    """The number of mutants, of which none tells anything and is accepted."""
    protocol, every = case.protocol(), coalitions(case.setting.target)
    assert not is_refused(protocol, every)
    found = list(mutants(protocol))
    for number, fault in found:
        if not is_refused(case.protocol(mutant(number, fault)), every):
            assert not tells(case, number, fault), (number, fault)
    return len(found)


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_mutants_are_refused_or_tell_nothing(case: Case) -> None:
    assert check(case) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("case", SLOW, ids=str)
def test_more_mutants_are_refused_or_tell_nothing(case: Case) -> None:
    assert check(case) >= 3


def test_there_are_many_mutants() -> None:
    assert sum(len(list(mutants(case.protocol()))) for case in QUICK) >= 400


def test_a_mutant_that_tells_something_is_found() -> None:
    """The enumeration is no formality: it finds what is sent in the clear, and masks used twice."""
    case = next(c for c in QUICK if c.op == "mul")
    first = [m for m in mutants(case.protocol()) if m[0] == 0]
    told = [m for m in first if tells(case, *m)]
    assert {fault for _, fault in told} >= {"missing", "narrow", "even", "bare", "of the setup"}
