"""The operations of the graph level: tensor mathematics on real numbers.

Every operation is pure, takes and gives `tensor<...xf32>`, and has one result. Joining tensors is
the builtin `tensor.concat` (see `concat` below), since operands of one variadic list must have one
type. `Op.build` computes the result's type; the verifier recomputes it and compares. What an
operation computes is said in NumPy in `ir/meaning/graph.py`.

`facts` of a class are what passes ask of it (`facts.py`). `onnx` names the ONNX node that
takes the same operands and attributes, where there is one; `ir/meaning/onnx_runtime.py` has a row
for any other operation that calibration runs.
"""

import math
from typing import Any

import numpy as np
from torch_mlir import ir
from torch_mlir.dialects import tensor
from torch_mlir.dialects.ext import Operand, Result

from veilgraph.ir import shapes
from veilgraph.ir.attributes import Shape, shape_of, tensor_type
from veilgraph.ir.graph.dialect import F64, I64, Bool, Dense, GraphOp, I64s, Tensor, Text
from veilgraph.ir.graph.dialect import GraphDialect as GraphDialect  # with its operations
from veilgraph.ir.graph.facts import (
    COMPARISON,
    CONSTANT,
    FUNCTION,
    INTEGER,
    LAYOUT,
    LINEAR,
    MEAN,
    MOVE,
    PRODUCT,
    REWRITTEN,
    ROW_FUNCTION,
    SUM,
    Derivative,
    Facts,
    Homogeneity,
    Integers,
)


class Constant(GraphOp, name="constant"):
    """y = value: a single number (or a splat of one), public by the rules of ownership."""

    facts = CONSTANT

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

    facts = LAYOUT
    onnx = "Neg"


class Abs(Unary, name="abs"):
    """y = |x|."""

    facts = REWRITTEN.but(homogeneity=Homogeneity.POSITIVE, integers=Integers.KEPT)


class Sign(Unary, name="sign"):
    """y = -1, 0 or 1."""

    facts = REWRITTEN.but(integers=Integers.ALWAYS, bounds=(-1.0, 1.0), derivative=Derivative.FLAT)


class Step(Unary, name="step"):
    """y = 1 where x >= 0, else 0."""

    facts = INTEGER.but(bounds=(0.0, 1.0))


class OneHot(Unary, name="one_hot"):
    """y = 1 where the place along a new last axis of `depth` places is x, else 0.

    Where it `wraps`, an index from -depth on counts from the end. Any other that is out of range
    gives zeros.
    """

    facts = INTEGER.but(bounds=(0.0, 1.0))

    depth: I64
    wraps: Bool

    @classmethod
    def infer(cls, operands: list[Shape], attributes: dict[str, Any], wanted: Shape) -> Shape:
        return (*operands[0], attributes["depth"])


class IntegerPart(Unary):
    """y = an integer near x."""

    facts = INTEGER.but(derivative=Derivative.NONE)


class Floor(IntegerPart, name="floor"):
    """y = the largest integer that is no more than x."""

    onnx = "Floor"


class Round(IntegerPart, name="round"):
    """y = the nearest integer; of two the even one."""

    onnx = "Round"


class Relu(Unary, name="relu"):
    """y = max(x, 0)."""

    facts = COMPARISON
    onnx = "Relu"


class Function(Unary):
    """y = f(x), a real function of one number."""

    facts = FUNCTION


class Singular(Function):
    """A function with a singularity at zero: its smallest operands need the most bits."""


class Inverse(Singular):
    """A function whose smallest results are inverses of the largest operands."""


class Exp(Function, name="exp"):
    """y = e^x."""

    onnx = "Exp"


class Log(Singular, name="log"):
    """y = ln x."""

    onnx = "Log"


class Sqrt(Singular, name="sqrt"):
    """y = x^(1/2)."""

    onnx = "Sqrt"


class Rsqrt(Inverse, name="rsqrt"):
    """y = x^(-1/2)."""


class Reciprocal(Inverse, name="reciprocal"):
    """y = 1 / x."""

    onnx = "Reciprocal"


class Sigmoid(Function, name="sigmoid"):
    """y = 1 / (1 + e^-x)."""

    facts = FUNCTION.but(bounds=(0.0, 1.0))
    onnx = "Sigmoid"


class Tanh(Function, name="tanh"):
    """y = tanh x."""

    facts = FUNCTION.but(bounds=(-1.0, 1.0))
    onnx = "Tanh"


class Erf(Function, name="erf"):
    """y = 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to x."""

    facts = FUNCTION.but(bounds=(-1.0, 1.0))
    onnx = "Erf"


class Sin(Function, name="sin"):
    """y = sin x."""

    facts = FUNCTION.but(bounds=(-1.0, 1.0))
    onnx = "Sin"


class Cos(Function, name="cos"):
    """y = cos x."""

    facts = FUNCTION.but(bounds=(-1.0, 1.0))
    onnx = "Cos"


class Atan(Function, name="atan"):
    """y = the angle whose tangent is x."""

    facts = FUNCTION.but(bounds=(-math.pi / 2, math.pi / 2))
    onnx = "Atan"


class Softplus(Function, name="softplus"):
    """y = ln(1 + e^x)."""

    onnx = "Softplus"


class Silu(Function, name="silu"):
    """y = x sigmoid(x)."""


class HardSigmoid(Unary, name="hardsigmoid"):
    """y = min(max(x + 3, 0), 6) / 6."""

    facts = REWRITTEN.but(bounds=(0.0, 1.0))


class HardSwish(Unary, name="hardswish"):
    """y = x hardsigmoid(x)."""

    facts = REWRITTEN


class Gelu(Function, name="gelu"):
    """y = x Phi(x), Phi the normal distribution; `approximate` is "none" or "tanh"."""

    onnx = "Gelu"

    approximate: Text


class LeakyRelu(Unary, name="leaky_relu"):
    """y = x where x > 0, else alpha x."""

    facts = REWRITTEN.but(homogeneity=Homogeneity.POSITIVE)

    alpha: F64


class Clip(Unary, name="clip"):
    """y = min(max(x, min), max); the bounds may be infinite."""

    facts = REWRITTEN

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

    facts = SUM
    onnx = "Add"


class Sub(Binary, name="sub"):
    """y = a - b."""

    facts = SUM
    onnx = "Sub"


class Mul(Binary, name="mul"):
    """y = a b."""

    facts = PRODUCT
    onnx = "Mul"


class Div(Binary, name="div"):
    """y = a / b."""

    facts = REWRITTEN


class Maximum(Binary, name="maximum"):
    """y = max(a, b)."""

    facts = COMPARISON
    onnx = "Max"


class Minimum(Binary, name="minimum"):
    """y = min(a, b)."""

    facts = REWRITTEN.but(homogeneity=Homogeneity.POSITIVE, integers=Integers.KEPT)


class Matmul(Binary, name="matmul"):
    """y = a b, NumPy's matmul for any ranks of 1 or more."""

    facts = PRODUCT
    onnx = "MatMul"

    @classmethod
    def infer(cls, operands: list[Shape], attributes: dict[str, Any], wanted: Shape) -> Shape:
        return shapes.matmul(*operands)


class Conv(GraphOp, name="conv"):
    """Cross-correlation: x [N, C, H, W], w [O, C / groups, kh, kw], bias [O]; zeros as padding."""

    facts = PRODUCT

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

    facts = COMPARISON.but(derivative=Derivative.MAXIMA)

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

    facts = MEAN

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

    facts = LINEAR

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

    facts = LINEAR


class ReduceMean(Reduction, name="reduce_mean"):
    """y = the mean along `axes`."""

    facts = MEAN


class ReduceMax(Reduction, name="reduce_max"):
    """y = the maximum along `axes`."""

    facts = COMPARISON.but(derivative=Derivative.MAXIMA)


class BatchNorm(GraphOp, name="batch_norm"):
    """y = gamma (x - mean) / sqrt(variance + epsilon) + beta, by channel of x [N, C, ...].

    One with the attributes `momentum` and `correction` normalises by its batch while the model
    trains (passes/graph/training/batch_norms.py): mean and variance go that share of the way to the
    batch's, whose squares are divided by their number less the correction.
    """

    facts = REWRITTEN

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

    facts = ROW_FUNCTION.but(bounds=(0.0, 1.0))
    onnx = "Softmax"


class LogSoftmax(AlongAxis, name="log_softmax"):
    """y = x - ln(sum of e^x along `axis`)."""

    facts = ROW_FUNCTION
    onnx = "LogSoftmax"


class Reshape(Unary, name="reshape"):
    """The same elements in row-major order, in the result's shape."""

    facts = MOVE

    @classmethod
    def infer(cls, operands: list[Shape], attributes: dict[str, Any], wanted: Shape) -> Shape:
        return shapes.reshape(operands[0], wanted)


class Transpose(Unary, name="transpose"):
    """Axis i of the result is axis permutation[i] of x."""

    facts = MOVE

    permutation: I64s

    @classmethod
    def infer(cls, operands: list[Shape], attributes: dict[str, Any], wanted: Shape) -> Shape:
        return shapes.transpose(operands[0], **attributes)


class Slice(Unary, name="slice"):
    """Element i along an axis is element start + i * step of x; steps may be negative."""

    facts = MOVE

    starts: I64s
    steps: I64s

    @classmethod
    def infer(cls, operands: list[Shape], attributes: dict[str, Any], wanted: Shape) -> Shape:
        return shapes.slice_(operands[0], wanted=wanted, **attributes)


class Pad(Unary, name="pad"):
    """`value` low[i] times before and high[i] times after x along axis i."""

    facts = LAYOUT

    low: I64s
    high: I64s
    value: F64

    @classmethod
    def infer(cls, operands: list[Shape], attributes: dict[str, Any], wanted: Shape) -> Shape:
        shapes.require(isinstance(attributes["value"], float), "value isn't a number")
        return shapes.pad(operands[0], attributes["low"], attributes["high"])


class Expand(Unary, name="expand"):
    """x broadcast to the result's shape."""

    facts = MOVE

    @classmethod
    def infer(cls, operands: list[Shape], attributes: dict[str, Any], wanted: Shape) -> Shape:
        return shapes.expand(operands[0], wanted)


Concat = tensor.ConcatOp  # the builtin one: its facts stand here
CONCAT = LAYOUT
OPERATIONS: tuple[type[ir.OpView], ...] = (
    *(kind for kind in GraphDialect.operations if hasattr(kind, "OPERATION_NAME")),
    Concat,
)


def facts_of(op: ir.OpView) -> Facts:
    """The answers of an operation to what passes ask."""
    return facts_of_kind(type(op))


def facts_of_kind(kind: type[ir.OpView]) -> Facts:
    """The answers of all operations of a class."""
    facts = CONCAT if kind is Concat else getattr(kind, "facts", None)
    assert isinstance(facts, Facts), f"{kind.OPERATION_NAME} does not answer: what are its facts?"
    return facts


def concat(values: list[ir.Value], axis: int) -> ir.Value:
    """Joins `values` along `axis` (non-negative) with the builtin `tensor.concat`."""
    shape = shapes.concat([shape_of(value) for value in values], axis)
    return tensor.ConcatOp(tensor_type(shape), axis, values).result


def constant(number: float) -> ir.Value:
    """A single public number, of rank 0."""
    return Constant.build(value=np.asarray(number, dtype=np.float32))
