"""Python values as MLIR attributes and back, one kind each way.

bool: BoolAttr; int: IntegerAttr of 64 bits; float: FloatAttr of 64 bits; str: StringAttr;
tuple of int: DenseI64ArrayAttr; ndarray of float32: DenseElementsAttr; dict of these by name:
DictAttr.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch_mlir import ir

AttributeValue = bool | int | float | str | tuple[int, ...] | NDArray[np.float32] | dict[str, Any]
Shape = tuple[int, ...]


def to_attribute(value: AttributeValue) -> ir.Attribute:
    """The attribute that says `value`, in the current context."""
    match value:
        case bool():
            return ir.BoolAttr.get(value)
        case int():
            return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
        case float():
            return ir.FloatAttr.get(ir.F64Type.get(), value)
        case str():
            return ir.StringAttr.get(value)
        case tuple():
            return ir.DenseI64ArrayAttr.get(list(value))
        case np.ndarray():
            return ir.DenseElementsAttr.get(np.asarray(value, dtype=np.float32, order="C"))
        case dict():
            return ir.DictAttr.get({name: to_attribute(each) for name, each in value.items()})
    raise TypeError(f"no attribute says a {type(value).__name__}")


def from_attribute(attribute: ir.Attribute) -> AttributeValue:
    """The Python value of `attribute`.

    Raises:
        ValueError: it is of no kind that our dialects use.
    """
    match attribute:
        case ir.BoolAttr():
            return bool(attribute.value)
        case ir.IntegerAttr() | ir.FloatAttr() | ir.StringAttr():
            return attribute.value  # type: ignore[no-any-return]
        case ir.DenseI64ArrayAttr():
            return tuple(attribute)
        case ir.DenseElementsAttr():
            return dense_value(attribute)
        case ir.DictAttr():
            return {named.name: from_attribute(named.attr) for named in attribute}
    raise ValueError(f"an attribute of kind {type(attribute).__name__} is not used here")


def dense_value(attribute: ir.DenseElementsAttr) -> NDArray[np.float32]:
    """The float32 array that a dense attribute holds; a splat comes without its copies."""
    shape = tuple(attribute.type.shape)
    if attribute.is_splat:
        number = np.float32(attribute.get_splat_value().value)
        return np.broadcast_to(number, shape)
    return np.asarray(attribute, dtype=np.float32).reshape(shape)


def tensor_type(shape: Shape) -> ir.RankedTensorType:
    """`tensor<...xf32>` of this shape, in the current context."""
    # The location only serves diagnostics about illegal shapes.
    return ir.RankedTensorType.get(list(shape), ir.F32Type.get(), loc=ir.Location.unknown())


def shape_of(value: ir.Value) -> Shape:
    """The shape of a tensor value."""
    return tuple(value.type.shape)


def element_count(shape: Shape) -> int:
    """How many elements a tensor of this shape has."""
    return math.prod(shape)
