"""An ONNX model made ready for the importer: fixed shapes, weights apart, names, a current opset.

Weights become inputs of the prepared model, so that their values never enter MLIR. A weight is
every float32 tensor, one of a single number included, however it is written (initialiser, Constant,
ConstantOfShape, folded arithmetic), unless its value is needed to infer a shape or decides what is
computed (SHAPE_INPUTS of constant_folding.py), or its owner names it public. Public too are single
numbers that architectures are written with (written_numbers.py), in Constant nodes, as exponents
and as what pads or masks, and single numbers that follow from these by folding.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
    version_converter,
)

from veilgraph.frontend.onnx.classical.expand import Classical, expand_classical
from veilgraph.frontend.onnx.classical.meanings.distances import write_distances
from veilgraph.frontend.onnx.classical.meanings.power_transforms import read_power_transforms
from veilgraph.frontend.onnx.classical.meanings.written_out import read_meanings
from veilgraph.frontend.onnx.constant_folding import (
    Literals,
    fold,
    infer,
    leading_to,
    needed_for_shapes,
    replace_nodes,
)
from veilgraph.frontend.onnx.control_flow import unroll
from veilgraph.frontend.onnx.decompositions import decompose
from veilgraph.frontend.onnx.function_bodies import expand
from veilgraph.frontend.onnx.input_shapes import bind_shapes
from veilgraph.frontend.onnx.load import NOT_A_MODEL, Model, byte_count, load
from veilgraph.frontend.onnx.nodes import attributes_of, following, names_read
from veilgraph.frontend.onnx.numeric_types import as_float32, widen_integers
from veilgraph.frontend.onnx.operators.pool_padding import round_down
from veilgraph.frontend.onnx.operators.quantised import decode
from veilgraph.frontend.onnx.written_numbers import are_written, require_known
from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph.program import QuantisersClip
from veilgraph.ir.graph.table_options import AS_USUAL, TableOptions

Array = NDArray[np.float32]
OLDEST_OPSET = 7
TARGET_OPSET = 21  # what torch-mlir's importer knows well; newer models go in as they are
TARGET_IR_VERSION = 10  # of that opset; from 4 on, initialisers needn't be inputs
MAX_TENSOR_ELEMENTS = 1 << 31
FLAGS = ("ceil_mode", "count_include_pad", "keepdims", "transA", "transB")
ENDLESS = ("Constant", "Shape", "Slice")  # where exporters write 2^63 - 1 for "to the end"
OPERATOR_INPUTS = {"Dropout": (1,), "Pad": (2,), "Pow": (1,)}
LEAST_MASK = 1e4  # in magnitude: written so large, a number stands for infinity, and is not learnt
MASK_DOMAIN = "veilgraph.refused"


@dataclass(frozen=True)
class Prepared:
    """A model whose trailing inputs are its weights.

    Attributes:
        model: the ONNX model.
        weights: the weights' values by input name.
        source: what to call the model in messages.
        public: names of weights that everybody may know, which are literals.
        clips: those of quantised tensors, by the name of their last node.
        classical: what nodes of ai.onnx.ml became.
    """

    model: ModelProto
    weights: dict[str, Array]
    source: str
    public: tuple[str, ...] = ()
    clips: Mapping[str, QuantisersClip] = field(default_factory=dict)
    classical: Classical = field(default_factory=Classical)

    def tensors(self) -> dict[str, TensorProto | ValueInfoProto]:
        """What is known of each tensor by name: a literal's value, or a type."""
        graph = self.model.graph
        infos = (*graph.input, *graph.value_info, *graph.output)
        literals = {tensor.name: tensor for tensor in graph.initializer}
        return {info.name: info for info in infos} | literals

    def alone(
        self, node: NodeProto, tensors: Mapping[str, TensorProto | ValueInfoProto]
    ) -> Prepared:
        """The model of this node only, what it reads being inputs or literals."""
        read = [tensors[name] for name in dict.fromkeys(node.input) if name]
        made = [tensors[name] for name in node.output if name in tensors]
        literals = [tensor for tensor in read if isinstance(tensor, TensorProto)]
        inputs = [info for info in read if isinstance(info, ValueInfoProto)]
        graph = helper.make_graph([node], "main", inputs, made, literals)
        model = helper.make_model(
            graph, opset_imports=list(self.model.opset_import), ir_version=self.model.ir_version
        )
        weights = {
            info.name: self.weights[info.name] for info in inputs if info.name in self.weights
        }
        return Prepared(model, weights, self.source, self.public)


def draft(
    model: Model,
    shapes: Mapping[str, Sequence[int]],
    public: Collection[str] = (),
    tables: TableOptions = AS_USUAL,
) -> Prepared:
    """The model with fixed input shapes, unique node names, weights apart and literals folded.

    It may still hold operators that can't be imported, and has its own opset.

    Args:
        public: names of weights that everybody may know: they are literals.
        tables: how models of tables are read.

    Raises:
        UsageError: no legal ONNX model, an opset too old or too new, shapes that are missing or
            don't fit, a weight that is no finite number, or a public one that isn't there.
    """
    proto, source = load(model)
    graph = proto.graph
    _check_opset(proto, source)
    name_nodes(graph)
    read_meanings(graph)
    read_power_transforms(graph)
    for name, array in write_distances(graph, opset(proto)).items():
        graph.initializer.append(numpy_helper.from_array(array, name))
    classical = expand_classical(proto, opset(proto), tables, shapes)
    initialised = {tensor.name for tensor in graph.initializer}
    _keep(graph.input, [info for info in graph.input if info.name not in initialised])
    as_float32(proto)
    del graph.value_info[:]
    graph.name = "main"
    proto.ir_version = max(proto.ir_version, TARGET_IR_VERSION)
    name_nodes(graph)
    bind_shapes(graph, {n: classical.written(n, shape) for n, shape in shapes.items()})
    expand(proto)
    unroll(proto, _public)
    as_float32(proto)
    name_nodes(graph)
    clips = decode(proto)
    weights, literals = _split_tensors(graph, public)
    _declare(graph, weights, literals)
    _check(proto, source)
    _require_sane_numbers(proto)
    del graph.initializer[:]
    round_down(proto, literals)
    literals = fold(proto, literals)
    round_down(proto, literals)  # those whose input's shape was computed
    disguised = _fill(graph, literals) | _disguised(graph, literals, public)
    _declare(graph, disguised, {n: t for n, t in literals.items() if n not in disguised})
    return Prepared(infer(proto), weights | disguised, source, tuple(public), clips, classical)


def _public(proto: ModelProto) -> Literals:
    """What is public of a model's tensors, by name: the owner's weights are never evaluated."""
    copy = ModelProto()
    copy.CopyFrom(proto)
    weights, literals = _split_tensors(copy.graph, ())
    _declare(copy.graph, weights, {})
    return fold(copy, literals)


def convert(prepared: Prepared) -> Prepared:
    """The same model in an opset that the importer knows.

    Raises:
        RuntimeError, ConvertError, UsageError, Unsupported: an operator that can't be converted.
    """
    proto = ModelProto()
    proto.CopyFrom(prepared.model)
    if opset(proto) < TARGET_OPSET:
        names = {output: node.name for node in proto.graph.node for output in node.output}
        proto = version_converter.convert_version(proto, TARGET_OPSET)
        for node in proto.graph.node:
            # The converter may put its own nodes after one of ours: a name stays with its output.
            node.name = names.get(node.output[0], node.output[0])
    weights = dict(prepared.weights)
    decompose(proto, weights)
    widen_integers(proto)
    name_nodes(proto.graph)
    literals = {tensor.name: tensor for tensor in proto.graph.initializer}
    owned = following(proto.graph, {n for n, t in literals.items() if math.prod(t.dims) > 1})
    literals = fold(proto, literals)
    del proto.graph.initializer[:]
    found = _disguised(proto.graph, literals, prepared.public)
    disguised = {name: array for name, array in found.items() if name in owned}
    _declare(proto.graph, disguised, {n: t for n, t in literals.items() if n not in disguised})
    return Prepared(infer(proto), weights | disguised, prepared.source, prepared.public)


def opset(proto: ModelProto) -> int:
    """Version of the default operator set; 0 where the model names none."""
    return max((entry.version for entry in proto.opset_import if not entry.domain), default=0)


def name_nodes(graph: GraphProto) -> None:
    """Gives every node a name of its own: its own, or its first output's."""
    taken: set[str] = set()
    for node in graph.node:
        names = (node.name, node.output[0] if node.output else node.op_type)
        name = next((name for name in names if name and name not in taken), "")
        count = 2
        while not name:
            candidate = f"{names[0] or names[1]}.{count}"
            name = candidate if candidate not in taken else ""
            count += 1
        node.name = name
        taken.add(name)


def node_outputs(model: ModelProto) -> dict[str, str]:
    """The tensor that each node of a prepared model computes, by the node's name.

    A node of several outputs has more entries, "split", "split:1", "split:2"; these are the names
    that operations of the graph level have.
    """
    return {
        node.name if position == 0 else f"{node.name}:{position}": tensor
        for node in model.graph.node
        for position, tensor in enumerate(node.output)
        if tensor
    }


def _check_opset(proto: ModelProto, source: str) -> None:
    for entry in proto.opset_import:
        if entry.domain == "ai.onnx":  # the default domain's other name
            entry.domain = ""
    for node in proto.graph.node:
        if node.domain == "ai.onnx":
            node.domain = ""
    if 0 < opset(proto) < OLDEST_OPSET and all(_is_unchanged(n, proto) for n in proto.graph.node):
        next(entry for entry in proto.opset_import if not entry.domain).version = OLDEST_OPSET
    newest = onnx.defs.onnx_opset_version()
    if not opset(proto) and not any(not node.domain for node in proto.graph.node):
        proto.opset_import.append(helper.make_opsetid("", newest))  # other domains alone are used
    if not opset(proto):
        raise UsageError(
            f"Of which ONNX opset the operators in {source} are is not said.",
            "Export it again; its `opset_import` needs an entry for the default domain.",
        )
    if not OLDEST_OPSET <= opset(proto) <= newest:
        raise UsageError(
            f"{source} has ONNX opset {opset(proto)}; {OLDEST_OPSET} to {newest} are supported.",
            "Export it again with another opset version, or update the package onnx.",
        )


def _is_unchanged(node: NodeProto, proto: ModelProto) -> bool:
    """Whether an operator of an opset that is too old is the same in the oldest that isn't."""
    versions = [opset(proto), OLDEST_OPSET]
    if not all(onnx.defs.has(node.op_type, max_inclusive_version=v) for v in versions):
        return False
    schemas = [onnx.defs.get_schema(node.op_type, v).since_version for v in versions]
    return not node.domain and schemas[0] == schemas[1]


def _check(proto: ModelProto, source: str) -> None:
    """Raises UsageError unless the model is legal ONNX, apart from operators nobody knows."""
    masked = ModelProto()
    masked.CopyFrom(proto)
    for node in masked.graph.node:
        if not node.domain and not onnx.defs.has(node.op_type, max_inclusive_version=opset(proto)):
            node.domain = MASK_DOMAIN  # the checker passes over operators of other domains
    masked.opset_import.append(helper.make_opsetid(MASK_DOMAIN, 1))
    for info in masked.graph.output:  # left to inference, but the checker wants a type
        info.type.tensor_type.elem_type = TensorProto.FLOAT
        info.type.tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(masked)
    except onnx.checker.ValidationError as error:
        reason = " ".join(str(error).partition("\n\n")[0].split()).rstrip(".")
        raise UsageError(f"{source} is no legal ONNX model: {reason}.", NOT_A_MODEL) from error


def _require_sane_numbers(proto: ModelProto) -> None:
    """Refuses attributes that no shape can need, before any library is trusted with them."""
    for node in proto.graph.node:
        for attribute in node.attribute:
            numbers = (*attribute.ints, attribute.i)
            sane = all(abs(n) < MAX_TENSOR_ELEMENTS for n in numbers) or node.op_type in ENDLESS
            if attribute.name == "num_outputs":
                sane = attribute.i == len(node.output)
            if attribute.name in FLAGS:  # of other numbers every runtime makes something else
                sane = attribute.i in (0, 1)
            if not sane:
                raise UsageError(
                    f"Attribute {attribute.name} of node {node.name} ({node.op_type}) makes no "
                    f"sense: {max(numbers, key=abs)}.",
                    NOT_A_MODEL,
                )


def _keep(field: object, items: Iterable[object]) -> None:
    """Lets the repeated field of a protobuf hold `items` alone."""
    kept = list(items)
    del field[:]  # type: ignore[attr-defined]
    field.extend(kept)  # type: ignore[attr-defined]


def _split_tensors(graph: GraphProto, public: Collection[str]) -> tuple[dict[str, Array], Literals]:
    """Takes initialisers and Constant nodes out of the graph: weights, and what is public."""
    needed = needed_for_shapes(graph)
    found = {tensor.name: tensor for tensor in graph.initializer}
    if len(found) < len(graph.initializer):
        raise UsageError("Two initialisers of the model share a name.", NOT_A_MODEL)
    nodes = _constants(graph)
    found |= nodes
    # A Constant of another form, or an illegal one, stays.
    rest = [node for node in graph.node if not (node.output and node.output[0] in nodes)]
    require_known(public, found)
    told = leading_to(graph, OPERATOR_INPUTS)
    weights = {}
    for name, tensor in found.items():
        if name in public or not _is_weight(tensor) or (name in needed and name not in told):
            continue
        array = weight_array(name, tensor)
        masks = array.size == 1 and abs(array.flat[0]) >= LEAST_MASK
        text = name in told or masks or (name in nodes and array.size == 1)
        if not (text and are_written(array)):
            weights[name] = array
    literals = {name: _renamed(t, name) for name, t in found.items() if name not in weights}
    del graph.initializer[:]
    replace_nodes(graph, rest)
    return weights, literals


def _constants(graph: GraphProto) -> dict[str, TensorProto]:
    """The tensors of Constant nodes, by the name of what they make."""
    found = {}
    for node in graph.node:
        if node.op_type != "Constant" or node.domain or not node.output:
            continue
        for name, value in attributes_of(node).items():
            if name == "value":
                found[node.output[0]] = value
            if name in ("value_float", "value_floats"):
                array = np.asarray(value, np.float32)
                found[node.output[0]] = numpy_helper.from_array(array, node.output[0])
    return found


def _is_weight(tensor: TensorProto) -> bool:
    """Whether it holds real numbers: the owner's, but for what `_split_tensors` lets out."""
    return bool(tensor.data_type == TensorProto.FLOAT) and math.prod(tensor.dims) > 0


def _renamed(tensor: TensorProto, name: str) -> TensorProto:
    copy = TensorProto()
    copy.CopyFrom(tensor)
    copy.name = name
    return copy


def weight_array(name: str, tensor: TensorProto) -> Array:
    """The float32 values of a weight, checked."""
    try:
        if tensor.HasField("raw_data") and len(tensor.raw_data) != byte_count(tensor):
            raise ValueError(f"{len(tensor.raw_data)} bytes for {byte_count(tensor)}")
        array = np.asarray(numpy_helper.to_array(tensor), dtype=np.float32)
    except ValueError as error:
        raise UsageError(f"Weight {name} doesn't fit its shape: {error}.", NOT_A_MODEL) from error
    if np.isnan(array).any():  # infinities may be masks: see masks.py
        raise UsageError(f"Weight {name} holds a NaN or an infinity.", "Train or export it again.")
    return array


def _fill(graph: GraphProto, literals: Literals) -> dict[str, Array]:
    """Takes out the ConstantOfShape nodes of known shape that make float32 tensors."""
    filled: dict[str, Array] = {}
    rest = []
    for node in graph.node:
        number = _fill_number(node)
        if number is None or node.input[0] not in literals:
            rest.append(node)
            continue
        extents = tuple(int(v) for v in numpy_helper.to_array(literals[node.input[0]]))
        if min(extents, default=0) < 0 or math.prod(extents) > MAX_TENSOR_ELEMENTS:
            raise UsageError(f"Node {node.name} makes a tensor of shape {extents}.", NOT_A_MODEL)
        filled[node.output[0]] = np.broadcast_to(number, extents)
    replace_nodes(graph, rest)
    for name in [name for name, array in filled.items() if array.size == 1]:
        literals[name] = numpy_helper.from_array(np.array(filled.pop(name)), name)
    return filled


def _fill_number(node: NodeProto) -> np.float32 | None:
    """What a ConstantOfShape of float32 fills its tensor with; None for all other nodes."""
    if node.op_type != "ConstantOfShape" or node.domain:
        return None
    values = [numpy_helper.to_array(attribute.t) for attribute in node.attribute]
    value = values[0] if values else np.zeros(1, dtype=np.float32)
    return np.float32(value.flat[0]) if value.dtype == np.float32 and value.size == 1 else None


def _disguised(graph: GraphProto, literals: Literals, public: Collection[str]) -> dict[str, Array]:
    """The folded float32 tensors of more than one element that the graph reads as data."""
    needed = needed_for_shapes(graph)
    read = {name for node in graph.node for name in node.input}
    read |= {info.name for info in graph.output}
    return {
        name: weight_array(name, tensor)
        for name, tensor in literals.items()
        if name in read and name not in needed and name not in public
        if _is_weight(tensor) and math.prod(tensor.dims) > 1
    }


def _declare(graph: GraphProto, weights: Mapping[str, Array], literals: Literals) -> None:
    """Appends weights to the inputs, and the literals that are read to the initialisers."""
    for name, array in weights.items():
        graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape))
    read = names_read(graph)
    graph.initializer.extend(tensor for name, tensor in literals.items() if name in read)
