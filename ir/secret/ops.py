"""The operations of the secret level: arithmetic modulo 2^K, MLIR dialect `secret`.

Every op is pure, has one result of a type as in `types.py`, and carries `range`, the real
numbers that its result is declared to lie in, and `range_source`. What an op computes is in its
docstring, and in NumPy in `ir/meaning/secret.py`; what passes ask of it is its row of
`ir/secret/facts.py`, as `facts`; `computes` is the operation of the graph level that it computes in
integers, if it does so alone. `Op.build` computes the result's type; the
verifier recomputes it and compares.

Comparisons look at a window: z must lie in [-2^(window_bits-1), 2^(window_bits-1) - 2^dropped_bits]
(the upper bound is sharp), and where dropped_bits = t > 0 a z in (-2^t, 0) may pass for positive.

Annotations are the fields of an operation here, so they must not become strings: this module has
no `from __future__ import annotations`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects.ext import Operand, Result

from veilgraph.ir import shapes
from veilgraph.ir.attributes import Shape, to_attribute
from veilgraph.ir.graph import ops as graph_ops
from veilgraph.ir.secret.dialect import (
    I64,
    Attributes,
    Bool,
    Dense,
    I64s,
    Parameters,
    Real,
    SecretDialect,
    SecretOp,
    Stated,
    Text,
    attributes_of,
)
from veilgraph.ir.secret.function_forms import function_form, row_form
from veilgraph.ir.secret.types import Encoding, RangeSource, RealRange, Secrecy, Tensor

__all__ = ["SecretDialect", "SecretOp", "Stated", "attributes_of"]


class Constant(SecretOp, name="constant"):
    """Public integers `value`, of the stated ring and fraction bits."""

    computes = graph_ops.Constant

    value: Dense
    result: Result[Any]

    @classmethod
    def infer(cls, operands: Sequence[Tensor], attributes: Attributes, stated: Stated) -> Tensor:
        encoding = Encoding(stated.ring_bits, stated.frac_bits, Secrecy.PUBLIC)
        return Tensor(tuple(attributes["value"].shape), encoding)


class Unary(SecretOp):
    """One operand; shape and encoding stay, unless the op says otherwise."""

    operand: Operand[Any]
    result: Result[Any]

    @classmethod
    def infer(cls, operands: Sequence[Tensor], attributes: Attributes, stated: Stated) -> Tensor:
        (x,) = operands
        return Tensor(cls.shape(x.shape, attributes, stated), cls.encoding(x, attributes, stated))

    @classmethod
    def shape(cls, x: Shape, attributes: Attributes, stated: Stated) -> Shape:
        """The result's shape."""
        return x

    @classmethod
    def encoding(cls, x: Tensor, attributes: Attributes, stated: Stated) -> Encoding:
        """The result's encoding."""
        return x.encoding


class Binary(SecretOp):
    """Two operands of one ring and equal fraction bits."""

    lhs: Operand[Any]
    rhs: Operand[Any]
    result: Result[Any]

    @classmethod
    def infer(cls, operands: Sequence[Tensor], attributes: Attributes, stated: Stated) -> Tensor:
        x, y = operands
        return Tensor(cls.shape(x.shape, y.shape, attributes), cls.encoding(x.encoding, y.encoding))

    @classmethod
    def shape(cls, x: Shape, y: Shape, attributes: Attributes) -> Shape:
        """The result's shape."""
        return shapes.broadcast(x, y)

    @classmethod
    def encoding(cls, x: Encoding, y: Encoding) -> Encoding:
        """The result's encoding."""
        same = (x.ring_bits, x.frac_bits) == (y.ring_bits, y.frac_bits)
        shapes.require(same, f"{x} and {y} differ in ring or fraction bits")
        return Encoding(x.ring_bits, x.frac_bits, _joined(x, y))


def _joined(x: Encoding, y: Encoding) -> Secrecy:
    return Secrecy.SECRET if Secrecy.SECRET in (x.secrecy, y.secrecy) else Secrecy.PUBLIC


class Add(Binary, name="add"):
    """lhs + rhs, with NumPy's broadcasting."""

    computes = graph_ops.Add


class Sub(Binary, name="sub"):
    """lhs - rhs, with NumPy's broadcasting."""

    computes = graph_ops.Sub


class Neg(Unary, name="neg"):
    """-operand."""

    computes = graph_ops.Neg


class Mul(Binary, name="mul"):
    """lhs * rhs, element by element with NumPy's broadcasting; fraction bits add up."""

    computes = graph_ops.Mul

    @classmethod
    def encoding(cls, x: Encoding, y: Encoding) -> Encoding:
        shapes.require(x.ring_bits == y.ring_bits, f"the rings of {x} and {y} differ")
        return Encoding(x.ring_bits, x.frac_bits + y.frac_bits, _joined(x, y))


class Matmul(Mul, name="matmul"):
    """lhs @ rhs, as np.matmul; fraction bits add up."""

    computes = graph_ops.Matmul

    @classmethod
    def shape(cls, x: Shape, y: Shape, attributes: Attributes) -> Shape:
        return shapes.matmul(x, y)


class Conv(Mul, name="conv"):
    """Cross-correlation of lhs [N, C, H, W] with rhs [O, C/groups, kh, kw], as `mul`; no bias."""

    computes = graph_ops.Conv

    strides: I64s
    pads_low: I64s
    pads_high: I64s
    dilations: I64s
    groups: I64

    @classmethod
    def shape(cls, x: Shape, y: Shape, attributes: Attributes) -> Shape:
        return shapes.conv(x, y, None, **attributes)


class Restated(Unary):
    """What the result's integers mean is stated, not inferred."""

    @classmethod
    def encoding(cls, x: Tensor, attributes: Attributes, stated: Stated) -> Encoding:
        return Encoding(x.encoding.ring_bits, stated.frac_bits, x.encoding.secrecy)


class Scale(Restated, name="scale"):
    """operand * factor, a public integer."""

    factor: I64


class Reinterpret(Restated, name="reinterpret"):
    """The same integers, meaning other numbers: times a power of two, for nothing."""


class Reduce(Unary, name="reduce"):
    """z modulo 2^K, K less than the operand's k, for nothing; the same number where it fits K."""

    @classmethod
    def encoding(cls, x: Tensor, attributes: Attributes, stated: Stated) -> Encoding:
        k, K = x.encoding.ring_bits, stated.ring_bits
        shapes.require(k > K, f"a ring of {k} bits can't be reduced to one of {K}")
        return Encoding(K, x.encoding.frac_bits, x.encoding.secrecy)


class Lift(Unary, name="lift"):
    """z in Z_2^K, K greater than the operand's k, for -2^(k-2) <= z < 2^(k-2)."""

    @classmethod
    def encoding(cls, x: Tensor, attributes: Attributes, stated: Stated) -> Encoding:
        k, K = x.encoding.ring_bits, stated.ring_bits
        shapes.require(k < K, f"a ring of {k} bits can't be lifted to one of {K}")
        return Encoding(K, x.encoding.frac_bits, x.encoding.secrecy)


class Truncate(Unary, name="truncate"):
    """floor((z + tau) / 2^bits), tau uniform in [0, 2^bits), for -2^(k-2) <= z < 2^(k-2).

    The result's ring K is stated, and may be wider or narrower than the operand's k. Where
    K <= k - bits any z will do, and the result is taken modulo 2^K.
    """

    bits: I64

    @classmethod
    def encoding(cls, x: Tensor, attributes: Attributes, stated: Stated) -> Encoding:
        bits, k = attributes["bits"], x.encoding.ring_bits
        shapes.require(0 < bits <= k - 2, f"{bits} bits can't go in a ring of {k}")
        return Encoding(stated.ring_bits, x.encoding.frac_bits - bits, x.encoding.secrecy)


class RoundOff(Truncate, name="round_off"):
    """floor(z / 2^bits + 1/2): as `truncate`, but rounded to the nearest, halves up, always."""


class Step(Unary, name="step"):
    """1 where z >= 0, else 0, in the ring stated: no fraction bits, whatever the operand has."""

    computes = graph_ops.Step

    window_bits: I64
    dropped_bits: I64

    @classmethod
    def encoding(cls, x: Tensor, attributes: Attributes, stated: Stated) -> Encoding:
        ring_bits = stated.ring_bits or x.encoding.ring_bits
        return Encoding(ring_bits, 0, x.encoding.secrecy)


class OneHot(Unary, name="one_hot"):
    """1 at place z of a new last axis of `depth` places, 0 elsewhere, in the stated ring.

    z is the operand's integer: `encode_fixed_point` gives it no fraction bits. Where `wraps`, an
    index from -depth on counts from the end. Any other that is out of range gives zeros.
    """

    computes = graph_ops.OneHot

    depth: I64
    wraps: Bool
    window_bits: I64
    dropped_bits: I64

    @classmethod
    def shape(cls, x: Shape, attributes: Attributes, stated: Stated) -> Shape:
        return (*x, attributes["depth"])

    @classmethod
    def encoding(cls, x: Tensor, attributes: Attributes, stated: Stated) -> Encoding:
        return Encoding(stated.ring_bits, 0, x.encoding.secrecy)


class Relu(Unary, name="relu"):
    """max(z, 0)."""

    computes = graph_ops.Relu

    window_bits: I64
    dropped_bits: I64


class TruncateRelu(Truncate, name="truncate_relu"):
    """max(y, 0), where y is the operand truncated by `bits`."""

    window_bits: I64
    dropped_bits: I64


class Maximum(Binary, name="maximum"):
    """The larger of lhs and rhs; their difference lies in the window."""

    computes = graph_ops.Maximum

    window_bits: I64
    dropped_bits: I64


class RealFunction(SecretOp):
    """f(x - origin), for x in [least, most], to within `error` before it is rounded.

    `form` is what a building block of the suite computes in f's place: integers that the block
    chose (ir/secret/function_forms.py), and that nothing else reads.
    """

    operand: Operand[Any]
    function: Text
    least: Real
    most: Real
    origin: Real
    error: Real
    form: Parameters
    result: Result[Any]

    def round_domain(self) -> None:
        """Rounds [least, most] outward as ranges are, in place: a plan tells no calibrated end."""
        named, source = attributes_of(self), RangeSource.PROVEN
        exact = RealRange(named["least"], named["most"], source)
        rounded = exact.rounded(Tensor.of(self.operation.operands[0]).encoding)
        for name, end in (("least", rounded.low), ("most", rounded.high)):
            self.operation.attributes[name] = to_attribute(end)


class Function(RealFunction, name="function"):
    """f of each element, truncated to the stated ring and fraction bits."""

    @classmethod
    def infer(cls, operands: Sequence[Tensor], attributes: Attributes, stated: Stated) -> Tensor:
        (x,) = operands
        form = function_form(attributes["form"])
        form.check(x.encoding.ring_bits)
        bits = form.frac_bits - stated.frac_bits
        shapes.require(0 < bits <= form.sum_bits - 2, f"{bits} bits can't go")
        return Tensor(x.shape, Encoding(stated.ring_bits, stated.frac_bits, x.encoding.secrecy))


class ClippedFunction(Function, name="clipped_function"):
    """f of each element from `edge` on; of what is below it the result is `beyond`.

    `edge` is an integer of the operand, `beyond` one of the result. The form is a Fourier series
    without a slope. What is compared is the operand less the edge: no larger than `reach`, whatever
    the operand's range says, as the form holds beyond that.
    """

    reach: Real
    edge: I64
    beyond: I64
    window_bits: I64
    dropped_bits: I64


class RowSums(RealFunction, name="row_sums"):
    """Sums of f along the last axis, in whose place come those of each segment of x.

    Each segment's sum lacks a factor that the form says. Nothing is truncated: ring and fraction
    bits are the form's.
    """

    @classmethod
    def infer(cls, operands: Sequence[Tensor], attributes: Attributes, stated: Stated) -> Tensor:
        (x,) = operands
        form = row_form(attributes["form"])
        form.check(x.encoding.ring_bits)
        shapes.require(len(x.shape) > 0, "a number has no last axis")
        encoding = Encoding(form.sum_bits, form.frac_bits, x.encoding.secrecy)
        return Tensor((*x.shape[:-1], form.count), encoding)


class SumPool(Unary, name="sum_pool"):
    """Sums over windows of [N, C, H, W]; padding counts as zero."""

    computes = graph_ops.SumPool

    kernel: I64s
    strides: I64s
    pads_low: I64s
    pads_high: I64s

    @classmethod
    def shape(cls, x: Shape, attributes: Attributes, stated: Stated) -> Shape:
        return shapes.pool(x, **attributes, dilations=(1, 1))


class MaxPool(Unary, name="max_pool"):
    """Maxima over windows of [N, C, H, W]; padding never wins; differences lie in the window."""

    computes = graph_ops.MaxPool

    kernel: I64s
    strides: I64s
    pads_low: I64s
    pads_high: I64s
    dilations: I64s
    window_bits: I64
    dropped_bits: I64

    @classmethod
    def shape(cls, x: Shape, attributes: Attributes, stated: Stated) -> Shape:
        return shapes.pool(x, **_without_window(attributes))


class TruncateReluPool(TruncateRelu, name="truncate_relu_pool"):
    """Maxima over windows of [N, C, H, W] of max(y, 0), y the operand truncated by `bits`.

    The window is that of the operand, as for `truncate_relu`.
    """

    kernel: I64s
    strides: I64s
    pads_low: I64s
    pads_high: I64s
    dilations: I64s

    @classmethod
    def shape(cls, x: Shape, attributes: Attributes, stated: Stated) -> Shape:
        named = _without_window(attributes)
        return shapes.pool(x, **{name: value for name, value in named.items() if name != "bits"})


class ReduceSum(Unary, name="reduce_sum"):
    """Sums along `axes`, which become 1 (keepdims) or go."""

    computes = graph_ops.ReduceSum

    axes: I64s
    keepdims: Bool

    @classmethod
    def shape(cls, x: Shape, attributes: Attributes, stated: Stated) -> Shape:
        return shapes.reduce(x, **attributes)


class ReduceMax(Unary, name="reduce_max"):
    """Maxima along `axes`, which become 1 (keepdims) or go; differences lie in the window."""

    computes = graph_ops.ReduceMax

    axes: I64s
    keepdims: Bool
    window_bits: I64
    dropped_bits: I64

    @classmethod
    def shape(cls, x: Shape, attributes: Attributes, stated: Stated) -> Shape:
        return shapes.reduce(x, **_without_window(attributes))


def _without_window(attributes: Attributes) -> Attributes:
    window = ("window_bits", "dropped_bits")
    return {name: value for name, value in attributes.items() if name not in window}


class Reshape(Unary, name="reshape"):
    """The same elements in row-major order, in the stated shape."""

    computes = graph_ops.Reshape

    @classmethod
    def shape(cls, x: Shape, attributes: Attributes, stated: Stated) -> Shape:
        return shapes.reshape(x, stated.shape)


class Transpose(Unary, name="transpose"):
    """Axis i of the result is axis permutation[i] of the operand."""

    computes = graph_ops.Transpose

    permutation: I64s

    @classmethod
    def shape(cls, x: Shape, attributes: Attributes, stated: Stated) -> Shape:
        return shapes.transpose(x, **attributes)


class Concat(Binary, name="concat"):
    """lhs, then rhs, along `axis`."""

    computes = graph_ops.Concat

    axis: I64

    @classmethod
    def shape(cls, x: Shape, y: Shape, attributes: Attributes) -> Shape:
        return shapes.concat([x, y], **attributes)


class Slice(Unary, name="slice"):
    """Element i of the result is element start + i * step of the operand; its shape is stated."""

    computes = graph_ops.Slice

    starts: I64s
    steps: I64s

    @classmethod
    def shape(cls, x: Shape, attributes: Attributes, stated: Stated) -> Shape:
        return shapes.slice_(x, **attributes, wanted=stated.shape)


class Pad(Unary, name="pad"):
    """low[i] zeros before and high[i] after the operand along axis i."""

    computes = graph_ops.Pad

    low: I64s
    high: I64s

    @classmethod
    def shape(cls, x: Shape, attributes: Attributes, stated: Stated) -> Shape:
        return shapes.pad(x, **attributes)


class Broadcast(Unary, name="broadcast"):
    """The operand broadcast to the stated shape."""

    computes = graph_ops.Expand

    @classmethod
    def shape(cls, x: Shape, attributes: Attributes, stated: Stated) -> Shape:
        return shapes.expand(x, stated.shape)


OPERATIONS: tuple[type[SecretOp], ...] = tuple(
    kind for kind in SecretDialect.operations if getattr(kind, "OPERATION_NAME", "")
)
# Of each operation of the graph level that one of these computes; what a class inherits is none.
COUNTERPARTS: Mapping[type[ir.OpView], type[SecretOp]] = {
    vars(kind)["computes"]: kind for kind in OPERATIONS if "computes" in vars(kind)
}
