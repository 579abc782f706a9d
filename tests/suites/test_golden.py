"""Digests of every table that is emitted and every byte that is sent, for each protocol of a suite.

From fixed keys and inputs. A change of a plan or of the wire shows here: `pytest --update-golden`
rewrites the files, and the commit says why.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance import SETTINGS, Setting, Trace
from machines import known_keys, plan_of, run_machines

from veilgraph.ir.plan import Plan
from veilgraph.ir.waves import tables

SIZE = 200  # three chunks, the last of them not whole words
PAIR = {"window_bits": 17, "dropped_bits": 0}
POOL = {"kernel": (2, 2), "strides": (2, 2), "pads_low": (0, 0), "pads_high": (0, 0)}
WAVES = {
    "first": 1,
    "step": 2,
    "cosines": (1 << 20, -5),
    "sines": (1, 1 << 19),
    "constant": 9,
    "coefficient_bits": 20,
    "slope": 3,
    "cosine_bits": 14,
    "factor_bits": 12,
    "window_bits": 15,
    "sum_bits": 32,
    "bits": 14,
}
PROTOCOLS: dict[str, tuple[int, dict[str, Any]]] = {  # operands, attributes
    "reshape": (1, {}),  # sharing and revealing alone
    "add": (2, {}),
    "mul": (2, {}),
    "truncate": (1, {"bits": 6}),
    "truncate_relu": (1, {"bits": 6, "window_bits": 18, "dropped_bits": 6}),
    "step": (1, PAIR),
    "relu": (1, PAIR),
    "maximum": (2, PAIR),
    "masked_function": (1, WAVES),
    "max_pool": (1, {**POOL, "dilations": (1, 1), **PAIR}),
}


CONVERSIONS = (("truncate", 32, 48), ("truncate", 48, 32), ("truncate_relu", 40, 24),
               ("truncate_relu", 24, 32), ("lift", 32, 40), ("reduce", 40, 32))  # fmt: skip


def digests(setting: Setting, op: str, ring_bits: int, result_bits: int) -> str:
    """One line: the digest of all parties' tables, and that of all messages of two inferences."""
    operands, attrs = PROTOCOLS.get(op, (1, {}))
    shape, result = ((1, 2, 10, 10), (1, 2, 5, 5)) if op == "max_pool" else ((SIZE,), (SIZE,))
    trace = Trace(setting)
    roles = ("input", "weight")
    shared = [
        trace.share(f"x{j}", shape, ring_bits, j % setting.computing, roles[j])
        for j in range(operands)
    ]
    if op == "masked_function":
        shared += [trace.public(table, 64) for table in tables(attrs["window_bits"])]
    trace.reveal(trace.apply(op, result, result_bits, attrs, *shared), party=setting.computing - 1)
    plan = plan_of(trace.expanded, setting.suite.name)
    values = [np.random.default_rng(j).integers(-9999, 9999, shape) for j in range(2)]
    weights = {"x1": values[1]} if operands == 2 else {}
    keys = known_keys(len(setting.target.everyone), seed=2024)
    runs = run_machines(plan, keys, [{"x0": values[0]}] * 2, weights)
    sent = hashlib.sha256()
    for run in runs:
        for link, content in sorted(run.wire.items()):
            sent.update(f"{link} {len(content)}\n".encode() + content)
    rings = str(ring_bits) if ring_bits == result_bits else f"{ring_bits} to {result_bits}"
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
