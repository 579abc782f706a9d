"""Inverse sine and cosine by a polynomial and a root, and the tangent as a quotient."""

from __future__ import annotations

import math

from onnx import NodeProto

from veilgraph.frontend.onnx.nodes import Steps

# acos x = sqrt(1 - x) p(x) on [0, 1], within 6.8e-5: Abramowitz and Stegun (1964), 4.4.45.
ARC = (1.5707288, -0.2121144, 0.0742610, -0.0187293)


def _arc(s: Steps, size: str) -> str:
    """acos of magnitudes below 1."""
    total = s.plus(s.times(size, ARC[3]), ARC[2])
    for coefficient in (ARC[1], ARC[0]):
        total = s.plus(s("Mul", total, size), coefficient)
    root = s("Sqrt", s.plus(s.times(size, -1.0), 1.0))
    return s("Mul", root, total)


def _sides(s: Steps) -> tuple[str, str]:
    """Whether x is at least zero, and acos |x|."""
    x = s.operand(0)
    return s("GreaterOrEqual", x, s.numbers(0.0)), _arc(s, s("Abs", x))


def inverse_sine(s: Steps) -> list[NodeProto]:
    """pi / 2 - acos |x|, with the sign of x."""
    positive, arc = _sides(s)
    rest = s.plus(s.times(arc, -1.0), math.pi / 2)
    return s.finish(s("Where", positive, rest, s("Neg", rest)))


def inverse_cosine(s: Steps) -> list[NodeProto]:
    """acos |x|, or pi less it."""
    positive, arc = _sides(s)
    return s.finish(s("Where", positive, arc, s.plus(s.times(arc, -1.0), math.pi)))


def tangent(s: Steps) -> list[NodeProto]:
    """sin x / cos x, where the cosine has one sign."""
    x = s.operand(0)
    return s.finish(s("Div", s("Sin", x), s("Cos", x)))
