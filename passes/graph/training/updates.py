"""What a step takes from a parameter, and what it keeps for the next one.

SGD subtracts u = momentum u + step_size g + decay w from a parameter w; g is B times the gradient
of the mean loss. With step_size = rate / B, decay = rate weight_decay and momentum = m rate / (rate
before) that is PyTorch's for any schedule of rates: u is the velocity there, times the rate. So
applying it is a subtraction, and u is rounded once. Nesterov's momentum keeps that u, and subtracts
(step_size g + decay w) + m u of the u after the step: a sum of the same three, with other factors.

A norm that is clipped is one number of all gradients: |g|^2 is a sum of inner products, each of
which is rounded once. With the limit c for |g| the factor of g is 1 / sqrt(max(|g|^2 / c^2, 1)),
which has no singularity: the step size is multiplied by it, and not each gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, prod

from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.training import AHEAD, DECAY, MOMENTUM, SGD, STEP_SIZE
from veilgraph.passes.graph.derivatives.algebra import reshaped, scaled, total


@dataclass(frozen=True)
class Updates:
    """How an optimizer updates a parameter.

    Attributes:
        factors: single numbers by name; public, but for step sizes that are `shortened`.
    """

    optimizer: SGD
    factors: Mapping[str, ir.Value]

    def shortened(self, factor: ir.Value) -> Updates:
        """The same by gradients that are `factor` times as long: builds one product, or two."""
        sizes = {name: self.factors[name] for name in self.factors if name.startswith(STEP_SIZE)}
        shorter = {name: ops.Mul.build(factor, size) for name, size in sizes.items()}
        return replace(self, factors={**self.factors, **shorter})

    def of(
        self, w: ir.Value, gradient: ir.Value, kept: Sequence[ir.Value]
    ) -> tuple[ir.Value, list[ir.Value]]:
        """What is subtracted from `w`, and what is kept after the step.

        Args:
            gradient: B times that of the mean loss.
            kept: the velocity, where there is momentum.
        """
        sources = {STEP_SIZE: gradient, DECAY: w}
        if kept:
            (sources[MOMENTUM],) = kept
        velocity = self._sum(sources, "")
        if not self.optimizer.nesterov:
            return velocity, [velocity for _ in kept]
        return self._sum(sources, AHEAD), [velocity]

    def _sum(self, sources: Mapping[str, ir.Value], suffix: str) -> ir.Value:
        named = {f"{name}{suffix}": x for name, x in sources.items()}
        return total([_times(named[n], f) for n, f in self.factors.items() if n in named])


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
