"""Operators that ONNX defines by a body of others, of the domains that are still on trial."""

from __future__ import annotations

import onnx
from onnx import FunctionProto, ModelProto, NodeProto, TypeProto, helper

from veilgraph.frontend.onnx.constant_folding import infer, replace_nodes
from veilgraph.frontend.onnx.control_flow import rename

DOMAINS = ("ai.onnx.preview",)


def expand(model: ModelProto) -> None:
    """Writes the bodies of these operators in their place; inputs have fixed shapes.

    Raises:
        UsageError: shapes that don't fit together.
    """
    if not any(node.domain in DOMAINS for node in model.graph.node):
        return
    copy = ModelProto()
    copy.CopyFrom(model)
    graph = infer(copy).graph
    types = {info.name: info.type for info in (*graph.input, *graph.value_info)}
    for tensor in graph.initializer:
        types[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        body = _body(node, types) if node.domain in DOMAINS else None
        nodes += [node] if body is None else _written(node, body)
    replace_nodes(model.graph, nodes)


def _body(node: NodeProto, types: dict[str, TypeProto]) -> FunctionProto | None:
    """What a node of these input types is made of; None where ONNX doesn't say."""
    if not onnx.defs.has(node.op_type, node.domain) or not all(n in types for n in node.input if n):
        return None
    schema = onnx.defs.get_schema(node.op_type, domain=node.domain)
    if not schema.has_context_dependent_function:
        return None
    given = [types[name].SerializeToString() if name else b"" for name in node.input]
    made = schema.get_context_dependent_function(node.SerializeToString(), given)
    return FunctionProto.FromString(made)


def _written(node: NodeProto, body: FunctionProto) -> list[NodeProto]:
    """The body's nodes, its own names put after the node's."""
    inside = {name for inner in body.node for name in inner.output}
    names = {name: f"{node.name}/{name}" for name in inside}
    names |= dict(zip(body.input, node.input, strict=False))
    names |= dict(zip(body.output, node.output, strict=False))
    made = []
    for inner in body.node:
        copy = NodeProto()
        copy.CopyFrom(inner)
        rename(copy, names)
        copy.name = f"{node.name}/{inner.name or inner.output[0]}"
        made.append(copy)
    last = next(copy for copy in made if node.output[0] in copy.output)
    last.name = node.name
    return made
