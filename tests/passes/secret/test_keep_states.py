"""A parameter and its velocity are truncated together where their encodings allow it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veilgraph.ir.legality import check_secret
from veilgraph.ir.meaning.secret import evaluate
from veilgraph.ir.mlir import context
from veilgraph.ir.plan.tables import STATE
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.ops import Stated
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import Encoding, RangeSource, RealRange, Tensor
from veilgraph.passes.secret.keep_states import KeepStates, recoding

KNOWN = RealRange(-2.0, 2.0, RangeSource.CALIBRATED)
TWICE = RealRange(-4.0, 4.0, RangeSource.CALIBRATED)
STATES = {"w": "w.next", "v": "v.next"}
WIDE = Encoding(48, 30)
SHAPE = (64,)


def step(own: Encoding, velocity: Encoding, factor: int | None = None) -> SecretProgram:
    """w - u and u, where u is an input of many bits; `factor` in place of the exact one."""
    arguments = [
        Argument("w", "state", STATE, Tensor(SHAPE, own), KNOWN),
        Argument("v", "state", STATE, Tensor(SHAPE, velocity), KNOWN),
        Argument("u", "input", "alice", Tensor(SHAPE, WIDE), KNOWN),
    ]
    program = SecretProgram.create(context(), arguments, {})
    w, v, u = program.block.arguments
    with program.at("step"):
        stated = Stated(ring_bits=WIDE.ring_bits, frac_bits=own.frac_bits)
        lifted = secret_ops.Lift.build(w, range=KNOWN, stated=stated)
        exact = 1 << (WIDE.frac_bits - own.frac_bits)
        as_wide = Stated(frac_bits=WIDE.frac_bits)
        scaled = secret_ops.Scale.build(lifted, range=KNOWN, stated=as_wide, factor=factor or exact)
        after = secret_ops.Sub.build(scaled, u, range=KNOWN)
        doubled = secret_ops.Add.build(v, v, range=TWICE)
        program.finish({"w.next": after, "v.next": u, "v doubled": doubled})
    return KeepStates(STATES).run(program)


def truncations(program: SecretProgram) -> int:
    return sum(isinstance(op, secret_ops.Truncate) for op in program.operations)


@pytest.mark.parametrize(
    ("own", "velocity"),
    [
        (Encoding(32, 18), Encoding(24, 16)),
        (Encoding(32, 18), Encoding(32, 18)),
        (Encoding(40, 25), Encoding(24, 12)),
        (Encoding(32, 16), Encoding(32, 18)),  # a velocity of more bits is no number of w's
        (Encoding(24, 18), Encoding(32, 16)),
        (Encoding(24, 7), Encoding(40, 27)),
    ],
)
def test_a_parameter_becomes_less_by_what_its_velocity_is(
    own: Encoding, velocity: Encoding
) -> None:
    """Exactly; and what is taken is unbiased, and within one unit of what was computed."""
    program = step(own, velocity)
    check_secret(program)
    assert truncations(program) == 1
    generator = np.random.default_rng(1)
    w, u = (generator.uniform(-1, 1, SHAPE).astype(np.float32) for _ in range(2))
    given = {"w": w, "v": np.zeros(SHAPE, np.float32), "u": u}
    found = evaluate(program, given, generator).outputs
    encoded = np.round(w.astype(np.float64) * 2**own.frac_bits) / 2**own.frac_bits
    assert np.array_equal(encoded - found["v.next"], found["w.next"])
    less = replace(velocity, frac_bits=min(own.frac_bits, velocity.frac_bits))
    assert np.abs(found["v.next"] - u).max() <= 2.0**-less.frac_bits
    for name, encoding in (("w", own), ("v", less)):
        argument = next(each for each in program.arguments if each.name == name)
        after = Tensor.of(program.outputs[f"{name}.next"]).encoding
        assert argument.tensor.encoding == after == encoding


def test_what_reads_a_velocity_has_the_bits_that_it_had() -> None:
    own, velocity = Encoding(32, 16), Encoding(32, 18)
    program = step(own, velocity)
    check_secret(program)
    v = np.linspace(-1, 1, *SHAPE, dtype=np.float32)
    given = {"w": np.zeros(SHAPE, np.float32), "v": v, "u": np.zeros(SHAPE, np.float32)}
    doubled = evaluate(program, given, np.random.default_rng(1)).outputs["v doubled"]
    assert np.array_equal(doubled, 2 * np.round(v.astype(np.float64) * 2**16) / 2**16)
    assert Tensor.of(program.outputs["v doubled"]).encoding == velocity


@pytest.mark.parametrize(
    ("own", "velocity", "factor"),
    [
        (Encoding(32, 6), Encoding(32, 18), None),  # a velocity of 7 bits is noise
        (Encoding(32, 18), Encoding(24, 16), 3 << 10),  # 3/4 of w, less u
    ],
)
def test_others_are_truncated_apart(own: Encoding, velocity: Encoding, factor: int | None) -> None:
    program = step(own, velocity, factor)
    check_secret(program)
    assert truncations(program) == 2


def test_what_is_below_all_that_a_state_keeps() -> None:
    """Twice truncated: a ring of 24 bits gives up 22 at once."""
    found, kept = Encoding(24, 40), Encoding(24, 17)
    steps = [(step.kind, step.frac_bits, step.attrs["bits"]) for step in recoding(found, kept)]
    assert steps == [(secret_ops.Truncate, 18, 22), (secret_ops.Truncate, 17, 1)]
