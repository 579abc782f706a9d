"""Digests of every table that is emitted and every byte that is sent, for each protocol of a suite.

From fixed keys and inputs. A change of a plan or of the wire shows here: `pytest --update-golden`
rewrites the files, and the commit says why.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from conformance import SETTINGS, Setting
from machines import known_keys, run_machines
from protocol_plans import PROTOCOLS, operand_shape, protocol_plan

from veilgraph.ir.plan import Plan

CONVERSIONS = (("truncate", 32, 48), ("truncate", 48, 32), ("truncate_relu", 40, 24),
               ("truncate_relu", 24, 32), ("lift", 32, 40), ("reduce", 40, 32))  # fmt: skip


def digests(setting: Setting, op: str, ring_bits: int, result_bits: int) -> str:
    """One line: the digest of all parties' tables, and that of all messages of two inferences."""
    plan = protocol_plan(setting, op, ring_bits, result_bits)
    operands, _ = PROTOCOLS.get(op, (1, {}))
    shape = operand_shape(op)
    values = [np.random.default_rng(j).integers(-9999, 9999, shape) for j in range(2)]
    weights = {"x1": values[1]} if operands == 2 else {}
    keys = known_keys(len(setting.target.everyone), seed=2024)
    runs = run_machines(plan, keys, [{"x0": values[0]}] * 2, weights)
    sent = hashlib.sha256()
    for run in runs:
        for link, content in sorted(run.wire.items()):
            sent.update(f"{link} {len(content)}\n".encode() + content)
    rings = (
        str(ring_bits)
        if op == "exp_sums" or ring_bits == result_bits
        else f"{ring_bits} to {result_bits}"
    )
    return f"{op} {rings}: tables {_tables(plan)} sent {sent.hexdigest()[:32]}"


def _tables(plan: Plan) -> str:
    found = hashlib.sha256()
    for name, program in plan.programs.items():
        found.update(f"{name} {program.arena_bytes} {program.keys}\n".encode())
        for table in (program.steps, program.buffers, program.messages, program.params):
            found.update(table.tobytes())
    return found.hexdigest()[:32]


@pytest.mark.parametrize("setting", [s for s in SETTINGS if s.computing > 1], ids=str)
def test_plans_and_messages_are_what_they_were(setting: Setting, update_golden: bool) -> None:
    every = [(op, bits, bits) for op in PROTOCOLS for bits in (32, 40)]
    found = [digests(setting, *row) for row in (*every, *CONVERSIONS)]
    path = Path(__file__).with_name(f"{setting}.golden")
    if update_golden:
        path.write_text("\n".join(found) + "\n")
    assert found == path.read_text().splitlines(), "see `pytest --update-golden`"
