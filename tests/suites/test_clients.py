"""Clients: who gives or receives and computes nothing. Values, and what everybody sees.

Views are exact, in rings so small that every secret and every mask is enumerated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from conformance import CLIENTS, Setting, Trace
from receivers import asked
from test_views import mutant
from views import ENUMERATED_BITS, Protocol, Sources, exact_view, given, parts_of, unknown_bits

from veilgraph.ir.meaning.party import uniform_draws
from veilgraph.ir.party import ops
from veilgraph.ir.party.program import Program, Value
from veilgraph.ir.types import words
from veilgraph.passes.party.batch_rounds import batch_rounds
from veilgraph.passes.party.verify_masking import MaskingError, coalitions, verify_masking
from veilgraph.targets.blocks.linear import additive
from veilgraph.targets.parties import Form, Member, Operation, Parties, Sharing
from veilgraph.targets.suites import SUITES, rep3_rotation

REP3, OF_2, OF_3, CLEARTEXT = (
    Setting(SUITES[name], computing, clients=1)
    for name, computing in (("rep3", 3), ("additive", 2), ("additive", 3), ("cleartext", 1))
)
SECURE = (REP3, OF_2, OF_3)
BITS = 2


def client(setting: Setting) -> Member:
    return setting.target.member(CLIENTS[0])


@pytest.fixture(autouse=True)
def one_role_a_party(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rep3_rotation, "SMALLEST_CHUNK", 1 << 40)


@dataclass(frozen=True)
class Crossing:
    """What a client gives, or what it is told: traced in a setting, on parts that are there."""

    setting: Setting
    name: str
    form: Form = Form.ADDITIVE

    def __str__(self) -> str:
        return f"{self.setting}-{self.name}-{self.form.name}"

    def protocol(self, program: type[Program] = Program) -> Protocol:
        return Protocol(self.setting, getattr(self, self.name), program)

    def share(self, p: Parties, elements: int) -> Iterable[Value]:
        return _shared(self.setting, p, "x0.0", client(self.setting), elements).parts

    def reveal(self, p: Parties, elements: int) -> Iterable[Value]:
        x, receiver = given(p, "x0", elements, BITS, self.form), client(self.setting)
        return _told(self.setting, p, self.setting.suite.reveal, (receiver, x))

    def reveal_truncated(self, p: Parties, elements: int) -> Iterable[Value]:
        x, receiver = given(p, "x0", elements, BITS + 1, self.form), client(self.setting)
        op = Operation("reveal_truncated", (elements,), BITS, {"bits": 1})
        return _told(self.setting, p, self.setting.suite.reveal_truncated, (op, receiver, x))

    def source_and_receiver(self, p: Parties, elements: int) -> Iterable[Value]:
        """The client's number times party 0's, for the client."""
        x = _shared(self.setting, p, "x0.0", client(self.setting), elements)
        w = _shared(self.setting, p, "w.0", Member(0), elements)
        times = Operation("mul", (elements,), BITS, {})
        product = self.setting.suite.offered("mul")(p, times, x, w)
        return _told(self.setting, p, self.setting.suite.reveal, (client(self.setting), product))


def _shared(setting: Setting, p: Parties, name: str, source: Member, elements: int) -> Sharing:
    value = p.program.source("input", name, source.party, (elements,), words(BITS))
    made: Sharing = setting.suite.share(p, source, value)
    return made


def _told(setting: Setting, p: Parties, protocol: Any, operands: tuple[Any, ...]) -> list[Value]:
    told = protocol(p, *operands)
    assert sorted(told.at) == [client(setting).party]
    p.program.output(told, client(setting).party, "y", 0)
    return []


# What everybody sees


FORMS = (*((setting, Form.ADDITIVE) for setting in SECURE), (REP3, Form.REPLICATED))
REVEALED, ROUNDED = (
    tuple(Crossing(setting, name, form) for setting, form in FORMS)
    for name in ("reveal", "reveal_truncated")
)


@pytest.mark.parametrize("setting", SECURE, ids=str)
def test_nobody_learns_what_a_client_gives(setting: Setting) -> None:
    protocol = Crossing(setting, "share").protocol()
    without = [c for c in coalitions(setting.target) if client(setting).party not in c]
    assert without
    for coalition in without:
        views = [
            exact_view(protocol, coalition, {"x0": [secret]}, 1) for secret in range(1 << BITS)
        ]
        assert all(np.array_equal(view, views[0]) for view in views), coalition


@pytest.mark.parametrize("case", [*REVEALED, *ROUNDED], ids=str)
def test_a_client_learns_the_value_and_nothing_of_its_parts(case: Crossing) -> None:
    """The same value in other parts gives every coalition the same view; without the client any
    value does."""
    protocol = case.protocol()
    for coalition in coalitions(case.setting.target):
        if unknown_bits(protocol.trace(1), coalition) > ENUMERATED_BITS:
            assert len(coalition) == 1  # a part of a larger coalition's view
            continue
        assert not says_too_much(case, protocol, coalition), coalition


def other_parts(
    case: Crossing, secret: int, bits: int, coalition: Sequence[int], turn: int
) -> Sources:
    """Parts of `secret`: those of the coalition always the same, the others turn by turn."""
    count, form = case.setting.computing, case.form
    parts = parts_of(secret, bits, form, count, coalition, 0)
    free = [j for j in range(count) if form.holders(j, count).isdisjoint(coalition)]
    if len(free) > 1:
        parts[free[0]] = (parts[free[0]] + turn) % (1 << bits)
        parts[free[-1]] = (parts[free[-1]] - turn) % (1 << bits)
    return {"x0": parts}


@pytest.mark.parametrize("setting", [REP3, OF_2], ids=str)
def test_a_client_that_gives_and_receives_learns_its_output_alone(setting: Setting) -> None:
    """Whatever the other's number is, as long as the product is the same. Party 0 knows it."""
    protocol = Crossing(setting, "source_and_receiver").protocol()
    outputs = set()
    for coalition in coalitions(setting.target):
        if 0 in coalition or client(setting).party not in coalition:
            continue
        for x in range(1 << BITS):
            by_product: dict[int, list[Any]] = {}
            for w in range(1 << BITS):
                view = exact_view(protocol, coalition, {"x0": [x], "w": [w]}, 3)
                by_product.setdefault(x * w % (1 << BITS), []).append(view)
            outputs |= {(x, product) for product in by_product}
            for views in by_product.values():
                assert all(np.array_equal(view, views[0]) for view in views), (coalition, x)
    assert len(outputs) > 4


@pytest.mark.parametrize("case", [c for c in ROUNDED if c.setting is not OF_3], ids=str)
def test_a_client_alone_knows_nothing_of_the_rounding(case: Crossing) -> None:
    """Of what is rounded one way the messages are those of what is rounded there exactly."""
    protocol, me = case.protocol(), (client(case.setting).party,)
    sources = [other_parts(case, secret, BITS + 1, me, 0) for secret in (2, 3, 4)]
    below, between, above = (exact_view(protocol, me, given, 0) for given in sources)
    # 3 / 2 is 1 or 2, at one half each: its view is one half of that of 1, one half of that of 2.
    hidden = np.sort(np.concatenate([below, above]))
    np.testing.assert_array_equal(hidden, np.sort(np.concatenate([between, between])))


# What is refused


@pytest.mark.parametrize("case", [*REVEALED, ROUNDED[0]], ids=str)
def test_what_a_client_is_told_without_a_mask_is_refused(case: Crossing) -> None:
    """A missing draw shows in the exact view of some coalition, and verify_masking refuses it."""
    every = coalitions(case.setting.target)
    whole = case.protocol().trace(1)
    verify_masking(whole, every, asked(whole.program))
    leaks = 0
    for number in range(len(whole.program.draws)):
        broken = case.protocol(mutant(number, "missing"))
        if any(says_too_much(case, broken, coalition) for coalition in every):
            leaks += 1
            assert is_refused(broken, every), number
    # A rounding's bits that are told in two parts hide each other: that draw hides nothing more.
    assert leaks == len(whole.program.draws) or (case in ROUNDED and leaks)


def says_too_much(case: Crossing, protocol: Protocol, coalition: Sequence[int]) -> bool:
    """Whether its view depends on more than the output, or on anything where it has no client."""
    if unknown_bits(protocol.trace(1), coalition) > ENUMERATED_BITS:
        return False
    bits, told = BITS + (case in ROUNDED), client(case.setting).party in coalition
    first: Any = None
    for secret in (0, 1, (1 << bits) - 2):
        for turn in (0, 1):
            sources = other_parts(case, secret, bits, coalition, turn)
            view = exact_view(protocol, coalition, sources, 0)
            first = view if first is None or (told and not turn) else first
            if not np.array_equal(view, first):
                return True
    return False


def is_refused(protocol: Protocol, every: Sequence[Sequence[int]]) -> bool:
    schedule = protocol.trace(1)
    try:
        verify_masking(schedule, every, asked(schedule.program))
    except MaskingError:
        return True
    return False


@pytest.mark.parametrize("setting", SECURE, ids=str)
@pytest.mark.parametrize("fault", ["missing", "narrow", "known to all", "of the setup"])
def test_verify_masking_misses_no_draw_of_what_a_client_gives(setting: Setting, fault: str) -> None:
    every = coalitions(setting.target)
    case = Crossing(setting, "share")
    for number in range(len(case.protocol().trace(1).program.draws)):
        assert is_refused(case.protocol(mutant(number, fault)), every), number


@pytest.mark.parametrize("setting", SECURE, ids=str)
def test_what_goes_to_a_client_and_back_is_accepted(setting: Setting) -> None:
    schedule = Crossing(setting, "source_and_receiver").protocol().trace(1)
    verify_masking(schedule, coalitions(setting.target), asked(schedule.program))


def test_a_client_that_is_told_a_part_is_found() -> None:
    """Each part of a replicated value alone, to one who lacks all of them."""
    setting = REP3
    program = Program(setting.target.everyone)
    p, me = setting.target.placed(program), client(setting)
    x = _shared(setting, p, "x", Member(0), 4)
    sent = [p.at(p.send(p.at(x[i], i), i, me, declared="reveal"), me) for i in p]
    program.output(sent[0] + sent[1] + sent[2], me.party, "y", 0)
    with pytest.raises(MaskingError, match="is not hidden from bob, gina"):
        verify_masking(batch_rounds(program), coalitions(setting.target), asked(program))


def test_any_clients_join_any_coalition() -> None:
    two = Setting(SUITES["rep3"], 3, clients=2).target
    alone, gina, hugo, both = [], [], [], []
    for coalition in coalitions(two):
        clients = {3, 4} & {*coalition}
        group = {(): alone, (3,): gina, (4,): hugo, (3, 4): both}[tuple(sorted(clients))]
        group.append(tuple(i for i in coalition if i < 3))
    parties = [(0,), (1,), (2,)]
    assert alone == parties
    assert gina == hugo == both == [*parties, ()]
    dealt = coalitions(OF_2.target)  # alice, bob, gina, and who deals
    assert {*dealt} == {(0,), (1,), (3,), (2,), (0, 2), (1, 2), (3, 2)}


# Values


@pytest.mark.parametrize("form", ["as shared", "additive"])
@pytest.mark.parametrize("setting", [*SECURE, CLEARTEXT], ids=str)
def test_what_a_client_gives_comes_back_to_it(setting: Setting, form: str) -> None:
    x = np.random.default_rng(5).integers(-(1 << 15), 1 << 15, 200)
    trace, me = Trace(setting), client(setting).party
    shared = trace.share("x", x.shape, 20, owner=me)
    shared = additive(trace.parties, shared) if form == "additive" else shared
    trace.reveal(trace.apply("scale", x.shape, 20, {"factor": 3}, shared), party=me)
    np.testing.assert_array_equal(trace.run({"x": x}, party=me), 3 * x)


@pytest.mark.parametrize("setting", [*SECURE, CLEARTEXT], ids=str)
def test_what_is_rounded_for_a_client(setting: Setting) -> None:
    """At most one unit off."""
    x = np.random.default_rng(6).integers(-(1 << 15), 1 << 15, 2000)
    trace, me = Trace(setting), client(setting)
    shared = trace.share("x", x.shape, 20, owner=me.party)
    operation = Operation("reveal_truncated", x.shape, 16, {"bits": 4})
    protocol = setting.suite.reveal_truncated
    assert protocol is not None
    clear = protocol(trace.parties, operation, me, shared)
    trace.program.output(clear, me.party, "y", 0)
    found = trace.run({"x": x}, uniform_draws(np.random.default_rng(7)), me.party)
    assert {*(found - (x >> 4)).tolist()} <= {0, 1}


@pytest.mark.parametrize("setting", [*SECURE, CLEARTEXT], ids=str)
def test_parts_are_where_their_form_says(setting: Setting) -> None:
    """And each is kept by one of its holders where the sharing is read as an additive one."""
    for owner in range(
        len(setting.target.everyone) - (setting.suite.security.provider is not None)
    ):
        trace = Trace(setting)
        shared = trace.share("x", (4,), 20, owner=owner)
        count, form = len(shared.parts), shared.form
        assert [{*part.at} - {owner} for part in shared.parts] == [
            form.holders(j, count) - {owner} for j in range(count)
        ]
        kept = additive(trace.parties, shared)
        if form.keeper is not None:
            assert [[*part.at] for part in kept.parts] == [
                [form.keeper(j, count)] for j in range(count)
            ]
            assert all(form.keeper(j, count) in form.holders(j, count) for j in range(count))


def sent_bits(setting: Setting, role: str) -> dict[tuple[int, int], int]:
    """Of one element between two parties, where a client gives 20 bits, or is told them."""
    trace, me = Trace(setting), client(setting).party
    owner, receiver = (me, 0) if role == "gives" else (0, me)
    shared = trace.share("x", (64,), 20, owner=owner)
    product = trace.apply("mul", (64,), 20, {}, shared, shared)
    trace.reveal(product if role == "gives" else shared, party=receiver)
    nodes, found = trace.program.nodes, dict[tuple[int, int], int]()
    for node in (nodes[i] for i in batch_rounds(trace.program).live):
        if node.op is ops.SEND and me in (link := (nodes[node.args[0]].party, node.party)):
            found[link] = found.get(link, 0) + node.type.bits
    return found


def test_what_a_client_sends_and_receives() -> None:
    """rep3: one message to each of two parties; additive: to the last alone."""
    assert sent_bits(REP3, "gives") == {(3, 1): 20, (3, 2): 20}
    assert sent_bits(OF_3, "gives") == {(3, 2): 20}
    assert sent_bits(REP3, "is told") == {(0, 3): 20, (1, 3): 20}
    assert sent_bits(OF_3, "is told") == {(0, 3): 20, (1, 3): 20, (2, 3): 20}
