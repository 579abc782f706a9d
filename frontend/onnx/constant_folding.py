"""Folding of shape arithmetic in an ONNX graph: what is computed from shapes and integers alone.

Exporters write `x.view(x.size(0), -1)` as Shape, Gather, Concat and Reshape nodes. With fixed
extents all of that but the Reshape is known, and only then does the importer see static shapes.
The owner's weights are never evaluated here: they are not literals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
    shape_inference,
)
from onnx.reference import ReferenceEvaluator

from veilgraph.frontend.onnx.nodes import following
from veilgraph.ir.errors import UsageError

Literals = dict[str, TensorProto]
MAX_LITERAL_ELEMENTS = 1 << 16  # shape arithmetic is tiny; larger results are left to the importer

# Deterministic operators that exporters use on shapes. Their results' sizes are inferred and
# bounded before anything is evaluated.
ARITHMETIC = {"Abs", "Add", "Ceil", "Div", "Floor", "Max", "Min", "Mod", "Mul", "Neg", "Sub"}
CHOICES = {"And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "Or", "Where"}
MAKERS = {"Cast", "Constant", "ConstantOfShape", "Expand", "Identity", "Range", "Tile"}
FUNCTIONS = {"Cos", "Sin", "Sqrt"}  # of what positional encodings and windows are made
MOVES = {"Concat", "Flatten", "Gather", "Reshape", "Slice", "Split", "Squeeze", "Transpose"}
REDUCTIONS = {"ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum"}
FOLDABLE = frozenset(ARITHMETIC | CHOICES | FUNCTIONS | MAKERS | MOVES | REDUCTIONS | {"Unsqueeze"})

# Operators' inputs whose values, not only shapes, decide the shape of the output, or what is
# computed: the exponents of a power, a window that is slid over a signal.
SHAPE_INPUTS: Mapping[str, tuple[int, ...]] = {
    "ConstantOfShape": (0,),
    "DFT": (1, 2),
    "Expand": (1,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "OneHot": (1, 2),
    "Pad": (1, 3),
    "Pow": (1,),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "STFT": (1, 2, 3),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1, 2),
    "TopK": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), (0,)),
    **dict.fromkeys(("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"), (1,)),
}

# Defaults that inference doesn't know: without its attribute it takes an STFT for a whole one.
DEFAULTS: Mapping[str, Mapping[str, int]] = {"STFT": {"onesided": 1}}

# What inference finds no type for, and is of the type of its first operand.
ALIKE = frozenset(("GroupNormalization", "MeanVarianceNormalization"))


def needed_for_shapes(graph: GraphProto) -> set[str]:
    """Names of the tensors whose values a shape depends on, found backwards from shape inputs."""
    return leading_to(graph, SHAPE_INPUTS)


def leading_to(graph: GraphProto, operands: Mapping[str, tuple[int, ...]]) -> set[str]:
    """Names of the tensors that these operands are computed from, by operator; itself included.

    What is computed from an input of the model is no such tensor: its value is not known, and what
    it is computed with stays its owner's.
    """
    producers = {output: node for node in graph.node for output in node.output}
    secret = following(graph, {info.name for info in graph.input})
    needed: set[str] = set()
    pending = [
        node.input[position]
        for node in graph.node
        for position in operands.get(node.op_type, ())
        if position < len(node.input) and node.input[position] not in secret
    ]
    while pending:
        name = pending.pop()
        if name in needed:
            continue
        needed.add(name)
        producer = producers.get(name)
        if producer is not None and producer.op_type in FOLDABLE:
            pending.extend(producer.input)
    return needed


def fold(model: ModelProto, literals: Literals) -> Literals:
    """Removes the nodes whose outputs are known, and returns these with `literals`.

    Args:
        model: changed in place; extents of its inputs are fixed.
        literals: the known tensors, by name.
    """
    known = dict(literals)
    while True:
        kept = [node for node in model.graph.node if not _evaluate(model, node, known)]
        progress = len(kept) < len(model.graph.node)
        replace_nodes(model.graph, kept)
        if not any(node.op_type in ("Shape", "Size") for node in kept):
            return known
        extents = static_shapes(model, known)
        for node in kept:
            if node.op_type in ("Shape", "Size") and node.input[0] in extents:
                progress = True
                known[node.output[0]] = _shape_literal(node, extents[node.input[0]])
        replace_nodes(model.graph, [node for node in kept if known.keys().isdisjoint(node.output)])
        if not progress:
            return known


def replace_nodes(graph: GraphProto, nodes: list[NodeProto]) -> None:
    """Lets `nodes`, some of them the graph's own, be its nodes."""
    copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def infer(model: ModelProto) -> ModelProto:
    """A copy of the model with the types of all tensors for which inference finds one.

    Raises:
        UsageError: shapes that don't fit together.
    """
    del model.graph.value_info[:]
    _say_defaults(model.graph)
    try:
        found = shape_inference.infer_shapes(model, data_prop=True)
        while _declare_alike(found.graph):
            found = shape_inference.infer_shapes(found, data_prop=True)
        return found
    except (shape_inference.InferenceError, ValueError) as error:  # the latter: types that are none
        raise UsageError(
            f"The shapes of the model don't fit together: {str(error).strip()}.",
            "Check the shapes given, or export the model again.",
        ) from error


def _say_defaults(graph: GraphProto) -> None:
    for node in graph.node:
        said = {attribute.name for attribute in node.attribute}
        for name, value in DEFAULTS.get(node.op_type, {}).items():
            if name not in said:
                node.attribute.append(helper.make_attribute(name, value))


def _declare_alike(graph: GraphProto) -> bool:
    """Gives outputs the type of the first operand where inference doesn't; whether it gave any."""
    infos = {info.name: info for info in (*graph.input, *graph.value_info, *graph.output)}
    missing = [
        (node.output[0], infos[node.input[0]].type)
        for node in graph.node
        if node.op_type in ALIKE and node.input[0] in infos
        if infos[node.input[0]].type.tensor_type.HasField("shape")
        if node.output[0] not in infos
        or not infos[node.output[0]].type.tensor_type.HasField("shape")
    ]
    for name, kind in missing:
        if name in infos:
            infos[name].type.CopyFrom(kind)
        else:
            graph.value_info.append(ValueInfoProto(name=name, type=kind))
    return bool(missing)


def static_shapes(model: ModelProto, literals: Literals) -> dict[str, tuple[int, ...]]:
    """The shapes of all tensors that shape inference fixes, given these literals."""
    complete = ModelProto()
    complete.CopyFrom(model)
    complete.graph.initializer.extend(literals.values())
    graph = infer(complete).graph
    found = {}
    for info in (*graph.input, *graph.value_info, *graph.output):
        tensor = info.type.tensor_type
        if tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim):
            found[info.name] = tuple(d.dim_value for d in tensor.shape.dim)
    return found


def _shape_literal(node: NodeProto, extents: tuple[int, ...]) -> TensorProto:
    bounds = {attribute.name: attribute.i for attribute in node.attribute}
    value: NDArray[np.int64] = np.array(extents, dtype=np.int64)
    if node.op_type == "Shape":
        value = value[bounds.get("start", 0) : bounds.get("end", len(extents))]
    else:
        value = np.array(math.prod(extents), dtype=np.int64)
    return numpy_helper.from_array(value, node.output[0])


def _evaluate(model: ModelProto, node: NodeProto, known: Literals) -> bool:
    """Adds the outputs of `node` to `known` if all it reads is known and they are small."""
    used = [name for name in node.input if name]
    if node.op_type not in FOLDABLE or not all(name in known for name in used):
        return False
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
    literals = [known[name] for name in dict.fromkeys(used)]
    graph = helper.make_graph([node], "literals", [], outputs, literals)
    alone = helper.make_model(graph, opset_imports=list(model.opset_import))
    inferred = infer(alone).graph.output
    if not all(_is_small(info) for info in inferred):
        return False
    if node.op_type == "ConstantOfShape" and _is_float(inferred[0]):
        return False  # a weight in disguise
    try:
        values = ReferenceEvaluator(alone).run(None, {})
    except Exception as error:  # the evaluator promises no class of errors
        raise UsageError(
            f"Node {node.name} ({node.op_type}) of the model can't be evaluated: {error}.",
            "The model is damaged; export it again.",
        ) from error
    for name, value in zip(node.output, values, strict=True):
        known[name] = numpy_helper.from_array(np.asarray(value), name)
    return True


def _is_small(info: ValueInfoProto) -> bool:
    tensor = info.type.tensor_type
    extents = [d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim]
    known = tensor.HasField("shape") and min(extents, default=0) >= 0
    return known and math.prod(extents) <= MAX_LITERAL_ELEMENTS


def _is_float(info: ValueInfoProto) -> bool:
    return bool(info.type.tensor_type.elem_type == TensorProto.FLOAT)
