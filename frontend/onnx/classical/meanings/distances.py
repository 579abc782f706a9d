"""Distances of rows from the model's own, as nearest neighbours and kernels need them.

Exporters write them as a Scan over the model's rows c, or as CDist of the domain com.microsoft:

    sum (x - c)^2      = |x - m|^2 - 2 (x - m)(c - m) + |c - m|^2      m the mean of all c
    sum |x - c|

Of the first the product of matrices is all that is secret times secret. Where roots of distances
are ranked, the distances are: roots are taken of the nearest alone.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from veilgraph.frontend.onnx.constant_folding import replace_nodes
from veilgraph.frontend.onnx.nodes import Facts, Steps, attributes_of

Floats = NDArray[np.float32]
SQUARES, SIZES = "sqeuclidean", "cityblock"
FIRST_OF_AXES = 13  # the default opset in which ReduceSum takes them as an input
FORMS = {("Sub", "ReduceSumSquare"): SQUARES, ("Sub", "Abs", "ReduceSum"): SIZES}


def write_distances(graph: GraphProto, opset: int) -> dict[str, Floats]:
    """Replaces distances from rows that are initialisers; names of nodes are unique.

    Returns:
        Weights that take the rows' place, by name.
    """
    weights: dict[str, Floats] = {}
    literals = {tensor.name: tensor for tensor in graph.initializer}
    facts = Facts({}, {}, literals, weights, opset, frozenset())
    nodes: list[NodeProto] = []
    for node in graph.node:
        nodes += _scanned(node, facts) or _of_microsoft(node, facts) or [node]
    replace_nodes(graph, nodes)
    _rank_squares(graph)
    return weights


def _scanned(node: NodeProto, facts: Facts) -> list[NodeProto]:
    """A Scan that measures [rows], its state, from the model's: nodes, or none if it does not."""
    if node.op_type != "Scan" or node.domain or len(node.input) != 2 or len(node.output) != 2:
        return []
    s, body = Steps(node, facts), attributes_of(node)["body"]
    rows = s.known(1)
    kind = _form(body)
    plain = all(not any(s.attribute(f"scan_{n}", [])) for n in ("input_axes", "output_axes"))
    turned = any(any(s.attribute(f"scan_{n}_directions", [])) for n in ("input", "output"))
    if rows is None or rows.dtype != np.float32 or rows.ndim != 2 or not kind or not plain:
        return []
    if turned or not len(rows):
        return []
    apart = s("Transpose", _measured(s, s.operand(0), rows, kind), perm=[1, 0])
    return s.finish(s.operand(0), apart)


def _of_microsoft(node: NodeProto, facts: Facts) -> list[NodeProto]:
    if node.op_type != "CDist" or node.domain != "com.microsoft":
        return []
    s = Steps(node, facts)
    rows, metric = s.known(1), s.attribute("metric", SQUARES)
    if rows is None or rows.dtype != np.float32 or metric not in (SQUARES, "euclidean"):
        return []
    squares = _measured(s, s.operand(0), rows, SQUARES)
    return s.finish(squares if metric == SQUARES else s("Sqrt", squares))


def _form(body: GraphProto) -> str:
    """What a body measures of its two inputs, the state and one of the rows; "" if nothing."""
    makers = {output: node for node in body.node for output in node.output}
    state, one = (info.name for info in body.input)
    kept, found = (_through(info.name, makers) for info in body.output)
    chain: list[str] = []
    while found in makers:
        chain.insert(0, makers[found].op_type)
        if makers[found].op_type == "Sub":
            pair = set(makers[found].input)
            return FORMS.get(tuple(chain), "") if pair == {state, one} and kept == state else ""
        if not _by_row(makers[found], body):
            return ""
        found = makers[found].input[0]
    return ""


def _by_row(node: NodeProto, body: GraphProto) -> bool:
    """Whether it adds up the columns of each row, or adds up nothing."""
    if node.op_type == "Abs":
        return True
    literals = {tensor.name: numpy_helper.to_array(tensor) for tensor in body.initializer}
    given = attributes_of(node)
    axes = literals.get(node.input[1]) if len(node.input) > 1 else given.get("axes")
    columns = axes is not None and np.ravel(axes).tolist() in ([1], [-1])
    return columns and not given.get("keepdims", 1)


def _through(name: str, makers: dict[str, NodeProto]) -> str:
    while name in makers and makers[name].op_type == "Identity":
        name = makers[name].input[0]
    return name


def _measured(s: Steps, x: str, rows: Floats, kind: str) -> str:
    """Distances, [rows of x, rows of the model]."""
    x = s("Cast", x, to=TensorProto.FLOAT)
    if kind == SIZES:
        wide = _wide(s, x)
        sizes = s("Abs", s("Sub", wide, s.weight(rows[np.newaxis], "rows")))
        return _summed(s, sizes, 2)
    mean = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
    x, rows = s("Sub", x, s.weight(mean[np.newaxis], "mean")), rows - mean
    square = s("MatMul", s("Mul", x, x), s.numbers(np.ones((rows.shape[1], 1))))
    cross = s("MatMul", x, s.weight(-2 * rows.T, "rows"))
    ends = s.weight((rows**2).sum(axis=1)[np.newaxis], "sizes")
    return s("Relu", s("Add", s("Add", cross, square), ends))


def _wide(s: Steps, x: str) -> str:
    if s.facts.opset >= FIRST_OF_AXES:
        return s("Unsqueeze", x, s.integers(1))
    return s("Unsqueeze", x, axes=[1])


def _summed(s: Steps, x: str, axis: int) -> str:
    if s.facts.opset >= FIRST_OF_AXES:
        return s("ReduceSum", x, s.integers(axis), keepdims=0)
    return s("ReduceSum", x, axes=[axis], keepdims=0)


def _rank_squares(graph: GraphProto) -> None:
    """TopK of roots that nothing else reads becomes roots of TopK: both are in the same order."""
    read = Counter(name for node in graph.node for name in node.input)
    read.update(info.name for info in graph.output)
    roots = {n.output[0]: n for n in graph.node if n.op_type == "Sqrt" and not n.domain}
    found: list[NodeProto] = []
    for node in graph.node:
        root = roots.get(node.input[0]) if node.op_type == "TopK" and not node.domain else None
        found.append(node)
        if root is None or read[root.output[0]] > 1:
            continue
        found.remove(root)
        values, node.input[0] = node.output[0], root.input[0]
        node.output[0] = f"{node.name}/squares"
        if values in read:
            found.append(helper.make_node("Sqrt", [node.output[0]], [values], name=root.name))
    replace_nodes(graph, found)
