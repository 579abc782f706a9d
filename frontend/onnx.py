"""ONNX models in, programs of the graph level out.

    load -> draft (shapes fixed, weights apart) -> convert (current opset) -> lower (torch-mlir's
    aten core) -> translate (graph level)

Where a step fails, each node of the draft goes the same way alone, so that everything unsupported
is told at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, version_converter
from torch_mlir import ir
from torch_mlir.extras.onnx_importer import OnnxImportError

from veilgraph.frontend.load import Model
from veilgraph.frontend.lowering import lower
from veilgraph.frontend.prepare import Prepared, convert, draft, node_outputs
from veilgraph.frontend.refusals import known_refusals, offender, way_out
from veilgraph.frontend.translate import Untranslatable, translate
from veilgraph.ir.errors import Offender, UnsupportedError, UsageError
from veilgraph.ir.graph import Graph

__all__ = ["Model", "Prepared", "import_model", "node_outputs", "prepare"]

FAILURES = (
    ir.MLIRError,
    OnnxImportError,
    RuntimeError,  # the version converter's assertions
    Untranslatable,
    UsageError,
    version_converter.ConvertError,
)


def import_model(model: Model, shapes: Mapping[str, Sequence[int]] | None = None) -> Graph:
    """The model as a program of the graph level, its weights beside it.

    Args:
        model: a path, the file's bytes, or a model in memory.
        shapes: shapes of inputs that the model leaves open, by name.

    Raises:
        UsageError: no legal model, or an input's shape is missing or doesn't fit.
        UnsupportedError: nodes that can't be compiled, all of them.
    """
    drafted = draft(model, shapes or {})
    offenders = known_refusals(drafted)
    if not offenders:
        try:
            return _import(drafted)
        except FAILURES as error:
            failure = error
    told = {entry.node for entry in offenders}
    offenders += _judge_nodes(drafted, told)
    if not offenders:  # only the whole shows it
        offenders.append(Offender("the whole", "model", drafted.source, _reason(failure)))
    raise UnsupportedError(offenders)


def prepare(model: Model, shapes: Mapping[str, Sequence[int]] | None = None) -> Prepared:
    """The model as the importer sees it, for comparing layer by layer.

    Its tensors are those that `node_outputs` names; its trailing inputs are the weights.

    Raises:
        UsageError, UnsupportedError: as `import_model`.
    """
    drafted = draft(model, shapes or {})
    offenders = known_refusals(drafted)
    if offenders:
        raise UnsupportedError(offenders)
    return convert(drafted)


def _import(prepared: Prepared) -> Graph:
    converted = convert(prepared)
    return translate(lower(converted), converted.weights)


def _judge_nodes(drafted: Prepared, told: set[str]) -> list[Offender]:
    """What is wrong with each node alone, for those not told yet whose inputs' types are known."""
    graph = drafted.model.graph
    infos = {info.name: info for info in (*graph.input, *graph.value_info, *graph.output)}
    literals = {tensor.name: tensor for tensor in graph.initializer}
    found = []
    for node in graph.node:
        names = [*(n for n in node.input if n and n not in literals), *filter(None, node.output)]
        if node.name in told or not all(_is_float(infos.get(name)) for name in names):
            continue
        try:
            _import(_alone(drafted, node, infos, literals))
        except FAILURES as error:
            found.append(offender(node, drafted.source, _reason(error), _way_out(node, error)))
    return found


def _is_float(info: ValueInfoProto | None) -> bool:
    if info is None:
        return False
    tensor = info.type.tensor_type
    return bool(tensor.elem_type == TensorProto.FLOAT and tensor.HasField("shape"))


def _alone(
    drafted: Prepared,
    node: NodeProto,
    infos: Mapping[str, ValueInfoProto],
    literals: Mapping[str, TensorProto],
) -> Prepared:
    """The model of this node only; what it reads are inputs or literals."""
    read = list(dict.fromkeys(name for name in node.input if name))
    graph = helper.make_graph(
        [node],
        "main",
        [infos[name] for name in read if name not in literals],
        [infos[name] for name in node.output if name],
        [literals[name] for name in read if name in literals],
    )
    model: ModelProto = helper.make_model(
        graph,
        opset_imports=list(drafted.model.opset_import),
        ir_version=drafted.model.ir_version,
    )
    return Prepared(model, {}, drafted.source)


def _reason(error: Exception) -> str:
    match error:
        case Untranslatable():
            return error.refused[0].reason
        case ir.MLIRError():
            return "The importer lowers no such operator, or not in this form."
        case UsageError():
            return error.message
    return f"It can't be converted: {str(error).strip().splitlines()[0]}."


def _way_out(node: NodeProto, error: Exception) -> str:
    given = error.refused[0].way_out if isinstance(error, Untranslatable) else ""
    return given or way_out(node)
