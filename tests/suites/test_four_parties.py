"""Draws of three holders, from a suite of four parties to loopback, TLS and stores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from at_once import at_once
from four_parties import FOUR, HELD_BY_THREE
from interpreters import check_interpreters, plan_of
from receivers import asked

from veilgraph.ir.party.program import Program
from veilgraph.ir.plan.checks import check
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.roles import COMPUTING
from veilgraph.ir.types import words
from veilgraph.measuring.processes import write_configs
from veilgraph.passes.party.batch_rounds import batch_rounds
from veilgraph.passes.party.expand_protocols import Expanded
from veilgraph.passes.party.verify_masking import coalitions, verify_masking
from veilgraph.plans import Plan
from veilgraph.runtime.session.keys import holders_of
from veilgraph.runtime.simulate import simulate
from veilgraph.session import Session
from veilgraph.targets.parties import Member, Operation, Sharing
from veilgraph.targets.target import Party, Target, network

NAMES = ("alice", "bob", "carol", "dan")
X, Y = (np.random.default_rng(seed).integers(-99, 99, shape) for seed, shape in
        ((1, (3, 5)), (2, (5, 4))))  # fmt: skip
TARGET = Target(FOUR, tuple(Party(name, COMPUTING) for name in NAMES), network("lan"))


def program() -> Program:
    """x y + x y for carol: x is alice's, and the weight y dan's."""
    made = Program(NAMES)
    p = TARGET.placed(made)

    def shared(role: str, name: str, owner: int, shape: tuple[int, ...]) -> Sharing:
        with made.in_phase(Phase.SETUP if role == "weight" else Phase.ONLINE):
            value = made.source(role, name, owner, shape, words(40))
            return FOUR.share(p, Member(owner), value)

    x, y = shared("input", "x", 0, X.shape), shared("weight", "y", 3, Y.shape)
    product = FOUR.offered("matmul")(p, Operation("matmul", (3, 4), 40, {}), x, y)
    twice = FOUR.offered("add")(p, Operation("add", (3, 4), 40, {}), product, product)
    made.output(FOUR.reveal(p, Member(2), twice), 2, "z", 0)
    return made


@pytest.fixture(scope="module")
def plan() -> Plan:
    made = plan_of(Expanded(program()), "four")
    owners = {"x": "alice", "weights": "dan"}
    receivers = {"z": ("carol",)}
    manifest = replace(made.manifest, owners=owners, receivers=receivers)
    return Plan.of(replace(made, manifest=manifest))


def test_parts_and_masks_of_four_parties() -> None:
    """Each party lacks one part, and verify_masking has nothing to say."""
    made = program()
    assert {len(draw.holders) for draw in made.draws} == {2, 3}
    for part in range(4):
        assert HELD_BY_THREE.holders(part, 4) == {0, 1, 2, 3} - {part}
    verify_masking(batch_rounds(made), coalitions(TARGET), asked(made))


def test_interpreters_draw_what_the_oracle_does() -> None:
    check_interpreters(Expanded(program()), [{"x": X}, {"x": -X}], {"y": Y})


def test_in_one_process(plan: Plan) -> None:
    """Over loopback, with keys that all three holders contributed to."""
    assert {len(holders) for holders in holders_of(plan)} == {1, 2, 3}
    answer = simulate(plan, {"y": Y}, {"x": X})
    np.testing.assert_array_equal(answer.outputs["z"], 2 * (X @ Y))


def test_over_tls_and_from_stores(plan: Plan, tmp_path: Path) -> None:
    write_configs(tmp_path, NAMES)
    options: dict[str, Any] = {"timeout_seconds": 20, "trust_author": True}

    def given(party: str, what: dict[str, Any], owner: str) -> dict[str, Any]:
        return what if party == owner else {}

    def run(party: str) -> Any:
        weights = given(party, {"y": Y}, "dan")
        with Session(plan, party, tmp_path / f"{party}.yaml", weights=weights, **options) as each:
            first = each.run(given(party, {"x": X}, "alice"))
            each.prepare(tmp_path / f"{party}.store", 1)
        return first

    def run_stored(party: str) -> Any:
        store = tmp_path / f"{party}.store"
        with Session(plan, party, tmp_path / f"{party}.yaml", store=store, **options) as each:
            return each.run(given(party, {"x": -X}, "alice"))

    live, stored = at_once(NAMES, run), at_once(NAMES, run_stored)
    np.testing.assert_array_equal(live["carol"]["z"], 2 * (X @ Y))
    np.testing.assert_array_equal(stored["carol"]["z"], -2 * (X @ Y))


# Holders that are refused


WRONG = {
    "others' keys": (("bob", "carol", "dan"), "alice has a key that it does not hold"),
    "one twice": (("alice", "bob", "bob"), "alice has a key that it does not hold"),
    "a stranger": (("alice", "bob", "eve"), "alice has a key with who is no party"),
    "nobody": ((), "alice has a key that it does not hold"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_holders_are_refused(plan: Plan, wrong: str) -> None:
    check(plan)
    holders, said = WRONG[wrong]
    alice = plan.party("alice")
    keys = (holders, *alice.keys[1:])
    programs = {**plan.programs, "alice": replace(alice, keys=keys)}
    with pytest.raises(ValueError, match=said):
        check(replace(plan, programs=programs))
