"""If, Loop and Scan, written out: what is public decides, and a body becomes as many copies.

    If, of a known condition       the branch that is taken
    If, of a secret one            both branches, and Where; they must give the same shapes
    Loop                           a copy of the body each time; how often it runs must be known
    Scan                           a copy of the body for each place of its sequences

Bodies lie within the graph: they read names of the graph around them. A copy's own names are put
after the node's, and constants of a body are there once for all copies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, helper, numpy_helper

from veilgraph.frontend.onnx.constant_folding import Literals, replace_nodes, static_shapes
from veilgraph.frontend.onnx.nodes import attributes_of

CONTROL_FLOW = frozenset(("If", "Loop", "Scan"))
MOST_TURNS = 1024
MOST_NODES = 1 << 16
AXES_ARE_INPUTS = 13  # opset from which Unsqueeze takes its axes as an input
OLDEST_SCAN = 9  # before it sequences came in batches
Known = Callable[[ModelProto], Literals]


def unroll(model: ModelProto, known: Known) -> None:
    """Writes out the control flow of a model whose input shapes are fixed, in place.

    What can't be written out stays, and is refused later with a reason.

    Args:
        known: what is public of a model's tensors, by name.
    """
    progress = True
    while progress and _waiting(model):
        progress = _Turn(model, known).run(secret=False) or _Turn(model, known).run(secret=True)


def _waiting(model: ModelProto) -> list[NodeProto]:
    return [n for n in model.graph.node if n.op_type in CONTROL_FLOW and not n.domain]


def _is_whole(node: NodeProto, version: int) -> bool:
    """Whether it is control flow, with the bodies and the operands that it must have."""
    known = onnx.defs.has(node.op_type, max_inclusive_version=version)
    if node.op_type not in CONTROL_FLOW or node.domain or not known:
        return False
    schema = onnx.defs.get_schema(node.op_type, version)
    given = {attribute.name: attribute.type for attribute in node.attribute}
    needed = [each for each in schema.attributes.values() if each.required]
    has_bodies = all(given.get(each.name) == each.type.value for each in needed)
    return has_bodies and len(node.input) >= schema.min_input


@dataclass
class _Turn:
    """One pass over the nodes of the main graph.

    Attributes:
        nodes: what takes the place of one.
    """

    model: ModelProto
    known: Known
    literals: Literals = field(init=False)
    nodes: list[NodeProto] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.literals = self.known(self.model)
        self.version = max(e.version for e in self.model.opset_import if not e.domain)

    def run(self, secret: bool) -> bool:
        """Writes out all nodes that can be, of secret Ifs one; whether there was any.

        Args:
            secret: whether a condition may be one.
        """
        rules = {"If": self._both if secret else self._if, "Loop": self._loop, "Scan": self._scan}
        graph, found, progress = self.model.graph, list[NodeProto](), False
        for node in graph.node:
            self.nodes, before = [node], len(graph.initializer)
            if _is_whole(node, self.version) and not (secret and progress):
                self.nodes = []
                if rules[node.op_type](node) and len(found) + len(self.nodes) <= MOST_NODES:
                    progress = True
                else:
                    self.nodes = [node]
                    del graph.initializer[before:]
            found += self.nodes
        if progress:
            replace_nodes(graph, found)
        return progress

    def _number(self, name: str) -> Any:
        """The one public number that a tensor is, or None."""
        tensor = self.literals.get(name)
        values = None if tensor is None else numpy_helper.to_array(tensor)
        return None if values is None or values.size != 1 else values.reshape(-1)[0]

    def _if(self, node: NodeProto) -> bool:
        condition = self._number(node.input[0])
        if condition is None:
            return False
        name = "then_branch" if condition else "else_branch"
        body = _Body.of(self, node, name)
        self._finish(node, body.copy("", {}))
        return True

    def _both(self, node: NodeProto) -> bool:
        branches = [
            _Body.of(self, node, name).copy(f"{name}/", {})
            for name in ("then_branch", "else_branch")
        ]
        if any(len(branch) != len(node.output) for branch in branches):
            return False
        shapes = static_shapes(self._so_far(node), {})
        pairs = list(zip(*branches, strict=True))
        if any(shapes.get(a) is None or shapes.get(a) != shapes.get(b) for a, b in pairs):
            return False
        flat = self._constant(f"{node.name}/no axes", np.zeros(0, np.int64))
        condition = self._make("Reshape", [node.input[0], flat], f"{node.name}/condition")
        found = [
            self._make("Where", [condition, *pair], f"{node.name}/{output}/chosen")
            for output, pair in zip(node.output, pairs, strict=True)
        ]
        self._finish(node, found)
        return True

    def _so_far(self, node: NodeProto) -> ModelProto:
        """The model up to a node, and what was written in its place by now; without outputs."""
        found = ModelProto()
        found.CopyFrom(self.model)
        ahead = takewhile(lambda other: other.name != node.name, self.model.graph.node)
        replace_nodes(found.graph, [*ahead, *self.nodes])
        del found.graph.output[:]
        return found

    def _loop(self, node: NodeProto) -> bool:
        """Turn after turn; where the body decides about the next, it must decide in public."""
        body = _Body.of(self, node, "body")
        most = self._number(node.input[0]) if node.input[0] else MOST_TURNS + 1
        going = self._number(node.input[1]) if len(node.input) > 1 and node.input[1] else True
        states = list(node.input[2:])
        if most is None or going is None or len(states) + 2 != len(body.graph.input):
            return False
        rows: list[list[str]] = [[] for _ in body.graph.output[1 + len(states) :]]
        turn = 0
        while turn < most and going:
            if turn == MOST_TURNS or len(self.nodes) > MOST_NODES:
                return False
            numbers = (
                self._constant(f"{node.name}/turn.{turn}", np.int64(turn)),
                self._constant(f"{node.name}/going.{turn}", np.bool_(True)),
            )
            feeds = dict(zip(body.inputs, (*numbers, *states), strict=True))
            decision, *made = body.copy(f"{turn}/", feeds)
            states, turn = made[: len(states)], turn + 1
            for row, part in zip(rows, made[len(states) :], strict=True):
                row.append(part)
            going = self._decided(node, decision) if turn < most else False
            if going is None:
                return False
        if rows and not turn:
            return False
        stacked = [self._stacked(row, 0, f"{node.name}/rows.{i}") for i, row in enumerate(rows)]
        self._finish(node, [*states, *stacked])
        return True

    def _decided(self, node: NodeProto, decision: str) -> Any:
        """Whether the loop goes on, if that is public."""
        makers = {name: made for made in self.nodes for name in made.output}
        while decision in makers and makers[decision].op_type == "Identity":
            decision = makers[decision].input[0]
        for tensor in self.model.graph.initializer:
            if tensor.name == decision:
                return bool(numpy_helper.to_array(tensor).reshape(-1)[0])
        if decision not in makers:
            return self._number(decision)
        tensor = self.known(self._so_far(node)).get(decision)
        return None if tensor is None else bool(numpy_helper.to_array(tensor).reshape(-1)[0])

    def _scan(self, node: NodeProto) -> bool:
        if self.version < OLDEST_SCAN:
            return False
        body, given = _Body.of(self, node, "body"), attributes_of(node)
        count = int(given["num_scan_inputs"])
        states, sequences = list(node.input[:-count]), list(node.input[-count:])
        results = len(body.graph.output) - len(states)
        shapes = static_shapes(self.model, {})
        shapes |= {tensor.name: tuple(tensor.dims) for tensor in self.model.graph.initializer}
        if any(name not in shapes for name in sequences):
            return False
        axes = [int(a) for a in given.get("scan_input_axes", [0] * count)]
        backwards = given.get("scan_input_directions", [0] * count)
        length = shapes[sequences[0]][axes[0]]
        rows: list[list[str]] = [[] for _ in range(results)]
        if not 0 < length <= MOST_TURNS:
            return False
        for turn in range(length):
            parts = []
            for i, name in enumerate(sequences):
                place = length - 1 - turn if backwards[i] else turn
                at = self._constant(f"{node.name}/{turn}/place.{i}", np.int64(place))
                label = f"{node.name}/{turn}/part.{i}"
                axis = axes[i] % len(shapes[name])
                parts.append(self._make("Gather", [name, at], label, axis=axis))
            made = body.copy(f"{turn}/", dict(zip(body.inputs, (*states, *parts), strict=True)))
            states = made[: len(states)]
            for row, part in zip(rows, made[len(states) :], strict=True):
                row.append(part)
        axes = [int(a) for a in given.get("scan_output_axes", [0] * results)]
        turned = given.get("scan_output_directions", [0] * results)
        stacked = [
            self._stacked(row[::-1] if turned[i] else row, axes[i], f"{node.name}/rows.{i}")
            for i, row in enumerate(rows)
        ]
        self._finish(node, [*states, *stacked])
        return True

    def _stacked(self, parts: Sequence[str], axis: int, label: str) -> str:
        """The parts along a new axis."""
        wide = []
        for i, part in enumerate(parts):
            if self.version < AXES_ARE_INPUTS:
                wide.append(self._make("Unsqueeze", [part], f"{label}.{i}", axes=[axis]))
            else:
                axes = self._constant(f"{label}.{i}/axes", np.array([axis], np.int64))
                wide.append(self._make("Unsqueeze", [part, axes], f"{label}.{i}"))
        return self._make("Concat", wide, label, axis=axis)

    def _finish(self, node: NodeProto, results: Sequence[str]) -> None:
        """Lets the node's outputs be these tensors."""
        for output, result in zip(node.output, results, strict=False):
            if output:
                self._make("Identity", [result], output)
        self.nodes[-1].name = node.name

    def _make(self, operator: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def _constant(self, name: str, values: ArrayLike) -> str:
        tensor = numpy_helper.from_array(np.asarray(values), name)
        self.model.graph.initializer.append(tensor)
        return name


@dataclass
class _Body:
    """A graph within a node.

    Attributes:
        names: of the constants of all copies, by those in the body.
    """

    turn: _Turn
    node: NodeProto
    graph: GraphProto
    names: dict[str, str]

    @staticmethod
    def of(turn: _Turn, node: NodeProto, attribute: str) -> _Body:
        """The body that an attribute is; its constants become those of the model."""
        graph = attributes_of(node)[attribute]
        constants = list(graph.initializer)
        for inner in graph.node:
            value = attributes_of(inner).get("value") if inner.op_type == "Constant" else None
            if value is not None:
                constants.append(value)
                constants[-1].name = inner.output[0]
        names = {}
        for tensor in constants:
            names[tensor.name] = f"{node.name}/{attribute}/{tensor.name}"
            added = turn.model.graph.initializer.add()
            added.CopyFrom(tensor)
            added.name = names[tensor.name]
        return _Body(turn, node, graph, names)

    @property
    def inputs(self) -> list[str]:
        return [info.name for info in self.graph.input]

    def copy(self, label: str, feeds: Mapping[str, str]) -> list[str]:
        """Writes the body's nodes once; the names of its outputs in this copy."""
        names = {**self.names, **feeds}
        for inner in self.graph.node:
            for name in inner.output:
                if name and name not in self.names:
                    names[name] = f"{self.node.name}/{label}{name}"
        for inner in self.graph.node:
            if inner.output and inner.output[0] in self.names:
                continue
            made = NodeProto()
            made.CopyFrom(inner)
            rename(made, names)
            made.name = f"{self.node.name}/{label}{inner.name or inner.output[0]}"
            self.turn.nodes.append(made)
        return [names.get(info.name, info.name) for info in self.graph.output]


def rename(node: NodeProto, names: Mapping[str, str]) -> None:
    """Other names for what a node reads and makes, the graphs within it included."""
    node.input[:] = [names.get(name, name) for name in node.input]
    node.output[:] = [names.get(name, name) for name in node.output]
    for attribute in node.attribute:
        graphs = [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs
        for graph in graphs:
            own = {name for inner in graph.node for name in inner.output}
            own |= {info.name for info in (*graph.input, *graph.initializer)}
            around = {name: new for name, new in names.items() if name not in own}
            for inner in graph.node:
                rename(inner, around)
            for info in graph.output:
                info.name = around.get(info.name, info.name)
