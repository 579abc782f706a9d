"""One-hot rows in every suite: each index inside and outside, who knows it and who computed it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conformance import CLIENTS, SETTINGS, Integers, Setting, Trace
from receivers import asked

from veilgraph.ir.meaning.party import evaluate, uniform_draws
from veilgraph.ir.party import ops
from veilgraph.ir.party.legality import check_party
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.types import Kind
from veilgraph.passes.party.batch_rounds import batch_rounds
from veilgraph.passes.party.verify_masking import coalitions, verify_masking
from veilgraph.targets.parties import Member, Operation, Sharing
from veilgraph.targets.suites import SUITES

HIDING = [setting for setting in SETTINGS if setting.computing > 1]
WITH_CLIENT = [Setting(SUITES["rep3"], 3, 1), Setting(SUITES["additive"], 2, 1)]
DEPTHS = (2, 3, 8, 13)


def unit_rows(x: Integers, depth: int, wraps: bool) -> Integers:
    place = np.where((x < 0) & (x >= -depth), x + depth, x) if wraps else x
    return np.asarray(place[..., None] == np.arange(depth), np.int64)


class OneHot:
    """A trace of rows of x, which party `owner` knows, or nobody."""

    def __init__(
        self,
        setting: Setting,
        x: Integers,
        depth: int,
        wraps: bool,
        owner: int | None,
        rings: tuple[int, int] = (16, 32),
        variant: str = "",
        window_bits: int = 7,
    ) -> None:
        self.trace, self.x = Trace(setting), x
        given = owner or 0
        index = self.trace.share("x", x.shape, rings[0], given)
        if owner is not None:
            program = self.trace.program
            known = program.source("input", "x", given, x.shape, index.type)
            index = replace(index, known=known)
        attrs = {"depth": depth, "wraps": wraps, "window_bits": window_bits, "dropped_bits": 0}
        operation = Operation("one_hot", (*x.shape, depth), rings[1], attrs)
        of_op = setting.suite.protocols["one_hot"]
        protocol = next(v for v in of_op if variant in ("", v.name)).function
        self.rows: Sharing = protocol(self.trace.parties, operation, index)
        assert self.rows.shape == operation.shape
        assert self.rows.type == operation.type

    def run(self, seed: int = 1) -> Integers:
        self.trace.reveal(self.rows)
        return self.trace.run({"x": self.x}, uniform_draws(np.random.default_rng(seed)))


def every_index(depth: int) -> Integers:
    return np.arange(-depth - 3, 2 * depth + 3)


@pytest.mark.parametrize("setting", [*SETTINGS, *WITH_CLIENT], ids=str)
@pytest.mark.parametrize("wraps", [False, True])
@pytest.mark.parametrize("depth", DEPTHS)
def test_every_index_of_its_owner(setting: Setting, depth: int, wraps: bool) -> None:
    x = every_index(depth)
    owners = [len(setting.target.parties)] if setting.clients else range(setting.computing)
    for owner in owners:
        for rings in ((7, 8), (32, 32), (24, 40), (64, 64)):
            y = OneHot(setting, x, depth, wraps, owner, rings).run()
            np.testing.assert_array_equal(y, unit_rows(x, depth, wraps), err_msg=f"{owner} {rings}")


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("wraps", [False, True])
@pytest.mark.parametrize("depth", DEPTHS)
def test_every_computed_index(setting: Setting, depth: int, wraps: bool) -> None:
    x = np.resize(every_index(depth), (3, 4))
    for variant in (v.name for v in setting.suite.protocols["one_hot"]):
        for rings in ((16, 32), (24, 40)):
            y = OneHot(setting, x, depth, wraps, None, rings, variant).run()
            np.testing.assert_array_equal(y, unit_rows(x, depth, wraps), err_msg=variant)


@pytest.mark.parametrize("setting", HIDING, ids=str)
def test_an_index_of_more_numbers_than_a_tree_has_places_is_compared(setting: Setting) -> None:
    x = np.append(every_index(3), [1 << 37, -(1 << 37)])
    made = OneHot(setting, x, 3, True, None, (48, 32), window_bits=40)
    np.testing.assert_array_equal(made.run(), unit_rows(x, 3, True))
    check_party(made.trace.program)


def test_chunks_of_rows_in_turns() -> None:
    x = np.arange(200) % 13
    np.testing.assert_array_equal(
        OneHot(SETTINGS[0], x, 11, False, None).run(), unit_rows(x, 11, False)
    )


@pytest.mark.parametrize("setting", [*HIDING, *WITH_CLIENT], ids=str)
@pytest.mark.parametrize("is_known", [True, False])
def test_masks_hold_for_every_coalition(setting: Setting, is_known: bool) -> None:
    target = setting.target
    owners: list[int | None] = list(range(setting.computing)) if is_known else [None]
    if setting.clients and is_known:
        owners = [target.member(CLIENTS[0]).party]
    for owner in owners:
        made = OneHot(setting, np.arange(4), 6, True, owner)
        receiver = 0 if not setting.clients else target.member(CLIENTS[0]).party
        value: Any = setting.suite.reveal(made.trace.parties, Member(receiver), made.rows)
        made.trace.program.output(value, receiver, "y", 0)
        program = made.trace.program
        verify_masking(batch_rounds(program), coalitions(target), asked(program))


def sent_blocks(one_hot: OneHot) -> dict[Phase, int]:
    """Blocks of words that are sent in each phase, of all parties."""
    one_hot.trace.reveal(one_hot.rows)
    program = one_hot.trace.program
    found = dict.fromkeys(Phase, 0)
    for i in batch_rounds(program).live:
        node = program.nodes[i]
        if node.op is ops.SEND and node.type.kind is Kind.BLOCKS:
            found[node.phase] += node.elements
    return found


@pytest.mark.parametrize(
    ("setting", "owner", "blocks"),
    [
        (HIDING[0], 1, (0, 2)),
        (HIDING[1], 0, (0, 1)),
        (HIDING[2], 2, (0, 1)),
        (WITH_CLIENT[0], 3, (0, 2)),
        (HIDING[0], None, (2, 0)),
        (HIDING[1], None, (2, 0)),
    ],
    ids=str,
)
def test_a_token_of_bert_takes_its_words(
    setting: Setting, owner: int | None, blocks: tuple[int, int]
) -> None:
    """15 blocks of 16 bytes to each of two: 13 levels, the control bits, a leaf. Of a computed
    index of a window of 7 bits, which has 16 bits, one level more."""
    size = 15 if owner is not None else 16
    counted = sent_blocks(OneHot(setting, np.arange(1), 30522, False, owner))
    assert (counted[Phase.OFFLINE], counted[Phase.ONLINE]) == tuple(size * n for n in blocks)


@pytest.mark.parametrize("setting", HIDING[:2], ids=str)
def test_parts_look_random(setting: Setting) -> None:
    """Part by part: of the same index they are others in every run, and nearly never zero."""
    made = OneHot(setting, np.arange(4), 8, False, 0)
    program = made.trace.program
    made.trace.reveal(made.rows)
    live = batch_rounds(program).live
    rows = [n for n in program.nodes if n.op is ops.POINT_ROWS and n.id in live]
    assert rows
    sources = {"x": np.arange(4).view(np.uint64)}
    draws = [uniform_draws(np.random.default_rng(seed)) for seed in (1, 2)]
    seen = [evaluate(program, sources, each) for each in draws]
    for node in rows:
        first, second = (done.values[node.id] for done in seen)
        assert (first != second).mean() > 0.99
        assert (first != 0).mean() > 0.99
