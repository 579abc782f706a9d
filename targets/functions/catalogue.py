"""The real functions of one number that building blocks fit, in decimal arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

from veilgraph.targets.functions.fourier_fit import (
    PI,
    Family,
    Function,
    arctangent,
    erf,
    exp,
    tanh,
)

HALF = Decimal("0.5")


class Tail(Enum):
    """What a function is far out."""

    NONE = "none"
    FLAT = "flat"  # on both sides
    LINE = "line"  # 0 far below, x far above
    ZERO = "zero"  # far below


class Domain(Enum):
    """How the range of an operand is widened by the margin."""

    ADDED = "added"  # as every value's
    POSITIVE = "positive"  # by a factor on both sides: zero must stay outside
    POWER = "power"  # so that the result is within its own margin


@dataclass(frozen=True)
class RealFunction:
    """One function.

    Attributes:
        part: what the terms sum to, in decimal arithmetic: the function less slope x + constant.
        reach: how far from 0 it differs from its tail by more than 2^-bits.
    """

    family: Family
    part: Function
    slope: Decimal = Decimal(0)
    constant: Decimal = Decimal(0)
    tail: Tail = Tail.NONE
    reach: Callable[[int], float] = lambda bits: math.inf
    domain: Domain = Domain.ADDED

    def value(self, x: Decimal) -> Decimal:
        return self.part(x) + self.slope * x + self.constant


def _gelu(x: Decimal) -> Decimal:
    return x / 2 * erf(x / Decimal(2).sqrt())


def _gelu_by_tanh(x: Decimal) -> Decimal:
    return x / 2 * tanh((2 / PI).sqrt() * (x + Decimal("0.044715") * x**3))


def _softplus(x: Decimal) -> Decimal:
    return (1 + exp(-abs(x))).ln() + abs(x) / 2


def _nats(bits: int) -> float:
    return bits * math.log(2)


FUNCTIONS: Mapping[str, RealFunction] = {
    "sigmoid": RealFunction(
        Family.SQUARE, lambda x: tanh(x / 2) / 2, constant=HALF, tail=Tail.FLAT, reach=_nats
    ),
    "tanh": RealFunction(
        Family.SQUARE, tanh, tail=Tail.FLAT, reach=lambda bits: _nats(bits + 1) / 2
    ),
    "erf": RealFunction(
        Family.SQUARE, erf, tail=Tail.FLAT, reach=lambda bits: math.sqrt(_nats(bits))
    ),
    "atan": RealFunction(Family.SQUARE, arctangent),
    "gelu none": RealFunction(
        Family.TRIANGLE, _gelu, HALF, tail=Tail.LINE, reach=lambda bits: math.sqrt(2 * _nats(bits))
    ),
    "gelu tanh": RealFunction(
        Family.TRIANGLE,
        _gelu_by_tanh,
        HALF,
        tail=Tail.LINE,
        reach=lambda bits: math.sqrt(2 * _nats(bits)),
    ),
    "silu": RealFunction(
        Family.TRIANGLE,
        lambda x: x / 2 * tanh(x / 2),
        HALF,
        tail=Tail.LINE,
        reach=lambda bits: _nats(bits + 4),
    ),
    "softplus": RealFunction(Family.TRIANGLE, _softplus, HALF, tail=Tail.LINE, reach=_nats),
    "exp": RealFunction(Family.FREE, exp, tail=Tail.ZERO, reach=_nats, domain=Domain.POWER),
    "log": RealFunction(Family.FREE, lambda x: x.ln(), domain=Domain.POSITIVE),
    "sqrt": RealFunction(Family.FREE, lambda x: x.sqrt(), domain=Domain.POSITIVE),
    "rsqrt": RealFunction(Family.FREE, lambda x: 1 / x.sqrt(), domain=Domain.POSITIVE),
    "reciprocal": RealFunction(Family.FREE, lambda x: 1 / x, domain=Domain.POSITIVE),
}
TURNING = ("sin", "cos")  # one term of a Fourier series, whatever the range
# Of softmax: e^x for x up to 0, so small as to be nothing included, and its sums along rows.
EXP_BELOW_ONE = "exp below one"
EXP_SUMS = "exp sums"
