"""The graph level: a program of tensor operations on real numbers, and its weights.

A program is one function `main`. Its arguments are the inputs, then the weights; each has the
attributes `graph.name` and `graph.role` ("input", "weight" or "state"), each result has
`graph.name`. A state is what a run finds as another left it. The
weights' values stay outside MLIR, in float32 arrays by name. Every operation has a name of its
own, its location: the name of the ONNX node whose output it computes, or, for a step on the way
there, that name and a suffix ("fc1", "fc1/matmul"). While a program is edited a name may end in
"/": a step, whose suffix `Graph.tidy` adds.

MLIR frees an operation when it is erased or its module goes: hold the `Graph`, and keep no
operation or value over an edit that may erase it.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch_mlir import ir
from torch_mlir.dialects import func

from veilgraph.ir.attributes import Shape, shape_of, tensor_type, to_attribute
from veilgraph.ir.graph.dialect import attributes_of
from veilgraph.ir.plan.given import Given

Array = NDArray[np.float32]


def name_of(op: ir.OpView) -> str:
    """The operation's name; "" where it has none."""
    location = op.location
    return str(location.name_str) if isinstance(location, ir.NameLoc) else ""


def kind_of(op: ir.OpView) -> str:
    """What the operation is: "conv", "relu", "concat"..."""
    return str(op.operation.name).partition(".")[2]


def attributes(op: ir.OpView) -> dict[str, Any]:
    """The attributes of a graph operation, or the axis of a `tensor.concat`, as Python values."""
    if op.operation.name == "tensor.concat":
        return {"axis": int(op.operation.attributes["dim"].value)}
    return attributes_of(op)


def defining(value: ir.Value) -> ir.OpView | None:
    """The operation that computes `value`; None for an argument."""
    return None if isinstance(value, ir.BlockArgument) else value.owner.opview


def users(value: ir.Value) -> list[ir.OpView]:
    """The operations that read `value`, the return among them, once for each use."""
    return [use.owner for use in value.uses]


def take_name(value: ir.Value, name: str) -> None:
    """Names the operation that computes `value`, if so far it was only a step."""
    op = defining(value)
    if op is not None and name_of(op).endswith("/"):
        op.location = ir.Location.name(name, context=op.operation.context)


@dataclass(frozen=True)
class QuantisersClip:
    """A clip to what the integers of a quantised tensor can say.

    Attributes:
        slack: a step of the integers: roundings before the clip move a value by as much anyway.
        has_lower: whether it has a lower bound; a maximum at its place is else the model's own.
    """

    slack: float
    has_lower: bool


@dataclass(frozen=True)
class Following:
    """How running statistics follow the batches of a model that trains.

    Attributes:
        momentum: the share of the way to a batch's statistic that a step goes.
        correction: what is taken from the number of values that a variance is the mean of: 1 where
            it is that of the population, and 0 where it is the batch's own.
        batches: of statistics that are means over all batches, of how many they are at first; None
            where `momentum` says how they follow.
    """

    momentum: float
    correction: int
    batches: int | None = None


@dataclass
class Graph:
    """A program of the graph level.

    Attributes:
        module: the MLIR module that holds `func.func @main`.
        weights: the value of each weight argument, float32.
        states: the names of those inputs that are states.
        clips: those of quantisers, by the name of their last operation.
        labels: the text that classes are called, by the output that has their places.
        masks: weights that are a dropout's masks, ones here, each with the share that is dropped.
        fixed: weights that training leaves as they are: buffers, constants, and parameters that ask
            for no gradient.
        whole: weights and inputs that everybody knows to be integers, whatever they are.
        structures: what everybody learns of the structure of trees, by the name of their node.
        given: how owners write inputs that are no plain numbers, by input.
        columns: the names of an input's columns, by input, where the model says them.
    """

    module: ir.Module
    weights: dict[str, Array]
    states: tuple[str, ...] = ()
    clips: Mapping[str, QuantisersClip] = field(default_factory=dict)
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    masks: Mapping[str, float] = field(default_factory=dict)
    fixed: Collection[str] = frozenset()
    whole: Collection[str] = frozenset()
    structures: Mapping[str, str] = field(default_factory=dict)
    given: dict[str, Given] = field(default_factory=dict)
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @staticmethod
    def create(
        context: ir.Context, inputs: Mapping[str, Shape], weights: Mapping[str, Array]
    ) -> Graph:
        """A program without operations: build at `end()`, then call `finish`."""
        with context, ir.Location.unknown():
            module = ir.Module.create()
            with ir.InsertionPoint(module.body):
                function = func.FuncOp("main", ([tensor_type(s) for s in inputs.values()], []))
            function.add_entry_block([ir.Location.name(name) for name in inputs])
            function.attributes["arg_attrs"] = _argument_attributes(dict.fromkeys(inputs, "input"))
        graph = Graph(module, {})
        graph.add_weights(weights)
        return graph

    @staticmethod
    def parse(context: ir.Context, text: str, weights: Mapping[str, Array]) -> Graph:
        """The program that `text` says; ir.MLIRError where it isn't one."""
        graph = Graph(ir.Module.parse(text, context), dict(weights))
        graph.states = tuple(graph._arguments("state"))
        return graph

    @property
    def function(self) -> func.FuncOp:
        return self.module.body.operations[0]

    @property
    def block(self) -> ir.Block:
        return self.function.entry_block

    @property
    def operations(self) -> list[ir.OpView]:
        """The operations in program order, without the return."""
        return list(self.block.operations)[:-1]

    @property
    def inputs(self) -> dict[str, ir.Value]:
        """What a run computes on, by name: what owners give, and states."""
        return self._arguments("input", "state")

    @property
    def parameters(self) -> dict[str, ir.Value]:
        """The weight arguments by name."""
        return self._arguments("weight")

    @property
    def outputs(self) -> dict[str, ir.Value]:
        """The returned values by the result's name."""
        names = [entry["graph.name"].value for entry in self.function.attributes["res_attrs"]]
        returned = list(self.block.operations)[-1]
        return dict(zip(names, returned.operands, strict=True))

    def _arguments(self, *roles: str) -> dict[str, ir.Value]:
        entries = self.function.attributes["arg_attrs"] if self.block.arguments else ()
        return {
            entry["graph.name"].value: argument
            for entry, argument in zip(entries, self.block.arguments, strict=True)
            if entry["graph.role"].value in roles
        }

    def known(self) -> set[ir.Value]:
        """The values that depend on weights and constants alone, weights included."""
        found = set(self.parameters.values())
        for op in self.operations:
            if all(operand in found for operand in op.operation.operands):
                found.add(op.operation.results[0])
        return found

    @contextmanager
    def before(self, op: ir.OpView) -> Iterator[None]:
        """Builds before `op`, as steps on the way to it."""
        step = ir.Location.name(f"{name_of(op).rstrip('/')}/", context=self.module.context)
        with self.module.context, ir.InsertionPoint(op), step:
            yield

    @contextmanager
    def at_start(self, name: str) -> Iterator[None]:
        """Builds ahead of all operations, under `name`."""
        start = ir.InsertionPoint.at_block_begin(self.block)
        with self.module.context, start, ir.Location.name(name):
            yield

    @contextmanager
    def end(self, name: str) -> Iterator[None]:
        """Builds at the end of a program that isn't finished, under `name`."""
        with self.module.context, ir.InsertionPoint(self.block), ir.Location.name(name):
            yield

    @contextmanager
    def ahead_of_return(self, name: str) -> Iterator[None]:
        """Builds behind all operations of a program that is finished, under `name`."""
        ending = list(self.block.operations)[-1]
        with self.module.context, ir.InsertionPoint(ending), ir.Location.name(name):
            yield

    def replace_outputs(self, outputs: Mapping[str, ir.Value]) -> None:
        """Lets a program that is finished return `outputs`."""
        list(self.block.operations)[-1].operation.erase()
        self.finish(outputs)

    def replace(self, op: ir.OpView, value: ir.Value) -> None:
        """Lets `value` take the place of the result of `op`, and its name; erases `op`."""
        take_name(value, name_of(op))
        op.operation.results[0].replace_all_uses_with(value)
        op.operation.erase()

    def finish(self, outputs: Mapping[str, ir.Value]) -> None:
        """Ends the program: returns `outputs`, drops what is unused, names every operation."""
        with self.module.context, ir.Location.unknown():
            with ir.InsertionPoint(self.block):
                func.ReturnOp(list(outputs.values()))
            names = [ir.DictAttr.get({"graph.name": ir.StringAttr.get(name)}) for name in outputs]
            self.function.attributes["res_attrs"] = ir.ArrayAttr.get(names)
            self._declare_type()
        self.tidy()

    def add_weights(self, weights: Mapping[str, Array]) -> dict[str, ir.Value]:
        """Appends weight arguments, of new names; the arguments by name."""
        assert self.weights.keys().isdisjoint(weights), "two weights share a name"
        inputs = list(self.inputs)
        self.weights.update({n: np.asarray(a, dtype=np.float32) for n, a in weights.items()})
        with self.module.context:
            values = {
                name: self.block.add_argument(tensor_type(array.shape), ir.Location.name(name))
                for name, array in weights.items()
            }
        self._declare_arguments(inputs)
        return values

    def copy(self) -> Graph:
        """The same program once more; its weights' arrays are shared."""
        return Graph.parse(self.module.context, self.text(), self.weights)

    def add_inputs(self, shapes: Mapping[str, Shape]) -> dict[str, ir.Value]:
        """Appends inputs, of new names, ahead of the weights; these arguments by name."""
        inputs, weights = list(self.inputs), self.parameters
        assert not shapes.keys() & {*inputs, *weights}, "two arguments share a name"
        with self.module.context:
            added = {
                name: self.block.add_argument(tensor_type(shape), ir.Location.name(name))
                for name, shape in shapes.items()
            }
        self._move_behind(weights)
        self._declare_arguments([*inputs, *shapes])
        return added

    def drop_input(self, name: str) -> None:
        """Without an input that nothing reads."""
        inputs = self.inputs
        self.block.erase_argument(inputs.pop(name).arg_number)
        self._declare_arguments(list(inputs))

    def hold_input(self, name: str, state: str) -> None:
        """Lets an input be a state, of a new name."""
        value = self.inputs[name]
        held = self.add_inputs({state: shape_of(value)})[state]
        self.inputs[name].replace_all_uses_with(held)
        self.drop_input(name)
        self.declare_states([*self.states, state])

    def turn_into_states(self, names: Sequence[str]) -> None:
        """Lets weights be states: what a run finds, and whose values nobody knows."""
        inputs, weights = list(self.inputs), self.parameters
        states = {name: weights.pop(name) for name in names}
        self._move_behind(states | weights)
        for name in names:
            del self.weights[name]
        self.states = (*self.states, *names)
        self._declare_arguments([*inputs, *names])

    def _move_behind(self, arguments: Mapping[str, ir.Value]) -> None:
        """Lets these arguments, in this order, be the last ones."""
        with self.module.context:
            for name, value in arguments.items():
                moved = self.block.add_argument(value.type, ir.Location.name(name))
                value.replace_all_uses_with(moved)
        for number in sorted((value.arg_number for value in arguments.values()), reverse=True):
            self.block.erase_argument(number)

    def tidy(self, *, keeps_weights: bool = False) -> None:
        """Erases operations and weights that nothing uses, and makes names unique.

        Args:
            keeps_weights: all of them, used or not.
        """
        for op in reversed(self.operations):
            if not any(True for _ in op.operation.results[0].uses):
                op.operation.erase()
        if not keeps_weights:
            self._erase_weights()
        self._name_operations()

    def _erase_weights(self) -> None:
        kept = {
            name: self.weights[name]
            for name, value in self.parameters.items()
            if any(True for _ in value.uses)
        }
        inputs = list(self.inputs)
        for name, value in reversed(self.parameters.items()):
            if name not in kept:
                self.block.erase_argument(value.arg_number)
        self.weights = kept
        self._declare_arguments(inputs)

    def _name_operations(self) -> None:
        """Gives steps their suffix; of several operations of one name the last one keeps it."""
        operations = self.operations
        last = {name_of(op): index for index, op in enumerate(operations)}
        taken = {name for name in last if name and not name.endswith("/")}
        for index, op in enumerate(operations):
            name = name_of(op)
            if name in taken and last[name] == index:
                continue
            stem = f"{name.rstrip('/')}/{kind_of(op)}" if name else kind_of(op)
            fresh = (f"{stem}.{count}" if count > 1 else stem for count in itertools.count(1))
            name = next(candidate for candidate in fresh if candidate not in taken)
            op.location = ir.Location.name(name, context=self.module.context)
            taken.add(name)

    def rename_weights(self, names: Mapping[str, str]) -> None:
        """Gives weights other names, which must be new or given up at the same time."""
        renamed = {names.get(name, name): array for name, array in self.weights.items()}
        assert len(renamed) == len(self.weights), "two weights share a name"
        with self.module.context:
            for name, value in self.parameters.items():
                value.set_location(ir.Location.name(names.get(name, name)))
        inputs = list(self.inputs)
        self.weights = renamed
        self._declare_arguments(inputs)

    def declare_states(self, names: Sequence[str]) -> None:
        """Says of these inputs that they are states."""
        self.states = tuple(names)
        self._declare_arguments(list(self.inputs))

    def _declare_arguments(self, inputs: Sequence[str]) -> None:
        """Says of the arguments that they are these inputs and the weights."""
        roles = {name: "state" if name in self.states else "input" for name in inputs}
        roles |= dict.fromkeys(self.weights, "weight")
        with self.module.context:
            self.function.attributes["arg_attrs"] = _argument_attributes(roles)
            self._declare_type()

    def _declare_type(self) -> None:
        last = list(self.block.operations)[-1:]
        results = last[0].operands if last and last[0].operation.name == "func.return" else ()
        kind = ir.FunctionType.get(
            [a.type for a in self.block.arguments], [r.type for r in results]
        )
        self.function.attributes["function_type"] = ir.TypeAttr.get(kind)

    def let_follow(self, norms: Mapping[str, Following]) -> None:
        """Says of batch norms, by name, that they normalise by their batch in training."""
        for op in self.operations:
            if found := norms.get(name_of(op)):
                with self.module.context, op.location:
                    op.operation.attributes["momentum"] = to_attribute(found.momentum)
                    op.operation.attributes["correction"] = to_attribute(found.correction)
                    if found.batches is not None:
                        op.operation.attributes["batches"] = to_attribute(found.batches)

    def verify(self) -> None:
        """Asserts that the module is legal, that weights match arguments, that names are unique."""
        assert self.module.operation.verify()
        shapes = {name: shape_of(value) for name, value in self.parameters.items()}
        assert shapes == {name: array.shape for name, array in self.weights.items()}
        names = [name_of(op) for op in self.operations]
        assert all(names), "an operation has no name"
        assert len(set(names)) == len(names), "two operations share a name"

    def text(self, names: bool = True) -> str:
        """The program in MLIR's text form, with the operations' names unless told otherwise."""
        return str(self.module.operation.get_asm(enable_debug_info=names))


def _argument_attributes(roles: Mapping[str, str]) -> ir.ArrayAttr:
    return ir.ArrayAttr.get(
        [
            ir.DictAttr.get(
                {"graph.name": ir.StringAttr.get(name), "graph.role": ir.StringAttr.get(role)}
            )
            for name, role in roles.items()
        ]
    )
