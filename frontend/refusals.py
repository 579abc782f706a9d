"""What can be told unsupported from an ONNX graph itself, before anything is lowered."""

from __future__ import annotations

import math

import onnx
from onnx import AttributeProto, NodeProto, TensorProto, ValueInfoProto

from veilgraph.frontend.prepare import MAX_TENSOR_ELEMENTS, Prepared, opset
from veilgraph.ir.errors import Offender

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
AFTERWARDS = "End the model before it, and do it on the revealed output."
UNQUANTISED = "Export the model in float32, before quantisation."
UNROLLED = "Export the model with its loops and branches unrolled."
WAYS_OUT = {
    **dict.fromkeys(("ArgMax", "ArgMin", "NonMaxSuppression", "NonZero", "TopK"), AFTERWARDS),
    **dict.fromkeys(QUANTISED, UNQUANTISED),
    **dict.fromkeys(("If", "Loop", "Scan"), UNROLLED),
}


def offender(node: NodeProto, source: str, reason: str, advice: str) -> Offender:
    """An entry of the report, which says the node's outputs and the model's name as its source."""
    operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    outputs = ", ".join(filter(None, node.output))
    return Offender(node.name, operator, f"output {outputs} in {source}", reason, advice)


def way_out(node: NodeProto) -> str:
    """What to do about an operator that isn't supported."""
    return WAYS_OUT.get(node.op_type, "Replace it in the model by operators that are supported.")


def known_refusals(drafted: Prepared) -> list[Offender]:
    """Inputs and nodes that can't be imported whatever their lowering."""
    graph = drafted.model.graph
    found = [
        Offender(info.name, "input", drafted.source, _input_refusal(info), "Make it float32.")
        for info in graph.input
        if _input_refusal(info)
    ]
    found += [
        Offender(t.values.name, "initialiser", drafted.source, "It is sparse.", "Make it dense.")
        for t in graph.sparse_initializer
    ]
    infos = {info.name: info for info in (*graph.input, *graph.value_info, *graph.output)}
    known = {tensor.name for tensor in graph.initializer}
    known |= {name for name, info in infos.items() if info.type.tensor_type.HasField("shape")}
    for node in graph.node:
        judged = all(name in known for name in node.input if name)
        reason = _operator_refusal(node, opset(drafted.model))
        if judged and not reason:
            reason = _axis_refusal(node, infos) or _output_refusal(node, infos)
        if reason:
            found.append(offender(node, drafted.source, reason, way_out(node)))
    return found


def _input_refusal(info: ValueInfoProto) -> str:
    kind = info.type.tensor_type.elem_type
    if kind == TensorProto.FLOAT:
        return ""
    return f"It is {type_name(kind)}; inputs are shared as float32 tensors."


def type_name(kind: int) -> str:
    """An element type as ONNX writes it."""
    if kind not in TensorProto.DataType.values():
        return f"of an unknown type ({kind})"
    return TensorProto.DataType.Name(kind).lower() if kind else "no tensor"


def _operator_refusal(node: NodeProto, version: int) -> str:
    if node.domain:
        return f"Operators of the domain {node.domain} aren't known."
    if not onnx.defs.has(node.op_type, max_inclusive_version=version):
        return f"ONNX opset {version} has no such operator."
    if node.op_type in QUANTISED:
        return "Quantised models aren't supported yet."
    if any(a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for a in node.attribute):
        return "Control flow isn't supported."
    return ""


def _axis_refusal(node: NodeProto, infos: dict[str, ValueInfoProto]) -> str:
    """An axis that its operand doesn't have, on which the importer would crash."""
    info = infos.get(node.input[0]) if node.input else None
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
    if info is None:
        return ""
    rank = len(info.type.tensor_type.shape.dim)
    legal = axis == 0 or -rank <= axis < rank + (node.op_type == "Flatten")
    return "" if legal else f"Its axis, {axis}, is outside rank {rank}."


def _output_refusal(node: NodeProto, infos: dict[str, ValueInfoProto]) -> str:
    """What is wrong with the first output; the others matter only where they are read."""
    info = infos.get(node.output[0])
    tensor = None if info is None else info.type.tensor_type
    if tensor is None or not tensor.HasField("shape"):
        return "The shape of its output can't be inferred."
    extents = [dim.dim_value if dim.HasField("dim_value") else 0 for dim in tensor.shape.dim]
    if tensor.elem_type != TensorProto.FLOAT:
        return f"Its output is {type_name(tensor.elem_type)}, not float32."
    if min(extents, default=1) < 1:
        return "The shape of its output depends on data, or is empty."
    if math.prod(extents) > MAX_TENSOR_ELEMENTS:
        return f"Its output has {math.prod(extents)} elements."
    return ""
