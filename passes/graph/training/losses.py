"""Losses by name: what they are of a model's output and its labels, and their derivative.

A batch has B rows. The derivative is B times that of the mean loss: the sum over rows, whose bits
nothing has divided away. The division is in the step size (programs.py), which is public.

    cross_entropy          softmax(z) - y       y: a distribution over the classes, as one-hot rows
                           s softmax(z) - y     y: rows that sum to s, which weighs them
    binary_cross_entropy   sigmoid(z) - y       z: logits, y: 0 or 1
    mse                    2 (z - y) / n        n: numbers in a row
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import defining
from veilgraph.passes.graph.derivatives.algebra import scaled, summed

Of = Callable[[ir.Value, ir.Value], ir.Value]


@dataclass(frozen=True)
class Loss:
    """A loss of a model's output z and labels y, of one shape.

    Attributes:
        name: as users and torch.nn.functional write it.
        total: builds what is summed over all elements, as in torch without a mean.
        slope: builds the derivative of that sum by z.
        weighted_slope: the same for rows of y that sum to other numbers than 1; None where that is
            nothing special.
        by_row: whether PyTorch's mean is over rows, and not over all numbers in them.
        takes_logits: whether the loss has a softmax or sigmoid of its own.
    """

    name: str
    total: Of
    slope: Of
    by_row: bool
    takes_logits: bool
    weighted_slope: Of | None = None

    def mean(self, z: ir.Value, y: ir.Value) -> ir.Value:
        """The mean loss, one number of shape (1, ..., 1)."""
        shape = shape_of(z)
        total = summed(self.total(z, y), range(len(shape)))
        return scaled(total, 1 / (shape[0] if self.by_row else prod(shape)))

    def derivative(self, z: ir.Value, y: ir.Value, weighted: bool = False) -> ir.Value:
        """B times the derivative of the mean loss by z; of rows with weights, if so."""
        slope = self.weighted_slope if weighted and self.weighted_slope else self.slope
        return scaled(slope(z, y), 1.0 if self.by_row else 1 / prod(shape_of(z)[1:]))

    @property
    def decides(self) -> bool:
        """Whether answers are right or wrong: classes, or 0 and 1."""
        return self.takes_logits

    def check(self, z: ir.Value) -> None:
        """Raises UsageError for an output that this is no loss of."""
        shape = shape_of(z)
        if not shape or (self.by_row and len(shape) != 2) or 0 in shape:
            wanted = "(rows, classes)" if self.by_row else "(rows, ...)"
            raise UsageError(
                f"The loss {self.name} takes an output of shape {wanted}, and the model's is of "
                f"shape {list(shape)}.",
                "Reshape it in the model, or let the model compute its loss itself.",
            )
        op = defining(z)
        if self.takes_logits and isinstance(op, ops.Softmax | ops.LogSoftmax | ops.Sigmoid):
            raise UsageError(
                f"The model's output has a {type(op).__name__.lower()} already, and "
                f"{self.name} has one of its own.",
                "Give a model whose outputs are what goes into it: logits.",
            )


def _cross_entropy(z: ir.Value, y: ir.Value) -> ir.Value:
    return ops.Neg.build(ops.Mul.build(y, ops.LogSoftmax.build(z, axis=1)))


def _cross_entropy_slope(z: ir.Value, y: ir.Value) -> ir.Value:
    return ops.Sub.build(ops.Softmax.build(z, axis=1), y)


def _weighted_slope(z: ir.Value, y: ir.Value) -> ir.Value:
    weighted = ops.Mul.build(ops.Softmax.build(z, axis=1), summed(y, [1]))
    return ops.Sub.build(weighted, y)


def _binary_cross_entropy(z: ir.Value, y: ir.Value) -> ir.Value:
    return ops.Sub.build(ops.Softplus.build(z), ops.Mul.build(y, z))


def _binary_slope(z: ir.Value, y: ir.Value) -> ir.Value:
    return ops.Sub.build(ops.Sigmoid.build(z), y)


def _squared(z: ir.Value, y: ir.Value) -> ir.Value:
    error = ops.Sub.build(z, y)
    return ops.Mul.build(error, error)


def _squared_slope(z: ir.Value, y: ir.Value) -> ir.Value:
    return scaled(ops.Sub.build(z, y), 2.0)


LOSSES: Mapping[str, Loss] = {
    loss.name: loss
    for loss in (
        Loss("cross_entropy", _cross_entropy, _cross_entropy_slope, True, True, _weighted_slope),
        Loss("binary_cross_entropy", _binary_cross_entropy, _binary_slope, False, True),
        Loss("mse", _squared, _squared_slope, False, False),
    )
}
