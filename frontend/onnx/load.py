"""An ONNX model as it comes: read from a file or bytes, with its external data, nothing trusted.

External data is read by us rather than by `onnx`, so that every offset and length is checked
before anything is allocated and no path leaves the model's folder.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TypeAlias

import onnx
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, helper

from veilgraph.frontend.onnx.classical.fitted import converted, maker
from veilgraph.ir.errors import UsageError

Model: TypeAlias = str | Path | bytes | ModelProto  # or one that fitted.py converts
NOT_A_MODEL = "Check that the file is whole and was exported as ONNX."


def load(model: Model) -> tuple[ModelProto, str]:
    """A copy of the model with all its data inside, and a name for it in messages.

    Raises:
        UsageError: no such file, no ONNX model, one that can't be converted, or external data that
            is missing, too short or outside the model's folder.
    """
    folder = None
    if isinstance(model, ModelProto):
        source, proto = "the given model", ModelProto()
        proto.CopyFrom(model)
    elif maker(model):
        source, proto = f"the given {type(model).__name__}", converted(model)
    elif isinstance(model, bytes):
        source, proto = "the given bytes", _parse(model, "The given bytes are")
    else:
        path = Path(model)
        source, folder = path.name, path.parent
        proto = _parse(_read(path), f"{path} is")
    for tensor in tensors(proto.graph):
        if tensor.data_location == TensorProto.EXTERNAL:
            _read_external(tensor, folder)
    return proto, source


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}.", "Check the path.") from error


def _parse(data: bytes, subject: str) -> ModelProto:
    try:
        proto = onnx.load_model_from_string(data)
    except DecodeError as error:
        raise UsageError(f"{subject} no ONNX model, or a truncated one.", NOT_A_MODEL) from error
    if not _is_text(proto):
        raise UsageError(f"{subject} an ONNX model with names that are no text.", NOT_A_MODEL)
    if not proto.graph.node or not proto.graph.output:
        raise UsageError(f"{subject} an ONNX model without nodes or outputs.", NOT_A_MODEL)
    return proto


def _is_text(message: Message) -> bool:
    """Whether all strings of the message are UTF-8; protobuf hands out bytes for what isn't."""
    for field in message.DESCRIPTOR.fields:
        if field.type not in (field.TYPE_STRING, field.TYPE_MESSAGE):
            continue
        value = getattr(message, field.name)
        items = value if field.is_repeated else [value] if message.HasField(field.name) else []
        if field.type == field.TYPE_STRING and not all(isinstance(item, str) for item in items):
            return False
        if field.type == field.TYPE_MESSAGE and not all(_is_text(item) for item in items):
            return False
    return True


def tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Every tensor of a graph: initialisers and attributes, those of inner graphs included."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from _attribute_tensors(attribute)


def _attribute_tensors(attribute: AttributeProto) -> Iterator[TensorProto]:
    if attribute.HasField("t"):
        yield attribute.t
    yield from attribute.tensors
    for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
        yield from tensors(inner)


def _read_external(tensor: TensorProto, folder: Path | None) -> None:
    """Moves the tensor's data from its file into the tensor."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    path = _external_path(tensor.name, entries.get("location", ""), folder)
    wanted = byte_count(tensor)
    try:
        offset = int(entries.get("offset", "0"))
        length = int(entries.get("length", wanted))
    except ValueError as error:
        raise UsageError(
            f"External data of tensor {tensor.name} has an offset or length that is no number."
        ) from error
    if offset < 0 or length != wanted or offset + length > path.stat().st_size:
        raise UsageError(
            f"External data of tensor {tensor.name} needs {wanted} bytes at offset {offset}, "
            f"but {path.name} has {path.stat().st_size} and the model says {length}.",
            "Copy the data file again, whole, beside the model.",
        )
    with path.open("rb") as file:
        file.seek(offset)
        tensor.raw_data = file.read(length)
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")


def _external_path(name: str, location: str, folder: Path | None) -> Path:
    """The regular file inside `folder` that `location` names, symbolic links resolved."""
    if folder is None:
        raise UsageError(
            f"Tensor {name} lies in an external file, {location!r}, and the model has no folder.",
            "Give the path of the model's file.",
        )
    parts = PurePosixPath(location).parts + PureWindowsPath(location).parts
    absolute = PurePosixPath(location).is_absolute() or PureWindowsPath(location).anchor
    home = folder.resolve()
    path = (home / location.replace("\0", "?")).resolve()
    if absolute or ".." in parts or not path.is_relative_to(home):
        raise UsageError(
            f"Tensor {name} asks for the file {location!r} outside the model's folder.",
            "Don't use this model unless you know why; save it again with its data beside it.",
        )
    if not path.is_file():
        raise UsageError(
            f"Tensor {name} needs the file {location!r}, which isn't in the model's folder.",
            "Copy the data file beside the model.",
        )
    return path


def byte_count(tensor: TensorProto) -> int:
    """How many bytes the tensor's elements take in raw form.

    Raises:
        UsageError: a negative extent, or an element type that isn't stored as raw bytes.
    """
    try:
        width = int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    except KeyError as error:
        raise UsageError(f"Tensor {tensor.name} has an unknown element type.") from error
    if any(extent < 0 for extent in tensor.dims):
        raise UsageError(f"Tensor {tensor.name} has a negative extent.", NOT_A_MODEL)
    return int(math.prod(tensor.dims)) * width
