"""An audit of every value that a small ring holds, and of one element among many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from veilgraph.ir.legality import check_secret
from veilgraph.ir.meaning.secret import evaluate
from veilgraph.ir.mlir import context
from veilgraph.ir.plan.tables import STATE
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import Encoding, RangeSource, RealRange, Tensor
from veilgraph.ir.training import OVERFLOW
from veilgraph.passes.secret.audit_states import SHARP_BITS, audit_states, bound_of

MARGIN = 2.0


def state(name: str, shape: tuple[int, ...], ring_bits: int, frac_bits: int, high: float) -> Any:
    known = RealRange(-high / 2, high, RangeSource.CALIBRATED)
    return Argument(name, "state", STATE, Tensor(shape, Encoding(ring_bits, frac_bits)), known)


def audit(*states: Argument) -> SecretProgram:
    program = audit_states(context(), states, MARGIN, "")
    check_secret(program)
    return program


def told(program: SecretProgram, **states: Any) -> int:
    rounding = np.random.default_rng(1)
    return int(evaluate(program, states, rounding).integers[OVERFLOW].item())


@pytest.mark.parametrize(
    ("ring_bits", "frac_bits", "high"), [(8, 2, 1.0), (8, 0, 3.0), (9, 3, 4.0)]
)
def test_each_value_of_a_ring(ring_bits: int, frac_bits: int, high: float) -> None:
    """0 inside of the bounds, 1 outside by more than a sixteenth, wherever a value wrapped to."""
    own = state("w", (1,), ring_bits, frac_bits, high)
    program, bound = audit(own), bound_of(own, MARGIN)
    for z in range(-(1 << (ring_bits - 1)), 1 << (ring_bits - 1)):
        x = z / 2**frac_bits
        found = told(program, w=np.array([z]))
        if abs(x) <= bound * (1 - 2.0**-SHARP_BITS):
            assert not found, x
        elif abs(x) > bound * (1 + 2.0**-SHARP_BITS):
            assert found, x


def test_a_bound_is_a_power_of_two_within_a_quarter_of_the_ring() -> None:
    assert bound_of(state("w", (), 32, 8, 1.5), MARGIN) == 4.0
    assert bound_of(state("w", (), 32, 8, 1.0), 1.0) == 1.0
    assert bound_of(state("w", (), 8, 4, 3.0), MARGIN) == 4.0  # 2^(8 - 2 - 4)


@pytest.mark.parametrize("place", [0, 7, 41])
def test_one_element_of_one_state_is_enough(place: int) -> None:
    states = state("w", (6, 7), 32, 16, 1.0), state("b", (), 64, 40, 0.25)
    program = audit(*states)
    w = np.random.default_rng(3).uniform(-2, 2, (6, 7)).astype(np.float32)
    assert not told(program, w=w, b=np.float32(0.5))
    assert told(program, w=w, b=np.float32(-0.6))
    w.flat[place] = -2.5
    assert told(program, w=w, b=np.float32(0.5))


def test_all_elements_at_once() -> None:
    """The count of bits does not wrap around to none."""
    program = audit(state("w", (1 << 10,), 32, 16, 1.0))
    assert told(program, w=np.full(1 << 10, 3.0, np.float32))
