"""Means become sums, and what they were divided by goes into weights: no truncation, no error.

A public factor is carried forward through what it commutes with (a positive one through relu and
maxima too) until weights take it; failing that it goes back into the weights that made the value;
failing that it is a multiplication by a public number, of the fewest elements on its way: before a
gradient is spread over a pool's windows, and not behind that. A value that is no longer the model's
own has "scaled" in its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from torch_mlir import ir

from veilgraph.ir.attributes import element_count, shape_of
from veilgraph.ir.graph import ops as graph_ops
from veilgraph.ir.graph.facts import Arithmetic, Homogeneity
from veilgraph.ir.graph.program import Graph, attributes, defining, name_of
from veilgraph.passes.graph.public_factors import constant, multiplication, scaling

SCALED = "scaled"


@dataclass(frozen=True)
class FoldDivisors:
    """Folds what means divide by, and other public factors, into weights; no options.

    Here the weights become a fourth of themselves.

    Before::

        func.func @main(%x: tensor<1x1x4x4xf32> {graph.name = "x", graph.role = "input"},
            %w: tensor<2x1x1x1xf32> {graph.name = "w", graph.role = "weight"})
            -> (tensor<1x2x2x2xf32> {graph.name = "y"}) {
          %0 = "graph.avg_pool"(%x) {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>,
              pads_low = array<i64: 0, 0>, pads_high = array<i64: 0, 0>, count_include_pad = true}
              : (tensor<1x1x4x4xf32>) -> tensor<1x1x2x2xf32>
          %1 = "graph.relu"(%0) : (tensor<1x1x2x2xf32>) -> tensor<1x1x2x2xf32>
          %2 = "graph.conv"(%1, %w) {strides = array<i64: 1, 1>, pads_low = array<i64: 0, 0>,
              pads_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64,
              operandSegmentSizes = array<i32: 1, 1, 0>}
              : (tensor<1x1x2x2xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x2x2xf32>
          return %2 : tensor<1x2x2x2xf32>
        }

    After::

        func.func @main(%x: tensor<1x1x4x4xf32> {graph.name = "x", graph.role = "input"},
            %w: tensor<2x1x1x1xf32> {graph.name = "w", graph.role = "weight"})
            -> (tensor<1x2x2x2xf32> {graph.name = "y"}) {
          %0 = "graph.sum_pool"(%x) {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>,
              pads_low = array<i64: 0, 0>, pads_high = array<i64: 0, 0>}
              : (tensor<1x1x4x4xf32>) -> tensor<1x1x2x2xf32>
          %1 = "graph.relu"(%0) : (tensor<1x1x2x2xf32>) -> tensor<1x1x2x2xf32>
          %2 = "graph.conv"(%1, %w) {strides = array<i64: 1, 1>, pads_low = array<i64: 0, 0>,
              pads_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64,
              operandSegmentSizes = array<i32: 1, 1, 0>}
              : (tensor<1x1x2x2xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x2x2xf32>
          return %2 : tensor<1x2x2x2xf32>
        }
    """

    def run(self, graph: Graph) -> Graph:
        """`graph` itself, changed in place."""
        forward = _Forward(graph)
        for op in graph.operations:
            forward.visit(op)
        forward.settle_outputs()
        forward.multiply()
        graph.tidy()
        _fold_backward(graph)
        graph.tidy()
        return graph


@dataclass(frozen=True, eq=False)
class _Scaled:
    """What an operation of the program as it was made, which is `value` times `factor`.

    Attributes:
        sources: what carries the same factor in its operands, where that is all of them.
    """

    op: ir.OpView
    value: ir.Value
    factor: float
    sources: tuple[_Scaled, ...] = ()

    @cached_property
    def places(self) -> tuple[_Scaled, ...]:
        """Where multiplying takes the fewest elements: here, or on the way that led here."""
        before = tuple(dict.fromkeys(place for each in self.sources for place in each.places))
        count = sum(element_count(shape_of(place.value)) for place in before)
        own = element_count(shape_of(self.value))
        is_nearer = count < own or (count == own and graph_ops.facts_of(self.op).moves)
        return before if before and is_nearer else (self,)


class _Forward:
    """Carries factors on towards weights, one operation after the other."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._scaled: dict[ir.Value, _Scaled] = {}
        self._multiplied: dict[_Scaled, None] = {}

    def visit(self, op: ir.OpView) -> None:
        """Rewrites one operation, whose operands have been rewritten."""
        facts, operands = graph_ops.facts_of(op), list(op.operation.operands)
        carried = [self._scaled.get(value) for value in operands]
        with self._graph.before(op), ir.Location.name(f"{name_of(op)}/{SCALED}"):
            if facts.arithmetic is Arithmetic.MEAN:
                self._carry(op, *_summed(op, *self._parts(operands[0])))
            elif (factor := multiplication(op)) is not None:
                self._multiply(op, *factor)
            elif not any(carried):
                return
            elif len(operands) == 1 and carried[0] and _commutes(op, carried[0].factor):
                self._carry_on(op, [carried[0].value], [carried[0]])
            elif len(operands) > 1 and facts.homogeneity is not Homogeneity.NONE:
                self._join(op, operands)
            elif facts.is_bilinear:
                self._bilinear(op, operands)
            else:
                self._settle(op)

    def settle_outputs(self) -> None:
        """Multiplies the outputs that still carry a factor."""
        self._settle(list(self._graph.block.operations)[-1])

    def multiply(self) -> None:
        """Writes the multiplications that are needed; all that reads them is as it was."""
        for scaled in self._multiplied:
            (result,) = scaled.op.operation.results
            with self._graph.before(scaled.op), ir.Location.name(name_of(scaled.op)):
                factor = constant(scaled.factor, result)
                result.replace_all_uses_with(graph_ops.Mul.build(scaled.value, factor))

    def _parts(self, value: ir.Value) -> tuple[ir.Value, float]:
        scaled = self._scaled.get(value)
        return (scaled.value, scaled.factor) if scaled else (value, 1.0)

    def _carry(self, op: ir.OpView, value: ir.Value, factor: float) -> None:
        if factor == 1.0:
            self._graph.replace(op, value)
            return
        self._scaled[op.operation.results[0]] = _Scaled(op, value, factor)

    def _carry_on(
        self, op: ir.OpView, values: Sequence[ir.Value], carried: Sequence[_Scaled | None]
    ) -> None:
        """`op` of `values` has the factor that they have."""
        known = tuple(each for each in carried if each is not None)
        sources = known if len(known) == len(carried) else ()
        result = op.operation.results[0]
        self._scaled[result] = _Scaled(op, _rebuilt(op, values), known[0].factor, sources)

    def _multiply(self, op: ir.OpView, value: ir.Value, number: float) -> None:
        """A multiplication by a public number; one that costs nothing stays what it is."""
        inner, factor = self._parts(value)
        if factor != 1.0 or scaling(op) is None:
            self._carry(op, inner, factor * number)

    def _join(self, op: ir.OpView, operands: Sequence[ir.Value]) -> None:
        """Operands of one factor keep it; weights can be given any."""
        parts = [self._parts(value) for value in operands]
        factor = next(f for value, f in parts if f != 1.0)
        values = [
            value if f == factor else self._divided(op, value, factor) if f == 1.0 else None
            for value, f in parts
        ]
        if _commutes(op, factor) and all(value is not None for value in values):
            carried = [self._scaled.get(value) for value in operands]
            self._carry_on(op, [v for v in values if v is not None], carried)
        else:
            self._settle(op)

    def _divided(self, op: ir.OpView, value: ir.Value, factor: float) -> ir.Value | None:
        """A weight, one of two operands of `op`, over `factor`; None for anything else."""
        source = _weight_behind(self._graph, value)
        if source is None or len(op.operation.operands) > 2 or not _commutes(op, factor):
            return None
        _scale_weight(self._graph, source, 1 / factor)
        return value

    def _bilinear(self, op: ir.OpView, operands: Sequence[ir.Value]) -> None:
        (x, a), (y, b) = (self._parts(value) for value in operands[:2])
        for partner in (y, x):
            if (source := _weight_behind(self._graph, partner)) is not None:
                _scale_weight(self._graph, source, a * b)
                with op.location:
                    self._graph.replace(op, _rebuilt(op, [x, y, *operands[2:]]))
                return
        self._settle(op)

    def _settle(self, op: ir.OpView) -> None:
        """Lets `op` read its operands multiplied by their factors."""
        for value in op.operation.operands:
            if (scaled := self._scaled.get(value)) is not None:
                self._multiplied |= dict.fromkeys(scaled.places)


def _commutes(op: ir.OpView, factor: float) -> bool:
    """Whether op(factor x) = factor op(x)."""
    if isinstance(op, graph_ops.Pad) and attributes(op)["value"] != 0:
        return False
    homogeneity = graph_ops.facts_of(op).homogeneity
    return homogeneity is Homogeneity.ANY or (homogeneity is Homogeneity.POSITIVE and factor > 0)


def _summed(op: ir.OpView, x: ir.Value, factor: float) -> tuple[ir.Value, float]:
    """A mean of `x` times `factor` as a sum times another factor."""
    named: dict[str, Any] = attributes(op)
    if isinstance(op, graph_ops.ReduceMean):
        count = prod(shape_of(x)[axis] for axis in named["axes"])
        return graph_ops.ReduceSum.build(x, **named), factor / count
    padded = any((*named["pads_low"], *named["pads_high"]))
    if named.pop("count_include_pad") or not padded:
        return graph_ops.SumPool.build(x, **named), factor / prod(named["kernel"])
    total, shares = graph_ops.SumPool.build(x, **named), window_shares(op)
    with op.location:
        return graph_ops.Mul.build(total, shares), factor


def window_shares(op: ir.OpView) -> ir.Value:
    """1 over the number of elements of each window that are no padding, [1, 1, H, W]."""
    named: dict[str, Any] = attributes(op)
    counts = []
    for axis in range(2):
        extent = shape_of(op.operation.operands[0])[2 + axis]
        positions = np.arange(shape_of(op.operation.results[0])[2 + axis])
        start = positions * named["strides"][axis] - named["pads_low"][axis]
        end = start + named["kernel"][axis]
        counts.append(np.minimum(end, extent) - np.maximum(start, 0))
    shares = 1 / np.outer(*counts).astype(np.float32)
    return graph_ops.Constant.build(value=shares[None, None])


def _rebuilt(op: ir.OpView, operands: Sequence[ir.Value]) -> ir.Value:
    """The same operation on other operands."""
    named: dict[str, Any] = attributes(op)
    if isinstance(op, graph_ops.Concat):
        return graph_ops.concat(list(operands), **named)
    required = list(operands)
    if isinstance(op, graph_ops.Conv) and len(required) > 2:
        named["bias"] = required.pop()
    return type(op).build(*required, shape=shape_of(op.operation.results[0]), **named)


def _weight_behind(graph: Graph, value: ir.Value) -> ir.Value | None:
    """The weight that `value` is, or is a layout of, if nothing else uses it; else None."""
    while True:
        if sum(1 for _ in value.uses) != 1:
            return None
        op = defining(value)
        if op is None:
            return value if value in graph.parameters.values() else None
        if not graph_ops.facts_of(op).moves:
            return None
        value = op.operation.operands[0]


def _scale_weight(graph: Graph, weight: ir.Value, factor: float) -> None:
    name = next(name for name, value in graph.parameters.items() if value == weight)
    scaled = graph.weights[name].astype(np.float64) * factor
    graph.weights[name] = np.asarray(scaled, np.float32)  # of one number NumPy makes no array


def _fold_backward(graph: Graph) -> None:
    """Lets the weights that made a value take the factor that it is multiplied by."""
    for op in graph.operations:
        if (found := multiplication(op)) is None or scaling(op) is not None:
            continue
        value, factor = found
        chain = _chain(graph, value, factor)
        if chain is None or not chain.operations:
            continue
        for weight in chain.weights:
            _scale_weight(graph, weight, factor)
        chain.operations[0].location = op.location
        for inner in chain.operations[1:]:
            inner.location = ir.Location.name(
                f"{name_of(inner)}/{SCALED}", context=graph.module.context
            )
        graph.replace(op, value)


@dataclass(frozen=True)
class _Chain:
    """What makes a value, last first: operations that nothing else reads, down to weights.

    Multiplying the weights multiplies every value of the chain.
    """

    operations: tuple[ir.OpView, ...] = ()
    weights: tuple[ir.Value, ...] = ()


def _chain(graph: Graph, value: ir.Value, factor: float) -> _Chain | None:
    """The chain that makes `value`; None where there is none."""
    weight = _weight_behind(graph, value)
    if weight is not None:
        return _Chain(weights=(weight,))
    op = defining(value)
    if op is None or sum(1 for _ in value.uses) != 1:
        return None
    operands = list(op.operation.operands)
    if graph_ops.facts_of(op).is_bilinear:
        made = [_weight_behind(graph, operand) for operand in operands]
        kernels = [weight for weight in made[:2] if weight is not None][-1:]
        biases = [weight for weight in made[2:] if weight is not None]
        complete = len(kernels) == 1 and len(biases) == len(made[2:])
        return _Chain((op,), (*kernels, *biases)) if complete else None
    if not _commutes(op, factor):
        return None
    parts = [_chain(graph, operand, factor) for operand in operands]
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return None
    operations = (op, *(o for part in found for o in part.operations))
    return _Chain(operations, tuple(w for part in found for w in part.weights))
