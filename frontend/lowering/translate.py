"""A lowered function of aten operations as a program of the graph level."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch_mlir import ir

from veilgraph.frontend.lowering.aten import ROWS
from veilgraph.frontend.lowering.masks import Masks
from veilgraph.frontend.lowering.operands import (
    Aten,
    Unsupported,
    literal_array,
    vtensor_element,
    vtensor_shape,
)
from veilgraph.frontend.lowering.torch_mlir import Lowered
from veilgraph.ir.attributes import shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, defining, name_of, take_name

READ_IN_PLACE = ("torch.constant.", "torch.prim.ListConstruct")  # operands that rows read


@dataclass(frozen=True)
class Refused:
    """An operation that isn't in the table, or is so in a form that no row takes."""

    node: str
    operation: str
    reason: str
    way_out: str


class Untranslatable(Exception):
    """A function with operations that the graph level can't say, all of them."""

    def __init__(self, refused: list[Refused]) -> None:
        super().__init__(", ".join(f"{entry.node}: {entry.reason}" for entry in refused))
        self.refused = refused

    @property
    def whatever_shapes(self) -> bool:
        """Whether an operation is missing, and not just a form of one."""
        kinds = (entry.operation for entry in self.refused)
        return any(kind not in (*ROWS, "torch.operator") for kind in kinds)


def translate(
    lowered: Lowered,
    weights: Mapping[str, NDArray[np.float32]],
    public: Mapping[str, NDArray[np.float32]] | None = None,
    matrices: Mapping[str, NDArray[np.float32]] | None = None,
) -> Graph:
    """Builds the program, with `weights` (by argument name) beside it.

    Args:
        public: arguments that are no inputs either: single numbers, and tensors of integers.
        matrices: more of them, which become constants of the program.

    Raises:
        Untranslatable: operations that have no row, or that their row refuses.
    """
    block = lowered.module.body.operations[0].regions[0].blocks[0]
    arguments = dict(zip(lowered.arguments, block.arguments, strict=True))
    known = {**(public or {}), **(matrices or {})}
    given = {n: v for n, v in arguments.items() if n not in weights and n not in known}
    inputs = {name: vtensor_shape(value) for name, value in given.items()}
    graph = Graph.create(lowered.module.context, inputs, weights)
    values = {arguments[n]: v for n, v in (graph.inputs | graph.parameters).items()}
    *body, returned = block.operations
    names: dict[ir.Value, str] = {}
    for value, node in zip(returned.operands, lowered.nodes, strict=True):
        names.setdefault(value, node)
    whole = {value for v, value in values.items() if vtensor_element(v) != "f32"}
    truths = {value for v, value in values.items() if vtensor_element(v) == "i1"}
    translation = Translation(graph, values, names, whole=whole, truths=truths)
    for name, array in known.items():
        constant = array.size == 1 or name in (matrices or {})
        make = translation.constant if constant else translation.integral
        translation.values[arguments[name]] = make(name, array)
    for op in body:
        if not op.operation.name.startswith(READ_IN_PLACE):
            translation.add(op)
    if translation.refused:
        raise Untranslatable(translation.refused)
    named = zip(lowered.outputs, returned.operands, strict=False)
    outputs = {name: values[value] for name, value in named}
    Masks(graph, outputs.values(), translation.truths, translation.whole).bound()
    graph.finish(outputs)
    return graph


@dataclass
class Translation:
    """A program while it is built.

    Attributes:
        graph: what is built so far.
        values: the graph value of each aten value.
        names: the node whose output an aten value is.
        refused: what has no graph operation.
        lost: aten values of which nothing is known, because they or their operands were refused.
        integers: the model's integer tensors, by the weight that each one is.
        whole: values of integer types, or that were once of one.
        truths: values that are truth values, or were once.
    """

    graph: Graph
    values: dict[ir.Value, ir.Value]
    names: Mapping[ir.Value, str]
    refused: list[Refused] = field(default_factory=list)
    lost: set[ir.Value] = field(default_factory=set)
    integers: dict[ir.Value, NDArray[np.float32]] = field(default_factory=dict)
    whole: set[ir.Value] = field(default_factory=set)
    truths: set[ir.Value] = field(default_factory=set)

    def add(self, op: ir.OpView) -> None:
        """Builds graph operations for one aten operation, or notes why there are none."""
        results = list(op.operation.results)
        if not self.lost.isdisjoint(_read(op)):
            self.lost.update(results)
            return
        exact = [self.names.get(result, "") for result in results]
        try:
            with self.graph.end(f"{exact[0] or name_of(op)}/"):
                values = self._build(op)
        except (Unsupported, ValueError) as error:
            self.lost.update(results)
            self.refused.append(_refused(op, error))
            return
        for result, value, name in zip(results, values, exact, strict=True):
            self.values[result] = value
            if name:
                take_name(value, name)

    def _build(self, op: ir.OpView) -> tuple[ir.Value, ...]:
        """The operation's results."""
        kind = op.operation.name
        if kind == "torch.vtensor.literal":
            return (self._literal(op),)
        if kind == "torch.operator":
            kind = f"ONNX {op.operation.attributes['name'].value.removeprefix('onnx.')}"
        if kind not in ROWS:
            raise Unsupported(f"The operator {_written(kind)} isn't supported.")
        aten = Aten(op, self.values, self.integers, self.whole)
        made = ROWS[kind](aten)
        values = made if isinstance(made, tuple) else (made,)
        for value, shape in zip(values, aten.shapes, strict=True):
            if shape_of(value) != shape:
                raise Unsupported(f"It makes {shape_of(value)}, where the model says {shape}.")
        for value, result in zip(values, op.operation.results, strict=True):
            if vtensor_element(result) != "f32":
                self.whole.add(value)
            if vtensor_element(result) == "i1":
                self.truths.add(value)
        return values

    def _literal(self, op: ir.OpView) -> ir.Value:
        """Real numbers that the lowering made, and single numbers, are public; integers are not.

        The model's own real numbers are weights, and no literals (see prepare.py).
        """
        array, real = literal_array(op), vtensor_element(op.operation.results[0]) == "f32"
        if real or array.size == 1:
            return ops.Constant.build(value=array)
        names = (f"{name_of(op) or 'integers'}.{count}" for count in itertools.count(1))
        return self.integral(next(n for n in names if n not in self.graph.weights), array)

    def constant(self, name: str, array: NDArray[np.float32]) -> ir.Value:
        """The value of an argument that is a single number, or public otherwise."""
        with self.graph.end(f"{name}/"):
            return ops.Constant.build(value=array)

    def integral(self, name: str, array: NDArray[np.float32]) -> ir.Value:
        """The value of a tensor of integers."""
        weight = self.graph.add_weights({name: array})[name]
        self.integers[weight] = array
        return weight


def _written(kind: str) -> str:
    """What people call an operation: `empty` for `torch.aten.empty.memory_format`."""
    parts = kind.removeprefix("torch.").split(".")
    return parts[1] if parts[0] in ("aten", "prims") and len(parts) > 1 else ".".join(parts)


def _refused(op: ir.OpView, error: Unsupported | ValueError) -> Refused:
    if isinstance(error, Unsupported):
        return Refused(name_of(op), op.operation.name, error.reason, error.way_out)
    # A builder says which extents or attributes of the model don't fit.
    return Refused(name_of(op), op.operation.name, f"It isn't legal: {error}.", "")


def _read(op: ir.OpView) -> list[ir.Value]:
    """The values that an operation reads, those in lists included."""
    found: list[ir.Value] = []
    for value in op.operation.operands:
        maker = defining(value)
        if maker is not None and maker.operation.name == "torch.prim.ListConstruct":
            found.extend(maker.operation.operands)
        else:
            found.append(value)
    return found
