"""Public numbers in a program of the graph level: read, written, and which multiply for nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import attributes, defining
from veilgraph.ir.legality import MAX_FACTOR


@dataclass(frozen=True)
class Factor:
    """The number integer 2^exponent; by an integer up to 2^10 one multiplies without truncation."""

    integer: int
    exponent: int


def constant(number: float, like: ir.Value) -> ir.Value:
    """A public number, of the rank of `like`."""
    value = np.full((1,) * len(shape_of(like)), number, np.float32)
    return ops.Constant.build(value=value)


def times(x: ir.Value, number: float) -> ir.Value:
    """A multiple of x; x itself for 1."""
    return x if number == 1.0 else ops.Mul.build(x, constant(number, x))


def number_of(value: ir.Value) -> float | None:
    """The one number that all of a public constant is; None for anything else."""
    op = defining(value)
    if not isinstance(op, ops.Constant):
        return None
    numbers = np.asarray(attributes(op)["value"], np.float64)
    first = float(numbers.flat[0])
    return first if bool(np.all(numbers == first)) else None


def are_small_integers(value: ir.Value) -> bool:
    """Whether a public constant holds different integers, by which one multiplies for nothing."""
    op = defining(value)
    if not isinstance(op, ops.Constant) or number_of(value) is not None:
        return False
    numbers = np.asarray(attributes(op)["value"], np.float64)
    return bool(np.all((numbers == np.rint(numbers)) & (np.abs(numbers) <= MAX_FACTOR)))


def multiplication(op: ir.OpView) -> tuple[ir.Value, float] | None:
    """The operand and the number, where `op` multiplies by one public number other than zero."""
    if not isinstance(op, ops.Mul):
        return None
    lhs, rhs = op.operation.operands
    for operand, other in ((lhs, rhs), (rhs, lhs)):
        number = number_of(other)
        if number and shape_of(operand) == shape_of(op.operation.results[0]):
            return operand, number
    return None


def scaling(op: ir.OpView) -> tuple[ir.Value, Factor] | None:
    """The operand and the factor, where `op` multiplies by a number of few bits."""
    found = multiplication(op)
    factor = small_factor(found[1]) if found else None
    return (found[0], factor) if found and factor else None


def is_copy(value: ir.Value) -> bool:
    """Whether it is an input of the program times 1: the same, at a scale of its own."""
    op = defining(value)
    scaled = scaling(op) if op is not None else None
    if scaled is None:
        return False
    operand, factor = scaled
    return isinstance(operand, ir.BlockArgument) and factor == Factor(1, 0)


def small_factor(number: float) -> Factor | None:
    """The number as an odd integer and a power of two, if the integer is small."""
    numerator, denominator = number.as_integer_ratio()
    trailing = (numerator & -numerator).bit_length() - 1
    integer = numerator >> trailing
    exponent = trailing - (denominator.bit_length() - 1)
    return Factor(integer, exponent) if abs(integer) <= MAX_FACTOR else None
