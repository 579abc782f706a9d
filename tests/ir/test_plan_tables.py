"""What is counted on a plan's tables, beside the same counted row by row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.plan.tables import (
    BUFFER,
    KEPT,
    MESSAGE,
    STEP,
    Direction,
    Manifest,
    PartyPlan,
    Phase,
)

PARTIES = ("alice", "bob", "carol")


def random_plan(seed: int, rows: int, most_bytes: int) -> Plan:
    """Messages of three entries between three parties, in no order."""
    rng = np.random.default_rng(seed)
    manifest = Manifest(
        veilgraph_version="0",
        lowering=0,
        suite="rep3",
        security="",
        parties=PARTIES,
        roles=dict.fromkeys(PARTIES, "computing"),
        owners={},
        receivers={},
        network={},
        ring_bits=32,
        encoding="",
        entries=("first", "second", "third"),
    )
    programs = {}
    for party, name in enumerate(PARTIES):
        messages = np.zeros(rows, MESSAGE)
        messages["phase"] = rng.integers(0, 3, rows)
        messages["entry"] = np.where(messages["phase"] == 0, 0, rng.integers(0, 3, rows))
        messages["direction"] = rng.integers(0, 2, rows)
        messages["peer"] = (party + rng.integers(1, 3, rows)) % 3
        messages["round"] = rng.integers(0, 50, rows)
        messages["bytes"] = rng.integers(0, most_bytes, rows)
        params = np.zeros(0, np.int64)
        tables = np.zeros(0, STEP), np.zeros(0, BUFFER), messages, params, np.zeros(0, KEPT)
        programs[name] = PartyPlan(name, *tables, arena_bytes=0, keys=())
    return Plan(manifest, programs, ())


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize(("rows", "most_bytes"), [(0, 1), (1, 1), (3, 2), (300, 1 << 39)])
def test_rounds_and_bytes_are_those_of_the_rows(phase: Phase, rows: int, most_bytes: int) -> None:
    plan = random_plan(rows, rows, most_bytes)
    for entry in range(3):
        sent: dict[str, int] = {}
        rounds = 0
        for name, program in plan.programs.items():
            for row in program.messages:
                if row["phase"] != phase or row["entry"] != (entry if phase else 0):
                    continue
                rounds = max(rounds, int(row["round"]) + 1)
                if row["direction"] == Direction.SEND:
                    link = f"{name}->{PARTIES[row['peer']]}"
                    sent[link] = sent.get(link, 0) + int(row["bytes"])
        found = plan.sent_bytes(phase, entry)
        assert found == sent
        assert list(found) == sorted(found)
        assert all(type(count) is int for count in found.values())
        assert plan.rounds(phase, entry) == rounds


def test_bytes_are_counted_beyond_what_a_double_holds() -> None:
    plan = random_plan(0, 1 << 15, 2)
    program = plan.party("alice")
    messages = program.messages.copy()
    messages[:] = messages[0]
    messages["phase"], messages["entry"] = Phase.ONLINE, 0
    messages["direction"], messages["peer"] = Direction.SEND, 1
    messages["bytes"] = (1 << 40) - 1
    only = replace(plan, programs={"alice": replace(program, messages=messages)})
    assert only.sent_bytes(Phase.ONLINE) == {"alice->bob": ((1 << 40) - 1) << 15}
