"""What a comparison by trees shows each party: nothing, whatever is compared.

Words are uniform beside all that a party has of its own (test_comparison_words.py), and its parts
follow from these. So the protocols that compare are enumerated with parts that are uniform, those
of either party alone, in place of a tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from conformance import COMPARING, Setting
from test_views import FLAT, clip, is_refused, mutant, series
from views import (
    ENUMERATED_BITS,
    Protocol,
    Sources,
    draw_nodes,
    every_draw,
    given,
    is_known,
    parts_of,
    run,
)

from veilgraph.ir.meaning import party
from veilgraph.ir.party import ops
from veilgraph.ir.party.node import Draw, Node, Shape
from veilgraph.ir.party.program import Program, Value
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.secret.fourier import tables
from veilgraph.ir.types import Kind, Type, words
from veilgraph.passes.party.batch_rounds import Schedule
from veilgraph.passes.party.verify_masking import coalitions
from veilgraph.targets.blocks.comparison_tree import VARIANT
from veilgraph.targets.parties import Form, Operation, Parties, Sharing
from veilgraph.targets.suites import rep3, rep3_rotation

Array = npt.NDArray[Any]


@dataclass
class IdealTree:
    """In place of a tree: the first party's parts are bits of its root, the second's the rest.

    To the second party these are uniform just as its own expansion is. Words are uniform beside
    either, as above, and are no part of what is enumerated.
    """

    told: list[Array] = field(default_factory=list)

    def words(self, node: Node, args: list[Array], types: list[Type]) -> Array:
        _, root, _, threshold, *payloads = args
        self.told = [root, threshold, *payloads]
        return np.zeros(node.shape, np.uint64)

    def parts(self, node: Node, args: list[Array], types: list[Type]) -> Array:
        root, threshold, *payloads = self.told
        drawn, first = root[:, 0], 0
        points = args[2] & np.uint64((1 << node["index_bits"]) - 1)
        below = (points < threshold).astype(np.uint64)
        parts = []
        for payload, bits in zip(payloads, node["rings"], strict=True):
            own = drawn >> np.uint64(first)
            part = own if node["side"] == 0 else payload * below - own
            parts.append(part & np.uint64((1 << bits) - 1))
            first += bits
        return np.concatenate(parts)


@pytest.fixture
def ideal_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = IdealTree()
    monkeypatch.setattr(rep3_rotation, "SMALLEST_CHUNK", 1 << 40)  # one role a party
    monkeypatch.setitem(party.OPS, ops.COMPARE_WORDS, tree.words)
    monkeypatch.setitem(party.OPS, ops.COMPARE_PARTS, tree.parts)


@dataclass(frozen=True)
class Case:
    setting: Setting
    op: str
    bits: int
    attrs: dict[str, Any]
    result_bits: int
    form: Form = Form.ADDITIVE

    def __str__(self) -> str:
        return f"{self.setting}-{self.op}-{self.form.name}-{self.bits}-{self.result_bits}"

    def protocol(self, program: type[Program] = Program) -> Protocol:
        return Protocol(self.setting, self._body, program, self.tables())

    def tables(self) -> list[Array]:
        """The public operands of a function."""
        made = tables(self.attrs["window_bits"]) if self.op == "masked_function" else ()
        return [table.view(np.uint64) for table in made]

    def _body(self, p: Parties, elements: int) -> Sequence[Value]:
        p = replace(p, chosen=self.setting.target.protocols)
        operands = [given(p, "x0", elements, self.bits, self.form)]
        for number, table in enumerate(self.tables()):
            public = p.program.constant(number, table.shape, words(64))
            operands.append(Sharing((public,), Form.PUBLIC))
        operation = Operation(self.op, (elements,), self.result_bits, self.attrs)
        result = self.setting.suite.offered(self.op)(p, operation, *operands)
        return (rep3.replicated(p, result) if self.setting.suite is rep3.REP3 else result).parts

    def sources(self, secret: int, coalition: Sequence[int], seed: int) -> Sources:
        count = self.setting.computing
        return {"x0": parts_of(secret, self.bits, self.form, count, coalition, seed)}


def drawn_bits(schedule: Schedule) -> dict[int, int]:
    """Of each draw, by its number, the bits of it that are read: a block's are a part's."""
    nodes = schedule.program.nodes
    found = {number: type.bits for number, (_, type) in draw_nodes(schedule).items()}
    for node in (nodes[i] for i in schedule.live):
        if node.op is ops.COMPARE_WORDS:
            key, first, second = (nodes[i]["number"] for i in node.args[:3])
            found |= {key: 0, first: sum(node["rings"]), second: 0}
    return found


def exact_view(
    case: Case, coalition: Sequence[int], secret: int, seed: int
) -> npt.NDArray[np.uint64]:
    """The view for every choice of the unknown draws: a hash of each, sorted."""
    protocol = case.protocol()
    once = protocol.trace(1)
    sizes = drawn_bits(once)
    hidden = [n for n, (d, _) in sorted(draw_nodes(once).items()) if not is_known(d, coalition)]
    bits = sum(sizes[number] for number in hidden)
    assert bits <= ENUMERATED_BITS, f"{bits} bits to enumerate"
    places, first = {}, 0
    for number in hidden:
        places[number], first = first, first + sizes[number]
    others = every_draw(protocol.trace(1 << bits), coalition, seed)

    def source(draw: Draw, shape: Shape, type: Type) -> Array:
        if draw.number not in places:
            if type.kind is not Kind.BLOCKS:
                return others(draw, shape, type)
            known = np.random.default_rng([seed, draw.number]).integers(1 << 63, size=2)
            return np.broadcast_to(known.astype(np.uint64), (*shape, 2))
        value = np.arange(shape[0], dtype=np.uint64) >> np.uint64(places[draw.number])
        value &= np.uint64((1 << sizes[draw.number]) - 1)
        if type.kind is Kind.WORDS:
            return value
        if type.kind is Kind.BLOCKS:
            return np.stack([value, value * np.uint64(0)], -1)
        planes = [value >> np.uint64(j) & np.uint64(1) for j in range(type.bits)]
        return np.array(planes, np.uint8)

    part = protocol.seen(1 << bits, coalition)
    sources = case.sources(secret, coalition, seed)
    done = run(part.program, 1 << bits, sources, source, case.tables())
    digest = np.zeros(1 << bits, np.uint64)
    for message in part.received(done):
        if message.size == digest.size:  # no section of words
            digest = (digest ^ message) * np.uint64(0x9E3779B97F4A7C15)
            digest ^= digest >> np.uint64(29)
    return np.sort(digest)


REP3, ADDITIVE = (s for s in COMPARING if s.comparison == VARIANT)
WINDOW = {"window_bits": 2, "dropped_bits": 0}
PROTOCOLS = (
    Case(REP3, "step", 2, WINDOW, 2, Form.REPLICATED),
    Case(REP3, "step", 3, {"window_bits": 3, "dropped_bits": 0}, 1),
    Case(REP3, "step", 3, {"window_bits": 3, "dropped_bits": 1}, 1),
    Case(REP3, "relu", 2, WINDOW, 2, Form.REPLICATED),
    Case(REP3, "truncate_relu", 3, {"bits": 1, "window_bits": 2, "dropped_bits": 0}, 2),
    Case(REP3, "round_off", 3, {"bits": 1}, 2),
    Case(REP3, "masked_function", 2, series(1, 2, 1) | clip(2), 1),
    Case(ADDITIVE, "masked_function", 2, series(1, 2, 1) | clip(2), 1),
    Case(ADDITIVE, "step", 3, {"window_bits": 3, "dropped_bits": 0}, 2),
    Case(ADDITIVE, "step", 3, {"window_bits": 3, "dropped_bits": 1}, 2),
    Case(ADDITIVE, "relu", 2, WINDOW, 2),
    Case(ADDITIVE, "truncate_relu", 3, {"bits": 1, "window_bits": 2, "dropped_bits": 0}, 2),
    Case(ADDITIVE, "round_off", 3, {"bits": 1}, 2),
)


@pytest.mark.parametrize("case", PROTOCOLS, ids=str)
def test_a_comparison_by_trees_shows_nothing(case: Case, ideal_trees: None) -> None:
    """Every secret, and every choice of all that a party does not know, the other's part too."""
    alone = [c for c in coalitions(case.setting.target) if max(c) < case.setting.computing]
    for coalition, seed in product(alone, range(3)):
        views = [exact_view(case, coalition, s, seed) for s in range(1 << case.bits)]
        assert all(np.array_equal(each, views[0]) for each in views), (coalition, seed)


SEVEN = {"window_bits": 7, "dropped_bits": 0}
HIDING = (
    Case(REP3, "step", 8, SEVEN, 8),
    Case(REP3, "relu", 8, SEVEN, 8, Form.REPLICATED),
    Case(REP3, "masked_function", 8, series(5, 9, 3, **FLAT) | clip(7, beyond=1), 6),
    Case(ADDITIVE, "step", 8, SEVEN, 8),
    Case(ADDITIVE, "relu", 8, SEVEN, 8),
    Case(ADDITIVE, "masked_function", 8, series(5, 9, 3, **FLAT) | clip(7, beyond=1), 6),
)


@pytest.mark.parametrize("case", HIDING, ids=str)
@pytest.mark.parametrize("fault", ["known to all", "of the setup"])
def test_verify_masking_misses_no_draw_of_a_tree(case: Case, fault: str) -> None:
    """Roots among them; the key of trees may be known to all, and old."""
    every = coalitions(case.setting.target)
    schedule = case.protocol().trace(1)
    nodes = schedule.program.nodes
    trees = [node for node in nodes if node.op is ops.COMPARE_WORDS]
    keys = {nodes[node.args[0]]["number"] for node in trees}
    assert len(keys) == 1
    assert not is_refused(case.protocol(), every)
    draws = schedule.program.draws
    pads = {draw.number for draw in draws if draw.holders == {0, 1}}  # they hide how parts round
    for number in {draw.number for draw in draws} - keys - pads:
        assert is_refused(case.protocol(mutant(number, fault)), every), number


@pytest.mark.parametrize("case", HIDING, ids=str)
def test_no_coalition_has_both_roots(case: Case) -> None:
    """But who prepares, who is sent nothing of what is opened."""
    schedule = case.protocol().trace(1)
    program = schedule.program
    for tree in (node for node in program.nodes if node.op is ops.COMPARE_WORDS):
        roots = [program.nodes[tree.args[place]] for place in tree.op.masking.roots]
        holders = [program.draws[root["number"]].holders for root in roots]
        for coalition in map(set, coalitions(case.setting.target)):
            has_both = all(not coalition.isdisjoint(each) for each in holders)
            assert not has_both or coalition == {tree.party}
        online = [n for n in program.nodes if n.op is ops.SEND and n.phase == Phase.ONLINE]
        assert tree.party not in {node.party for node in online}
