"""A plan of each protocol alone: operands are shared, the protocol runs, its result is revealed."""

from __future__ import annotations

from typing import Any

from conformance import Setting, Trace
from machines import plan_of

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


def operand_shape(op: str) -> tuple[int, ...]:
    return (1, 2, 10, 10) if op == "max_pool" else (SIZE,)


def protocol_plan(setting: Setting, op: str, ring_bits: int, result_bits: int) -> Plan:
    """Operand j is `x{j}`: the first an input, the second, where there is one, a weight."""
    operands, attrs = PROTOCOLS.get(op, (1, {}))
    shape = operand_shape(op)
    result = (1, 2, 5, 5) if op == "max_pool" else shape
    trace = Trace(setting)
    roles = ("input", "weight")
    shared = [
        trace.share(f"x{j}", shape, ring_bits, j % setting.computing, roles[j])
        for j in range(operands)
    ]
    if op == "masked_function":
        shared += [trace.public(table, 64) for table in tables(attrs["window_bits"])]
    trace.reveal(trace.apply(op, result, result_bits, attrs, *shared), party=setting.computing - 1)
    return plan_of(trace.expanded, setting.suite.name)
