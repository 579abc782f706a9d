"""The operations of the graph level: tensor mathematics on real numbers, MLIR dialect `graph`.

Every operation is pure, takes and gives `tensor<...xf32>`, and has one result. Joining tensors is
the builtin `tensor.concat` (see `concat` below), since operands of one variadic list must have one
type. `Op.build` computes the result's type; the verifier recomputes it and compares. What an
operation computes is said in NumPy in `ir/meaning/graph.py`.

Annotations are the fields of an operation here, so they must not become strings: this module has
no `from __future__ import annotations`.
"""

from typing import Any, TypeAlias

import numpy as np
from torch_mlir import ir
from torch_mlir.dialects import tensor
from torch_mlir.dialects.ext import Dialect, Operand, Pure, Result

from veilgraph.ir import shapes
from veilgraph.ir.attributes import (
    AttributeValue,
    Shape,
    from_attribute,
    shape_of,
    tensor_type,
    to_attribute,
)

Tensor = ir.RankedTensorType
# Not every kind of attribute can be a constraint in MLIR's terms, so KINDS is checked instead.
I64s: TypeAlias = Any
I64: TypeAlias = Any
F64: TypeAlias = Any
Bool: TypeAlias = Any
Text: TypeAlias = Any
Dense: TypeAlias = Any
KINDS: dict[str, type] = {
    **dict.fromkeys(("strides", "dilations", "kernel", "pads_low", "pads_high"), tuple),
    **dict.fromkeys(("axes", "permutation", "starts", "steps", "low", "high"), tuple),
    **dict.fromkeys(("min", "max", "alpha", "epsilon"), float),
    **dict.fromkeys(("keepdims", "count_include_pad"), bool),
    **dict.fromkeys(("groups", "axis"), int),
    "approximate": str,
}


class GraphDialect(Dialect, name="graph"):  # type: ignore[misc,call-arg]
    """The dialect of the graph level."""


def attributes_of(op: ir.OpView) -> dict[str, AttributeValue]:
    """The attributes of an operation of ours as Python values.

    Raises:
        ValueError: an attribute has a kind that its name doesn't allow.
    """
    values = {
        name: from_attribute(op.attributes[name])
        for name in op.attributes
        if name != "operandSegmentSizes"
    }
    for name, value in values.items():
        kind = KINDS.get(name, type(value))
        shapes.require(type(value) is kind, f"{name} isn't of type {kind.__name__}")
    return values


class GraphOp(GraphDialect.Operation, traits=[Pure]):  # type: ignore[misc,call-arg,name-defined]
    """What all operations share: a builder that infers the result, and a verifier that agrees."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Hands `name` on; said here because type checkers can't see MLIR's own."""
        super().__init_subclass__(**options)

    @classmethod
    def optional(cls) -> tuple[str, ...]:
        """Names of the optional operands, which come last."""
        return ()

    @classmethod
    def build(cls, *operands: ir.Value, shape: Shape = (), **keywords: Any) -> ir.Value:
        """Creates the operation at the current insertion point and location.

        Args:
            operands: the required operands, in order.
            shape: the wanted result shape, for operations that leave it open (reshape, slice,
                expand).
            keywords: the attributes as Python values; and optional operands, by name.

        Returns:
            The result.

        Raises:
            ValueError: operands and attributes don't fit.
        """
        extra: list[ir.Value | None] = [keywords.pop(name, None) for name in cls.optional()]
        present = [*operands, *(value for value in extra if value is not None)]
        inferred = cls.infer([shape_of(value) for value in present], keywords, shape)
        encoded = {name: to_attribute(value) for name, value in keywords.items()}
        if extra:
            segments = [1] * len(operands) + [int(value is not None) for value in extra]
            encoded["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get(segments)
        # The generated constructor takes an attribute that is false or empty for a missing one.
        op = ir.Operation.create(
            cls.OPERATION_NAME, [tensor_type(inferred)], present, attributes=encoded
        )
        return op.results[0]

    @classmethod
    def infer(cls, operands: list[Shape], attributes: dict[str, Any], wanted: Shape) -> Shape:
        """The result's shape; ValueError where operands and attributes don't fit."""
        raise NotImplementedError

    @classmethod
    def verify_invariants(cls, op: ir.OpView) -> bool:
        """Called by MLIR's verifier, before it has checked any type."""
        try:
            cls._check(op)
        except (ValueError, TypeError, KeyError) as error:  # KeyError: an attribute is missing
            op.location.emit_error(f"{op.operation.name}: {error}")
            return False
        return True

    @classmethod
    def _check(cls, op: ir.OpView) -> None:
        for value in (*op.operation.operands, *op.operation.results):
            kind = value.type
            floats = isinstance(kind, Tensor) and isinstance(kind.element_type, ir.F32Type)
            shapes.require(floats and kind.has_static_shape, f"{kind} is no tensor<...xf32>")
        attributes = attributes_of(op)
        result = shape_of(op.operation.results[0])
        inferred = cls.infer([shape_of(v) for v in op.operation.operands], attributes, result)
        shapes.require(result == inferred, f"the result is {result}, but must be {inferred}")


class Constant(GraphOp, name="constant"):
    """y = value: a single number (or a splat of one), public by the rules of ownership."""

    value: Dense
    y: Result[Tensor]

    @classmethod
    def infer(cls, operands: list[Shape], attributes: dict[str, Any], wanted: Shape) -> Shape:
        shapes.require(hasattr(attributes["value"], "shape"), "value isn't a dense tensor")
        return tuple(attributes["value"].shape)


class Unary(GraphOp):
    """y = f(x), element by element."""

    x: Operand[Tensor]
    y: Result[Tensor]

    @classmethod
    def infer(cls, operands: list[Shape], attributes: dict[str, Any], wanted: Shape) -> Shape:
        return operands[0]


class Neg(Unary, name="neg"):
    """y = -x."""


class Abs(Unary, name="abs"):
    """y = |x|."""


class Sign(Unary, name="sign"):
    """y = -1, 0 or 1."""


class Relu(Unary, name="relu"):
    """y = max(x, 0)."""


class Exp(Unary, name="exp"):
    """y = e^x."""


class Log(Unary, name="log"):
    """y = ln x."""


class Sqrt(Unary, name="sqrt"):
    """y = x^(1/2)."""


class Rsqrt(Unary, name="rsqrt"):
    """y = x^(-1/2)."""


class Reciprocal(Unary, name="reciprocal"):
    """y = 1 / x."""


class Sigmoid(Unary, name="sigmoid"):
    """y = 1 / (1 + e^-x)."""


class Tanh(Unary, name="tanh"):
    """y = tanh x."""


class Erf(Unary, name="erf"):
    """y = 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to x."""


class Silu(Unary, name="silu"):
    """y = x sigmoid(x)."""


class HardSigmoid(Unary, name="hardsigmoid"):
    """y = min(max(x + 3, 0), 6) / 6."""


class HardSwish(Unary, name="hardswish"):
    """y = x hardsigmoid(x)."""


class Gelu(Unary, name="gelu"):
    """y = x Phi(x), Phi the normal distribution; `approximate` is "none" or "tanh"."""

    approximate: Text


class LeakyRelu(Unary, name="leaky_relu"):
    """y = x where x > 0, else alpha x."""

    alpha: F64


class Clip(Unary, name="clip"):
    """y = min(max(x, min), max); the bounds may be infinite."""

    min: F64
    max: F64


class Binary(GraphOp):
    """y = f(a, b), element by element with NumPy's broadcasting."""

    a: Operand[Tensor]
    b: Operand[Tensor]
    y: Result[Tensor]

    @classmethod
    def infer(cls, operands: list[Shape], attributes: dict[str, Any], wanted: Shape) -> Shape:
        return shapes.broadcast(*operands)


class Add(Binary, name="add"):
    """y = a + b."""


class Sub(Binary, name="sub"):
    """y = a - b."""


class Mul(Binary, name="mul"):
    """y = a b."""


class Div(Binary, name="div"):
    """y = a / b."""


class Maximum(Binary, name="maximum"):
    """y = max(a, b)."""


class Minimum(Binary, name="minimum"):
    """y = min(a, b)."""


class Matmul(Binary, name="matmul"):
    """y = a b, NumPy's matmul for any ranks of 1 or more."""

    @classmethod
    def infer(cls, operands: list[Shape], attributes: dict[str, Any], wanted: Shape) -> Shape:
        return shapes.matmul(*operands)


class Conv(GraphOp, name="conv"):
    """Cross-correlation: x [N, C, H, W], w [O, C / groups, kh, kw], bias [O]; zeros as padding."""

    x: Operand[Tensor]
    w: Operand[Tensor]
    strides: I64s
    pads_low: I64s
    pads_high: I64s
    dilations: I64s
    groups: I64
    y: Result[Tensor]
    bias: Operand[Tensor] | None = None

    @classmethod
    def optional(cls) -> tuple[str, ...]:
        return ("bias",)

    @classmethod
    def infer(cls, operands: list[Shape], attributes: dict[str, Any], wanted: Shape) -> Shape:
        x, w, bias = (*operands, None)[:3]
        assert x is not None
        assert w is not None
        return shapes.conv(x, w, bias, **attributes)


class MaxPool(GraphOp, name="max_pool"):
    """Maximum over windows of x [N, C, H, W]; padding never wins."""

    x: Operand[Tensor]
    kernel: I64s
    strides: I64s
    pads_low: I64s
    pads_high: I64s
    dilations: I64s
    y: Result[Tensor]

    @classmethod
    def infer(cls, operands: list[Shape], attributes: dict[str, Any], wanted: Shape) -> Shape:
        return shapes.pool(operands[0], **attributes)


class AvgPool(GraphOp, name="avg_pool"):
    """Mean over windows of x [N, C, H, W].

    The divisor is the kernel's size where `count_include_pad`, else the number of the window's
    elements that are no padding.
    """

    x: Operand[Tensor]
    kernel: I64s
    strides: I64s
    pads_low: I64s
    pads_high: I64s
    count_include_pad: Bool
    y: Result[Tensor]

    @classmethod
    def infer(cls, operands: list[Shape], attributes: dict[str, Any], wanted: Shape) -> Shape:
        sizes = {name: value for name, value in attributes.items() if name != "count_include_pad"}
        return shapes.pool(operands[0], dilations=(1, 1), **sizes)


class SumPool(GraphOp, name="sum_pool"):
    """Sum over windows of x [N, C, H, W]; padding counts as zero."""

    x: Operand[Tensor]
    kernel: I64s
    strides: I64s
    pads_low: I64s
    pads_high: I64s
    y: Result[Tensor]

    @classmethod
    def infer(cls, operands: list[Shape], attributes: dict[str, Any], wanted: Shape) -> Shape:
        return shapes.pool(operands[0], dilations=(1, 1), **attributes)


class Reduction(GraphOp):
    """One number for all elements along `axes` (non-negative)."""

    x: Operand[Tensor]
    axes: I64s
    keepdims: Bool
    y: Result[Tensor]

    @classmethod
    def infer(cls, operands: list[Shape], attributes: dict[str, Any], wanted: Shape) -> Shape:
        return shapes.reduce(operands[0], **attributes)


class ReduceSum(Reduction, name="reduce_sum"):
    """y = the sum along `axes`."""


class ReduceMean(Reduction, name="reduce_mean"):
    """y = the mean along `axes`."""


class ReduceMax(Reduction, name="reduce_max"):
    """y = the maximum along `axes`."""


class BatchNorm(GraphOp, name="batch_norm"):
    """y = gamma (x - mean) / sqrt(variance + epsilon) + beta, by channel of x [N, C, ...]."""

    x: Operand[Tensor]
    gamma: Operand[Tensor]
    beta: Operand[Tensor]
    mean: Operand[Tensor]
    variance: Operand[Tensor]
    epsilon: F64
    y: Result[Tensor]

    @classmethod
    def infer(cls, operands: list[Shape], attributes: dict[str, Any], wanted: Shape) -> Shape:
        return shapes.batch_norm(*operands)


class AlongAxis(Unary):
    """A unary operation that looks along one axis (non-negative)."""

    axis: I64

    @classmethod
    def infer(cls, operands: list[Shape], attributes: dict[str, Any], wanted: Shape) -> Shape:
        shapes.axis_in(len(operands[0]), attributes["axis"])
        return operands[0]


class Softmax(AlongAxis, name="softmax"):
    """y = e^x / (sum of e^x along `axis`)."""


class LogSoftmax(AlongAxis, name="log_softmax"):
    """y = x - ln(sum of e^x along `axis`)."""


class Reshape(Unary, name="reshape"):
    """The same elements in row-major order, in the result's shape."""

    @classmethod
    def infer(cls, operands: list[Shape], attributes: dict[str, Any], wanted: Shape) -> Shape:
        return shapes.reshape(operands[0], wanted)


class Transpose(Unary, name="transpose"):
    """Axis i of the result is axis permutation[i] of x."""

    permutation: I64s

    @classmethod
    def infer(cls, operands: list[Shape], attributes: dict[str, Any], wanted: Shape) -> Shape:
        return shapes.transpose(operands[0], **attributes)


class Slice(Unary, name="slice"):
    """Element i along an axis is element start + i * step of x; steps may be negative."""

    starts: I64s
    steps: I64s

    @classmethod
    def infer(cls, operands: list[Shape], attributes: dict[str, Any], wanted: Shape) -> Shape:
        return shapes.slice_(operands[0], wanted=wanted, **attributes)


class Pad(Unary, name="pad"):
    """`value` low[i] times before and high[i] times after x along axis i."""

    low: I64s
    high: I64s
    value: F64

    @classmethod
    def infer(cls, operands: list[Shape], attributes: dict[str, Any], wanted: Shape) -> Shape:
        shapes.require(isinstance(attributes["value"], float), "value isn't a number")
        return shapes.pad(operands[0], attributes["low"], attributes["high"])


class Expand(Unary, name="expand"):
    """x broadcast to the result's shape."""

    @classmethod
    def infer(cls, operands: list[Shape], attributes: dict[str, Any], wanted: Shape) -> Shape:
        return shapes.expand(operands[0], wanted)


def concat(values: list[ir.Value], axis: int) -> ir.Value:
    """Joins `values` along `axis` (non-negative) with the builtin `tensor.concat`."""
    shape = shapes.concat([shape_of(value) for value in values], axis)
    return tensor.ConcatOp(tensor_type(shape), axis, values).result


def constant(number: float) -> ir.Value:
    """A single public number, of rank 0."""
    return Constant.build(value=np.asarray(number, dtype=np.float32))
