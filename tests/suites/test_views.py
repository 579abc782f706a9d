"""What a coalition receives is distributed the same for any secrets; with a mask less, it is not.

The same protocols, with one draw taken out or known to all, are caught here and by verify_masking.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from conformance import SETTINGS, Setting
from receivers import asked
from views import (
    ENUMERATED_BITS,
    TOGETHER,
    Protocol,
    Sample,
    Sources,
    exact_view,
    given,
    parts_of,
    sampled_view,
    unknown_bits,
)

from veilgraph.ir.party import ops
from veilgraph.ir.party.node import Draw, Shape
from veilgraph.ir.party.program import Program, Value, apply, stack
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.secret import exponential as exponentials
from veilgraph.ir.secret.exponential import Segments
from veilgraph.ir.secret.fourier import tables
from veilgraph.ir.types import Kind, Type, planes, words
from veilgraph.passes.party.verify_masking import MaskingError, coalitions, verify_masking
from veilgraph.targets.blocks.borrow import borrow
from veilgraph.targets.blocks.digits import Split
from veilgraph.targets.blocks.window import Bit, Compare
from veilgraph.targets.parties import Form, Member, Operation, Parties, Provider, Sharing
from veilgraph.targets.suites import rep3, rep3_rotation
from veilgraph.targets.variants import Variant

REP3_OF_3, ADDITIVE_OF_2, ADDITIVE_OF_3, ADDITIVE_OF_5 = (s for s in SETTINGS if s.computing > 1)
RUNS = 1 << 17
# A sum of three sources: one at party 0, two at party 1, who adds them up to its part of two.
PAIR = Form("pair", lambda part, parts: frozenset({min(part, 1)}))


@dataclass(frozen=True)
class Case:
    """An op of a suite on sharings that are there already; then reshared, so that it says all."""

    setting: Setting
    op: str
    bits: int  # of the ring
    form: Form = Form.ADDITIVE
    attrs: dict[str, Any] = field(default_factory=dict)
    operands: int = 1
    result_bits: int = 0  # of its ring, where it is another
    tabled: tuple[int, ...] = ()  # digits of a comparison by a table, in place of the suite's
    variant: str = ""  # of the op's protocol, in place of the suite's first

    def __str__(self) -> str:
        into = f"-{self.result_bits}" if self.result_bits else ""
        table = "".join(f"-{digit}" for digit in self.tabled)
        variant = f"-{self.variant}" * bool(self.variant)
        return f"{self.setting}-{self.op}-{self.form.name}-{self.bits}{into}{table}{variant}"

    def protocol(self, program: type[Program] = Program) -> Protocol:
        return Protocol(self.setting, self._body, program, self.tables())

    def tables(self) -> list[np.ndarray]:
        """The public operands of a function."""
        made: tuple[np.ndarray, ...] = ()
        if self.op == "masked_function":
            made = tables(self.attrs["window_bits"])
        elif self.op in ("exp_sums", "masked_exp"):
            segments = Segments.of(self.attrs)
            made = exponentials.tables(segments, 2)
            if self.op == "masked_exp":
                made = (*made, exponentials.heights(segments, 2, 1.0, 0.0))
        return [table.view(np.uint64) for table in made]

    def _body(self, p: Parties, elements: int) -> Iterable[Value]:
        if self.tabled:
            split = Split(self.tabled, len(self.tabled), has_table=True)
            p = replace(p, chosen={"compare": Variant("tabled", cut_as(split))})
        names = [f"x{j}" for j in range(self.operands)]
        operands = [given(p, name, elements, self.bits, self.form) for name in names]
        if self.form is PAIR:
            operands = [rep3.pair_of(p, (x[0], x[1] + x[2])) for x in operands]
        suite = self.setting.suite
        if self.op == "reveal":
            revealed: Any = suite.reveal(p, Member(1), *operands)
            return [revealed]
        for number, table in enumerate(self.tables()):
            public = p.program.constant(number, table.shape, words(64))
            operands.append(Sharing((public,), Form.PUBLIC))
        shape: Shape = (elements,)
        if self.op == "exp_sums":  # rows of one element
            operands[0] = operands[0].map(lambda v: v.reshape((elements, 1)))
            shape = (elements, Segments.of(self.attrs).count)
        if self.op in ("max_pool", "truncate_relu_pool"):  # windows of two
            images = (x.map(lambda v: v.reshape((1, elements, 1, 1))) for x in operands)
            shape = (1, elements, 1, 2)
            pairs = Operation("concat", shape, self.bits, {"axis": 3})
            operands, shape = [suite.offered("concat")(p, pairs, *images)], (1, elements, 1, 1)
        operation = Operation(self.op, shape, self.result_bits or self.bits, self.attrs)
        variants = {variant.name: variant.function for variant in suite.protocols[self.op]}
        protocol = variants[self.variant] if self.variant else suite.offered(self.op)
        result = protocol(p, operation, *operands)
        if (
            self.op == "exp_sums"
        ):  # a pair of parts: resharing the third, which is zero, says nothing
            return [_column(part, j) for part in result.parts for j in range(shape[1])]
        result = result.map(lambda v: v.reshape((elements,)))
        return (rep3.replicated(p, result) if suite is rep3.REP3 else result).parts

    def sources(self, secrets: Sequence[int], coalition: Sequence[int], seed: int) -> Sources:
        count = self.setting.computing
        return {
            f"x{j}": parts_of(secret, self.bits, self.form, count, coalition, seed + 100 * j)
            for j, secret in enumerate(secrets)
        }

    def coalitions(self) -> list[tuple[int, ...]]:
        """Of computing parties: a dealer receives nothing."""
        found = coalitions(self.setting.target)
        return [c for c in found if max(c) < self.setting.computing]


def cut_as(split: Split) -> Compare:
    """The comparison that cuts the bits so, however many there are."""

    def compare(
        d: Provider, c: Value, r: Value, low: int, count: int, flip: Value | None = None
    ) -> Bit:
        assert sum(split.sizes) == count
        return borrow(d, c, r, low, split, flip)

    return compare


def _column(x: Value, number: int) -> Value:
    attrs = {"starts": (0, number), "steps": (1, 1)}
    column = apply(ops.SLICE, (x,), (x.shape[0], 1), x.type, **attrs)
    return column.reshape((x.shape[0],))


REPLICATED = Form.REPLICATED


def series(window_bits: int, sum_bits: int, bits: int, **changed: Any) -> dict[str, Any]:
    """A cosine, its integers as narrow as they can be unless told otherwise."""
    integers = {"coefficient_bits": 20, "constant": 0, "slope": 0, "first": 1, "step": 1}
    precision = {"cosine_bits": 0, "factor_bits": 0, "sum_bits": sum_bits, "bits": bits}
    each = {"cosines": (1 << 20,), "sines": (0,), "window_bits": window_bits}
    return {**integers, **precision, **each, **changed}


def clip(compared_bits: int, dropped_bits: int = 0, **changed: int) -> dict[str, int]:
    """An end of a function, and what it has below that."""
    window = {"compared_bits": compared_bits, "dropped_bits": dropped_bits}
    return {"edge": 0, "beyond": 0, **window, **changed}


def exponential(window_bits: int, piece_bits: int, sum_bits: int, **more: int) -> dict[str, Any]:
    segments = Segments(window_bits, piece_bits, 1, min(2, sum_bits - 1), 1, sum_bits)
    return segments.parameters() | more


FINER = {"sines": (1 << 19,), "cosine_bits": 2, "factor_bits": 3, "slope": 1}
FLAT = FINER | {"slope": 0}
SMALL = {"window_bits": 2, "dropped_bits": 0}
WINDOW_OF_3 = {"window_bits": 3, "dropped_bits": 0}
TINY = (
    Case(REP3_OF_3, "mul", 3, REPLICATED, operands=2),
    Case(REP3_OF_3, "truncate", 3, REPLICATED, {"bits": 1}),
    Case(REP3_OF_3, "truncate", 3, attrs={"bits": 1}),
    Case(REP3_OF_3, "truncate", 3, attrs={"bits": 1}, result_bits=2),
    Case(REP3_OF_3, "truncate", 3, attrs={"bits": 1}, result_bits=4),
    Case(REP3_OF_3, "lift", 3, attrs={}, result_bits=4),
    Case(REP3_OF_3, "lift", 2, attrs={}, result_bits=3),
    Case(REP3_OF_3, "step", 3, REPLICATED, SMALL),
    Case(REP3_OF_3, "step", 2, Form.ADDITIVE, SMALL),
    Case(REP3_OF_3, "step", 3, REPLICATED, {"window_bits": 3, "dropped_bits": 1}),
    Case(REP3_OF_3, "relu", 3, REPLICATED, SMALL),
    Case(REP3_OF_3, "relu", 2, REPLICATED, {"window_bits": 2, "dropped_bits": 1}),
    Case(REP3_OF_3, "maximum", 2, REPLICATED, SMALL, operands=2),
    Case(REP3_OF_3, "masked_function", 3, REPLICATED, series(1, 3, 1)),
    Case(REP3_OF_3, "masked_function", 3, REPLICATED, series(2, 3, 1)),
    Case(REP3_OF_3, "masked_function", 3, REPLICATED, series(2, 3, 1, slope=1)),
    Case(REP3_OF_3, "masked_function", 2, attrs=series(1, 3, 1)),
    Case(REP3_OF_3, "masked_function", 3, PAIR, series(2, 3, 1)),
    Case(REP3_OF_3, "masked_function", 3, PAIR, series(2, 3, 1, slope=1)),
    Case(REP3_OF_3, "masked_function", 3, PAIR, series(1, 2, 1), result_bits=2, variant="wide"),
    Case(REP3_OF_3, "masked_function", 2, PAIR, series(1, 2, 1) | clip(1), result_bits=1),
    Case(REP3_OF_3, "masked_function", 2, PAIR, series(1, 2, 1) | clip(2), result_bits=1),
    Case(REP3_OF_3, "masked_function", 2, attrs=series(1, 2, 1) | clip(1, edge=1), result_bits=1),
    Case(ADDITIVE_OF_2, "masked_function", 2, attrs=series(1, 2, 1) | clip(1), result_bits=1),
    Case(ADDITIVE_OF_2, "masked_function", 3, attrs=series(1, 3, 1)),
    Case(ADDITIVE_OF_2, "masked_function", 3, attrs=series(1, 2, 1), variant="wide"),
    Case(REP3_OF_3, "exp_sums", 3, PAIR, exponential(3, 2, 2), result_bits=2),
    Case(REP3_OF_3, "masked_exp", 2, PAIR, exponential(2, 1, 2, bits=1), variant="wide"),
    Case(REP3_OF_3, "exp_sums", 3, REPLICATED, exponential(3, 2, 2), result_bits=2),
    Case(REP3_OF_3, "masked_exp", 3, REPLICATED, exponential(3, 2, 3, bits=1)),
    Case(ADDITIVE_OF_2, "exp_sums", 3, attrs=exponential(3, 2, 3), result_bits=3),
    Case(ADDITIVE_OF_2, "masked_exp", 3, attrs=exponential(3, 2, 3, bits=1)),
    Case(ADDITIVE_OF_2, "mul", 3, operands=2),
    Case(ADDITIVE_OF_2, "truncate", 3, attrs={"bits": 1}),
    Case(ADDITIVE_OF_2, "truncate", 3, attrs={"bits": 1}, result_bits=2),
    Case(ADDITIVE_OF_2, "truncate", 3, attrs={"bits": 1}, result_bits=4),
    Case(ADDITIVE_OF_2, "lift", 3, attrs={}, result_bits=4),
    Case(ADDITIVE_OF_2, "step", 2, attrs=SMALL),
    Case(ADDITIVE_OF_2, "step", 3, attrs={"window_bits": 3, "dropped_bits": 1}),
    Case(ADDITIVE_OF_2, "relu", 2, attrs=SMALL),
    Case(ADDITIVE_OF_3, "truncate", 3, attrs={"bits": 1}),
    Case(ADDITIVE_OF_2, "step", 3, attrs=WINDOW_OF_3, result_bits=1, tabled=(1, 1)),
    Case(REP3_OF_3, "step", 3, REPLICATED, WINDOW_OF_3, result_bits=1, tabled=(1, 1)),
)
# Where additive opens to one party alone, some of the masks have nothing to hide.
SPARE = [c for c in TINY if c.setting is ADDITIVE_OF_2 and c.result_bits == 2]
QUICK = [c for c in TINY if c.op in ("mul", "truncate", "lift") or (c.op == "relu" and c.bits == 2)]
QUICK = [c for c in QUICK if c not in SPARE]
REVEALED = (
    Case(REP3_OF_3, "reveal", 3, REPLICATED),
    Case(REP3_OF_3, "reveal", 3),
    Case(ADDITIVE_OF_2, "reveal", 3),
    Case(ADDITIVE_OF_3, "reveal", 3),
    Case(ADDITIVE_OF_5, "reveal", 2),
)
WIDE = {"window_bits": 7, "dropped_bits": 0}
POOLED = {"bits": 3, "window_bits": 6, "dropped_bits": 3, "kernel": (1, 2), "strides": (1, 2)}
POOLED |= {"pads_low": (0, 0), "pads_high": (0, 0), "dilations": (1, 1)}
SAMPLED = (
    Case(REP3_OF_3, "mul", 8, REPLICATED, operands=2),
    Case(REP3_OF_3, "truncate", 8, attrs={"bits": 3}),
    Case(REP3_OF_3, "step", 8, attrs=WIDE),
    Case(REP3_OF_3, "relu", 8, REPLICATED, WIDE),
    Case(REP3_OF_3, "truncate_relu", 8, attrs={"bits": 3, "window_bits": 7, "dropped_bits": 2}),
    Case(REP3_OF_3, "truncate_relu", 8, attrs={"bits": 3, **WIDE}, result_bits=11),
    Case(REP3_OF_3, "truncate_relu", 10, attrs={"bits": 3, **WIDE}, result_bits=6),
    Case(REP3_OF_3, "truncate_relu_pool", 8, attrs=POOLED, operands=2),
    Case(ADDITIVE_OF_2, "truncate_relu_pool", 8, attrs=POOLED, operands=2),
    Case(ADDITIVE_OF_3, "truncate_relu_pool", 8, attrs=POOLED, operands=2),
    Case(REP3_OF_3, "max_pool", 8, attrs=POOLED, operands=2),
    Case(REP3_OF_3, "lift", 8, attrs={}, result_bits=11),
    Case(REP3_OF_3, "maximum", 8, REPLICATED, WIDE, operands=2),
    Case(REP3_OF_3, "masked_function", 8, REPLICATED, series(5, 9, 3, **FINER)),
    Case(REP3_OF_3, "masked_function", 8, attrs=series(5, 9, 3, **FLAT)),
    Case(REP3_OF_3, "masked_function", 8, PAIR, series(5, 9, 3, **FINER)),
    Case(REP3_OF_3, "masked_function", 8, REPLICATED, series(5, 9, 3, **FLAT), variant="wide"),
    Case(REP3_OF_3, "masked_exp", 8, PAIR, exponential(6, 4, 9, bits=2), variant="wide"),
    Case(REP3_OF_3, "masked_function", 8, PAIR, series(5, 9, 3, **FLAT) | clip(6, 1, edge=5)),
    Case(REP3_OF_3, "masked_function", 8, attrs=series(5, 9, 3, **FLAT) | clip(6, 1, beyond=3)),
    Case(REP3_OF_3, "masked_function", 8, attrs=series(5, 9, 3, **FLAT) | clip(7), variant="wide"),
    Case(ADDITIVE_OF_2, "masked_function", 8, attrs=series(5, 9, 3, **FLAT) | clip(6, 1, edge=5)),
    Case(ADDITIVE_OF_3, "masked_function", 8, attrs=series(5, 9, 3, **FLAT) | clip(6, 1)),
    Case(ADDITIVE_OF_2, "masked_function", 8, attrs=series(5, 9, 3, **FINER)),
    Case(ADDITIVE_OF_3, "masked_function", 8, attrs=series(5, 9, 3, **FINER)),
    Case(REP3_OF_3, "exp_sums", 8, REPLICATED, exponential(6, 4, 9), result_bits=9),
    Case(REP3_OF_3, "masked_exp", 8, REPLICATED, exponential(6, 4, 9, bits=2)),
    Case(ADDITIVE_OF_2, "exp_sums", 8, attrs=exponential(6, 4, 9), result_bits=9),
    Case(ADDITIVE_OF_3, "masked_exp", 8, attrs=exponential(6, 4, 9, bits=2)),
    Case(ADDITIVE_OF_2, "mul", 8, operands=2),
    Case(ADDITIVE_OF_2, "truncate_relu", 8, attrs={"bits": 3, **WIDE}, result_bits=11),
    Case(ADDITIVE_OF_2, "truncate_relu", 10, attrs={"bits": 3, **WIDE}, result_bits=6),
    Case(ADDITIVE_OF_2, "truncate_relu", 8, attrs={"bits": 3, **WIDE}),
    Case(ADDITIVE_OF_3, "step", 8, attrs=WIDE),
    Case(ADDITIVE_OF_3, "relu", 8, attrs={"window_bits": 6, "dropped_bits": 1}),
    Case(ADDITIVE_OF_2, "maximum", 8, attrs=WIDE, operands=2),
    Case(ADDITIVE_OF_3, "mul", 8, operands=2),
    Case(ADDITIVE_OF_3, "truncate_relu", 8, attrs={"bits": 3, **WIDE}),
    Case(REP3_OF_3, "relu", 8, REPLICATED, WIDE, tabled=(3, 3)),
    Case(REP3_OF_3, "step", 8, attrs=WIDE, tabled=(2, 2, 2)),
    Case(ADDITIVE_OF_2, "truncate_relu", 10, attrs={"bits": 3, **WIDE}, tabled=(2, 2)),
    Case(ADDITIVE_OF_3, "relu", 8, attrs=WIDE, tabled=(2, 2, 2)),
    Case(ADDITIVE_OF_5, "mul", 8, operands=2),
    Case(ADDITIVE_OF_5, "truncate_relu", 8, attrs={"bits": 3, "window_bits": 6, "dropped_bits": 2}),
)


@pytest.fixture(autouse=True)
def one_role_a_party(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors are not cut into thirds whose roles rotate: all runs are of one and the same view."""
    monkeypatch.setattr(rep3_rotation, "SMALLEST_CHUNK", 1 << 40)


@pytest.mark.parametrize("case", TINY, ids=str)
def test_views_are_the_same_for_all_secrets(case: Case) -> None:
    """Every secret, and every choice of all that a coalition does not know."""
    protocol = case.protocol()
    for coalition in case.coalitions():
        if unknown_bits(protocol.trace(1), coalition) > ENUMERATED_BITS:
            assert len(coalition) == 1  # one of three parties: a part of a larger coalition's view
            continue
        for seed in range(3):
            views = [
                exact_view(protocol, coalition, case.sources([s, t], coalition, seed), seed)
                for s in range(1 << case.bits)
                for t in (range(2) if case.operands == 2 else range(1))
            ]
            assert all(np.array_equal(view, views[0]) for view in views), (coalition, seed)


@pytest.mark.parametrize("to", [0, 1])
def test_a_part_that_is_given_to_either_says_nothing(to: int) -> None:
    """A large tensor's halves go two ways: here is one element of each."""

    def body(p: Parties, elements: int) -> Sequence[Value]:
        return rep3.given_to(p, given(p, "x0", elements, 3, Form.ADDITIVE), to)

    protocol = Protocol(REP3_OF_3, body)
    for coalition in [(0,), (1,), (2,)]:
        sources = (
            {"x0": parts_of(secret, 3, Form.ADDITIVE, 3, coalition, 0)} for secret in range(8)
        )
        first, *others = [exact_view(protocol, coalition, each, 0) for each in sources]
        assert all(np.array_equal(first, other) for other in others), coalition


def test_a_large_part_goes_by_both_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rep3_rotation, "SMALLEST_CHUNK", 64)
    size = rep3_rotation.SMALLEST_HALVED

    def body(p: Parties, elements: int) -> Sequence[Value]:
        return rep3.pair(p, given(p, "x0", elements, 8, Form.ADDITIVE))

    nodes = Protocol(REP3_OF_3, body).trace(size).program.nodes
    sent = [(nodes[n.args[0]].party, n.party, n.elements) for n in nodes if n.op is ops.SEND]
    assert sent == [(2, 0, size // 2), (2, 1, size // 2)]


@pytest.mark.parametrize("case", REVEALED, ids=str)
def test_a_reveal_says_nothing_but_the_value(case: Case) -> None:
    """The same value in other parts gives the same view."""
    protocol = case.protocol()
    for coalition in case.coalitions():
        for secret in range(1 << case.bits):
            views = [
                exact_view(protocol, coalition, other_parts(case, secret, coalition, seed), 0)
                for seed in range(6)
            ]
            assert all(np.array_equal(view, views[0]) for view in views), (coalition, secret)


def other_parts(case: Case, secret: int, coalition: Sequence[int], seed: int) -> Sources:
    """Parts of `secret`: those of the coalition always the same, the others by the seed."""
    sources = case.sources([secret], coalition, 0)
    parts = list(sources["x0"])
    held = {j for i in coalition for j in ((i, i + 1) if case.form is REPLICATED else (i,))}
    free = [j for j in range(len(parts)) if j not in {h % len(parts) for h in held}]
    if len(free) > 1:
        parts[free[0]] = (parts[free[0]] + seed) % (1 << case.bits)
        parts[free[1]] = (parts[free[1]] - seed) % (1 << case.bits)
    return {"x0": parts}


@pytest.mark.parametrize("case", SAMPLED, ids=str)
def test_views_in_a_larger_ring(case: Case) -> None:
    """Chi-square at 1e-6 over 2^17 runs: messages alone, and in pairs with all there is."""
    for coalition in case.coalitions():
        assert not sampled_differences(case.protocol(), case, coalition)


def sampled_differences(protocol: Protocol, case: Case, coalition: Sequence[int]) -> list[str]:
    samples = []
    for number, secrets in enumerate(([-61, 0], [58, -3])):
        sources = case.sources(secrets, coalition, 1)
        found = Sample()
        for batch in range(RUNS // TOGETHER):
            seed = 1000 * number + batch
            found.add(*sampled_view(protocol, coalition, sources, TOGETHER, seed))
        samples.append(found)
    return samples[0].differences(samples[1])


# Mutants: protocols with one draw that masks nothing


class Mutant(Program):
    """A program in which one draw is not what it should be."""

    target = 0
    fault = ""

    def __init__(self, parties: Sequence[str]) -> None:
        super().__init__(parties)
        self.asked = 0

    def draw(self, holders: Iterable[int], shape: Shape, type: Type) -> Value:
        self.asked += 1
        own = frozenset(holders)
        if self.asked - 1 != self.target:
            return super().draw(own, shape, type)
        if self.fault == "known to all":
            return super().draw(range(len(self.parties)), shape, type)
        if self.fault == "of the setup":
            with self.in_phase(Phase.SETUP):
                return super().draw(own, shape, type)
        if self.fault == "narrow" and type.bits > 1:
            return self._narrow(own, shape, type)
        return self.const(0, shape, type).only(*own)

    def _narrow(self, holders: frozenset[int], shape: Shape, type: Type) -> Value:
        if type.kind is Kind.WORDS:
            return super().draw(holders, shape, words(type.bits - 1)).mod(type.bits)
        zero = self.const(0, shape, planes(1)).only(*holders)
        return stack([super().draw(holders, shape, planes(type.bits - 1)), zero])


def mutant(number: int, what: str) -> type[Program]:
    return type("OneMutant", (Mutant,), {"target": number, "fault": what})


@pytest.mark.parametrize("case", SAMPLED, ids=str)
@pytest.mark.parametrize("fault", ["missing", "narrow", "known to all", "of the setup"])
def test_verify_masking_misses_no_draw(case: Case, fault: str) -> None:
    every = coalitions(case.setting.target)
    schedule = case.protocol().trace(1)
    verify_masking(schedule, every, asked(schedule.program))
    for number in range(len(schedule.program.draws)):
        refused = is_refused(case.protocol(mutant(number, fault)), every)
        assert refused or hides_rounding(case, schedule.program.draws[number]), number


def hides_rounding(case: Case, draw: Draw) -> bool:
    """Whether a draw is the pad of two shifted parts, which no message needs.

    It keeps from others how these are rounded: test_truncation.py counts over its values.
    """
    narrows = case.op == "truncate" and case.bits - case.attrs["bits"] >= case.result_bits > 0
    fused = case.op in ("truncate_relu", "truncate_relu_pool") or case.variant == "wide"
    return (narrows or fused) and draw.holders == frozenset({0, 1})


def is_refused(protocol: Protocol, every: Sequence[Sequence[int]]) -> bool:
    try:
        schedule = protocol.trace(1)
        verify_masking(schedule, every, asked(schedule.program))
    except MaskingError:
        return True
    return False


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_what_leaks_is_refused(case: Case) -> None:
    """A missing draw shows in the exact view of some coalition, and verify_masking refuses it."""
    every = coalitions(case.setting.target)
    every_draw = case.protocol().trace(1).program.draws
    masks = [n for n, draw in enumerate(every_draw) if not hides_rounding(case, draw)]
    leaks = 0
    for number in masks:
        broken = case.protocol(mutant(number, "missing"))
        if any(depends_on_secret(broken, case, c) for c in case.coalitions()):
            leaks += 1
            assert is_refused(broken, every), number
    # A window so small leaves no gate in rep3's tree: some of the masks have nothing to hide there.
    assert leaks == len(masks) or (case.op == "relu" and leaks >= len(masks) - 4)


def depends_on_secret(protocol: Protocol, case: Case, coalition: Sequence[int]) -> bool:
    if unknown_bits(protocol.trace(1), coalition) > ENUMERATED_BITS:
        return False
    for seed in range(8):
        first = exact_view(protocol, coalition, case.sources([0, 0], coalition, seed), seed)
        for secrets in ([1, 0], [2, 1], [(1 << case.bits) - 1, 3]):
            sources = case.sources(secrets, coalition, seed)
            if not np.array_equal(first, exact_view(protocol, coalition, sources, seed)):
                return True
    return False


@pytest.mark.parametrize("case", SAMPLED[:2], ids=str)
def test_a_missing_draw_shows_in_samples(case: Case) -> None:
    for number in range(len(case.protocol().trace(1).program.draws)):
        broken = case.protocol(mutant(number, "missing"))
        assert any(sampled_differences(broken, case, c) for c in case.coalitions()), number
