"""PyTorch models in, programs of the graph level out.

    module, exported program or .pt2 -> export (export.py) -> lower (torch-mlir's aten core)
    -> translate (graph level)

The core, and all that follows, is that of ONNX models. Parameters, buffers and constants are the
model owner's weights, by their torch names, single numbers included; numbers of the code, and
integers, are public. Where a step
fails, each node goes the same way alone, so that everything unsupported is told at once.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import fx
from torch_mlir import ir
from torch_mlir.dialects import torch as torch_dialect
from torch_mlir.extras.fx_importer import FxImporter
from torch_mlir.passmanager import PassManager

from veilgraph.frontend.lowering.masks import require_finite
from veilgraph.frontend.lowering.operands import Unsupported
from veilgraph.frontend.lowering.torch_mlir import KEPT_WHOLE, Lowered
from veilgraph.frontend.lowering.translate import Untranslatable, translate
from veilgraph.frontend.torch.complex_numbers import JUDGED
from veilgraph.frontend.torch.export import Exported, TorchModel, export, is_legal
from veilgraph.frontend.torch.tracing import Examples
from veilgraph.ir.errors import Offender, UnsupportedError
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.mlir import context

aten = torch.ops.aten
PIPELINE = (
    "builtin.module(torchdynamo-export-to-torch-backend-pipeline"
    f"{{backend-legal-ops={','.join(KEPT_WHOLE)}}})"
)
# What is wrong with an operator that a decomposition has already passed through.
GRID = Unsupported("Its grid is computed from data.", "Make it a buffer.")
LEFT = {aten.grid_sampler_2d.default: GRID, aten.grid_sampler_3d.default: GRID}
REPLACE = "Replace it in the model by operators that are supported."
SOURCE = re.compile(r'File "([^"]+)", line ([0-9]+)')


def import_torch(
    model: TorchModel,
    examples: Examples | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    public: Collection[str] = (),
) -> Graph:
    """The model as a program of the graph level, its weights beside it.

    Args:
        model: a module, an exported program, or a `.pt2` archive as path or bytes.
        examples: inputs that a module is exported with, tensors or NumPy arrays: one, a sequence
            of positional ones, or arguments by name.
        shapes: shapes of inputs that an exported program leaves open, by name.
        public: torch names of weights that everybody may know: they become constants.

    Raises:
        UsageError: no legal model, a missing example or shape, weights that aren't finite, or a
            public one that isn't there.
        UnsupportedError: operators that can't be compiled, all of them.
    """
    return import_exported(export(model, examples, shapes, public))


def import_exported(exported: Exported) -> Graph:
    """The same for a model that is exported already."""
    try:
        graph = _import(exported, exported.program.graph, exported.nodes)
    except Exception as error:  # of operators that it doesn't know the importer raises anything
        failure = error
    else:
        require_finite(graph)
        return graph
    offenders = [found for node in exported.nodes for found in _judged(exported, node)]
    if not offenders:  # only the whole shows it
        advice = "Compile its parts to find out which of them shows it."
        offenders = [Offender("the whole", "model", exported.source, _reason(failure), advice)]
    raise UnsupportedError(offenders)


# Importing


def _import(exported: Exported, graph: fx.Graph, calls: Sequence[fx.Node]) -> Graph:
    lowered = _lower(exported, graph, calls)
    weights = {exported.names[n]: a for n, a in exported.weights.items()}
    public = {exported.names[n]: a for n, a in exported.public.items()}
    matrices = {exported.names[n]: a for n, a in exported.matrices.items()}
    translated = translate(
        lowered,
        {n: a for n, a in weights.items() if n in lowered.arguments},
        {n: a for n, a in public.items() if n in lowered.arguments},
        {n: a for n, a in matrices.items() if n in lowered.arguments},
    )
    translated.let_follow(exported.following)
    translated.masks = exported.masks
    if exported.trained is not None:
        translated.fixed = translated.weights.keys() - exported.trained
    return translated


def _lower(exported: Exported, graph: fx.Graph, calls: Sequence[fx.Node]) -> Lowered:
    """Lowers a graph; every tensor between its nodes is a result, so that none loses its name."""
    complete, results, arguments = _with_all_outputs(graph, calls)
    for node in complete.nodes:  # the importer takes locations from stack traces
        name = exported.layers.get(node.name, node.name)
        node.meta = {**node.meta, "stack_trace": f'File "{name}", line 1,'}
    fresh = context()
    torch_dialect.register_dialect(fresh)
    importer = FxImporter(context=fresh)
    importer.import_stateless_graph(complete)
    with fresh:
        PassManager.parse(PIPELINE).run(importer.module.operation)
        _name_locations(importer.module)
    outputs = [node.name for node in _returned(graph)]
    return Lowered(
        importer.module,
        tuple(exported.names.get(name, name) for name in arguments),
        exported.outputs if len(outputs) == len(exported.outputs) else tuple(outputs),
        tuple(exported.layers.get(name, "") for name in results),
    )


def _returned(graph: fx.Graph) -> list[fx.Node]:
    return list(graph.output_node().args[0])


def _with_all_outputs(
    graph: fx.Graph, calls: Sequence[fx.Node]
) -> tuple[fx.Graph, tuple[str, ...], tuple[str, ...]]:
    """A copy whose results are the outputs and every other real tensor that a node reads.

    Returns:
        The copy, the names of the nodes that it returns, and those of its placeholders: no
        argument is left that nothing reads.
    """
    copy = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    returned = _returned(graph)
    extra = [n for n in calls if n.users and n not in returned and _is_real(n)]
    for node in graph.nodes:
        if node.op == "output" or (node.op == "placeholder" and not node.users):
            continue
        copied[node] = copy.node_copy(node, lambda old: copied[old])
    copy.output(tuple(copied[node] for node in (*returned, *extra)))
    results = tuple(node.name for node in (*returned, *extra))
    return copy, results, tuple(n.name for n in copied if n.op == "placeholder")


def _is_real(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32


def _name_locations(module: ir.Module) -> None:
    """Turns the layers' names, which came as files, into names of operations."""
    block = module.body.operations[0].regions[0].blocks[0]
    for op in block.operations:
        place = str(op.location)
        found = re.search(r'"([^"]+)"', place)
        op.location = ir.Location.name(found[1] if found else "", context=module.context)


# What is wrong


def _judged(exported: Exported, node: fx.Node) -> Iterator[Offender]:
    """What is wrong with a node alone, its operands being inputs."""
    told = node.meta.get(JUDGED)
    illegal = node.target is operator.getitem or not all(map(is_legal, node.all_input_nodes))
    if (JUDGED in node.meta or illegal) and told is None:
        return  # written out, or judged with what makes it
    alone = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    for operand in node.all_input_nodes:
        copied[operand] = alone.placeholder(operand.name)
        copied[operand].meta = dict(operand.meta)
    calls = [node, *(user for user in node.users if user.target is operator.getitem)]
    for call in calls:
        copied[call] = alone.node_copy(call, lambda old: copied[old])
    alone.output(tuple(copied[call] for call in calls[1:] or calls))
    try:
        if told is not None:
            raise told
        if node.target in LEFT:
            raise LEFT[node.target]
        if not is_legal(node):
            raise Unsupported(
                "The shape of its output depends on data, or it makes no real numbers."
            )
        _import(exported, alone, [])
    except Exception as error:  # as above
        refused = error.refused[0] if isinstance(error, Untranslatable) else error
        way_out = getattr(refused, "way_out", "") or REPLACE
        place, name = _place(exported, node), exported.layers[node.name]
        yield Offender(name, str(node.target), place, _reason(error), way_out)


def _place(exported: Exported, node: fx.Node) -> str:
    """Where in the user's code a node comes from."""
    lines = SOURCE.findall(node.meta.get("stack_trace") or "")
    return f"{Path(lines[-1][0]).name}, line {lines[-1][1]}" if lines else exported.source


def _reason(error: Exception) -> str:
    if isinstance(error, Untranslatable):
        return error.refused[0].reason
    if isinstance(error, Unsupported):
        return error.reason
    return "The importer lowers no such operator, or not in this form."
