"""What a step takes from a parameter, and what it keeps for the next one.

SGD subtracts u = momentum u + step_size g + decay w from a parameter w; g is B times the gradient
of the mean loss. With step_size = rate / B, decay = rate weight_decay and momentum = m rate / (rate
before) that is PyTorch's for any schedule of rates: u is the velocity there, times the rate. So
applying it is a subtraction, and u is rounded once. Nesterov's momentum keeps that u, and subtracts
(step_size g + decay w) + m u of the u after the step: a sum of the same three, with other factors.

Adam keeps the means m and v of g and g^2, each the sum of what it was and what is new with public
factors. It subtracts step_size m / sqrt(v + (B eps)^2), a function of each element.

A norm that is clipped is one number of all gradients: |g|^2 is a sum of inner products, each of
which is rounded once. With the limit c for |g| the factor of g is 1 / sqrt(max(|g|^2 / c^2, 1)),
which has no singularity. SGD multiplies the step size by it, and Adam each gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import Protocol

from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.training import (
    AHEAD,
    DECAY,
    MEAN_KEPT,
    MEAN_NEW,
    MOMENTUM,
    SGD,
    SQUARE_KEPT,
    SQUARE_NEW,
    STEP_SIZE,
    Adam,
    AdamW,
    Optimizer,
)
from veilgraph.passes.graph.derivatives.algebra import reshaped, scaled, total
from veilgraph.passes.graph.public_factors import constant


class Updates(Protocol):
    """How an optimizer updates a parameter."""

    def of(
        self,
        w: ir.Value,
        gradient: ir.Value,
        kept: Sequence[ir.Value],
        noise: ir.Value | None = None,
    ) -> tuple[ir.Value, list[ir.Value]]:
        """What is subtracted from `w`, and what is kept after the step.

        Args:
            gradient: B times that of the mean loss.
            kept: the states that go with `w`.
            noise: added to what is subtracted, and to the velocity that it is.
        """
        ...


def updates_of(
    optimizer: Optimizer,
    factors: Mapping[str, ir.Value],
    rows: int,
    shorter: ir.Value | None = None,
) -> Updates:
    """How this optimizer updates parameters.

    Args:
        factors: its public numbers, by name.
        rows: B.
        shorter: what `shortening` found, by which gradients are multiplied.
    """
    if isinstance(optimizer, Adam):
        return _Adam(optimizer, factors, rows, shorter)
    if shorter is None:
        return _SGD(optimizer, factors)
    sizes = {name: factors[name] for name in factors if name.startswith(STEP_SIZE)}
    sizes = {name: ops.Mul.build(shorter, size) for name, size in sizes.items()}
    return _SGD(optimizer, {**factors, **sizes})


@dataclass(frozen=True)
class _SGD:
    optimizer: SGD
    factors: Mapping[str, ir.Value]

    def of(
        self,
        w: ir.Value,
        gradient: ir.Value,
        kept: Sequence[ir.Value],
        noise: ir.Value | None = None,
    ) -> tuple[ir.Value, list[ir.Value]]:
        sources = {STEP_SIZE: gradient, DECAY: w}
        if kept:
            (sources[MOMENTUM],) = kept
        velocity = self._sum(sources, "")
        if noise is not None:
            velocity = ops.Add.build(velocity, noise)
        if not self.optimizer.nesterov:
            return velocity, [velocity for _ in kept]
        return self._sum(sources, AHEAD), [velocity]

    def _sum(self, sources: Mapping[str, ir.Value], suffix: str) -> ir.Value:
        named = {f"{name}{suffix}": x for name, x in sources.items()}
        return total([_times(named[n], f) for n, f in self.factors.items() if n in named])


@dataclass(frozen=True)
class _Adam:
    optimizer: Adam
    factors: Mapping[str, ir.Value]
    rows: int
    shorter: ir.Value | None

    def of(
        self,
        w: ir.Value,
        gradient: ir.Value,
        kept: Sequence[ir.Value],
        noise: ir.Value | None = None,
    ) -> tuple[ir.Value, list[ir.Value]]:
        assert noise is None, "noise is refused before"
        factors, (mean, square) = self.factors, kept
        g = gradient if self.shorter is None else _times(gradient, self.shorter)
        decay = _times(w, factors[DECAY]) if DECAY in factors else None
        is_apart = isinstance(self.optimizer, AdamW)
        if decay is not None and not is_apart:
            g = ops.Add.build(g, decay)
        mean = total([_times(mean, factors[MEAN_KEPT]), _times(g, factors[MEAN_NEW])])
        new = _times(ops.Mul.build(g, g), factors[SQUARE_NEW])
        square = total([_times(square, factors[SQUARE_KEPT]), new])
        raised = ops.Add.build(square, constant((self.rows * self.optimizer.eps) ** 2, square))
        update = _times(ops.Mul.build(mean, ops.Rsqrt.build(raised)), factors[STEP_SIZE])
        if decay is not None and is_apart:
            update = ops.Add.build(update, decay)
        return update, [mean, square]


def _times(x: ir.Value, factor: ir.Value) -> ir.Value:
    """x times one number of any rank."""
    if shape_of(factor):
        factor = reshaped(factor, (1,) * len(shape_of(x)))
    return ops.Mul.build(x, factor)


def shortening(gradients: Sequence[ir.Value], limit: float) -> ir.Value:
    """The factor, up to 1, by which these together are no longer than `limit`; shape (1, 1)."""
    products = []
    for gradient in gradients:
        count = prod(shape_of(gradient))
        row, column = reshaped(gradient, (1, count)), reshaped(gradient, (count, 1))
        products.append(ops.Matmul.build(row, column))
    squares = scaled(total(products), limit**-2)
    return ops.Rsqrt.build(ops.Clip.build(squares, min=1.0, max=inf))
