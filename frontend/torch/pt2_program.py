"""The program of a `.pt2` archive as a graph module, built from its JSON node by node.

torch/_export/serde/schema.py says what the JSON means. Only functions of a list of ours are called:
operators of aten, and arithmetic on extents. Every name is a plain identifier, since torch writes
Python source from them; expressions, guards and all metadata but modules' paths are left unread.
Real numbers of any precision become float32, as in ONNX models.
"""

from __future__ import annotations

import json
import keyword
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from veilgraph.frontend.torch.pt2_archive import DAMAGED, Archive, Json
from veilgraph.ir.errors import Offender, UnsupportedError, UsageError

EXTENTS: Mapping[str, Callable[..., Any]] = {
    f"_operator.{name}": getattr(operator, name)
    for name in ("add", "sub", "mul", "floordiv", "mod", "neg", "getitem")
}
ATEN = re.compile(r"torch\.ops\.aten\.([A-Za-z][A-Za-z0-9_]*|_[a-z][A-Za-z0-9_]*)\.([A-Za-z0-9_]+)")
# Of aten's private operators and of those that take text (of which one opens files) these alone.
PRIVATE = frozenset(
    (
        *("_conj", "_log_softmax", "_native_batch_norm_legit_no_training", "_softmax", "_to_copy"),
        "_unsafe_view",
    )
)
TEXTUAL = frozenset(("div", "div_", "einsum", "gelu", "gelu_", "meshgrid", "pad")) | {
    f"fft_{kind}fft{axes}" for kind in ("", "i", "r", "ir", "h", "ih") for axes in ("", "2", "n")
}
CHECKS = ("torch.ops.aten._assert", "torch.ops.aten.sym_constrain")  # of shapes, which are fixed
TYPES: Mapping[int, torch.dtype] = {
    1: torch.uint8,
    2: torch.int8,
    3: torch.int16,
    4: torch.int32,
    5: torch.int64,
    **dict.fromkeys((6, 7, 8, 13), torch.float32),
    **dict.fromkeys((10, 11), torch.complex64),
    12: torch.bool,
}
LAYOUT = {1: torch.contiguous_format, 4: torch.preserve_format}
PLAIN_KINDS = frozenset(
    ("as_int", "as_ints", "as_float", "as_floats", "as_bool", "as_bools", "as_string")
)
NAMED_KINDS = frozenset(
    ("as_tensor", "as_optional_tensor", "as_sym_int", "as_sym_float", "as_sym_bool")
)
LIST_KINDS = frozenset(("as_tensors", "as_optional_tensors", "as_sym_ints"))
AFTERWARDS = "Export the model in evaluation mode, without control flow and objects of its own."


@dataclass(frozen=True)
class Opened:
    """A program to be traced again, with fixed shapes.

    Attributes:
        module: the graph; its parameters and buffers have their torch names.
        shapes: of each input by name; an extent is None where the program leaves it open.
        types: of each input.
        outputs: names of the outputs, where the program says them.
    """

    module: fx.GraphModule
    shapes: Mapping[str, tuple[int | None, ...]]
    types: Mapping[str, torch.dtype]
    outputs: tuple[str, ...]


def open_program(archive: Archive) -> Opened:
    """Builds the program that an archive describes; none of it is run.

    Raises:
        UsageError: JSON that is no exported program.
        UnsupportedError: operators and arguments that can't be compiled, all of them.
    """
    try:
        builder = _Builder(archive)
        return builder.build()
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise UsageError(
            f"{archive.source} is damaged: its program does not fit together.", DAMAGED
        ) from error


class _Refusal(Exception):
    """Why a node can't be built."""


@dataclass
class _Builder:
    """A graph while it is built; `values` are the nodes by the program's names for them."""

    archive: Archive
    graph: fx.Graph = field(default_factory=fx.Graph)
    values: dict[str, Any] = field(default_factory=dict)
    offenders: list[Offender] = field(default_factory=list)

    def build(self) -> Opened:
        module = self.archive.program["graph_module"]
        graph, signature = module["graph"], module["signature"]
        inputs = list(self._inputs(signature["input_specs"]))
        for node in graph["nodes"]:
            self._add(node)
        outputs = self._outputs(signature["output_specs"])
        if self.offenders:
            raise UnsupportedError(self.offenders)
        if not inputs or not outputs:
            raise ValueError("it has no input, or no output")
        self.graph.output(tuple(outputs))
        tensors = {name: torch.from_numpy(a) for name, a in self.archive.tensors.items()}
        used = {node.target for node in self.graph.nodes if node.op == "get_attr"}
        root = {name: _single(t) for name, t in tensors.items() if name in used}
        metas = {name: graph["tensor_values"][name] for name in inputs}
        return Opened(
            fx.GraphModule(root, self.graph),
            {name: tuple(_extent(size) for size in meta["sizes"]) for name, meta in metas.items()},
            {name: TYPES[meta["dtype"]] for name, meta in metas.items()},
            _output_names(module, len(outputs)),
        )

    def _inputs(self, specs: Json) -> Iterator[str]:
        """Makes placeholders of the user's inputs, whose names it gives; the rest are tensors."""
        for spec in specs:
            ((kind, told),) = spec.items()
            if kind == "user_input" and "as_tensor" in told["arg"]:
                name = _identifier(told["arg"]["as_tensor"]["name"])
                if not name.isidentifier():
                    raise ValueError(f"{name} is no identifier")
                self.values[name] = self.graph.placeholder(name)
                yield name
            elif kind in ("parameter", "buffer", "tensor_constant"):
                target = told[f"{kind}_name"]
                if target not in self.archive.tensors:
                    raise ValueError(f"there is no tensor {target}")
                node = self.graph.get_attr(".".join(map(_identifier, target.split("."))))
                self.values[told["arg"]["name"]] = node
            elif kind not in ("user_input", "constant_input"):
                self._refuse(kind, "input", f"It is a {kind.replace('_', ' ')}, not a tensor.")

    def _outputs(self, specs: Json) -> list[fx.Node]:
        found = []
        for spec in specs:
            ((kind, told),) = spec.items()
            name = told["arg"].get("as_tensor", {}).get("name", "")
            if kind == "user_input_mutation":
                continue  # of no concern to who calls the model
            if kind != "user_output":
                self._refuse(kind, "output", f"The model changes what it keeps: {kind}.")
            elif not name:
                self._refuse("output", "output", "It is no tensor.")
            elif name in self.values:
                found.append(self.values[name])
            elif not self.offenders:
                raise ValueError(f"nothing computes {name}")
        return found

    def _refuse(self, node: str, kind: str, reason: str) -> None:
        self.offenders.append(Offender(node, kind, self.archive.source, reason, AFTERWARDS))

    def _add(self, node: Json) -> None:
        """Builds one call; what reads the results of a refused one is passed over."""
        target = node["target"]
        if target.startswith(CHECKS):
            return
        names = [name for output in node["outputs"] for name in _result_names(output)]
        try:
            called = _function(target)
            args, kwargs = self._arguments(called, node["inputs"])
        except _Refusal as error:
            self._refuse(str(node.get("name") or names[:1]), target, str(error))
            return
        except LookupError:  # an operand was refused
            return
        made = self.graph.call_function(called, args, kwargs)
        made.meta["nn_module_stack"] = _module_stack(node.get("metadata", {}))
        single = len(node["outputs"]) == 1 and "as_tensors" not in node["outputs"][0]
        if single:
            self.values[names[0]] = made
            return
        for position, name in enumerate(names):
            part = self.graph.call_function(operator.getitem, (made, position))
            part.meta["nn_module_stack"] = made.meta["nn_module_stack"]
            self.values[name] = part

    def _arguments(
        self, called: Callable[..., Any], given: Json
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = [], {}
        keywords = _keywords(called)
        for entry in given:
            value = self._argument(entry["arg"])
            if entry["name"] in keywords:
                kwargs[entry["name"]] = value
            else:
                args.append(value)
        return tuple(args), kwargs

    def _argument(self, argument: Json) -> Any:
        ((kind, told),) = argument.items()
        if kind == "as_none":
            return None
        if kind in PLAIN_KINDS:
            return _plain(told)
        if kind in NAMED_KINDS:
            return self._named(told)
        if kind in LIST_KINDS:
            return [self._named(entry) for entry in told]
        if kind == "as_scalar_type":
            return _type(told)
        if kind == "as_memory_format" and told in LAYOUT:
            return LAYOUT[told]
        if kind == "as_complex":
            return complex(_plain(told["real"]), _plain(told["imag"]))
        if kind == "as_layout":
            return torch.strided
        if kind == "as_device":
            return torch.device("cpu")
        raise _Refusal(f"It takes an argument of kind {kind.removeprefix('as_')!r}.")

    def _named(self, told: Json) -> Any:
        """What an earlier node made, or a number in its place."""
        if "as_none" in told:
            return None
        for kind in ("as_int", "as_float", "as_bool"):
            if kind in told:
                return _plain(told[kind])
        told = told.get("as_tensor", told)
        return self.values[told["name"] if "name" in told else told["as_name"]]


def _function(target: str) -> Callable[..., Any]:
    if target in EXTENTS:
        return EXTENTS[target]
    named = ATEN.fullmatch(target)
    if named is None:
        raise _Refusal("It is no operator of aten.")
    packet = getattr(torch.ops.aten, named[1], None)
    called: Any = getattr(packet, named[2], None) if packet is not None else None
    if not isinstance(called, torch._ops.OpOverload):
        raise _Refusal("aten has no such operator.")
    texts = any("str" in str(argument.type) for argument in called._schema.arguments)
    if (named[1].startswith("_") and named[1] not in PRIVATE) or (
        texts and named[1] not in TEXTUAL
    ):
        raise _Refusal("It is an operator that models from files may not call.")
    function: Callable[..., Any] = called
    return function


def _keywords(called: Callable[..., Any]) -> set[str]:
    """Names of the arguments that are given by keyword alone."""
    if not isinstance(called, torch._ops.OpOverload):
        return set()
    return {argument.name for argument in called._schema.arguments if argument.kwarg_only}


def _plain(told: Json) -> Any:
    """A number, a truth value, a text, or a list of them; floats may be written as text."""
    if isinstance(told, list):
        return [_plain(entry) for entry in told]
    if told in ("Infinity", "-Infinity"):
        return math.inf if told == "Infinity" else -math.inf
    if not isinstance(told, bool | int | float | str):
        raise TypeError(f"{told!r} is no plain value")
    return told


def _type(told: Json) -> torch.dtype:
    if told not in TYPES:
        raise _Refusal("It makes numbers of a type that isn't known.")
    return TYPES[told]


def _identifier(name: Json) -> str:
    """A name that torch may write into Python source."""
    legal = isinstance(name, str) and re.fullmatch(r"\w+", name, re.ASCII)
    if not legal or keyword.iskeyword(name):
        raise ValueError(f"{name!r} is no identifier")
    return str(name)


def _single(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex64)
    return tensor.to(torch.float32) if tensor.is_floating_point() else tensor


def _extent(size: Json) -> int | None:
    """None for a symbolic extent, whose expression is never evaluated."""
    return int(size["as_int"]) if "as_int" in size else None


def _result_names(output: Json) -> Iterator[str]:
    ((kind, told),) = output.items()
    if kind == "as_none":
        return
    for entry in told if isinstance(told, list) else [told]:
        entry = entry.get("as_tensor", entry)
        yield str(entry["name"] if "name" in entry else entry["as_name"])


def _module_stack(metadata: Json) -> dict[str, tuple[str, str]]:
    """The innermost module of a call: {key: (path, class)}, for the names of layers."""
    *_, last = metadata.get("nn_module_stack", "").split(";")
    key, path, kind = [*last.split(","), "", "", ""][:3]
    return {key: (path, kind)}


def _output_names(module: Json, count: int) -> tuple[str, ...]:
    """The keys of a dictionary that the model returns; empty for any other result."""
    entries = [entry for entry in module["module_call_graph"] if entry["fqn"] == ""]
    if not entries or not entries[0]["signature"]:
        return ()
    spec: Sequence[Any] = json.loads(entries[0]["signature"]["out_spec"])
    told = spec[1]
    if not told or told.get("type") != "builtins.dict":
        return ()
    names = tuple(map(str, json.loads(told["context"])))
    return names if len(names) == count else ()
