"""Batch normalisation at inference is a scale and a shift, which the layer before it can absorb."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch_mlir import ir

from veilgraph.ir.attributes import Shape, shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, attributes, defining, users


@dataclass(frozen=True)
class FoldBatchNorm:
    """Turns batch normalisation into weights of the convolution or matmul before it.

    First every batch normalisation becomes a multiplication and an addition by channel. Then
    multiplications and additions of known tensors move up: into the weights and the bias of a
    convolution, into the columns of a matmul's weights, into each other, as far as nothing else
    reads what they change. What can't move stays a multiplication and an addition. The
    arithmetic on weights is left to `fold_constants`.

    Before::

        func.func @main(%x: tensor<1x2x4x4xf32> {graph.name = "x", graph.role = "input"},
            %w: tensor<3x2x1x1xf32> {graph.name = "conv.weight", graph.role = "weight"},
            %s: tensor<3x1x1xf32> {graph.name = "scale", graph.role = "weight"},
            %t: tensor<3x1x1xf32> {graph.name = "shift", graph.role = "weight"})
            -> (tensor<1x3x4x4xf32> {graph.name = "y"}) {
          %0 = "graph.conv"(%x, %w) {strides = array<i64: 1, 1>, pads_low = array<i64: 0, 0>,
              pads_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64,
              operandSegmentSizes = array<i32: 1, 1, 0>}
              : (tensor<1x2x4x4xf32>, tensor<3x2x1x1xf32>) -> tensor<1x3x4x4xf32>
          %1 = "graph.mul"(%0, %s)
              : (tensor<1x3x4x4xf32>, tensor<3x1x1xf32>) -> tensor<1x3x4x4xf32>
          %2 = "graph.add"(%1, %t)
              : (tensor<1x3x4x4xf32>, tensor<3x1x1xf32>) -> tensor<1x3x4x4xf32>
          return %2 : tensor<1x3x4x4xf32>
        }

    After::

        func.func @main(%x: tensor<1x2x4x4xf32> {graph.name = "x", graph.role = "input"},
            %w: tensor<3x2x1x1xf32> {graph.name = "conv.weight", graph.role = "weight"},
            %s: tensor<3x1x1xf32> {graph.name = "scale", graph.role = "weight"},
            %t: tensor<3x1x1xf32> {graph.name = "shift", graph.role = "weight"})
            -> (tensor<1x3x4x4xf32> {graph.name = "y"}) {
          %0 = "graph.reshape"(%s) : (tensor<3x1x1xf32>) -> tensor<3xf32>
          %1 = "graph.reshape"(%0) : (tensor<3xf32>) -> tensor<3x1x1x1xf32>
          %2 = "graph.mul"(%w, %1)
              : (tensor<3x2x1x1xf32>, tensor<3x1x1x1xf32>) -> tensor<3x2x1x1xf32>
          %3 = "graph.reshape"(%t) : (tensor<3x1x1xf32>) -> tensor<3xf32>
          %4 = "graph.conv"(%x, %2, %3) {strides = array<i64: 1, 1>, pads_low = array<i64: 0, 0>,
              pads_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64,
              operandSegmentSizes = array<i32: 1, 1, 1>}
              : (tensor<1x2x4x4xf32>, tensor<3x2x1x1xf32>, tensor<3xf32>) -> tensor<1x3x4x4xf32>
          return %4 : tensor<1x3x4x4xf32>
        }
    """

    def run(self, graph: Graph) -> Graph:
        """`graph` itself, changed in place."""
        for op in graph.operations:
            if isinstance(op, ops.BatchNorm):
                with graph.before(op):
                    graph.replace(op, _scale_and_shift(op))
        known = graph.known()
        for op in graph.operations:
            if op.operation.results[0] not in known:
                _move_up(graph, op, known)
        graph.tidy()
        return graph


def _scale_and_shift(op: ir.OpView) -> ir.Value:
    """x s + t, where s = gamma / sqrt(variance + epsilon) and t = beta - mean s."""
    x, gamma, beta, mean, variance = op.operation.operands
    column = (shape_of(gamma)[0], *(1 for _ in shape_of(x)[2:]))
    epsilon = ops.constant(attributes(op)["epsilon"])
    scale = ops.Mul.build(gamma, ops.Rsqrt.build(ops.Add.build(variance, epsilon)))
    shift = ops.Sub.build(beta, ops.Mul.build(mean, scale))
    scaled = ops.Mul.build(x, ops.Reshape.build(scale, shape=column))
    return ops.Add.build(scaled, ops.Reshape.build(shift, shape=column))


def _move_up(graph: Graph, op: ir.OpView, known: set[ir.Value]) -> None:
    """Lets what computes the other operand absorb the operation, where it scales or shifts."""
    if not isinstance(op, ops.Mul | ops.Add | ops.Sub | ops.Div):
        return
    a, b = op.operation.operands
    if a in known and isinstance(op, ops.Mul | ops.Add):
        a, b = b, a
    result = shape_of(op.operation.results[0])
    if b not in known or shape_of(a) != result:
        return
    mover = _Mover(known)
    with graph.before(op):
        match op:
            case ops.Mul():
                moved = mover.scaled(a, b)
            case ops.Div():
                moved = mover.scaled(a, mover.note(ops.Reciprocal.build(b)))
            case ops.Add():
                moved = mover.shifted(a, b)
            case _:
                moved = mover.shifted(a, mover.note(ops.Neg.build(b)))
    if moved is not None:
        graph.replace(op, moved)
        _erase_dead(defining(a), known)


def _erase_dead(op: ir.OpView | None, known: set[ir.Value]) -> None:
    """Erases a chain that nothing reads any more, lest it count as a reader of what it read.

    Known values stay for now: a new operation may come to lie where an erased one lay, and would
    pass for known.
    """
    while op is not None and not users(op.operation.results[0]):
        unknown = [operand for operand in op.operation.operands if operand not in known]
        op.operation.erase()
        op = defining(unknown[0]) if len(unknown) == 1 else None


@dataclass
class _Mover:
    """Rebuilds what computes a value so that it comes out scaled or shifted."""

    known: set[ir.Value]

    def note(self, value: ir.Value) -> ir.Value:
        """`value`, from now on among the known ones."""
        self.known.add(value)
        return value

    def scaled(self, value: ir.Value, factor: ir.Value) -> ir.Value | None:
        """`value` times the known `factor`; None where nothing before it can absorb that."""
        op = _read_once(value)
        match op:
            case ops.Conv():
                return self._scaled_conv(op, factor)
            case ops.Matmul():
                return self._scaled_matmul(op, factor)
            case ops.Mul():
                x, before = self._parts(op)
                if before is not None:
                    return ops.Mul.build(x, self.note(ops.Mul.build(before, factor)))
            case ops.Add():
                x, term = self._parts(op)
                inner = None if term is None else self.scaled(x, factor)
                if inner is not None:
                    return ops.Add.build(inner, self.note(ops.Mul.build(term, factor)))
            case ops.Reshape():
                return self._through_reshape(op, factor, self.scaled)
        return None

    def shifted(self, value: ir.Value, term: ir.Value) -> ir.Value | None:
        """`value` plus the known `term`; None where nothing before it can absorb that."""
        op = _read_once(value)
        match op:
            case ops.Conv():
                return self._shifted_conv(op, term)
            case ops.Add():
                x, before = self._parts(op)
                if before is not None:
                    return ops.Add.build(x, self.note(ops.Add.build(before, term)))
            case ops.Reshape():
                return self._through_reshape(op, term, self.shifted)
        return None

    def _parts(self, op: ir.OpView) -> tuple[ir.Value, ir.Value | None]:
        """The operand of the result's shape, and the other one if that is known."""
        a, b = op.operation.operands
        if a in self.known:
            a, b = b, a
        fits = b in self.known and shape_of(a) == shape_of(op.operation.results[0])
        return a, b if fits else None

    def _by_channel(self, value: ir.Value, shape: Shape) -> ir.Value | None:
        """A known tensor that differs along axis 1 of `shape` at most, as [C] or []."""
        aligned = (1,) * (len(shape) - len(shape_of(value))) + shape_of(value)
        if any(extent != 1 for axis, extent in enumerate(aligned) if axis != 1):
            return None
        wanted = () if aligned[1] == 1 and shape[1] != 1 else (shape[1],)
        return self.note(ops.Reshape.build(value, shape=wanted))

    def _scaled_conv(self, op: ir.OpView, factor: ir.Value) -> ir.Value | None:
        x, w, *bias = op.operation.operands
        by_channel = self._by_channel(factor, shape_of(op.operation.results[0]))
        if by_channel is None or not {w, *bias} <= self.known:
            return None
        column = shape_of(by_channel) and (*shape_of(by_channel), 1, 1, 1)
        kernel = self.note(ops.Mul.build(w, self.note(ops.Reshape.build(by_channel, shape=column))))
        scaled = self.note(ops.Mul.build(bias[0], by_channel)) if bias else None
        return ops.Conv.build(x, kernel, bias=scaled, **attributes(op))

    def _shifted_conv(self, op: ir.OpView, term: ir.Value) -> ir.Value | None:
        x, w, *bias = op.operation.operands
        shape = shape_of(op.operation.results[0])
        by_channel = self._by_channel(term, shape)
        if by_channel is None or not self.known.issuperset(bias):
            return None
        if bias:
            by_channel = self.note(ops.Add.build(bias[0], by_channel))
        elif not shape_of(by_channel):
            by_channel = self.note(ops.Expand.build(by_channel, shape=(shape[1],)))
        return ops.Conv.build(x, w, bias=by_channel, **attributes(op))

    def _scaled_matmul(self, op: ir.OpView, factor: ir.Value) -> ir.Value | None:
        """Columns of the weights scaled, where the factor differs along the last axis at most."""
        x, w = op.operation.operands
        if (
            w not in self.known
            or len(shape_of(w)) < 2
            or any(n != 1 for n in shape_of(factor)[:-1])
        ):
            return None
        row = self.note(ops.Reshape.build(factor, shape=shape_of(factor)[-1:]))
        return ops.Matmul.build(x, self.note(ops.Mul.build(w, row)))

    def _through_reshape(
        self, op: ir.OpView, moved: ir.Value, move: Callable[[ir.Value, ir.Value], ir.Value | None]
    ) -> ir.Value | None:
        """Moves on before a reshape that leaves batch and channels alone."""
        x, shape = op.operation.operands[0], shape_of(op.operation.results[0])
        before = shape_of(x)
        if len(before) < 2 or len(shape) < 2 or before[:2] != shape[:2]:
            return None
        by_channel = self._by_channel(moved, shape)
        if by_channel is None:
            return None
        column = shape_of(by_channel) and (before[1], *(1 for _ in before[2:]))
        inner = move(x, self.note(ops.Reshape.build(by_channel, shape=column)))
        return None if inner is None else ops.Reshape.build(inner, shape=shape)


def _read_once(value: ir.Value) -> ir.OpView | None:
    """The operation that computes `value`, if there is one and `value` is read once."""
    return defining(value) if len(users(value)) == 1 else None
