"""The exact integer part of a secret, and the nearest integer: a truncation put right.

A truncation by f bits makes floor(x) or one more, at random; of what is left, which lies between
-1 and 1, a comparison over f + 2 bits tells which of the two it was:

    t = truncate(x)      floor(x) = t + floor(x - t)          x - t in [-1, 1]
    t = truncate(x / 2)  round(x) = 2 t + round(x - 2 t)      x - 2 t in [-2, 2]

So the range of x costs nothing but its ring. Both are exact for the number that x is encoded as:
where x is nearer to an integer (or to a tie) than its encoding is exact, the result may be the next
one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch_mlir import ir

from veilgraph.ir.graph import ops as graph_ops
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.types import RealRange, Tensor
from veilgraph.passes.encode.builder import aligned, between, public, step

BITS = between((0, 1))


def floor(x: ir.Value, declared: RealRange) -> ir.Value:
    """The largest integer that is no more than x, without fraction bits."""
    if Tensor.of(x).encoding.frac_bits <= 0:
        return aligned(x, 0, declared)
    whole, rest = _parted(x, 0, declared)
    return _sum([_plus(_at_least(rest, 0.0, 1), -1), whole], declared)


def nearest(x: ir.Value, declared: RealRange) -> ir.Value:
    """The nearest integer, of two the even one, without fraction bits.

    Of what is left, thresholds are met alternately from above and from below, so that each tie goes
    to the even number: round(r) = [r >= -1/2] + [r >= 3/2] - [r <= -3/2] - [r <= 1/2] ...
    """
    if Tensor.of(x).encoding.frac_bits <= 0:
        return aligned(x, 0, declared)
    whole, rest = _parted(x, 1, declared)
    above = [_at_least(rest, threshold, 1) for threshold in (-0.5, 1.5)]
    below = [_at_least(rest, threshold, -1) for threshold in (-1.5, 0.5)]
    more = _sum(above, between((0, 2)))
    less = _sum(below, between((0, 2)))
    inner = step(secret_ops.Sub, [more, less], between((-2, 2)))
    return _sum([inner, whole], declared)


def _parted(x: ir.Value, doublings: int, declared: RealRange) -> tuple[ir.Value, ir.Value]:
    """A multiple of 2^doublings no further than that from x, without fraction bits; the rest."""
    encoding = Tensor.of(x).encoding
    near = step(secret_ops.Truncate, [x], declared, bits=encoding.frac_bits + doublings)

    def shifted(frac_bits: int) -> ir.Value:
        """Multiplied: to merge_truncations a shift after a truncation would be none at all."""
        more = frac_bits + doublings
        one = public(1 << more, more, encoding.ring_bits)
        return step(secret_ops.Mul, [near, one], declared)

    left = between((-(1 << doublings), 1 << doublings))
    rest = step(secret_ops.Sub, [x, shifted(encoding.frac_bits)], left)
    return shifted(0), rest


def _at_least(rest: ir.Value, threshold: float, sign: int) -> ir.Value:
    """1 where sign rest >= sign threshold, else 0."""
    encoding = Tensor.of(rest).encoding
    if sign < 0:
        rest = step(secret_ops.Neg, [rest], between((-2, 2)))
    if threshold:
        by = round(-sign * threshold * (1 << encoding.frac_bits))
        number = public(by, encoding.frac_bits, encoding.ring_bits)
        rest = step(secret_ops.Add, [rest, number], between((-3.5, 3.5)))
    widest = encoding.ring_bits - 1
    return step(secret_ops.Step, [rest], BITS, window_bits=widest, dropped_bits=0)


def _plus(x: ir.Value, number: int) -> ir.Value:
    known = between((number, number + 1))
    return step(secret_ops.Add, [x, public(number, 0, Tensor.of(x).encoding.ring_bits)], known)


def _sum(terms: Sequence[ir.Value], declared: RealRange) -> ir.Value:
    x, y = terms
    return step(secret_ops.Add, [x, y], declared)


INTEGER_PARTS: Mapping[type[ir.OpView], Callable[[ir.Value, RealRange], ir.Value]] = {
    graph_ops.Floor: floor,
    graph_ops.Round: nearest,
}
