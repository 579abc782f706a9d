"""The MLIR dialect `graph`: its attributes, and what all its operations share.

Annotations are the fields of an operation here, so they must not become strings: this module and
`graph_ops` have no `from __future__ import annotations`.
"""

from typing import Any, TypeAlias

from torch_mlir import ir
from torch_mlir.dialects.ext import Dialect, Pure

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
    **dict.fromkeys(("min", "max", "alpha", "epsilon", "momentum"), float),
    **dict.fromkeys(("keepdims", "count_include_pad"), bool),
    **dict.fromkeys(("groups", "axis", "correction"), int),
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
