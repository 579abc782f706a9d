"""Layers of an ONNX model in training mode: batch norms that follow their batches, dropouts.

    before:  y, m, v = BatchNormalization <training_mode = 1> (x, g, b, mean, var)
             z, _ = Dropout(y, 0.3, true)
    after:   y = BatchNormalization(x, g, b, mean, var)     and that it follows, by its name
             z = Mul(y, z.mask)                             and that 0.3 of this mask is dropped

The mask is an initialiser of ones, which whoever trains draws. Running statistics are ONNX's: of
the variance it is the batch's own, over N, where PyTorch's modules take N - 1. The momentum of ONNX
is the share that stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper

from veilgraph.frontend.onnx.input_shapes import bind_shapes
from veilgraph.frontend.onnx.load import Model, load
from veilgraph.frontend.onnx.nodes import attributes_of, names_read
from veilgraph.frontend.onnx.prepare import name_nodes
from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph.program import Following, Graph, name_of

MOMENTUM, DROPPED = 0.9, 0.5  # where a node says none
MASK = ".mask"  # behind a dropout's name, as a PyTorch module's has it


@dataclass(frozen=True)
class InTraining:
    """A model whose layers are all as for inference, and what they do in training.

    Attributes:
        following: how running statistics follow, by the batch norm's name.
        masks: initialisers that are a dropout's masks, each with the share that is dropped.
    """

    model: Model
    following: Mapping[str, Following] = field(default_factory=dict)
    masks: Mapping[str, float] = field(default_factory=dict)

    def tell(self, graph: Graph) -> Graph:
        """`graph`, which was imported from the model, with what its layers do.

        Raises:
            UsageError: a batch norm or a dropout that is no more what it was.
        """
        graph.let_follow(self.following)
        owned, norms = {*graph.parameters.values()}, {name_of(op): op for op in graph.operations}
        for name in self.following:
            norm = norms.get(name)
            if norm is None or not owned.issuperset(list(norm.operation.operands)[3:]):
                raise UsageError(
                    f"The running statistics of `{name}` are no initialisers of the model.",
                    "Give it some, by which an evaluation normalises.",
                )
        if lost := [name for name in self.masks if name not in graph.weights]:
            raise UsageError(
                f"Dropout `{lost[0].removesuffix(MASK)}` is of a single number.",
                "Leave it out, or train with a larger batch.",
            )
        graph.masks = dict(self.masks)
        return graph


def in_training(model: Model, shapes: Mapping[str, Sequence[int]]) -> InTraining:
    """Takes training modes apart that are stated; those that are computed are refused later.

    Raises:
        UsageError: statistics or masks that the model reads itself, a dropout that drops all or
            whose shape is open; and as `load` and `bind_shapes` do.
    """
    proto, _ = load(model)
    graph = proto.graph
    name_nodes(graph)
    numbers = _numbers(graph)
    norms = [node for node in graph.node if _follows(node)]
    drops = [node for node in graph.node if _drops(node, numbers)]
    if not norms and not drops:
        return InTraining(model)
    read = names_read(graph) | {info.name for info in graph.output}
    for node in (*norms, *drops):
        if own := [name for name in node.output[1:] if name in read]:
            raise UsageError(
                f"The model reads what `{node.name}` makes beside its output: `{own[0]}`.",
                "Export it without: the statistics and masks of training are the plan's.",
            )
    following = {node.name: _as_inference(node) for node in norms}
    known = _shapes(proto, shapes) if drops else {}
    masks = {}
    for node in drops:
        name = f"{node.name}{MASK}"
        masks[name] = _dropped(node, numbers)
        ones = np.ones(_shape(node, known), np.float32)
        graph.initializer.append(numpy_helper.from_array(ones, name))
        product = helper.make_node("Mul", [node.input[0], name], [node.output[0]], node.name)
        node.CopyFrom(product)
    return InTraining(proto, following, masks)


def _numbers(graph: GraphProto) -> dict[str, np.ndarray]:
    """What initialisers and constants hold, by name."""
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and "value" in (named := attributes_of(node)):
            found[node.output[0]] = numpy_helper.to_array(named["value"])
    return found


def _follows(node: NodeProto) -> bool:
    return node.op_type == "BatchNormalization" and bool(attributes_of(node).get("training_mode"))


def _drops(node: NodeProto, numbers: Mapping[str, np.ndarray]) -> bool:
    if node.op_type != "Dropout" or len(node.input) < 3:
        return False
    mode = numbers.get(node.input[2])
    ratio = node.input[1]
    return mode is not None and bool(mode.any()) and (not ratio or ratio in numbers)


def _as_inference(node: NodeProto) -> Following:
    """Lets a batch norm normalise by its running statistics; how they follow."""
    momentum = float(attributes_of(node).get("momentum", MOMENTUM))
    kept = [each for each in node.attribute if each.name != "training_mode"]
    del node.attribute[:], node.output[1:]
    node.attribute.extend(kept)
    return Following(1 - momentum, 0)


def _dropped(node: NodeProto, numbers: Mapping[str, np.ndarray]) -> float:
    share = float(numbers[node.input[1]]) if node.input[1] else DROPPED
    if not 0 <= share < 1:
        raise UsageError(
            f"Dropout `{node.name}` drops {share:.4g} of all numbers.",
            "Give it a share from 0 up to 1, such as 0.5.",
        )
    return share


def _shapes(proto: ModelProto, shapes: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    """Those that are known of all tensors, where inputs have these shapes."""
    copy = ModelProto()
    copy.CopyFrom(proto)
    initialised = {tensor.name for tensor in copy.graph.initializer}
    inputs = [info for info in copy.graph.input if info.name not in initialised]
    del copy.graph.input[:]
    copy.graph.input.extend(inputs)
    bind_shapes(copy.graph, shapes)
    del copy.graph.value_info[:]
    inferred = onnx.shape_inference.infer_shapes(copy).graph
    every = (*inferred.input, *inferred.value_info, *inferred.output)
    return {info.name: [dim.dim_value for dim in info.type.tensor_type.shape.dim] for info in every}


def _shape(node: NodeProto, known: Mapping[str, list[int]]) -> list[int]:
    found = known.get(node.output[0]) or known.get(node.input[0])
    if not found or not all(found):
        raise UsageError(
            f"The shape of what dropout `{node.name}` drops is not known.",
            "Export the model with fixed shapes behind its inputs.",
        )
    return found
