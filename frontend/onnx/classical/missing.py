"""Numbers that may be missing: where a model asks for that, an input gets a secret flag a column.

    Imputer of NaN     x + f v              0 is in the place of what is missing
    IsNaN              f
    a tree's node      u + f (d - u)        d: whether a row without the number goes the way of yes

Flags stand behind the columns of an input (ir/plan/given.py). What moves columns, and a Scaler,
passes on what is missing; anything else is as if nothing were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from veilgraph.frontend.onnx.classical.given_columns import Missing, Sources
from veilgraph.frontend.onnx.classical.texts import MOVES, moved
from veilgraph.frontend.onnx.constant_folding import replace_nodes
from veilgraph.frontend.onnx.nodes import attributes_of
from veilgraph.ir.plan.given import Given

TREES = ("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor")
ELEMENTWISE = ("Cast", "Scaler")
FIRST_OF_SLICE = 10  # the default opset in which its bounds are inputs


def read_missing(
    model: ModelProto,
    opset: int,
    shapes: Mapping[str, Sequence[int]],
    *,
    of_trees: bool,
) -> Missing:
    """Adds flags to the inputs of nodes that ask for them, in place; names of nodes are unique.

    Args:
        shapes: of inputs that the model leaves open, by name.
        of_trees: whether trees take rows in which numbers are missing.
    """
    graph, found = model.graph, Missing()
    inputs = {i.name: w for i in graph.input if (w := _columns(i, shapes.get(i.name, ())))}
    first = dict(zip(inputs, np.cumsum([0, *inputs.values()]).tolist(), strict=False))
    sources = {n: np.arange(first[n], first[n] + width)[np.newaxis] for n, width in inputs.items()}
    found.zeros |= sources.keys()
    asked: set[int] = set()
    asking: dict[str, str] = {}
    of_any: set[str] = set()
    for node in graph.node:
        known = sources.get(node.input[0]) if node.input else None
        if known is not None and known.ndim == 2:
            wanted = _asked(node, known, of_trees)
            asked |= wanted
            if wanted:
                asking[node.input[0]] = node.input[0]
            if node.op_type in TREES:
                of_any.add(node.input[0])
        _pass_on(node, model, sources, found.zeros)
    if not asked:
        return Missing()
    for name in of_any:  # what is missing for others goes its way in these trees too
        if not asked.isdisjoint(sources[name][0].tolist()):
            asking[name] = name
    for name, width in inputs.items():
        flagged = tuple(i for i in range(width) if first[name] + i in asked)
        if flagged:
            found.given[name] = Given(flagged=flagged)
    named = _write(model, opset, found, inputs)
    asking = {name: named.get(name, name) for name in asking}
    _add_flags(model, found, asking, sources, sorted(asked))
    return found


def _columns(info: ValueInfoProto, shape: Sequence[int]) -> int:
    kind = info.type.tensor_type
    extents = kind.shape.dim
    if kind.elem_type not in (TensorProto.FLOAT, TensorProto.DOUBLE) or len(extents) != 2:
        return 0
    return int(shape[1]) if len(shape) == 2 else extents[1].dim_value


def _asked(node: NodeProto, sources: Sources, of_trees: bool) -> set[int]:
    """The columns of inputs of which a node asks whether a number is missing."""
    given = attributes_of(node)
    columns = sources[0].tolist()
    if node.op_type == "IsNaN":
        return set(columns)
    if node.op_type == "Imputer":
        return set(columns) if np.isnan(given.get("replaced_value_float", 0.0)) else set()
    tracks = given.get("nodes_missing_value_tracks_true", [])
    if node.op_type not in TREES or not of_trees or not any(tracks):
        return set()
    return set(columns)  # a row may lack what no node asks about


def _pass_on(
    node: NodeProto, model: ModelProto, sources: dict[str, Sources], zeros: set[str]
) -> None:
    read = [name for name in node.input if name in sources]
    if not read:
        return
    if node.op_type in ELEMENTWISE:
        sources[node.output[0]] = sources[read[0]]
        if node.op_type == "Cast" and read[0] in zeros:
            zeros.add(node.output[0])
    elif node.op_type in MOVES:
        sources |= moved(node, model, sources) or {}
        if zeros.issuperset(read):
            zeros.update(node.output)


def _write(
    model: ModelProto,
    opset: int,
    found: Missing,
    inputs: Mapping[str, int],
) -> dict[str, str]:
    """Inputs get their flags; nodes read the numbers in place of the input, whose names it says."""
    graph = model.graph
    named: dict[str, str] = {}
    made: list[NodeProto] = []
    for info in graph.input:
        given = found.given.get(info.name)
        if given is None:
            continue
        width, count = inputs[info.name], len(given.flagged)
        if info.type.tensor_type.shape.dim[1].dim_value:
            info.type.tensor_type.shape.dim[1].dim_value = width + count
        named[info.name] = f"{info.name}/numbers"
        for name, bounds in (("numbers", (0, width)), ("flags", (width, width + count))):
            made += _slice(f"{info.name}/{name}", info.name, bounds, opset)
    flags = [f"{name}/flags" for name in found.given]
    half = numpy_helper.from_array(np.float32(0.5), "missing/half")
    parts = flags if len(flags) == 1 else ["missing/all"]
    if len(flags) > 1:
        made.append(helper.make_node("Concat", flags, parts, parts[0], axis=1))
    made += [
        helper.make_node("Constant", [], ["missing/half"], "missing/half", value=half),
        helper.make_node("Greater", [parts[0], "missing/half"], ["missing/is"], "missing/is"),
        helper.make_node("Cast", ["missing/is"], ["missing"], "missing", to=TensorProto.FLOAT),
    ]
    for node in graph.node:
        node.input[:] = [named.get(name, name) for name in node.input]
    found.zeros.update(named.values())
    replace_nodes(graph, [*made, *graph.node])
    return named


def _slice(name: str, x: str, bounds: tuple[int, int], opset: int) -> list[NodeProto]:
    """The columns from one on up to another."""
    start, end = bounds
    if 0 < opset < FIRST_OF_SLICE:
        return [helper.make_node("Slice", [x], [name], name, axes=[1], starts=[start], ends=[end])]
    made = []
    for what, number in (("start", start), ("end", end), ("axis", 1)):
        tensor = numpy_helper.from_array(np.array([number], np.int64), f"{name}/{what}")
        made.append(helper.make_node("Constant", [], [tensor.name], tensor.name, value=tensor))
    return [*made, helper.make_node("Slice", [x, *(n.output[0] for n in made)], [name], name)]


def _add_flags(
    model: ModelProto,
    found: Missing,
    asking: Mapping[str, str],
    sources: Mapping[str, Sources],
    asked: Sequence[int],
) -> None:
    """The flags of each tensor that nodes ask about; of a column that nobody asks about any."""
    made, at = list[NodeProto](), {column: place for place, column in enumerate(asked)}
    for name, tensor in asking.items():
        places = [at.get(column, 0) for column in sources[name][0].tolist()]
        output = f"{tensor}/missing"
        indices = numpy_helper.from_array(np.array(places, np.int64), f"{output}/places")
        made.append(helper.make_node("Constant", [], [indices.name], indices.name, value=indices))
        made.append(helper.make_node("Gather", ["missing", indices.name], [output], output, axis=1))
        found.flags[tensor] = output
    nodes = list(model.graph.node)
    for node in nodes:
        if node.op_type == "IsNaN" and node.input[0] in found.flags:
            node.op_type, node.input[0] = "Cast", found.flags[node.input[0]]
            node.attribute.append(helper.make_attribute("to", TensorProto.BOOL))
    end = next(i for i, node in enumerate(nodes) if node.name == "missing") + 1
    replace_nodes(model.graph, [*nodes[:end], *made, *nodes[end:]])
