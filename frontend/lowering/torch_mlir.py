"""torch-mlir's lowering of a prepared ONNX model to its core of `torch.aten` operations."""

from __future__ import annotations

import re
from dataclasses import dataclass

from onnx import ModelProto, TensorProto
from torch_mlir import ir
from torch_mlir.dialects import torch as torch_dialect
from torch_mlir.extras.onnx_importer import ModelInfo, NodeImporter
from torch_mlir.passmanager import PassManager

from veilgraph.frontend.onnx.prepare import Prepared, node_outputs
from veilgraph.ir.mlir import context

# Operators that stay whole: the pipeline would break batch normalisation into eighteen steps.
KEPT_WHOLE = (
    "aten.batch_norm",
    "aten.elu",
    "aten.flatten.using_ints",
    "aten.gelu",
    "aten.hardswish",
    "aten.instance_norm",
    "aten.leaky_relu",
    "aten.log_softmax.int",
    "aten.mean.dim",
    "aten.mish",
    "aten.prelu",
    "aten.softmax.int",
    "aten.softplus",
    "aten.topk",
)
# The type of a tensor whose extents and elements are known; `?` and `unk` are not. A list's tensors
# are other steps' results.
_KNOWN = re.compile(r"list<vtensor>|vtensor<\[[0-9,]*\],(?!unk)[a-z0-9<>]+?>")
_DECOMPOSE = f"func.func(torch-decompose-complex-ops{{legal-ops={','.join(KEPT_WHOLE)}}})"
_CLEAN = "func.func(canonicalize)"
CONVERT = f"func.func(convert-torch-onnx-to-torch{{allow-non-finites=true}}),{_DECOMPOSE},{_CLEAN}"


def finish(find_shapes: bool) -> str:
    """The passes behind CONVERT. Together they are the torch-onnx-to-torch-backend-pipeline.

    Those that find shapes read a library of functions, twice, which takes five times as long as all
    else that is done with a small model. Where every type is known they change nothing.
    """
    simplify = "func.func(torch-simplify-shape-calculations)"
    shapes = (
        f"{simplify},func.func(cse),{simplify},func.func(torch-drop-abstract-interp-calculations)"
    )
    if find_shapes:
        shapes = f"torch-reify-shape-calculations,inline,{shapes}"
    return (
        f"{shapes},func.func(torch-scalarize-shapes),{shapes},"
        f"torch-refine-public-return,{_CLEAN},{_DECOMPOSE},{_CLEAN}"
    )


@dataclass(frozen=True)
class Lowered:
    """A function of aten operations, and what its arguments and results are.

    Attributes:
        module: holds the one function; its arguments are those of the ONNX graph.
        arguments: names of the arguments, inputs first, weights after them.
        outputs: names of the first results, the model's outputs.
        nodes: names of all results: of each the ONNX node (or "node:i" for its output i), "" for
            an output that is an input or a weight.
    """

    module: ir.Module
    arguments: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[str, ...]


def lower(prepared: Prepared) -> Lowered:
    """Lowers the model; every tensor between its nodes is a result, so that none loses its name.

    Raises:
        ir.MLIRError: an operator, or a form of one, that torch-mlir doesn't lower. Its first
            diagnostic's location names the node.
    """
    model, nodes = _with_all_outputs(prepared.model)
    fresh = context()
    torch_dialect.register_dialect(fresh)
    info = ModelInfo(model)
    module = info.create_module(context=fresh)
    importer = NodeImporter.define_function(info.main_graph, module.operation)
    importer.import_all()
    with fresh:
        _run(CONVERT, module)
        _run(finish(not _has_all_types(module)), module)
    arguments = tuple(info.main_graph.input_map)
    outputs = tuple(output.name for output in prepared.model.graph.output)
    return Lowered(module, arguments, outputs, nodes)


def _run(passes: str, module: ir.Module) -> None:
    PassManager.parse(f"builtin.module({passes})").run(module.operation)


def _has_all_types(module: ir.Module) -> bool:
    """Whether every tensor has a known shape and element type, and nothing runs in a region."""
    (function,) = module.body.operations
    return all(
        "tensor" not in _KNOWN.sub("", str(result.type)) and not len(op.operation.regions)
        for op in function.regions[0].blocks[0].operations
        for result in op.operation.results
    )


def _with_all_outputs(model: ModelProto) -> tuple[ModelProto, tuple[str, ...]]:
    """The model with every float32 tensor that a node reads as an output; the outputs' nodes."""
    complete = ModelProto()
    complete.CopyFrom(model)
    names = {tensor: node for node, tensor in node_outputs(model).items()}
    read = {tensor for node in model.graph.node for tensor in node.input}
    present = {output.name for output in model.graph.output}
    for info in model.graph.value_info:
        floats = info.type.tensor_type.elem_type == TensorProto.FLOAT
        if info.name in read and info.name in names and info.name not in present and floats:
            complete.graph.output.append(info)
    return complete, tuple(names.get(output.name, "") for output in complete.graph.output)
