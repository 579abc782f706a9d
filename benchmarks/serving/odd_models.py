"""ONNX models with a few of their fields changed, so that most are still messages of protobuf."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor  # type: ignore[import-untyped]
from onnx import ModelProto, TensorProto, helper, numpy_helper

NUMBERS = (0, 1, -1, 2, 3, 7, 16, 255, -2, 2**31 - 1, -(2**31), 2**40, 2**62, -(2**63))
FLOATS = (0.0, -1.0, float("nan"), float("inf"), 1e38)
OPERATORS = (
    *("Add", "Where", "Cast", "Loop", "If", "Einsum", "Resize", "Gather", "ConstantOfShape"),
    *("Range", "Expand", "Tile", "LSTM", "ScatterND", "TopK", "Pad", "Split", "Unsqueeze"),
)


def sound() -> bytes:
    """A small network of several kinds of operators."""
    draws = np.random.default_rng(1)

    def numbers(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(draws.standard_normal(shape).astype(np.float32), name)

    def integers(name: str, *values: int) -> TensorProto:
        return numpy_helper.from_array(np.array(values, np.int64), name)

    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Reshape", ["p", "to"], ["f"]),
        helper.make_node("Gemm", ["f", "w", "b"], ["g"], transB=1, alpha=0.5),
        helper.make_node("Slice", ["g", "from", "end", "axes"], ["s"]),
        helper.make_node("Softmax", ["s"], ["m"], axis=-1),
        helper.make_node("Concat", ["m", "s"], ["a"], axis=1),
        helper.make_node("ReduceSum", ["a", "axes"], ["t"], keepdims=1),
        helper.make_node("Sub", ["a", "t"], ["y"]),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 8, 8])
    told = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 6])
    kept = [
        *(numbers("k", 3, 2, 3, 3), numbers("w", 5, 12), numbers("b", 5), integers("to", 1, -1)),
        *(integers("from", 0), integers("end", 3), integers("axes", 1)),
    ]
    graph = helper.make_graph(nodes, "odd", [given], [told], kept)
    opsets = [helper.make_opsetid("", 17)]
    made: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return made


def changed(content: bytes, draw: random.Random) -> bytes:
    """A model whose fields were changed, at one to three places."""
    model = ModelProto.FromString(content)
    for _ in range(draw.randint(1, 3)):
        _change(model, draw)
    found: bytes = model.SerializeToString()
    return found


def _messages(message: Any) -> Iterator[Any]:
    yield message
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for each in value if field.is_repeated else [value]:
                yield from _messages(each)


def _change(model: Any, draw: random.Random) -> None:
    places = [(each, field) for each in _messages(model) for field, _ in each.ListFields()]
    if not places:
        return
    message, field = draw.choice(places)
    is_message = field.type == FieldDescriptor.TYPE_MESSAGE
    if field.is_repeated:
        values = [_copy(each) if is_message else each for each in getattr(message, field.name)]
        at = draw.randrange(len(values))
        match draw.randrange(3):
            case 0:
                del values[at]
            case 1:
                again = _copy(values[at]) if is_message else values[at]
                values.insert(draw.randrange(len(values) + 1), again)
            case _ if is_message:
                draw.shuffle(values)
            case _:
                values[at] = _odd(values[at], field, model, draw)
        message.ClearField(field.name)
        getattr(message, field.name).extend(values)
    elif is_message or draw.random() < 0.2:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, _odd(getattr(message, field.name), field, model, draw))


def _copy(message: Any) -> Any:
    found = type(message)()
    found.CopyFrom(message)
    return found


def _odd(value: Any, field: Any, model: Any, draw: random.Random) -> Any:
    if isinstance(value, str):
        return draw.choice([*_texts(model), "", *OPERATORS])
    if isinstance(value, bytes):
        at = draw.randrange(len(value) + 1)
        middle = bytes([draw.randrange(256)])
        return draw.choice([value[:at], value + value, value[:at] + middle + value[at + 1 :]])
    if isinstance(value, float):
        return draw.choice(FLOATS)
    if field.enum_type is not None:
        return draw.choice([each.number for each in field.enum_type.values])
    number = draw.choice(NUMBERS)
    is_short = field.type == FieldDescriptor.TYPE_INT32
    return max(-(2**31), min(2**31 - 1, number)) if is_short else number


def _texts(model: Any) -> list[str]:
    return [
        text
        for each in _messages(model)
        for field, value in each.ListFields()
        if field.type == FieldDescriptor.TYPE_STRING
        for text in (value if field.is_repeated else [value])
    ]
