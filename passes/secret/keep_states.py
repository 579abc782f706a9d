"""keep_states: a state's next value in the very encoding that the state has.

A run finds the integers that another left, so both are in one ring, with one number of fraction
bits: those of the state's argument, which the encoding chose as for any input. What was computed
wider is truncated, which is unbiased and off by one unit in the last place at most.

    before:  main(%s : ring 40, 16 bits)   %3 = mul %s, %x : ring 48, 30 bits      return %3
    after:   ...   %4 = truncate %3 {bits = 14} : ring 40, 16 bits                 return %4
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch_mlir import ir

from veilgraph.ir.meaning.integers import encode
from veilgraph.ir.plan.tables import AS_KEPT
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.ops import Stated, attributes_of
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import Encoding, RealRange, Secrecy, Tensor


@dataclass(frozen=True)
class KeepStates:
    """Brings what the next run finds into the encoding that it is found in.

    A program that keeps a state and does not read it leaves that to `expand_entries`.

    Attributes:
        states: of each state, by name, the output that it is in the next run.
    """

    states: Mapping[str, str]

    def run(self, program: SecretProgram) -> SecretProgram:
        """`program` itself, changed in place."""
        arguments = {argument.name: argument for argument in program.arguments}
        outputs = program.outputs
        if not self.states:
            return program
        program.reopen()
        for state, name in self.states.items():
            if state not in arguments:
                continue
            with program.at(f"{state}{AS_KEPT}"):
                outputs[name] = kept(outputs[name], arguments[state])
        program.finish(outputs)
        return program


def kept(value: ir.Value, state: Argument) -> ir.Value:
    """The same real numbers in the encoding of a state."""
    wanted, found = state.tensor.encoding, Tensor.of(value).encoding
    more = wanted.frac_bits - found.frac_bits
    declared = state.range
    if found.secrecy is Secrecy.PUBLIC:
        return _constant(value, wanted, declared)
    if more < 0:
        stated = Stated(ring_bits=wanted.ring_bits, frac_bits=wanted.frac_bits)
        return secret_ops.Truncate.build(value, range=declared, stated=stated, bits=-more)
    value = _in_ring(value, wanted, declared)
    if more == 0:
        return value
    stated = Stated(frac_bits=wanted.frac_bits, ring_bits=wanted.ring_bits)
    return secret_ops.Scale.build(value, range=declared, stated=stated, factor=1 << more)


def _constant(value: ir.Value, wanted: Encoding, declared: RealRange) -> ir.Value:
    """A public tensor, encoded anew: all that is computed of public ones was folded before."""
    integers = attributes_of(value.owner.opview)["value"]
    real = np.ldexp(integers.astype(np.float64), -Tensor.of(value).encoding.frac_bits)
    named = {"value": encode(real, wanted.frac_bits, wanted.ring_bits)}
    stated = Stated(frac_bits=wanted.frac_bits, ring_bits=wanted.ring_bits)
    return secret_ops.Constant.build(range=declared, stated=stated, **named)


def _in_ring(value: ir.Value, wanted: Encoding, declared: RealRange) -> ir.Value:
    found = Tensor.of(value).encoding
    if found.ring_bits == wanted.ring_bits:
        return value
    kind = secret_ops.Reduce if found.ring_bits > wanted.ring_bits else secret_ops.Lift
    stated = Stated(ring_bits=wanted.ring_bits, frac_bits=found.frac_bits)
    return kind.build(value, range=declared, stated=stated)
