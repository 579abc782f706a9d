"""Division of integers, and remainders: an approximate quotient, put right by comparisons.

    q = floor(x / y), which is one too many or too few where 1 / y isn't exact
    r = x - q y, exactly; where r >= y one is added, where r < 0 one taken away

So the quotient is exact wherever x times the rounding of 1 / y stays below 1. Numbers here are
magnitudes: signs are put back afterwards.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import NodeProto, TensorProto

from veilgraph.frontend.lowering.operands import Unsupported
from veilgraph.frontend.onnx.nodes import Array, Steps
from veilgraph.frontend.onnx.numeric_types import REAL

UNSIGNED = frozenset(
    (TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64)
)


def divide(s: Steps) -> list[NodeProto]:
    """Of integers: the quotient without its fraction, whatever its sign."""
    element, divisor = s.element(0), s.known(1)
    if element in REAL:
        return [s.node]
    x = s("Cast", s.operand(0), to=TensorProto.FLOAT)
    signed = element not in UNSIGNED
    if divisor is not None:
        _require_divisor(divisor)
        size, inverse = _sizes(s.numbers, divisor)
        same = s("GreaterOrEqual", x, s.numbers(0.0))
    else:
        y = s("Cast", s.operand(1), to=TensorProto.FLOAT)
        size = s("Abs", y) if signed else y
        inverse = s("Reciprocal", size)
        signs = [s("GreaterOrEqual", value, s.numbers(0.0)) for value in (x, y)]
        same = s("Equal", *signs)
    quotient, _ = _parts(s, s("Abs", x) if signed else x, size, inverse)
    if signed:
        quotient = s("Where", same, quotient, s("Neg", quotient))
        if divisor is not None:
            quotient = s("Mul", quotient, s.numbers(np.sign(divisor)))
    return s.finish(s("Cast", quotient, to=element))


def remainder(s: Steps) -> list[NodeProto]:
    """Mod(x, n), n known to the owner at least: of n's sign, or of x's with `fmod`."""
    element, owned = s.element(0), s.facts.weights.get(s.operand(1))
    make = s.numbers if owned is None else s.weight
    divisor = s.public(1, "divisors") if owned is None else owned
    _require_divisor(divisor)
    x = s.operand(0) if element in REAL else s("Cast", s.operand(0), to=TensorProto.FLOAT)
    size, inverse = _sizes(make, divisor)
    if s.attribute("fmod", 0) and element not in UNSIGNED:
        _, rest = _parts(s, s("Abs", x), size, inverse)
        rest = s("Where", s("GreaterOrEqual", x, s.numbers(0.0)), rest, s("Neg", rest))
    else:
        signs = make(np.sign(divisor).astype(np.float32))
        positive = owned is None and (divisor > 0).all()
        _, rest = _parts(s, x if positive else s("Mul", x, signs), size, inverse)
        rest = rest if positive else s("Mul", rest, signs)
    return s.finish(rest if element in REAL else s("Cast", rest, to=element))


def _require_divisor(divisor: Array) -> None:
    if not divisor.all():
        raise Unsupported("It divides by zero.")


def _sizes(make: Callable[[Array], str], divisor: Array) -> tuple[str, str]:
    """The magnitude of a known divisor, and one over it."""
    size = np.abs(divisor.astype(np.float64))
    return make(size), make(1 / size)


def _parts(s: Steps, x: str, y: str, inverse: str) -> tuple[str, str]:
    """floor(x / y) and x - y floor(x / y), of positive y."""
    quotient = s("Floor", s("Mul", x, inverse))
    rest = s("Sub", x, s("Mul", quotient, y))
    more = s("Cast", s("GreaterOrEqual", rest, y), to=TensorProto.FLOAT)
    less = s("Cast", s("Less", rest, s.numbers(0.0)), to=TensorProto.FLOAT)
    change = s("Sub", more, less)
    return s("Add", quotient, change), s("Sub", rest, s("Mul", change, y))
