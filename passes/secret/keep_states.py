"""keep_states: a state's next value in the very encoding that the state has.

A run finds the integers that another left, so both are in one ring, with one number of fraction
bits: those of the state's argument, which the encoding chose as for any input. What was computed
wider is truncated, which is unbiased and off by one unit in the last place at most.

    before:  main(%s : ring 40, 16 bits)   %3 = mul %s, %x : ring 48, 30 bits      return %3
    after:   ...   %4 = truncate %3 {bits = 14} : ring 40, 16 bits                 return %4

Where a state becomes itself less what another one becomes, as a parameter less its velocity, the
latter is truncated once, and the difference is taken of what that leaves. For that a velocity has
no more fraction bits than its parameter. Rounding it is noise on the gradient like any other: of
what the largest element takes in 2^8 units or more it is far less than pictures drawn otherwise
make.

    before:  main(%u : ring 40, 27 bits, %w : ring 40, 25 bits)   %3 = mul %u, %c
    after:   main(%u : ring 40, 25 bits, %w : ring 40, 25 bits)   %2 = scale %u by 4   mul %2, %c

A program that goes on from states of another plan finds them as that keeps them. What reads them
reads them in this program's own encoding, into which they are brought first.

    before:  main(%s : ring 40, 16 bits)   %3 = mul %s, %x
    after:   main(%s : ring 32, 14 bits)   %1 = lift %s   %2 = scale %1 by 4   %3 = mul %2, %x
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from torch_mlir import ir

from veilgraph.ir.errors import UsageError
from veilgraph.ir.meaning.integers import encode
from veilgraph.ir.plan.tables import AS_KEPT
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.ops import SecretOp, Stated, attributes_of
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import Encoding, RealRange, Secrecy, Tensor

LEAST_SIGNIFICANT = 8  # bits that a velocity's largest element has, where it is made coarser


@dataclass(frozen=True)
class KeepStates:
    """Brings what the next run finds into the encoding that it is found in.

    A program that keeps a state and does not read it leaves that to `expand_entries`.

    Attributes:
        states: of each state, by name, the output that it is in the next run.
        like: how another plan keeps states, by name, where this one is to find them so.
    """

    states: Mapping[str, str]
    like: Mapping[str, Encoding] = field(default_factory=dict)

    def run(self, program: SecretProgram) -> SecretProgram:
        """`program` itself, changed in place.

        Raises:
            UsageError: states that another plan keeps in too little room for this one.
        """
        arguments = {argument.name: argument for argument in program.arguments}
        if not (self.states or self.like):
            return program
        values = dict(zip(arguments, program.block.arguments, strict=True))
        for state, wanted in self.like.items():
            if state in arguments:
                found = _found_as(program, values[state], arguments[state], wanted)
                arguments[state] = found
        outputs = program.outputs
        program.reopen()
        once = self._truncated_once(program, arguments, outputs)
        for state, name in self.states.items():
            if state not in arguments or state in once:
                continue
            with program.at(f"{state}{AS_KEPT}"):
                outputs[name] = kept(outputs[name], arguments[state])
        program.finish(outputs)
        return program

    def _truncated_once(
        self,
        program: SecretProgram,
        arguments: Mapping[str, Argument],
        outputs: dict[str, ir.Value],
    ) -> set[str]:
        """States that become themselves less another's next value, and those others; in place."""
        found = set[str]()
        before = dict(zip(arguments, program.block.arguments, strict=True))
        kept_as = {outputs[name]: state for state, name in self.states.items()}
        for state, name in self.states.items():
            taken = _taken(outputs[name], before.get(state))
            other = "" if taken is None else kept_as.get(taken, "")
            if taken is None or other not in arguments or other in found:
                continue
            own, less = arguments[state], arguments[other]
            frac_bits = min(own.tensor.encoding.frac_bits, less.tensor.encoding.frac_bits)
            if not _is_truncated_once(taken, less, frac_bits):
                continue
            if other in self.like and less.tensor.encoding.frac_bits != frac_bits:
                continue
            less = _with_frac_bits(program, before[other], less, frac_bits)
            with program.at(f"{other}{AS_KEPT}"):
                update = _truncated(taken, own, less)
                outputs[self.states[other]] = kept(update, less)
            with program.at(f"{state}{AS_KEPT}"):
                fine = kept(update, replace(own, range=less.range))
                outputs[name] = secret_ops.Sub.build(before[state], fine, range=own.range)
            found |= {state, other}
        return found


def _is_truncated_once(value: ir.Value, less: Argument, frac_bits: int) -> bool:
    """Whether what two states are made of has so many fraction bits once it is truncated."""
    coarser = less.tensor.encoding.frac_bits > frac_bits
    is_fine = math.ldexp(less.range.magnitude(1.0), frac_bits) >= 2.0**LEAST_SIGNIFICANT
    return Tensor.of(value).encoding.frac_bits > frac_bits and (is_fine or not coarser)


def _with_frac_bits(
    program: SecretProgram, value: ir.Value, state: Argument, frac_bits: int
) -> Argument:
    """A state that is found with so many fraction bits; it is shifted up for what reads it."""
    old = state.tensor
    more = old.encoding.frac_bits - frac_bits
    if not more:
        return state
    tensor = replace(old, encoding=replace(old.encoding, frac_bits=frac_bits))
    with program.module.context:
        value.set_type(tensor.type())
    with program.before(program.block.operations[0]):
        stated = Stated(frac_bits=old.encoding.frac_bits)
        scaled = secret_ops.Scale.build(value, range=state.range, stated=stated, factor=1 << more)
    value.replace_all_uses_except(scaled, scaled.owner.operation)
    return replace(state, tensor=tensor)


def _found_as(
    program: SecretProgram, value: ir.Value, state: Argument, wanted: Encoding
) -> Argument:
    """A state in the encoding of another plan; what reads it reads it in its own.

    Raises:
        UsageError: that encoding has no room for what this program makes of the state.
    """
    own = state.tensor.encoding
    if own == wanted:
        return state
    most = math.ldexp(1.0, wanted.ring_bits - wanted.frac_bits - 2)
    if state.range.magnitude(program.margin) > most:
        raise UsageError(
            f"State `{state.name}` may reach {state.range.magnitude(program.margin):.4g}, and the "
            f"other plan keeps it below {most:.4g}.",
            "Train with a smaller rate, or begin anew with a plan of its own.",
        )
    with program.module.context:
        value.set_type(replace(state.tensor, encoding=wanted).type())
    found, first = value, None
    with program.before(program.block.operations[0]):
        for step in recoding(wanted, own):
            found = _built(step, found, own, state.range)
            first = first or found.owner.operation
    assert first is not None, "an encoding that differs takes a step"
    value.replace_all_uses_except(found, first)
    return replace(state, tensor=replace(state.tensor, encoding=wanted))


def _truncated(value: ir.Value, own: Argument, less: Argument) -> ir.Value:
    """`value` with the fraction bits of `less`, in a ring that both can be reduced from."""
    here, there = own.tensor.encoding, less.tensor.encoding
    wanted = replace(here, ring_bits=max(here.ring_bits, there.ring_bits))
    found = Tensor.of(value).encoding
    for step in _truncations(found, there.frac_bits, wanted.ring_bits):
        value = _built(step, value, wanted, less.range)
    return value


def _taken(value: ir.Value, state: ir.Value | None) -> ir.Value | None:
    """What is subtracted from a state, where `value` is the state less that, before it is
    truncated for it."""
    op = None if isinstance(value, ir.BlockArgument) else value.owner.opview
    if state is None or not isinstance(op, secret_ops.Sub):
        return None
    whole, taken = op.operation.operands
    before = None if isinstance(taken, ir.BlockArgument) else taken.owner.opview
    if type(before) is secret_ops.Truncate:
        (taken,) = before.operation.operands
    return taken if _unscaled(whole) == state else None


def _unscaled(value: ir.Value) -> ir.Value:
    """What `value` was before it was written in another encoding, exactly."""
    while not isinstance(value, ir.BlockArgument):
        op = value.owner.opview
        if not isinstance(op, secret_ops.Scale | secret_ops.Lift | secret_ops.Reduce):
            break
        (operand,) = op.operation.operands
        more = Tensor.of(value).encoding.frac_bits - Tensor.of(operand).encoding.frac_bits
        if isinstance(op, secret_ops.Scale) and attributes_of(op)["factor"] != 2.0**more:
            break
        value = operand
    return value


def kept(value: ir.Value, state: Argument) -> ir.Value:
    """The same real numbers in the encoding of a state."""
    wanted, found = state.tensor.encoding, Tensor.of(value).encoding
    if found.secrecy is Secrecy.PUBLIC:
        return _constant(value, wanted, state.range)
    for step in recoding(found, wanted):
        value = _built(step, value, wanted, state.range)
    return value


def _built(step: Recoding, value: ir.Value, wanted: Encoding, known: RealRange) -> ir.Value:
    stated = Stated(frac_bits=step.frac_bits, ring_bits=wanted.ring_bits)
    return step.kind.build(value, range=known, stated=stated, **step.attrs)


@dataclass(frozen=True)
class Recoding:
    """One op on the way from one encoding to another; its result is in the ring of the latter.

    Attributes:
        frac_bits: of its result.
    """

    kind: type[SecretOp]
    frac_bits: int
    attrs: Mapping[str, int]

    @property
    def name(self) -> str:
        """The protocol's in a suite."""
        operation: str = self.kind.OPERATION_NAME
        return operation.removeprefix("secret.")


def recoding(found: Encoding, wanted: Encoding) -> Iterator[Recoding]:
    """The ops that bring secret numbers into another encoding, in order; none if it is the same.

    Fewer fraction bits are a truncation, which changes the ring in passing; more are a factor, in
    the new ring.
    """
    more, frac_bits = wanted.frac_bits - found.frac_bits, wanted.frac_bits
    if more < 0:
        yield from _truncations(found, frac_bits, wanted.ring_bits)
        return
    if found.ring_bits != wanted.ring_bits:
        kind = secret_ops.Reduce if found.ring_bits > wanted.ring_bits else secret_ops.Lift
        yield Recoding(kind, found.frac_bits, {})
    if more > 0:
        yield Recoding(secret_ops.Scale, frac_bits, {"factor": 1 << more})


def _truncations(found: Encoding, frac_bits: int, ring_bits: int) -> Iterator[Recoding]:
    """A truncation to so many fraction bits, in turns where a ring has room for fewer: of an update
    that is below all that its state keeps.
    """
    have, ring = found.frac_bits, found.ring_bits
    while have > frac_bits:
        bits = min(have - frac_bits, ring - 2)
        have, ring = have - bits, ring_bits
        yield Recoding(secret_ops.Truncate, have, {"bits": bits})


def _constant(value: ir.Value, wanted: Encoding, declared: RealRange) -> ir.Value:
    """A public tensor, encoded anew: all that is computed of public ones was folded before."""
    integers = attributes_of(value.owner.opview)["value"]
    real = np.ldexp(integers.astype(np.float64), -Tensor.of(value).encoding.frac_bits)
    named = {"value": encode(real, wanted.frac_bits, wanted.ring_bits)}
    stated = Stated(frac_bits=wanted.frac_bits, ring_bits=wanted.ring_bits)
    return secret_ops.Constant.build(range=declared, stated=stated, **named)
