"""A plan of each protocol alone: operands are shared, the protocol runs, its result is revealed."""

from __future__ import annotations

from typing import Any

from conformance import Setting, Trace
from interpreters import plan_of

from veilgraph.ir.plan.plan import Plan
from veilgraph.ir.secret import exponential as exponentials
from veilgraph.ir.secret.exponential import Segments
from veilgraph.ir.secret.fourier import tables

SIZE = 200  # three chunks, the last of them not whole words
PAIR = {"window_bits": 17, "dropped_bits": 0}
POOL = {"kernel": (2, 2), "strides": (2, 2), "pads_low": (0, 0), "pads_high": (0, 0)}
SERIES = {
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
SEGMENTS = Segments(18, 15, 3, 16, 17, 37)
PROTOCOLS: dict[str, tuple[int, dict[str, Any]]] = {  # operands, attributes
    "reshape": (1, {}),  # sharing and revealing alone
    "add": (2, {}),
    "mul": (2, {}),
    "truncate": (1, {"bits": 6}),
    "truncate_relu": (1, {"bits": 6, "window_bits": 18, "dropped_bits": 6}),
    "round_off": (1, {"bits": 6}),
    "step": (1, PAIR),
    "relu": (1, PAIR),
    "maximum": (2, PAIR),
    "masked_function": (1, SERIES),
    "exp_sums": (1, SEGMENTS.parameters()),
    "masked_exp": (1, SEGMENTS.parameters() | {"bits": 20}),
    "max_pool": (1, {**POOL, "dilations": (1, 1), **PAIR}),
    "truncate_relu_pool": (
        1,
        {**POOL, "dilations": (1, 1), "bits": 6, "window_bits": 18, "dropped_bits": 6},
    ),
}


SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {  # of operands and result
    "max_pool": ((1, 2, 10, 10), (1, 2, 5, 5)),
    "truncate_relu_pool": ((1, 2, 10, 10), (1, 2, 5, 5)),
    "exp_sums": ((5, 40), (5, SEGMENTS.count)),
}


def operand_shape(op: str) -> tuple[int, ...]:
    return SHAPES.get(op, ((SIZE,), (SIZE,)))[0]


def protocol_plan(setting: Setting, op: str, ring_bits: int, result_bits: int) -> Plan:
    """Operand j is `x{j}`: the first an input, the second, where there is one, a weight."""
    operands, attrs = PROTOCOLS.get(op, (1, {}))
    shape, result = SHAPES.get(op, ((SIZE,), (SIZE,)))
    if op == "exp_sums":
        result_bits = SEGMENTS.sum_bits
    trace = Trace(setting)
    roles = ("input", "weight")
    shared = [
        trace.share(f"x{j}", shape, ring_bits, j % setting.computing, roles[j])
        for j in range(operands)
    ]
    if op == "masked_function":
        shared += [trace.public(table, 64) for table in tables(attrs["window_bits"])]
    if op in ("exp_sums", "masked_exp"):
        shared += [trace.public(table, 64) for table in exponentials.tables(SEGMENTS, 12)]
    if op == "masked_exp":
        shared.append(trace.public(exponentials.heights(SEGMENTS, 12, 18.0, 1e-6), 64))
    trace.reveal(trace.apply(op, result, result_bits, attrs, *shared), party=setting.computing - 1)
    return plan_of(trace.expanded, setting.suite.name)
