"""Nodes of the domain ai.onnx.ml, replaced by nodes of the default domain.

What a node says in attributes becomes weights of the model, which are its owner's, as the tensors
of a network are. What a rule refuses stays, and is told with all else that is unsupported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

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
)

from veilgraph.frontend.lowering.operands import Unsupported
from veilgraph.frontend.onnx.classical import columns, linear, support_vectors, trees
from veilgraph.frontend.onnx.classical.maps import read_maps
from veilgraph.frontend.onnx.classical.missing import read_missing
from veilgraph.frontend.onnx.classical.texts import read_texts
from veilgraph.frontend.onnx.constant_folding import replace_nodes
from veilgraph.frontend.onnx.nodes import Facts, Shape, Steps, attributes_of, constants
from veilgraph.ir.graph.table_options import AS_USUAL, Categories, TableOptions, Trees
from veilgraph.ir.plan.given import PLAIN, Given

DOMAIN = "ai.onnx.ml"
ROWS = "rows"  # of all inputs that are columns of one table
Rule = Callable[[Steps], list[NodeProto]]
Labels = tuple[str, ...]
CLASSIFIERS = ("LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier")
SAME_WIDTH = ("Binarizer", "Cast", "Identity", "Imputer", "Normalizer", "Scaler")
UNCHANGED = ("Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")
DECIDING = ("ArgMax", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not")
# Which input of an operator says where to look.
LOOKUPS = {
    ("", "Gather"): 1,
    ("", "GatherElements"): 1,
    ("", "GatherND"): 1,
    ("", "OneHot"): 0,
    (DOMAIN, "ArrayFeatureExtractor"): 1,
    (DOMAIN, "LabelEncoder"): 0,
    (DOMAIN, "OneHotEncoder"): 0,
}
TREES = ("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor")

RULES: Mapping[str, Rule] = {
    "ArrayFeatureExtractor": columns.array_feature_extractor,
    "Binarizer": columns.binarizer,
    "CategoryMapper": columns.category_mapper,
    "FeatureVectorizer": columns.feature_vectorizer,
    "Imputer": columns.imputer,
    "LabelEncoder": columns.label_encoder,
    "LinearClassifier": linear.classifier,
    "LinearRegressor": linear.regressor,
    "Normalizer": columns.normalizer,
    "OneHotEncoder": columns.one_hot_encoder,
    "SVMClassifier": support_vectors.classifier,
    "SVMRegressor": support_vectors.regressor,
    "Scaler": columns.scaler,
    "TreeEnsemble": trees.ensemble,
    "TreeEnsembleClassifier": trees.classifier,
    "TreeEnsembleRegressor": trees.regressor,
    "ZipMap": columns.zip_map,
}


@dataclass(frozen=True)
class Classical:
    """What nodes of the domain leave beside the nodes that take their place.

    Attributes:
        labels: the text that each class is called, by output: an output of these names has their
            places.
        whole: weights and inputs that everybody knows to be small integers.
        structures: what everybody learns of the structure of trees, by the name of their node.
        tables: how models of tables are read.
        refused: why a rule refused a node, by its name.
        given: how owners write inputs that are no plain numbers, by input.
        columns: the names of an input's columns, by input, where the model says them.
    """

    labels: Mapping[str, Labels] = field(default_factory=dict)
    whole: Collection[str] = frozenset()
    structures: Mapping[str, str] = field(default_factory=dict)
    tables: TableOptions = AS_USUAL
    refused: Mapping[str, Unsupported] = field(default_factory=dict)
    given: Mapping[str, Given] = field(default_factory=dict)
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def written(self, name: str, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of what an owner writes, by that of what it gives."""
        return self.given.get(name, PLAIN).written(shape)


def expand_classical(
    model: ModelProto,
    opset: int,
    tables: TableOptions = AS_USUAL,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Classical:
    """Replaces all nodes of the domain that have a rule; node names are unique.

    Args:
        tables: how models of tables are read.
        shapes: of inputs that the model leaves open, by name.

    Raises:
        UsageError: a node whose attributes make no sense.
    """
    if not any(node.domain == DOMAIN or node.op_type == "IsNaN" for node in model.graph.node):
        return Classical()
    weights: dict[str, NDArray[np.float32]] = {}
    _share_rows(model.graph)
    names = read_maps(model.graph)
    texts = read_texts(model, shapes or {}, tables.categories)
    missing = read_missing(model, opset, shapes or {}, of_trees=tables.lacks)
    facts = _facts(model, weights, opset, tables.trees, shapes or {})
    facts = replace(facts, texts=texts, missing=missing)
    labels = _labels(model.graph, facts)
    _apart(model.graph)
    refused = dict(texts.refused)
    parts = [_expanded(node, facts, refused) for node in model.graph.node]
    nodes = [node for part in parts for node in part]
    if tables.categories is Categories.SECRET:  # encoders read inputs
        nodes = [node for node in nodes if texts.sources.keys().isdisjoint(node.output)]
    replace_nodes(model.graph, nodes)
    for name, array in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    for info in model.graph.output:
        if info.type.WhichOneof("value") != "tensor_type":  # a list of maps, of a ZipMap
            info.type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    given = {**texts.given, **missing.given, **dict.fromkeys(names, Given(lacks=True))}
    whole = frozenset({*facts.whole, *texts.given})
    return Classical(labels, whole, facts.structures, tables, refused, given, names)


def _share_rows(graph: GraphProto) -> None:
    """Inputs whose first extent is open and unnamed have as many rows: they are of one table."""
    extents = [info.type.tensor_type.shape.dim for info in graph.input]
    if len(extents) > 1 and all(len(dims) == 2 for dims in extents):
        for first, _ in extents:
            if not first.dim_value and not first.dim_param:
                first.dim_param = ROWS


def _apart(graph: GraphProto) -> None:
    """Outputs that are sequences of tensors become these tensors, as of several questions."""
    made = {node.output[0]: node for node in graph.node if node.op_type == "SequenceConstruct"}
    outputs: list[ValueInfoProto] = []
    for info in graph.output:
        parts = made[info.name].input if info.name in made else []
        outputs += [helper.make_empty_tensor_value_info(name) for name in parts] or [info]
    gone = {info.name for info in graph.output} & made.keys()
    replace_nodes(graph, [node for node in graph.node if not gone & set(node.output)])
    del graph.output[:]
    graph.output.extend(outputs)


def _labels(graph: GraphProto, facts: Facts) -> dict[str, Labels]:
    """What classes are called, by output; nodes that change no element pass it on."""
    found: dict[str, Labels] = {}
    for node in graph.node:
        named: Labels = ()
        if node.op_type in CLASSIFIERS:  # a ZipMap has the attribute too, and no label
            named = tuple(Steps(node, facts).attribute("classlabels_strings", ()))
        elif node.op_type == "ArrayFeatureExtractor":
            table = Steps(node, facts).known(0)
            is_class = node.input[1] in facts.classes
            if is_class and table is not None and table.dtype.kind not in "iufb":
                named = tuple(map(_text, table.reshape(-1).tolist()))
        elif node.op_type in UNCHANGED:
            named = found.get(node.input[0], ())
        if named:
            found[node.output[0]] = named
    return {info.name: found[info.name] for info in graph.output if info.name in found}


def _text(label: object) -> str:
    return label.decode() if isinstance(label, bytes) else str(label)


def refusal(node: NodeProto, model: ModelProto, opset: int, classical: Classical) -> Unsupported:
    """Why a node of the domain has stayed, and the way out."""
    if node.name in classical.refused:
        return classical.refused[node.name]
    rule = RULES.get(node.op_type)
    if rule is None:
        return Unsupported("No rule writes it as tensor operators.", "Leave it out of the model.")
    try:
        rule(Steps(node, _facts(model, {}, opset, classical.tables.trees, {})))
    except Unsupported as error:
        return error
    return Unsupported("Its operands follow from other nodes.", "Make them constants.")


def _facts(
    model: ModelProto,
    weights: dict[str, NDArray[np.float32]],
    opset: int,
    trees: Trees,
    shapes: Mapping[str, Sequence[int]],
) -> Facts:
    """What is known before shapes are: element types, where they follow, widths, and literals."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    infos = (*graph.input, *graph.value_info, *graph.output)
    elements = {info.name: info.type.tensor_type.elem_type for info in infos}
    literals = {tensor.name: tensor for tensor in graph.initializer} | dict(constants(graph))
    widths = dict(_widths(graph, shapes))
    facts = Facts(widths, elements, literals, weights, opset, frozenset(), trees)
    return replace(facts, classes=_passed_on(graph, DECIDING), leaves=_passed_on(graph, TREES))


def _passed_on(graph: GraphProto, operators: Collection[str]) -> frozenset[str]:
    """What nodes of these operators make, and what passes it on element by element."""
    found: set[str] = set()
    for node in graph.node:
        passes = node.op_type in UNCHANGED and node.input[0] in found
        if passes or node.op_type in operators:
            found.update(node.output)
    return frozenset(found)


def _widths(graph: GraphProto, shapes: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, Shape]]:
    """How many columns tables have, by name: (-1, columns), of those for which it follows."""
    known = {name: shape[1] for name, shape in shapes.items() if len(shape) == 2}
    for info in (*graph.input, *graph.value_info, *graph.output):
        extents = info.type.tensor_type.shape.dim
        if len(extents) == 2 and extents[1].dim_value:
            known[info.name] = extents[1].dim_value
    for node in graph.node:
        read = [known.get(name, 0) for name in node.input]
        if node.op_type in SAME_WIDTH and read and read[0]:
            known.setdefault(node.output[0], read[0])
        if node.op_type == "FeatureVectorizer":
            known.setdefault(node.output[0], sum(attributes_of(node).get("inputdimensions", ())))
        if node.op_type == "Concat" and all(read):
            known.setdefault(node.output[0], sum(read))
    yield from ((name, (-1, width)) for name, width in known.items())


def _expanded(node: NodeProto, facts: Facts, refused: dict[str, Unsupported]) -> list[NodeProto]:
    rule = RULES.get(node.op_type) if node.domain == DOMAIN else None
    if node.name in refused:
        return [node]
    try:
        _require_no_leaf(node, facts)
        return rule(Steps(node, facts)) if rule else [node]
    except Unsupported as error:
        refused[node.name] = error
        return [node]


def _require_no_leaf(node: NodeProto, facts: Facts) -> None:
    """Raises Unsupported where a node looks up what a tree says, and nobody may know its leaves.

    A table that is read by leaves has an entry for each: with it goes what the trees look like.
    """
    place = LOOKUPS.get((node.domain, node.op_type))
    if facts.trees is Trees.SECRET and place is not None and node.input[place] in facts.leaves:
        raise Unsupported(
            "It looks up what a tree says, an entry a leaf, and the structure of trees is secret.",
            "Leave --trees out, or take a model whose trees say numbers alone.",
        )
