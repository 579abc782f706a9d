"""What can be told unsupported from an ONNX graph itself, before anything is lowered."""

from __future__ import annotations

import math
from collections.abc import Mapping

import onnx
from onnx import (
    AttributeProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    numpy_helper,
    shape_inference,
)

from veilgraph.frontend.onnx.classical.expand import DOMAIN, refusal
from veilgraph.frontend.onnx.numeric_types import NUMBERS
from veilgraph.frontend.onnx.operators.quantised import RULES
from veilgraph.frontend.onnx.prepare import MAX_TENSOR_ELEMENTS, Prepared, opset
from veilgraph.ir.errors import Offender

Tensors = Mapping[str, TensorProto | ValueInfoProto]
QUANTISED = frozenset(
    {
        "ConvInteger",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "MatMulInteger",
        "QLinearConv",
        "QLinearMatMul",
        "QuantizeLinear",
    }
)
MICROSOFT = "com.microsoft"
SHAPED_BY_DATA = ("NonMaxSuppression", "NonZero")
AFTERWARDS = "End the model before it, and do it on the revealed output."
UNQUANTISED = "Quantise with constant scales and opset 11 or later, or export in float32."
UNROLLED = "Export the model with its loops and branches unrolled."
FOR_INFERENCE = "Export the model for inference, without training_mode."
UNDECIDED = {
    "If": "Its condition is computed from data, and its branches may give different shapes.",
    "Loop": "How often it runs is computed from data, or it runs never, or too often.",
    "Scan": "The length of its sequences isn't known, or it is older than opset 9.",
}
WAYS_OUT = {
    **dict.fromkeys(SHAPED_BY_DATA, AFTERWARDS),
    **dict.fromkeys(QUANTISED, UNQUANTISED),
    **dict.fromkeys(("If", "Loop", "Scan"), UNROLLED),
    **dict.fromkeys(("Dropout", "BatchNormalization"), FOR_INFERENCE),
}


def offender(node: NodeProto, source: str, reason: str, advice: str) -> Offender:
    """An entry of the report, which says the node's outputs and the model's name as its source."""
    operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    outputs = ", ".join(filter(None, node.output))
    return Offender(node.name, operator, f"output {outputs} in {source}", reason, advice)


def way_out(node: NodeProto) -> str:
    """What to do about an operator that isn't supported."""
    return WAYS_OUT.get(node.op_type, "Replace it in the model by operators that are supported.")


def known_unsupported(drafted: Prepared) -> list[Offender]:
    """Inputs and nodes that can't be imported whatever their lowering."""
    graph = drafted.model.graph
    found = [
        Offender(info.name, "input", drafted.source, _unsupported_input(info), "Make it numbers.")
        for info in graph.input
        if _unsupported_input(info)
    ]
    found += [
        Offender(t.values.name, "initialiser", drafted.source, "It is sparse.", "Make it dense.")
        for t in graph.sparse_initializer
    ]
    tensors = drafted.tensors()
    unsure = {name for name, tensor in tensors.items() if not _is_known(tensor)}
    for node in graph.node:
        told = drafted.classical.refused.get(node.name)
        if node.domain == DOMAIN or told is not None:
            error = told or refusal(node, drafted.model, opset(drafted.model), drafted.classical)
            found.append(offender(node, drafted.source, error.reason, error.way_out))
            unsure.update(node.output)
            continue
        reason = _unsupported_operator(node, opset(drafted.model)) or _trains(node, tensors)
        if not all(name in tensors and name not in unsure for name in node.input if name):
            unsure.update(node.output)  # what is wrong with it follows from something else
        elif not reason:
            reason = (
                _unsupported_axis(node, tensors)
                or _unsupported_list(node, tensors)
                or _unsupported_output(node, drafted, tensors)
            )
        if reason:
            found.append(offender(node, drafted.source, reason, way_out(node)))
    return found


def unsupported_at_any_shape(drafted: Prepared) -> list[Offender]:
    """Inputs and nodes that can't be imported whatever the extents of the model's tensors are."""
    graph, version = drafted.model.graph, opset(drafted.model)
    kinds = {info.name for info in graph.input if _unsupported_input(info)}
    kinds |= {node.name for node in graph.node if _is_of_no_use(node, version)}
    return [entry for entry in known_unsupported(drafted) if entry.node in kinds]


def _is_of_no_use(node: NodeProto, version: int) -> bool:
    known = not node.domain and onnx.defs.has(node.op_type, max_inclusive_version=version)
    return not known or node.op_type in SHAPED_BY_DATA


def _is_known(tensor: TensorProto | ValueInfoProto) -> bool:
    """Whether it is a literal or has a shape."""
    return isinstance(tensor, TensorProto) or bool(tensor.type.tensor_type.HasField("shape"))


def _unsupported_input(info: ValueInfoProto) -> str:
    kind = info.type.tensor_type.elem_type
    if kind == TensorProto.STRING:
        return "It is text, and nothing in the model encodes it."
    return "" if kind in NUMBERS else f"It is {type_name(kind)}; inputs are tensors of numbers."


def type_name(kind: int) -> str:
    """An element type as ONNX writes it."""
    if kind not in TensorProto.DataType.values():
        return f"of an unknown type ({kind})"
    return TensorProto.DataType.Name(kind).lower() if kind else "no tensor"


def _unsupported_operator(node: NodeProto, version: int) -> str:
    if node.domain == MICROSOFT and node.op_type in RULES:
        return "Its scale is computed from data, or its integers aren't of 8 or 16 bits."
    if node.domain == MICROSOFT:
        known = ", ".join(sorted(name for name in RULES if not onnx.defs.has(name)))
        return f"Of the domain {MICROSOFT} these alone are supported: {known}."
    if node.domain:
        return f"Operators of the domain {node.domain} aren't supported."
    if not onnx.defs.has(node.op_type, max_inclusive_version=version):
        return f"ONNX opset {version} has no such operator."
    if node.op_type in QUANTISED:
        return "Its scale is computed from data, or its integers aren't of 8 or 16 bits."
    if any(a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for a in node.attribute):
        return UNDECIDED.get(node.op_type, "Control flow isn't supported.")
    return ""


def _trains(node: NodeProto, tensors: Tensors) -> str:
    """What a dropout or a batch norm does in training mode, which an export can ask for."""
    if node.op_type == "Dropout" and len(node.input) > 2:
        mode = tensors.get(node.input[2])
        if not isinstance(mode, TensorProto) or numpy_helper.to_array(mode).any():
            return "It drops numbers at random: its training_mode is true, or computed."
    trains = any(a.name == "training_mode" and a.i for a in node.attribute)
    if node.op_type == "BatchNormalization" and trains:
        return "It normalises by its batch, and changes its statistics: its training_mode is 1."
    return ""


def _unsupported_axis(node: NodeProto, tensors: Tensors) -> str:
    """An axis that its operand doesn't have, on which the importer would crash."""
    info = tensors.get(node.input[0]) if node.input else None
    if not isinstance(info, ValueInfoProto):
        return ""
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
    rank = len(info.type.tensor_type.shape.dim)
    more = node.op_type in ("Flatten", "OneHot")  # a place between two axes, or after all
    legal = axis == 0 or -rank - (node.op_type == "OneHot") <= axis < rank + more
    return "" if legal else f"Its axis, {axis}, is outside rank {rank}."


def _unsupported_list(node: NodeProto, tensors: Tensors) -> str:
    """A number in place of a list of numbers, on which the importer would crash."""
    lists = (1, 2, 3, 4) if node.op_type == "Slice" else (1,)
    if node.op_type != "Slice" and not node.op_type.startswith("Reduce"):
        return ""
    for name in (node.input[index] for index in lists if index < len(node.input)):
        if name and (rank := _rank(tensors[name])) != 1:
            return f"Its operand {name} has rank {rank}, and is to be a list."
    return ""


def _rank(tensor: TensorProto | ValueInfoProto) -> int:
    if isinstance(tensor, TensorProto):
        return len(tensor.dims)
    return len(tensor.type.tensor_type.shape.dim)


def _unsupported_output(node: NodeProto, drafted: Prepared, tensors: Tensors) -> str:
    """What is wrong with the first output; the others matter only where they are read."""
    info = tensors.get(next(filter(None, node.output), ""))
    if not isinstance(info, ValueInfoProto) or not info.type.tensor_type.HasField("shape"):
        return _unsupported_shape(drafted.alone(node, tensors))
    tensor = info.type.tensor_type
    extents = [dim.dim_value if dim.HasField("dim_value") else 0 for dim in tensor.shape.dim]
    if tensor.elem_type not in NUMBERS:
        return f"Its output is {type_name(tensor.elem_type)}, and no tensor of numbers."
    if min(extents, default=1) < 1:
        return "The shape of its output depends on data, or is empty."
    if math.prod(extents) > MAX_TENSOR_ELEMENTS:
        return f"Its output has {math.prod(extents)} elements."
    return ""


def _unsupported_shape(alone: Prepared) -> str:
    """Why inference finds no shape for the output of a model of one node."""
    try:
        shape_inference.infer_shapes(alone.model, strict_mode=True, data_prop=True)
    except shape_inference.InferenceError as error:
        detail = str(error).strip().rpartition("] ")[2].rstrip(".")
        return f"Its operands don't fit: {detail}."
    return "The shape of its output can't be inferred."
