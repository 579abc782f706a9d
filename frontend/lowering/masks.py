"""Numbers that mean "masked": what is hugely negative, and ends in a softmax.

    masked_fill(scores, mask, -inf)    scores + (1 - mask) * finfo.min    scores + causal

Exporters write a mask as minus infinity or the least number of a type, and neither is a number that
a ring holds beside others. Before a softmax each such constant becomes -MASKED, as attention.py has
it, and passes/graph/bound_masks.py says how far below its row that is. A row that is masked as a
whole is the softmax of its scores, or the same everywhere where the mask replaced them; by a mask
that is public it is not taken for a mask.

A constant is one where it goes everywhere by additions, moves and products with truth values, and
into softmaxes alone. Integers that the user gives count as truth values: a mask holds 0 and 1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch_mlir import ir

from veilgraph.frontend.lowering.operands import is_whole
from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.masks import MASKED
from veilgraph.ir.graph.program import Graph, attributes, defining, name_of, users

LEAST = -1e4  # below it a number stands for minus infinity: float16 ends at -65504
LARGEST = 1e30  # no ring holds it beside others
Interval = tuple[float, float]
Array = NDArray[np.float32]


@dataclass(frozen=True)
class Masks:
    """What is known of a program that isn't finished.

    Attributes:
        graph: the program.
        outputs: its results, which show what they hold.
        truths: values of which each element is 0 or 1.
        whole: values that hold integers alone.
    """

    graph: Graph
    outputs: Collection[ir.Value]
    truths: Collection[ir.Value]
    whole: Collection[ir.Value]

    def bound(self) -> None:
        """Lets the constants and weights that mask hold -MASKED for what is masked, in place."""
        for name, value in self.graph.parameters.items():
            if self._masks(value, self.graph.weights[name]):
                self.graph.weights[name] = _bounded(self.graph.weights[name])
        for op in self.graph.operations:
            if not isinstance(op, ops.Constant):
                continue
            array = np.asarray(attributes(op)["value"], np.float32)
            if self._masks(op.operation.results[0], array):
                with self.graph.before(op):
                    bounded = ops.Constant.build(value=_bounded(array))
                self.graph.replace(op, bounded)

    def _masks(self, value: ir.Value, array: Array) -> bool:
        far = np.abs(array) > -LEAST
        if not far.any():
            return False
        signs = {int(sign) for sign in np.sign(array[far])}
        partial = array.ndim > 0 and not bool(far.all(axis=-1).any())
        return len(signs) == 1 and self._ends(value, signs.pop(), partial)

    def _ends(self, value: ir.Value, sign: int, partial: bool) -> bool:
        """Whether every way from here ends in a softmax, as something negative.

        Args:
            sign: of what is huge in `value`.
            partial: whether something of each row may be unmasked.
        """
        if value in self.outputs:
            return False
        return all(self._passes(op, value, sign, partial) for op in users(value))

    def _passes(self, op: ir.OpView, value: ir.Value, sign: int, partial: bool) -> bool:
        result = next(iter(op.operation.results), None)
        if isinstance(op, ops.Softmax):
            return sign < 0 and partial
        if result is None:
            return False
        if isinstance(op, ops.Add) or ops.facts_of(op).moves or _adds_zeros(op):
            return self._ends(result, sign, partial)
        if isinstance(op, ops.Neg):
            return self._ends(result, -sign, partial)
        if isinstance(op, ops.Sub):
            lhs, rhs = op.operation.operands
            return lhs != rhs and self._ends(result, sign if lhs == value else -sign, partial)
        if isinstance(op, ops.Mul):
            lhs, rhs = op.operation.operands
            turn = self._turn(rhs if lhs == value else lhs)
            return turn != 0 and self._ends(result, turn * sign, True)
        return False

    def _turn(self, factor: ir.Value) -> int:
        """1 for a factor of 0 or 1, -1 for one of 0 or -1, 0 for all others."""
        low, high = self._interval(factor) or (-np.inf, np.inf)
        return 1 if (low, high) == (0, 1) else -1 if (low, high) == (-1, 0) else 0

    def _interval(self, value: ir.Value) -> Interval | None:
        """Between which integers a value lies; None where that isn't known."""
        op = defining(value)
        if value in self.truths or (op is None and value in self.graph.inputs.values()):
            return (0, 1) if value in self.truths or is_whole(value, self.whole) else None
        if op is None or isinstance(op, ops.Constant):
            return _extremes(self._array(value))
        operands = [self._interval(operand) for operand in op.operation.operands]
        known = [interval for interval in operands if interval is not None]
        return _combined(op, known) if len(known) == len(operands) else None

    def _array(self, value: ir.Value) -> Array:
        op = defining(value)
        if op is not None:
            return np.asarray(attributes(op)["value"], np.float32)
        return next(self.graph.weights[n] for n, v in self.graph.parameters.items() if v == value)


def _adds_zeros(op: ir.OpView) -> bool:
    return isinstance(op, ops.Pad) and attributes(op)["value"] == 0


def _bounded(array: Array) -> Array:
    far = np.abs(array) > -LEAST
    return np.where(far, np.sign(array) * np.float32(MASKED), array).astype(np.float32)


def _extremes(array: Array) -> Interval | None:
    if not array.size or not np.isfinite(array).all() or (array != np.rint(array)).any():
        return None
    return float(array.min()), float(array.max())


def _combined(op: ir.OpView, known: list[Interval]) -> Interval | None:
    """The interval of an operation on integers in these."""
    if isinstance(op, ops.Step) or ops.facts_of(op).moves:
        return ops.facts_of(op).bounds or known[0]
    if isinstance(op, ops.Neg):
        return -known[0][1], -known[0][0]
    if isinstance(op, ops.Add):
        return known[0][0] + known[1][0], known[0][1] + known[1][1]
    if isinstance(op, ops.Sub):
        return known[0][0] - known[1][1], known[0][1] - known[1][0]
    if isinstance(op, ops.Mul):
        ends = [a * b for a in known[0] for b in known[1]]
        return min(ends), max(ends)
    return None


def require_finite(graph: Graph) -> None:
    """Raises UsageError where a constant or a weight is still no number that a ring can hold."""
    for what, name, array in _numbers(graph):
        outside = array[~(np.abs(array) < LARGEST)]
        if outside.size:
            raise UsageError(
                f"{what} {name} holds {outside.flat[0]:.4g}, and is no mask that only a softmax "
                "reads.",
                "A mask is made of truth values or integers, and leaves a part of each row. "
                "Where it is none, train or export it again.",
            )


def _numbers(graph: Graph) -> Iterator[tuple[str, str, Array]]:
    for name, array in graph.weights.items():
        yield "Weight", name, array
    for op in graph.operations:
        if isinstance(op, ops.Constant):
            yield "Constant", name_of(op), np.asarray(attributes(op)["value"], np.float32)
