"""Nodes that take the place of one ONNX node, and what is known about its operands.

A decomposition reads its node through `Steps`, calls it for each node that it needs, and names the
results. Numbers that it makes are public: they follow from the graph alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from veilgraph.frontend.lowering.operands import Unsupported
from veilgraph.frontend.onnx.classical.given_columns import Missing, Texts
from veilgraph.ir.graph.table_options import Trees

Shape = tuple[int, ...]
Array = NDArray[Any]

FIRST_OF_SLICE = 10  # the default opset in which its bounds are inputs
# Those in which axes become an input.
FIRST_OF_AXES = {"Squeeze": 13, "Unsqueeze": 13}
AXES_OF_OTHERS = 18


@dataclass
class Facts:
    """What is known of a model's tensors by name.

    Attributes:
        shapes: of all tensors whose shapes are fixed.
        elements: their element types, as ONNX numbers them.
        literals: the values that are public.
        weights: the owner's values; what follows from them is a weight again.
        opset: version of the default operator set.
        secret: names of the tensors that follow from an input.
        trees: whether the structure of decision trees is public.
        whole: names of weights that everybody knows to be integers; takes what is added.
        structures: what everybody learns of trees, by the name of their node; takes what is added.
        classes: names of tensors that hold the place of a class among all, as an ArgMax makes it.
        leaves: names of tensors that hold what a single tree ensemble says of a row.
        texts: tables of the categories of text.
        missing: what is known of numbers that may be missing.
    """

    shapes: Mapping[str, Shape]
    elements: Mapping[str, int]
    literals: Mapping[str, TensorProto]
    weights: dict[str, NDArray[np.float32]]
    opset: int
    secret: frozenset[str]
    trees: Trees = Trees.PUBLIC
    whole: set[str] = field(default_factory=set)
    structures: dict[str, str] = field(default_factory=dict)
    classes: frozenset[str] = frozenset()
    leaves: frozenset[str] = frozenset()
    texts: Texts = field(default_factory=Texts)
    missing: Missing = field(default_factory=Missing)

    @staticmethod
    def of(model: ModelProto, weights: dict[str, NDArray[np.float32]]) -> Facts:
        """Of a model with inferred types; `weights` takes what decompositions add."""
        graph = model.graph
        infos = {info.name: info for info in (*graph.input, *graph.value_info, *graph.output)}
        types = {name: info.type.tensor_type for name, info in infos.items()}
        shapes = {
            name: tuple(dim.dim_value for dim in kind.shape.dim)
            for name, kind in types.items()
            if kind.HasField("shape") and all(d.HasField("dim_value") for d in kind.shape.dim)
        }
        elements = {name: kind.elem_type for name, kind in types.items()}
        literals = {tensor.name: tensor for tensor in graph.initializer}
        literals |= dict(constants(graph))
        shapes |= {name: tuple(tensor.dims) for name, tensor in literals.items()}
        elements |= {name: tensor.data_type for name, tensor in literals.items()}
        version = max(entry.version for entry in model.opset_import if not entry.domain)
        inputs = {info.name for info in graph.input} - weights.keys()
        secret = following(graph, inputs)
        return Facts(shapes, elements, literals, weights, version, secret)


def attributes_of(node: NodeProto) -> dict[str, Any]:
    """What a node says beside its operands, by name."""
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def constants(graph: GraphProto) -> Iterator[tuple[str, TensorProto]]:
    """The tensors that are nodes, by the name of what they make."""
    for node in graph.node:
        if node.op_type == "Constant":
            yield from ((node.output[0], a.t) for a in node.attribute if a.name == "value")


def names_read(graph: GraphProto) -> set[str]:
    """The names that nodes and outputs read, those of graphs within nodes included."""
    read = {name for node in graph.node for name in node.input}
    inner = [attribute.g for node in graph.node for attribute in node.attribute]
    return read.union({info.name for info in graph.output}, *map(names_read, inner))


def following(graph: GraphProto, names: Collection[str]) -> frozenset[str]:
    """`names`, and all tensors whose values depend on these."""
    found = set(names)
    for node in graph.node:
        if node.op_type not in ("Shape", "Size") and not found.isdisjoint(node.input):
            found.update(node.output)
    return frozenset(found)


class Steps:
    """Writes nodes in place of `node`, each named after it."""

    def __init__(self, node: NodeProto, facts: Facts) -> None:
        self.node, self.facts = node, facts
        self.made: list[NodeProto] = []
        self._next = 0  # number in a name
        self._given = attributes_of(node)

    def attribute(self, name: str, default: Any) -> Any:
        """An attribute of the node; strings as text."""
        value = self._given.get(name, default)
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, list) and value and isinstance(value[0], bytes):
            return [entry.decode() for entry in value]
        return value

    def operand(self, index: int) -> str:
        """Name of the node's operand `index`; "" where it is left out."""
        return str(self.node.input[index]) if index < len(self.node.input) else ""

    def shape(self, index: int) -> Shape:
        """Shape of operand `index`."""
        return self.facts.shapes[self.operand(index)]

    def result_shape(self, index: int = 0) -> Shape:
        """Shape of the node's output `index`."""
        return self.facts.shapes[self.node.output[index]]

    def element(self, index: int) -> int:
        """Element type of operand `index`."""
        return self.facts.elements[self.operand(index)]

    def known(self, index: int) -> Array | None:
        """The public value of operand `index`; None where it isn't public, or is left out."""
        tensor = self.facts.literals.get(self.operand(index))
        return None if tensor is None else np.asarray(numpy_helper.to_array(tensor))

    def public(self, index: int, what: str) -> Array:
        """The value of operand `index`, which must be public.

        Raises:
            Unsupported: it isn't.
        """
        value = self.known(index)
        if value is None:
            raise Unsupported(f"Its {what} are computed from data.", "Make them constants.")
        return value

    def __call__(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """The output of a new node."""
        return self.several(operator, inputs, 1, **attributes)[0]

    def several(
        self, operator: str, inputs: Sequence[str], outputs: int, **attributes: Any
    ) -> list[str]:
        """The outputs of a new node."""
        name = self._fresh(operator)
        names = [name if i == 0 else f"{name}:{i}" for i in range(outputs)]
        self.made.append(helper.make_node(operator, inputs, names, name=name, **attributes))
        return names

    def _fresh(self, what: str) -> str:
        """A name that no tensor has, also not of those that an earlier node of this name made."""
        number = max(len(self.made), self._next)
        while (name := f"{self.node.name}/{what}.{number}") in self.facts.elements:
            number += 1
        self._next = number + 1
        return name

    def numbers(self, values: ArrayLike, dtype: type[np.generic] = np.float32) -> str:
        """A public tensor."""
        name = self._fresh("numbers")
        tensor = numpy_helper.from_array(np.asarray(values, dtype=dtype), name)
        self.made.append(helper.make_node("Constant", [], [name], name=name, value=tensor))
        return name

    def integers(self, *values: int) -> str:
        """A public vector of integers: a shape, axes, positions."""
        return self.numbers(values, np.int64)

    def weight(self, values: ArrayLike, what: str = "", *, whole: bool = False) -> str:
        """A tensor that follows from the owner's weights, and is one.

        Args:
            what: it is there, for its name; a number if left out.
            whole: everybody knows that its numbers are small integers, whatever they are.
        """
        own = f".{what}" if what else f"/weight.{len(self.facts.weights)}"
        name = f"{self.node.name}{own}"
        self.facts.weights[name] = np.asarray(values, np.float32)
        if whole:
            self.facts.whole.add(name)
        return name

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        return self("Reshape", x, self.integers(*shape))

    def slice(self, x: str, axis: int, start: int, end: int, step: int = 1) -> str:
        """Part of x along an axis."""
        if 0 < self.facts.opset < FIRST_OF_SLICE and step == 1:
            return self("Slice", x, axes=[axis], starts=[start], ends=[end])
        bounds = (self.integers(number) for number in (start, end, axis, step))
        return self("Slice", x, *bounds)

    def along(self, operator: str, x: str, axis: int, **attributes: int) -> str:
        """An operator that takes axes, in the form of the model's opset."""
        if self.facts.opset >= FIRST_OF_AXES.get(operator, AXES_OF_OTHERS):
            return self(operator, x, self.integers(axis), **attributes)
        return self(operator, x, axes=[axis], **attributes)

    def plus(self, x: str, number: float) -> str:
        return x if number == 0 else self("Add", x, self.numbers(number))

    def times(self, x: str, number: float) -> str:
        return x if number == 1 else self("Mul", x, self.numbers(number))

    def finish(self, *results: str) -> list[NodeProto]:
        """The nodes made; `results` take the names of the node's outputs, the last node its name.

        A result that the node's operands hold already passes through an Identity.
        """
        outputs = dict(zip(self.node.output, results, strict=False))
        names: dict[str, str] = {}
        made = {output for node in self.made for output in node.output}
        for output, result in outputs.items():
            if not output:
                continue
            if result in names or result not in made:
                name = f"{self.node.name}/{output}"
                self.made.append(helper.make_node("Identity", [result], [output], name=name))
            else:
                names[result] = output
        first = next(filter(None, self.node.output))
        for node in self.made:
            node.input[:] = [names.get(name, name) for name in node.input]
            node.output[:] = [names.get(name, name) for name in node.output]
            if first in node.output:
                node.name = self.node.name
        return self.made
