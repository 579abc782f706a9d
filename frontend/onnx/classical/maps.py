"""Dictionaries as inputs: a DictVectorizer's keys become columns, 0 where a key is not there."""

from __future__ import annotations

from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper

from veilgraph.frontend.onnx.nodes import attributes_of

Names = dict[str, tuple[str, ...]]


def read_maps(graph: GraphProto) -> Names:
    """Makes inputs that are maps tables [rows, keys], in place.

    Returns:
        The keys by input.
    """
    infos = {info.name: info for info in graph.input}
    found: Names = {}
    for node in graph.node:
        info = infos.get(node.input[0]) if node.op_type == "DictVectorizer" else None
        element = 0 if info is None else _element(info)
        if info is None or not element:
            continue
        found[info.name] = keys = _keys(node)
        info.type.CopyFrom(helper.make_tensor_type_proto(element, [None, len(keys)]))
        node.op_type, node.domain = "Identity", ""
        del node.attribute[:]
    return found


def _element(info: ValueInfoProto) -> int:
    """The type of a map's values if these are numbers; 0 where it is no such map."""
    kind = info.type
    if kind.WhichOneof("value") == "sequence_type":
        kind = kind.sequence_type.elem_type
    if kind.WhichOneof("value") != "map_type":
        return 0
    element = int(kind.map_type.value_type.tensor_type.elem_type)
    return 0 if element == TensorProto.STRING else element


def _keys(node: NodeProto) -> tuple[str, ...]:
    given = attributes_of(node)
    texts = given.get("string_vocabulary", [])
    return tuple(t.decode() for t in texts) or tuple(map(str, given.get("int64_vocabulary", [])))
