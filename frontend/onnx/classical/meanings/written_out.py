"""What converters write out, and costs less as what it means.

    1 / (1 + exp(x))                        sigmoid(-x), of calibrated classifiers
    v / sum(v), v the votes of k neighbours v / k: each neighbour has one of the classes voted for

An initialiser's number is looked at only to find whether it is 1, or a class that is public.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, helper, numpy_helper

from veilgraph.frontend.onnx.constant_folding import replace_nodes


def read_meanings(graph: GraphProto) -> None:
    """Writes the divisions of a graph that mean something else; names of nodes are unique."""
    chains = Chains(graph)
    nodes: list[NodeProto] = []
    for node in graph.node:
        plain = node.op_type == "Div" and not node.domain
        nodes += (plain and (_sigmoid(node, chains) or _shares(node, chains))) or [node]
    replace_nodes(graph, nodes)


class Chains:
    """Which nodes make what, and what is known."""

    def __init__(self, graph: GraphProto) -> None:
        self.makers = {name: node for node in graph.node for name in node.output}
        self.literals = {tensor.name: tensor for tensor in graph.initializer}

    def maker(self, name: str, *operators: str) -> NodeProto | None:
        """The node that makes a tensor, if it is of one of these operators."""
        node = self.makers.get(name)
        return node if node is not None and node.op_type in operators else None

    def value(self, name: str) -> NDArray[np.generic] | None:
        tensor = self.literals.get(name)
        return None if tensor is None else np.asarray(numpy_helper.to_array(tensor))

    def is_number(self, name: str, number: float) -> bool:
        value = self.value(name)
        return value is not None and value.size == 1 and float(value.reshape(-1)[0]) == number


def _sigmoid(node: NodeProto, chains: Chains) -> list[NodeProto]:
    one, below = node.input
    total = chains.maker(below, "Add")
    if total is None or not chains.is_number(one, 1.0):
        return []
    ends = [name for name in total.input if not chains.is_number(name, 1.0)]
    power = chains.maker(ends[0], "Exp") if len(ends) == 1 else None
    if power is None:
        return []
    negated = f"{node.name}/negated"
    return [
        helper.make_node("Neg", [power.input[0]], [negated], name=negated),
        helper.make_node("Sigmoid", [negated], [node.output[0]], name=node.name),
    ]


def _shares(node: NodeProto, chains: Chains) -> list[NodeProto]:
    """Votes over how many there are: each of k numbers of a table is one of all that it has."""
    votes, total = chains.maker(node.input[0], "Concat"), chains.maker(node.input[1], "ReduceSum")
    if votes is None or total is None or total.input[0] != votes.output[0]:
        return []
    counted = [_counted(name, chains) for name in votes.input]
    found = [entry for entry in counted if entry is not None]
    if len(found) < len(counted) or len({name for name, _ in found}) != 1:
        return []
    voters = _voters(found[0][0], [number for _, number in found], chains)
    if not voters:
        return []
    name = f"{node.name}/voters"
    share = numpy_helper.from_array(np.float32(1 / voters), name)
    return [
        helper.make_node("Constant", [], [name], name=name, value=share),
        helper.make_node("Mul", [votes.output[0], name], [node.output[0]], name=node.name),
    ]


def _counted(name: str, chains: Chains) -> tuple[str, float] | None:
    """Whose equals to which number are added up along the second axis."""
    added = chains.maker(name, "ReduceSum")
    axes = chains.value(added.input[1]) if added and len(added.input) > 1 else None
    cast = chains.maker(added.input[0], "Cast") if added else None
    equal = chains.maker(cast.input[0], "Equal") if cast else None
    number = chains.value(equal.input[1]) if equal else None
    if equal is None or axes is None or axes.tolist() != [1] or number is None or number.size != 1:
        return None
    return equal.input[0], float(number.astype(np.float64).reshape(-1)[0])


def _voters(name: str, numbers: Iterable[float], chains: Chains) -> int:
    """How many of a table's numbers a row has, if all that the table has are counted; else 0."""
    flat = chains.maker(name, "Reshape")
    shape = chains.value(flat.input[1]) if flat else None
    picked = chains.maker(flat.input[0], "ArrayFeatureExtractor") if flat else None
    table = chains.value(picked.input[0]) if picked else None
    if shape is None or table is None or shape.size != 2 or table.dtype.kind not in "if":
        return 0
    counted = list(numbers)
    whole = len(set(counted)) == len(counted) and set(table.reshape(-1).tolist()) <= set(counted)
    return max(0, int(shape.astype(np.int64)[1])) if whole else 0
