"""Digests of every table that is emitted and every byte that is sent, for each protocol of a suite.

From fixed keys and inputs. A change of a plan or of the wire shows here: `pytest --update-golden`
rewrites the files, and the commit says why. The first line is the version of the lowering: where an
unchanged program is lowered to other tables, hosts that verify plans have to know, so the files are
rewritten once `LOWERING_VERSION` in passes/plan/version.py is raised, and not before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from conformance import SETTINGS, Setting
from interpreters import known_keys, run_interpreters
from protocol_plans import PROTOCOLS, operand_shape, protocol_plan

from veilgraph.ir.plan.plan import Plan
from veilgraph.passes.plan.version import LOWERING_VERSION

CONVERSIONS = (("truncate", 32, 48), ("truncate", 48, 32), ("truncate_relu", 40, 24),
               ("truncate_relu", 24, 32), ("lift", 32, 40), ("reduce", 40, 32))  # fmt: skip


def digests(setting: Setting, op: str, ring_bits: int, result_bits: int) -> str:
    """One line: digests of the program, of its tables, and of all messages of two inferences."""
    plan = protocol_plan(setting, op, ring_bits, result_bits)
    operands, _ = PROTOCOLS.get(op, (1, {}))
    shape = operand_shape(op)
    values = [np.random.default_rng(j).integers(-9999, 9999, shape) for j in range(2)]
    weights = {"x1": values[1]} if operands == 2 else {}
    keys = known_keys(len(setting.target.everyone), seed=2024)
    runs = run_interpreters(plan, keys, [{"x0": values[0]}] * 2, weights)
    sent = hashlib.sha256()
    for run in runs:
        for link, content in sorted(run.wire.items()):
            sent.update(f"{link} {len(content)}\n".encode() + content)
    rings = (
        str(ring_bits)
        if op == "exp_sums" or ring_bits == result_bits
        else f"{ring_bits} to {result_bits}"
    )
    program = hashlib.sha256(plan.ir["party"].encode()).hexdigest()[:32]
    return f"{op} {rings}: program {program} tables {_tables(plan)} sent {sent.hexdigest()[:32]}"


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
    version = f"lowering {LOWERING_VERSION}"
    found = [version, *(digests(setting, *row) for row in (*every, *CONVERSIONS))]
    path = Path(__file__).with_name(f"{setting}.golden")
    before = path.read_text().splitlines()
    raised = before[0] != version
    assert raised or not moved(before, found), "raise LOWERING_VERSION in passes/plan/version.py"
    if update_golden:
        path.write_text("\n".join(found) + "\n")
        before = found
    assert found == before, "see `pytest --update-golden`"


def moved(before: Sequence[str], found: Sequence[str]) -> list[str]:
    """What is lowered to other tables, though its program is what it was."""
    programs, tables = (
        slice(0, -4),
        slice(-4, -2),
    )  # of a line's words; "sent" and its digest end it
    was = {tuple(line.split()[programs]): line.split()[tables] for line in before[1:]}
    rows = [line.split() for line in found[1:]]
    return [row[0] for row in rows if was.get(tuple(row[programs]), row[tables]) != row[tables]]


def test_tables_that_moved_are_found() -> None:
    lines = [
        "lowering 1",
        "add 32: program aa tables bb sent cc",
        "mul 8 to 9: program dd tables ee",
    ]
    lines[2] += " sent ff"
    assert not moved(lines, lines)
    assert moved(lines, [line.replace("bb", "xx") for line in lines]) == ["add"]
    assert moved(lines, [line.replace("ee", "xx") for line in lines]) == ["mul"]
    others = [line.replace("bb", "xx").replace("aa", "yy") for line in lines]
    assert not moved(lines, others), "another program may have other tables"
    assert not moved(lines, [line.replace("cc", "xx") for line in lines])
