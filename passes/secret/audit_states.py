"""audit_states: a program that tells whether any element of a state lies outside of its bounds.

Nobody sees a state, so nothing else tells that one wrapped around. Every element x is compared with
both of its bounds, in the very ring and encoding in which x is kept: on all of its bits, for a
value that left its range may be anywhere. One bit for all elements together is the output.

    before:  main(%w : ring 32, 16 bits, in [-1.5, 1.2])          margin 2: bounds are -4 and 4
    after:   %1 = step(%w + 4)   %2 = step(4 - %w)   %3 = reduce_sum %1   %4 = reduce_sum %2
             %5 = step(%3 + %4 - 2 N)   return 1 - %5 as "overflow"

Bounds are powers of two, since the plan states them, and they tell no more than ranges do. They are
as sharp as a sixteenth: fewer bits are then compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import prod

import numpy as np
from torch_mlir import ir

from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.ops import SecretOp, Stated
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import Encoding, RangeSource, RealRange, Tensor
from veilgraph.ir.training import OVERFLOW

SHARP_BITS = 4  # a bound is met to 2^-4 of itself


def bound_of(state: Argument, margin: float) -> float:
    """A power of two that the magnitude of a state's elements is not to pass.

    It is `margin` times the range, or more, and a quarter of the ring at most.
    """
    encoding = state.tensor.encoding
    widened = state.range.rounded(encoding).bound * 2.0 ** math.ceil(math.log2(max(margin, 1.0)))
    return min(widened, 2.0 ** (encoding.ring_bits - 2 - encoding.frac_bits))


def audit_states(
    context: ir.Context, states: Sequence[Argument], margin: float, encoding: str
) -> SecretProgram:
    """The program; it keeps nothing.

    Args:
        states: as they are kept between runs.
        margin: how many times larger than its range says a state may be.
        encoding: how it was found, in a sentence for people.
    """
    program = SecretProgram.create(context, states, {}, encoding, margin)
    count = 2 * sum(prod(state.tensor.shape) for state in states)
    counted = Encoding(count.bit_length() + 2, 0)
    sums = []
    for value, state in zip(program.block.arguments, states, strict=True):
        with program.at(state.name):
            sums += _inside(value, bound_of(state, margin), counted.ring_bits)
    with program.at(OVERFLOW):
        total = sums[0]
        for each in sums[1:]:
            total = secret_ops.Add.build(total, each, range=_up_to(count))
        less = secret_ops.Sub.build(total, _constant(count, (), counted), range=_up_to(count))
        window = {"window_bits": count.bit_length() + 1, "dropped_bits": 0}
        whole = _step(less, counted.ring_bits, window)
        outside = secret_ops.Sub.build(_constant(1, (), counted), whole, range=_up_to(1))
        told = secret_ops.Reshape.build(outside, range=_up_to(1), stated=Stated(shape=(1,)))
    program.finish({OVERFLOW: told})
    return program


def _inside(x: ir.Value, bound: float, ring_bits: int) -> list[ir.Value]:
    """How many elements lie above the lower bound, and how many below the upper one."""
    tensor = Tensor.of(x)
    shape, encoding, found = tensor.shape, tensor.encoding, []
    integer = int(math.ldexp(bound, encoding.frac_bits))
    dropped = max(integer.bit_length() - 1 - SHARP_BITS, 0)
    window = {"window_bits": encoding.ring_bits, "dropped_bits": dropped}
    limit, near = _constant(integer, shape, encoding), _up_to(2 * bound)
    for difference in (
        secret_ops.Add.build(x, limit, range=near),
        secret_ops.Sub.build(limit, x, range=near),
    ):
        bits = _step(difference, ring_bits, window)
        every = tuple(range(len(shape)))
        if every:
            most = _up_to(prod(shape))
            bits = secret_ops.ReduceSum.build(bits, range=most, axes=every, keepdims=False)
        found.append(bits)
    return found


def _step(x: ir.Value, ring_bits: int, window: dict[str, int]) -> ir.Value:
    kind: type[SecretOp] = secret_ops.Step
    return kind.build(x, range=_up_to(1), stated=Stated(ring_bits=ring_bits), **window)


def _constant(value: int, shape: tuple[int, ...], encoding: Encoding) -> ir.Value:
    real = math.ldexp(value, -encoding.frac_bits)
    stated = Stated(frac_bits=encoding.frac_bits, ring_bits=encoding.ring_bits)
    named = {"value": np.full(shape, value, np.int64)}
    return secret_ops.Constant.build(range=_up_to(real), stated=stated, **named)


def _up_to(bound: float) -> RealRange:
    return RealRange(-bound, bound, RangeSource.PROVEN)
