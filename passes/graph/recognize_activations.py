"""Activations that a model writes out become the one function that they are.

Exporters write a GELU or a SiLU as a function of x, or of a multiple of it, and a product with x:

    x (1 + erf(a x))                       = 2/s gelu(s x)        s = sqrt(2) a
    x (1 + tanh(b (s x + c (s x)^3)))      = 2/s gelu_tanh(s x)   b = sqrt(2 / pi), c = 0.044715
    x (1 + tanh(a x))                      = 2/s silu(s x)        s = 2 a
    x sigmoid(a x)                         = 1/s silu(s x)        s = a

(Hendrycks and Gimpel, arXiv:1606.08415, sections 2 and 3.) As one function it is a Fourier series
and a line: no product of secrets, no truncation of its own, and no error of a function times x.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isclose, pi, sqrt
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, defining, users
from veilgraph.passes.graph.public_factors import multiplication, number_of, times

CUBE = 0.044715  # of the GELU by tanh
DIGITS = 1e-5  # relative: as exactly as models write such numbers
DEGREE, DEPTH = 3, 8  # of a polynomial, and of the operations that it is written in
STEEPEST = 8.0  # scales that an error of the function is multiplied by, or a step is as good as
ARITHMETIC = ops.Add | ops.Sub | ops.Mul | ops.Div
Coefficients: TypeAlias = npt.NDArray[np.float64]  # from that of x^0 on


@dataclass(frozen=True)
class RecognizeActivations:
    """Finds GELUs and SiLUs, however their factors stand; no options.

    Before::

        func.func @main(%x: tensor<4xf32> {graph.name = "x", graph.role = "input"})
            -> (tensor<4xf32> {graph.name = "y"}) {
          %0 = "graph.sigmoid"(%x) : (tensor<4xf32>) -> tensor<4xf32>
          %1 = "graph.mul"(%x, %0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
          return %1 : tensor<4xf32>
        }

    After::

        func.func @main(%x: tensor<4xf32> {graph.name = "x", graph.role = "input"})
            -> (tensor<4xf32> {graph.name = "y"}) {
          %0 = "graph.silu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
          return %0 : tensor<4xf32>
        }
    """

    def run(self, graph: Graph) -> Graph:
        """`graph` itself, changed in place; it keeps weights that nothing uses."""
        for op in graph.operations:
            found = _Activation.at(op)
            if found is not None:
                last, factor = _scaled_by_number(op)
                with graph.before(last):
                    graph.replace(last, found.value(factor))
        graph.tidy(keeps_weights=True)
        return graph


def _scaled_by_number(op: ir.OpView) -> tuple[ir.OpView, float]:
    """The last of the products with public numbers that alone read `op`, and their product."""
    factor = 1.0
    while len(readers := users(op.operation.results[0])) == 1:
        found = multiplication(readers[0])
        if found is None:
            break
        op, factor = readers[0], factor * found[1]
    return op, factor


@dataclass(frozen=True)
class _Activation:
    """factor f(scale x)."""

    kind: type[ir.OpView]
    x: ir.Value
    scale: float
    factor: float
    approximate: str = ""  # of a GELU

    @staticmethod
    def at(op: ir.OpView) -> _Activation | None:
        """The activation that `op` is the last product of."""
        if not isinstance(op, ops.Mul):
            return None
        lhs, rhs = op.operation.operands
        for multiple, gate in ((lhs, rhs), (rhs, lhs)):
            function = _function_in(gate)
            if function is None or shape_of(multiple) != shape_of(op.operation.results[0]):
                continue
            for x, factor in dict.fromkeys(((multiple, 1.0), _without_factor(multiple))):
                found = _gated(x, gate, function)
                if found and 1 / STEEPEST <= abs(found.scale) <= STEEPEST:
                    return replace(found, factor=found.factor * factor)
        return None

    def value(self, factor: float) -> ir.Value:
        """It, times a factor."""
        scale = 1.0 if _alike(self.scale, 1.0) else self.scale
        named = {"approximate": self.approximate} if self.approximate else {}
        y = self.kind.build(times(self.x, scale), **named)
        return times(y, self.factor * factor)


def _function_in(gate: ir.Value) -> ir.OpView | None:
    """The function that a gate is made of with public numbers, and nothing else."""
    while (op := defining(gate)) is not None and len(users(gate)) == 1:
        if isinstance(op, ops.Sigmoid | ops.Erf | ops.Tanh):
            return op
        computed = [x for x in op.operation.operands if number_of(x) is None]
        if not isinstance(op, ARITHMETIC) or len(computed) != 1:
            return None
        gate = computed[0]
    return None


def _gated(x: ir.Value, gate: ir.Value, function: ir.OpView) -> _Activation | None:
    """x times a gate of a function, if the function is one of x."""
    line = _polynomial(gate, function.operation.results[0])
    inner = _polynomial(function.operation.operands[0], x)
    if line is None or inner is None or len(line) != 2 or len(inner) not in (2, 4):
        return None
    (constant, slope), a, is_odd = line, inner[1], not inner[::2].any()
    if not (a and slope and is_odd):
        return None
    if isinstance(function, ops.Sigmoid):
        is_whole = not constant and len(inner) == 2
        return _Activation(ops.Silu, x, a, slope / a) if is_whole else None
    if not _alike(abs(constant), abs(slope)):
        return None
    # Both functions are odd: 1 - f(u) is 1 + f(-u).
    sign = 1.0 if _alike(constant, slope) else -1.0
    a, cube, slope = sign * a, sign * inner[-1], constant
    if len(inner) == 2:
        if isinstance(function, ops.Erf):
            return _Activation(ops.Gelu, x, sqrt(2) * a, sqrt(2) * slope / a, "none")
        return _Activation(ops.Silu, x, 2 * a, slope / a)
    scale = a / sqrt(2 / pi)
    if isinstance(function, ops.Tanh) and _alike(cube, CUBE * a * scale**2):
        return _Activation(ops.Gelu, x, scale, 2 * slope / scale, "tanh")
    return None


def _alike(a: float, b: float) -> bool:
    return isclose(a, b, rel_tol=DIGITS)


def _without_factor(value: ir.Value) -> tuple[ir.Value, float]:
    """What a value is a multiple of."""
    factor = 1.0
    while (op := defining(value)) is not None and (found := multiplication(op)) is not None:
        value, factor = found[0], factor * found[1]
    return value, factor


def _polynomial(value: ir.Value, x: ir.Value, depth: int = DEPTH) -> Coefficients | None:
    """The coefficients of a value as a polynomial of x, up to DEGREE; None if it is none."""
    if value == x:
        return np.array([0.0, 1.0])
    if (number := number_of(value)) is not None:
        return np.array([number])
    op = defining(value)
    if not isinstance(op, ARITHMETIC) or not depth:
        return None
    lhs, rhs = (_polynomial(operand, x, depth - 1) for operand in op.operation.operands)
    if lhs is None or rhs is None:
        return None
    if isinstance(op, ops.Mul):
        return np.convolve(lhs, rhs) if len(lhs) + len(rhs) <= DEGREE + 2 else None
    if isinstance(op, ops.Div):
        return lhs / rhs[0] if len(rhs) == 1 and rhs[0] else None
    total = np.zeros(max(len(lhs), len(rhs)))
    total[: len(lhs)] += lhs
    total[: len(rhs)] += rhs if isinstance(op, ops.Add) else -rhs
    return total
