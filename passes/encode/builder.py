"""Steps of the secret level whose ranges and scales a rewriting knows: written in one line each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch_mlir import ir

from veilgraph.ir.attributes import Shape, shape_of
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.fourier import FourierSeries
from veilgraph.ir.secret.ops import SecretOp, Stated
from veilgraph.ir.secret.types import RangeSource, RealRange, Tensor, ring_of
from veilgraph.targets.functions.function_block import Fitted


def between(numbers: Iterable[float]) -> RealRange:
    """The range of these numbers, margins included."""
    found = [float(number) for number in numbers]
    return RealRange(min(found), max(found), RangeSource.PROVEN)


def step(
    kind: type[SecretOp],
    operands: Sequence[ir.Value],
    declared: RealRange,
    frac_bits: int = 0,
    shape: Shape = (),
    ring_bits: int = 0,
    **named: Any,
) -> ir.Value:
    """An op at the current place.

    Args:
        frac_bits, shape, ring_bits: of the result, where the op leaves them free; the ring is that
            of the first operand unless it is told.
    """
    ring_bits = ring_bits or Tensor.of(operands[0]).encoding.ring_bits
    return kind.build(
        *operands, range=declared, stated=Stated(shape, frac_bits, ring_bits), **named
    )


def aligned(x: ir.Value, frac_bits: int, declared: RealRange) -> ir.Value:
    """The same numbers with `frac_bits`: shifted up for nothing, or truncated."""
    more = frac_bits - Tensor.of(x).encoding.frac_bits
    if more > 0:
        return step(secret_ops.Scale, [x], declared, frac_bits, factor=1 << more)
    if more < 0:
        return step(secret_ops.Truncate, [x], declared, bits=-more)
    return x


def fitted_function(
    x: ir.Value, fitted: Fitted, declared: RealRange, frac_bits: int, ring_bits: int = 0
) -> ir.Value:
    """A real function that a building block has fitted; in the operand's ring unless told.

    Where its sums have fewer fraction bits than are wanted, or more than a truncation drops, it is
    made with what they allow, and aligned.
    """
    named, form = fitted.attributes(), fitted.form
    made_bits = min(max(frac_bits, form.frac_bits - (form.sum_bits - 2)), form.frac_bits - 1)
    y = step(secret_ops.Function, [x], declared, made_bits, ring_bits=ring_bits, **named)
    return aligned(y, frac_bits, declared)


def clipped_function(
    x: ir.Value,
    fitted: Fitted,
    declared: RealRange,
    frac_bits: int,
    edge: int,
    beyond: int,
    reach: float,
    dropped_bits: int,
) -> ir.Value | None:
    """The same where x is at least `edge`, an integer of x; else `beyond`, one of the result.

    None where the form has a line of the operand itself, or cannot make these fraction bits.

    Args:
        reach: the largest that x less the edge can be, or less zero.
        dropped_bits: of what is compared.
    """
    form = fitted.form
    is_series = isinstance(form, FourierSeries) and not form.slope
    if not is_series or not 0 < form.frac_bits - frac_bits <= form.sum_bits - 2:
        return None
    window = {"window_bits": ring_of(x) - 1, "dropped_bits": dropped_bits}
    named = fitted.attributes() | window | {"edge": edge, "beyond": beyond, "reach": reach}
    return step(secret_ops.ClippedFunction, [x], declared, frac_bits, **named)


def public(integers: ArrayLike, frac_bits: int, ring_bits: int) -> ir.Value:
    """Public integers, which stand for numbers with `frac_bits`."""
    value = np.asarray(integers, np.int64)
    declared = between(np.ldexp([value.min(), value.max()], -frac_bits))
    stated = Stated((), frac_bits, ring_bits)
    return secret_ops.Constant.build(range=declared, stated=stated, value=value)


def chosen(
    above: ir.Value | None, numbers: Sequence[int], frac_bits: int, ring_bits: int
) -> ir.Value:
    """n_0 + sum_i m_i (n_i - n_(i-1)) over the last axis, of bits m that no 1 follows a 0.

    So it is the number of the interval that the comparisons m say; n_0 where there are none.
    """
    first = public(numbers[0], frac_bits, ring_bits)
    if above is None:
        return first
    rises = [b - a for a, b in pairwise(numbers)]
    each = step(
        secret_ops.Mul,
        [above, public(rises, frac_bits, ring_bits)],
        between(math.ldexp(rise, -frac_bits) for rise in (0, *rises)),
    )
    ends = [math.ldexp(end - numbers[0], -frac_bits) for end in numbers]
    axes = (len(shape_of(each)) - 1,)
    total = step(secret_ops.ReduceSum, [each], between(ends), axes=axes, keepdims=False)
    declared = between(math.ldexp(number, -frac_bits) for number in numbers)
    return step(secret_ops.Add, [total, first], declared)
