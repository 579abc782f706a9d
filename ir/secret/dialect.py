"""The dialect `secret` and what its operations share; the operations are in `ops.py`.

Annotations are the fields of an operation here, so they must not become strings: this module has
no `from __future__ import annotations`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from torch_mlir import ir
from torch_mlir.dialects.ext import Dialect, Pure

from veilgraph.ir.attributes import Shape, from_attribute, to_attribute
from veilgraph.ir.secret.facts import FACTS
from veilgraph.ir.secret.types import RealRange, Tensor

I64s: TypeAlias = Any  # attributes: KINDS checks them
I64: TypeAlias = Any
Bool: TypeAlias = Any
Dense: TypeAlias = Any
Text: TypeAlias = Any
Real: TypeAlias = Any
Parameters: TypeAlias = Any
KINDS: dict[str, type] = {
    **dict.fromkeys(("strides", "dilations", "kernel", "pads_low", "pads_high"), tuple),
    **dict.fromkeys(("axes", "permutation", "starts", "steps", "low", "high"), tuple),
    **dict.fromkeys(("bits", "window_bits", "dropped_bits", "factor", "groups", "axis"), int),
    **dict.fromkeys(("edge", "beyond"), int),
    **dict.fromkeys(("least", "most", "origin", "error", "reach"), float),
    "function": str,
    "form": dict,
    "keepdims": bool,
    "value": np.ndarray,
}
Attributes = Mapping[str, Any]


@dataclass(frozen=True)
class Stated:
    """The parts of a result's type that an op may leave free."""

    shape: Shape = ()
    frac_bits: int = 0
    ring_bits: int = 0


class SecretDialect(Dialect, name="secret"):  # type: ignore[misc,call-arg]
    """The dialect of the secret level."""


def attributes_of(op: ir.OpView) -> dict[str, Any]:
    """The attributes of an op as Python values, but for its range.

    Raises:
        ValueError: an attribute has a kind that its name doesn't allow.
    """
    values: dict[str, Any] = {}
    for name in op.operation.attributes:
        if name not in ("range", "range_source"):
            values[name] = _decoded(op.operation.attributes[name])
            wanted = KINDS.get(name, object)
            if not isinstance(values[name], wanted):  # its text is made for errors alone
                raise ValueError(f"{name} isn't a {wanted}")
    return values


def _decoded(attribute: ir.Attribute) -> Any:
    if isinstance(attribute, ir.DenseElementsAttr):
        shape = tuple(attribute.type.shape)
        if attribute.is_splat:
            return np.full(shape, attribute.get_splat_value().value, np.int64)
        return np.asarray(attribute, np.int64).reshape(shape)
    return from_attribute(attribute)


def _encoded(value: Any) -> ir.Attribute:
    if isinstance(value, np.ndarray):
        return ir.DenseElementsAttr.get(np.asarray(value, np.int64, order="C"))
    return to_attribute(value)


class SecretOp(SecretDialect.Operation, traits=[Pure]):  # type: ignore[misc,call-arg,name-defined]
    """What all ops share: a builder that infers the result, and a verifier that agrees."""

    range: Dense
    range_source: Text

    def __init_subclass__(cls, **options: Any) -> None:
        """Hands `name` on, and takes the facts of the operation that it names."""
        if (name := options.get("name")) is not None:
            assert name in FACTS, f"secret.{name} has no row in ir/secret/facts.py"
            cls.facts = FACTS[name]
        super().__init_subclass__(**options)

    @classmethod
    def build(
        cls, *operands: ir.Value, range: RealRange, stated: Stated = Stated(), **keywords: Any
    ) -> ir.Value:
        """Creates the op at the current insertion point and location.

        Args:
            range: where the result lies.
            stated: what the op leaves free of the result's type.
            keywords: the attributes as Python values.

        Returns:
            The result.

        Raises:
            ValueError: operands and attributes don't fit.
        """
        inferred = cls.infer([Tensor.of(value) for value in operands], keywords, stated)
        attributes = {name: _encoded(value) for name, value in keywords.items()}
        # The generated constructor takes an attribute that is false or empty for a missing one.
        op = ir.Operation.create(
            cls.OPERATION_NAME,
            [inferred.type()],
            list(operands),
            attributes=range.attributes() | attributes,
        )
        return op.results[0]

    @classmethod
    def infer(cls, operands: Sequence[Tensor], attributes: Attributes, stated: Stated) -> Tensor:
        """The result's shape and encoding; ValueError where operands and attributes don't fit."""
        raise NotImplementedError

    @classmethod
    def verify_invariants(cls, op: ir.OpView) -> bool:
        """Called by MLIR's verifier, before it has checked any type."""
        try:
            cls._check(op)
        except (ValueError, TypeError, KeyError) as error:
            op.location.emit_error(f"{op.operation.name}: {error}")
            return False
        return True

    @classmethod
    def _check(cls, op: ir.OpView) -> None:
        RealRange.of(op)
        result = Tensor.of(op.operation.results[0])
        stated = Stated(result.shape, result.encoding.frac_bits, result.encoding.ring_bits)
        operands = [Tensor.of(value) for value in op.operation.operands]
        inferred = cls.infer(operands, attributes_of(op), stated)
        if result != inferred:
            raise ValueError(f"the result is {result}, but must be {inferred}")
