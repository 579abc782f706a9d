"""Which tensors are numbers, and real numbers of any precision as float32.

Precision is a matter of the encoding that the compiler chooses, so a model in float64 or float16
is the same model in float32. Integers and truth values stay what they are.
"""

from __future__ import annotations

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, numpy_helper

from veilgraph.frontend.onnx.load import NOT_A_MODEL
from veilgraph.ir.errors import UsageError

REAL = frozenset((TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16))
INTEGERS = frozenset(
    (
        *(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64),
        *(TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64),
    )
)
NUMBERS = REAL | INTEGERS | {TensorProto.BOOL}
UNLOWERED = frozenset(  # which the importer casts nothing to
    (TensorProto.INT16, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64)
)
TYPES = ("to", "dtype", "output_datatype")  # attributes that name a type


def as_float32(model: ModelProto) -> None:
    """Changes the model in place: inputs, outputs, initialisers and what nodes say of types.

    Raises:
        UsageError: a tensor's bytes don't fit its shape.
    """
    graph: GraphProto = model.graph
    for info in (*graph.input, *graph.output, *graph.value_info):
        kind = info.type.tensor_type
        if kind.elem_type in REAL:
            kind.elem_type = TensorProto.FLOAT
    for tensor in graph.initializer:
        _convert(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name in TYPES and attribute.i in REAL:
                attribute.i = TensorProto.FLOAT
            if attribute.HasField("t"):
                _convert(attribute.t)


def widen_integers(model: ModelProto) -> None:
    """Makes integers of types that the importer can't cast to int64, in place.

    A plan's numbers are integers of its own width: none of ONNX's types wraps around in it.
    """
    graph = model.graph
    for info in (*graph.input, *graph.output):
        if info.type.tensor_type.elem_type in UNLOWERED:
            info.type.tensor_type.elem_type = TensorProto.INT64
    made = [a for node in graph.node for a in node.attribute]
    for attribute in made:
        if attribute.name in TYPES and attribute.i in UNLOWERED:
            attribute.i = TensorProto.INT64
    for tensor in (*graph.initializer, *(a.t for a in made if a.HasField("t"))):
        if tensor.data_type in UNLOWERED:
            values = np.asarray(numpy_helper.to_array(tensor)).astype(np.int64)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def _convert(tensor: TensorProto) -> None:
    if tensor.data_type not in REAL - {TensorProto.FLOAT}:
        return
    try:
        with np.errstate(over="ignore"):  # infinity is judged later: see masks.py
            values = np.asarray(numpy_helper.to_array(tensor)).astype(np.float32)
    except ValueError as error:
        raise UsageError(
            f"Tensor {tensor.name} doesn't fit its shape: {error}.", NOT_A_MODEL
        ) from error
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
