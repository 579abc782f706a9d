"""Plans of one product of a secret and a weight, truncated: the layers of networks."""

from __future__ import annotations

import numpy as np
from interpreters import plan_of
from small_plans import revealed, shared
from whole_plans import check_devices

from veilgraph.ir.party.program import Program
from veilgraph.ir.plan.plan import Plan
from veilgraph.passes.party.expand_protocols import Expanded
from veilgraph.targets.parties import Member, Operation, Parties
from veilgraph.targets.suites import SUITES

GEOMETRY = {"strides": (1, 1), "pads_low": (0, 0), "pads_high": (0, 0), "dilations": (1, 1)}


def layer_shapes(op: str, batch: int) -> tuple[tuple[int, ...], ...]:
    """Of operands and result, few enough to be truncated by all parties alike."""
    if op == "matmul":
        return (batch, 90), (90, 6), (batch, 6)
    return (batch, 12, 4, 4), (2, 12, 3, 3), (batch, 2, 2, 2)


def layer_plan(suite: str, op: str, ring_bits: int, batch: int, bits: int = 4) -> Plan:
    """y = op(x, w) truncated by so many bits, for the second party, op matmul or conv, of three
    parties: the third deals where the suite has a dealer."""
    program, made = Program(("alice", "bob", "carol")), SUITES[suite]
    deals = made.security.provider is not None
    p = Parties(program, (0, 1), Member(2)) if deals else Parties(program, (0, 1, 2))
    x_shape, w_shape, shape = layer_shapes(op, batch)
    x = shared(p, "input", "x", 0, x_shape, ring_bits, made)
    w = shared(p, "weight", "w", 1, w_shape, ring_bits, made)
    attrs = {**GEOMETRY, "groups": 1} if op == "conv" else {}
    y = made.offered(op)(p, Operation(op, shape, ring_bits, attrs), x, w)
    if bits > 0:
        y = made.offered("truncate")(p, Operation("truncate", shape, ring_bits, {"bits": bits}), y)
    program.output(revealed(p, 1, y, made), 1, "y", bits)
    return plan_of(Expanded(program), suite)


def check_layer(plan: Plan, op: str, batch: int) -> None:
    """All parties on the emulator: every message is that of parties on the CPU."""
    rng = np.random.default_rng(batch)
    x, w = (rng.integers(-99, 99, shape) for shape in layer_shapes(op, batch)[:2])
    check_devices(plan, [{"x": x}, {"x": -x}], {"w": w}, ("host-emulator",) * 3)
