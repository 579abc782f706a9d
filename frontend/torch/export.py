"""PyTorch models made ready for the importer: traced for inference, functional, shapes fixed.

A layer has the name of its module ("features.0"), or, where a module computes several, that and the
node's ("encoder.add_1").
"""

from __future__ import annotations

import itertools
import operator
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind

from veilgraph.frontend.onnx.written_numbers import are_written, require_known
from veilgraph.frontend.torch.complex_numbers import are_complex, as_real, without_complex_numbers
from veilgraph.frontend.torch.constants import first_line, fold_constants
from veilgraph.frontend.torch.decompositions import DECOMPOSITIONS, IN_TRAINING
from veilgraph.frontend.torch.dropouts import Mask, masked
from veilgraph.frontend.torch.followed_norms import following_of
from veilgraph.frontend.torch.module_paths import path_of
from veilgraph.frontend.torch.precision import as_float32
from veilgraph.frontend.torch.pt2_archive import read_archive
from veilgraph.frontend.torch.pt2_program import open_program
from veilgraph.frontend.torch.tracing import (
    Examples,
    Tensors,
    as_tensors,
    quietly,
    require_gradients,
    trace,
    trace_module,
)
from veilgraph.ir.errors import Offender, UnsupportedError, UsageError
from veilgraph.ir.graph.program import Following
from veilgraph.ir.training import COUNTER

Array = NDArray[np.float32]
aten = torch.ops.aten
BY_BATCH = aten._native_batch_norm_legit_functional.default
NORMALISES = (BY_BATCH, aten._native_batch_norm_legit_no_training.default)
COPIES = (aten.clone.default, aten.lift_fresh_copy.default, aten.detach.default, aten.alias.default)
TorchModel: TypeAlias = torch.nn.Module | ExportedProgram | str | Path | bytes


@dataclass(frozen=True)
class Exported:
    """A PyTorch model as the importer sees it: functional, of fixed shapes, for inference.

    Attributes:
        program: its placeholders are inputs, parameters, buffers and constants.
        inputs: names of the placeholders that are the user's inputs, in order.
        outputs: names of the outputs, in order.
        weights: the owner's tensors by placeholder; `names` has their torch names.
        public: numbers of the code, and tensors of integers or truth values, by placeholder.
        matrices: what everybody may know, by placeholder: numbers that the compiler's own
            decompositions read, and weights that the user names public.
        tensors: all that placeholders stand for but inputs, real numbers as float32.
        names: what an argument is called, by placeholder.
        layers: the name of each node that computes a tensor, by the node's name.
        samples: the inputs that it was exported with, by name, each on a new first axis.
        following: batch norms that normalise by their batch in training, by layer.
        masks: weights that are a dropout's masks, ones here, each with the share that is dropped.
        trained: weights that training changes, parameters that ask for a gradient; None where
            nothing trains.
    """

    program: ExportedProgram
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: Mapping[str, Array]
    public: Mapping[str, NDArray[Any]]
    matrices: Mapping[str, Array]
    tensors: Mapping[str, torch.Tensor]
    names: Mapping[str, str]
    layers: Mapping[str, str]
    source: str
    samples: Mapping[str, Array]
    following: Mapping[str, Following]
    masks: Mapping[str, float]
    trained: frozenset[str] | None

    @property
    def nodes(self) -> list[fx.Node]:
        """The calls, in order."""
        return [node for node in self.program.graph.nodes if node.op == "call_function"]


def export(
    model: TorchModel,
    given: Examples | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    public: Collection[str] = (),
    trains: bool = False,
) -> Exported:
    """The model, traced; takes and raises what `import_torch` does.

    Args:
        trains: whether a module is in training mode, and else in inference mode.
    """
    examples = as_tensors(given)
    outputs: tuple[str, ...] = ()
    if isinstance(model, ExportedProgram):
        source, program = "the exported program", model
        examples = _kept_examples(model) if examples is None else examples
        open_inputs = _input_values(program)
        if shapes or any(_is_open(value) for value in open_inputs.values()):
            sizes = {name: _sizes(value) for name, value in open_inputs.items()}
            types = {name: value.dtype for name, value in open_inputs.items()}
            zeros = _zeros(sizes, types, shapes or {})
            program = trace(model.module(), tuple(zeros.values()))
            outputs = _output_names(model)
    elif isinstance(model, torch.nn.Module):
        source, program = type(model).__name__, trace_module(model, examples, trains)
        traced = _input_values(program)
        types = {name: value.dtype for name, value in traced.items()}
        _zeros({name: _sizes(value) for name, value in traced.items()}, types, shapes or {})
    else:
        archive = read_archive(model)
        opened = open_program(archive)
        source, outputs = archive.source, opened.outputs
        zeros = _zeros(opened.shapes, opened.types, shapes or {})
        program = trace(opened.module, tuple(zeros.values()))
    if trains:
        require_gradients(program)
    program = _decomposed(program, trains)
    _require_pure(program, trains)
    following, masks = _undo(program), masked(program.graph) if trains else []
    without_complex_numbers(program.graph, _targets(program))
    _require_numbers(program, source)
    trained = _trained(program) if trains else None
    return _exported(program, outputs, source, examples, public, following, masks, trained)


def _decomposed(program: ExportedProgram, trains: bool) -> ExportedProgram:
    """Functional from here on: nothing is changed in place."""
    table = {**DECOMPOSITIONS, **(IN_TRAINING if trains else {})}
    try:
        with torch.no_grad(), quietly():
            return program.run_decompositions(table)
    except Exception as error:  # torch promises no class of errors here either
        raise UsageError(
            f"An operator of the model can't be taken apart: {first_line(error)}",
            "Compile its parts to find out which of them shows it.",
        ) from error


def _kept_examples(program: ExportedProgram) -> Tensors | None:
    """What a program was exported with, if that was plain tensors."""
    args, kwargs = program.example_inputs or ((), {})
    found = (*args, *kwargs.values())
    return found if found and all(isinstance(x, torch.Tensor) for x in found) else None


def _zeros(
    sizes: Mapping[str, Sequence[int | None]],
    types: Mapping[str, torch.dtype],
    shapes: Mapping[str, Sequence[int]],
) -> dict[str, torch.Tensor]:
    """An input of each name, of the shape that the program fixes or the user gives."""
    for name in shapes:
        if name not in sizes:
            known = ", ".join(sizes)
            raise UsageError(f"The model has no input {name}.", f"Its inputs are: {known}.")
    found = {}
    for name, size in sizes.items():
        shape = tuple(shapes.get(name, ())) or tuple(extent or 0 for extent in size)
        suggested = "x".join(str(extent or 1) for extent in size)
        fits = len(shape) == len(size) and all(
            given > 0 and extent in (None, given) for given, extent in zip(shape, size, strict=True)
        )
        if not fits:
            told = "x".join("?" if extent is None else str(extent) for extent in size)
            raise UsageError(
                f"Input {name} is {told} in the model, which what was given doesn't fix.",
                f"Say it, for example with --shape {name}={suggested}.",
            )
        found[name] = torch.zeros(shape, dtype=types[name])
    return found


def _undo(program: ExportedProgram) -> dict[str, Following]:
    """Puts together what being made functional took apart: normalisations. Drops copies, and what
    became of inputs and of running statistics that were changed in place.

    Returns:
        How statistics follow their batches, by the node that normalises.
    """
    following: dict[str, Following] = {}
    graph, specs = program.graph, program.graph_signature.output_specs
    kept = [spec.kind is OutputKind.USER_OUTPUT for spec in specs]
    ending = graph.output_node()
    ending.args = (tuple(itertools.compress(ending.args[0], kept)),)
    for node in list(graph.nodes):
        if node.target in NORMALISES:
            x, gamma, beta, mean, variance, *training, momentum, epsilon = node.args
            (part,) = [user for user in node.users if user.args[1] == 0 and user.users]
            mean, variance = _as_begun(mean), _as_begun(variance)
            given = (x, gamma, beta, mean, variance, False, momentum, epsilon, False)
            with graph.inserting_before(part):
                whole = graph.call_function(aten.batch_norm.default, given)
            whole.meta = dict(part.meta)
            part.replace_all_uses_with(whole)
            if training:
                following[whole.name] = following_of(momentum)
        elif node.target in COPIES and isinstance(node.args[0], fx.Node):
            node.replace_all_uses_with(node.args[0])
        elif node.target is aten._assert_tensor_metadata.default:
            graph.erase_node(node)  # it holds for the shapes and types that were traced
    graph.eliminate_dead_code()
    return following


def _as_begun(statistic: fx.Node) -> fx.Node:
    """A running statistic as a run finds it, which a norm that ran before has changed."""
    while _is_followed(statistic):
        norm, place = statistic.args
        statistic = norm.args[place]  # 3 and 4, in the operands as in what it returns
    return statistic


def _is_followed(node: fx.Node) -> bool:
    """Whether it is what a batch norm in training makes of a running statistic."""
    parted = node.target is operator.getitem and node.args[1] in (3, 4)
    return parted and node.args[0].target is BY_BATCH


def _is_open(value: torch.Tensor) -> bool:
    return any(extent is None for extent in _sizes(value))


def _sizes(value: torch.Tensor) -> tuple[int | None, ...]:
    return tuple(extent if isinstance(extent, int) else None for extent in value.shape)


def _input_values(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """The user's tensor inputs, fake ones, by name."""
    names = [
        spec.arg.name
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.USER_INPUT and not isinstance(spec.arg, ConstantArgument)
    ]
    values = {
        node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"
    }
    return {name: values[name] for name in names}


def _exported(
    program: ExportedProgram,
    outputs: tuple[str, ...],
    source: str,
    examples: Tensors | None,
    named: Collection[str],
    following: Mapping[str, Following],
    masks: Sequence[Mask],
    trained: Collection[str] | None,
) -> Exported:
    inputs = tuple(_input_values(program))
    targets = _targets(program) | {mask.placeholder: mask.name for mask in masks}
    held = {**program.constants, **program.state_dict}
    tensors = {
        n: as_real(held[t]) for n, t in targets.items() if isinstance(held.get(t), torch.Tensor)
    }
    read = [targets[name] for name in _read(program.graph) if name in tensors]
    given = {name for name in tensors if targets[name] in named}
    # What is computed of a parameter that is trained is computed in each step.
    constant = {name: tensor for name, tensor in tensors.items() if name not in (trained or ())}
    folded = fold_constants(program.graph, constant, given)
    as_float32(program.graph)
    tensors |= {**folded.owned, **folded.public}
    tensors |= {mask.placeholder: torch.ones(mask.shape) for mask in masks}
    tensors = {name: _plain(tensors[name]) for name in _read(program.graph) if name not in inputs}
    require_known(named, [*read, *(name for name in tensors if name not in targets)])
    given = {name for name in tensors if targets.get(name, name) in named}
    matrices = {name: tensors[name].float().numpy() for name in given | set(folded.public)}
    literals = _literals(program)
    weights: dict[str, Array] = {}
    public: dict[str, NDArray[Any]] = {}
    for name, tensor in tensors.items():
        array = tensor.float().numpy()
        text = name in literals and array.size == 1 and are_written(array)
        if name in matrices:
            continue
        if tensor.is_floating_point() and array.size > 0 and not text:
            weights[name] = _numbers(targets.get(name, name), array)
        else:
            public[name] = array
    names, layers = {name: targets.get(name, name) for name in tensors}, _layers(program)
    if collisions := set(inputs) & set(names.values()):
        raise UsageError(
            f"An input and a weight of the model are both called {min(collisions)}.",
            "Rename the argument of forward.",
        )
    return Exported(
        program,
        inputs,
        outputs or _output_names(program),
        weights,
        public,
        matrices,
        tensors,
        names | {name: name for name in inputs},
        layers,
        source,
        _samples(inputs, examples),
        {layers[name]: found for name, found in following.items()},
        {mask.name: mask.dropped for mask in masks},
        None if trained is None else frozenset(names[name] for name in weights if name in trained),
    )


def _trained(program: ExportedProgram) -> set[str]:
    """Placeholders of the parameters that ask for a gradient."""
    return {
        spec.arg.name
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.PARAMETER and program.state_dict[spec.target].requires_grad
    }


def _literals(program: ExportedProgram) -> set[str]:
    """Placeholders of the tensors that the code of the model writes: `torch.tensor(0.5)`."""
    specs = program.graph_signature.input_specs
    return {spec.arg.name for spec in specs if spec.kind is InputKind.CONSTANT_TENSOR}


def _targets(program: ExportedProgram) -> dict[str, str]:
    """What the model calls the tensor of each placeholder but inputs."""
    specs = program.graph_signature.input_specs
    return {spec.arg.name: spec.target for spec in specs if spec.target is not None}


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """As NumPy takes it, real numbers as float32."""
    plain = tensor.detach().to("cpu").contiguous()
    return plain.float() if plain.is_floating_point() else plain


def _read(graph: fx.Graph) -> list[str]:
    """The placeholders that something reads, in the order in which it does."""
    operands = (operand for node in graph.nodes for operand in node.all_input_nodes)
    return list(dict.fromkeys(o.name for o in operands if o.op == "placeholder"))


def _samples(inputs: Sequence[str], examples: Tensors | None) -> dict[str, Array]:
    if examples is None:
        return {}
    if isinstance(examples, torch.Tensor):
        examples = (examples,)
    if not isinstance(examples, Mapping):
        examples = dict(zip(inputs, examples, strict=False))
    if missing := [name for name in inputs if name not in examples]:
        raise UsageError(
            f"No example of input {missing[0]} is given.", f"The inputs are {', '.join(inputs)}."
        )
    return {name: examples[name].detach().cpu().float().numpy()[None] for name in inputs}


def _numbers(name: str, array: Array) -> Array:
    if np.isnan(array).any():  # infinities may be masks: see masks.py
        raise UsageError(f"Weight {name} holds a NaN or an infinity.", "Train or export it again.")
    return array


def is_legal(node: fx.Node) -> bool:
    """Whether a node makes numbers of a fixed shape: a tensor of them, or several."""
    made = node.meta.get("val")
    return all(
        isinstance(value, torch.Tensor)
        and not are_complex(value)
        and all(isinstance(extent, int) for extent in value.shape)
        for value in (made if isinstance(made, tuple | list) else [made])
    )


def _require_numbers(program: ExportedProgram, source: str) -> None:
    """Of placeholders; what nodes make is judged later."""
    offenders = [
        Offender(node.name, "placeholder", source, "It is no tensor of real numbers or integers.")
        for node in program.graph.nodes
        if node.op == "placeholder" and node.users and not is_legal(node)
    ]
    if offenders:
        raise UnsupportedError(offenders)


def _require_pure(program: ExportedProgram, trains: bool) -> None:
    """UsageError for a model that keeps something, but for the statistics of its batch norms."""
    nodes = {node.name: node for node in program.graph.nodes}
    for spec in program.graph_signature.output_specs:
        if spec.kind is OutputKind.BUFFER_MUTATION and trains:
            counts = spec.target.rpartition(".")[2] == COUNTER
            if counts or _is_followed(nodes[spec.arg.name]):
                continue
        if spec.kind not in (OutputKind.USER_OUTPUT, OutputKind.USER_INPUT_MUTATION):
            raise UsageError(
                f"The model changes {spec.target}, which it keeps from one call to the next.",
                "Call model.eval(), and export it for inference.",
            )


def _output_names(program: ExportedProgram) -> tuple[str, ...]:
    """Keys of the dictionary that the model returns; else "output", or "output_0", "output_1"."""
    count = len(program.graph_signature.user_outputs)
    spec = program.call_spec.out_spec
    if spec is not None and spec.type is dict and len(spec.context) == count:
        return tuple(map(str, spec.context))
    return ("output",) if count == 1 else tuple(f"output_{i}" for i in range(count))


def _layers(program: ExportedProgram) -> dict[str, str]:
    """A name of its own for each call: its module's path, with the node's where there are more."""
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    paths = {node.name: path_of(node) for node in calls}
    counts = Counter(paths.values())
    return {
        name: path if path and counts[path] == 1 else f"{path}.{name}".lstrip(".")
        for name, path in paths.items()
    }
