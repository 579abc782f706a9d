"""ONNX models in, programs of the graph level out.

    load -> draft (shapes fixed, weights apart) -> convert (current opset) -> lower (torch-mlir's
    aten core) -> translate (graph level)

Where a step fails, each node of the draft goes the same way alone, so that everything unsupported
is told at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from onnx import (
    NodeProto,
    TensorProto,
    ValueInfoProto,
    numpy_helper,
    shape_inference,
    version_converter,
)
from torch_mlir import ir
from torch_mlir.extras.onnx_importer import OnnxImportError

from veilgraph.frontend.lowering.masks import require_finite
from veilgraph.frontend.lowering.operands import Unsupported
from veilgraph.frontend.lowering.torch_mlir import lower
from veilgraph.frontend.lowering.translate import Untranslatable, translate
from veilgraph.frontend.onnx.input_shapes import OpenShape
from veilgraph.frontend.onnx.load import Model
from veilgraph.frontend.onnx.numeric_types import NUMBERS
from veilgraph.frontend.onnx.prepare import Prepared, convert, draft, node_outputs
from veilgraph.frontend.onnx.unsupported import (
    known_unsupported,
    offender,
    unsupported_at_any_shape,
    way_out,
)
from veilgraph.ir.errors import Offender, UnsupportedError, UsageError
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.graph.table_options import AS_USUAL, TableOptions

__all__ = ["Model", "Prepared", "import_model", "node_outputs", "prepare"]

FAILURES = (
    ir.MLIRError,
    OnnxImportError,
    Unsupported,
    RuntimeError,  # an assertion of the version converter
    Untranslatable,
    UsageError,
    shape_inference.InferenceError,
    version_converter.ConvertError,
)


def import_model(
    model: Model,
    shapes: Mapping[str, Sequence[int]] | None = None,
    public: Collection[str] = (),
    tables: TableOptions = AS_USUAL,
) -> Graph:
    """The model as a program of the graph level, its weights beside it.

    Args:
        model: a path, the file's bytes, or a model in memory.
        shapes: shapes of inputs that the model leaves open, by name.
        public: names of weights that everybody may know: they become constants of the program.
        tables: how models of tables are read.

    Raises:
        UsageError: no legal model, an input's shape is missing or doesn't fit, or a public weight
            isn't there.
        UnsupportedError: nodes that can't be compiled, all of them; where a shape is missing too,
            those that no shape would help, and the input.
    """
    try:
        drafted = draft(model, shapes or {}, public, tables)
    except OpenShape as error:
        raise _with_what_no_shape_helps(model, shapes or {}, public, error) from error
    offenders = known_unsupported(drafted)
    if not offenders:
        try:
            graph = _import(drafted)
        except FAILURES as error:
            failure = error
        else:
            require_finite(graph)
            return graph
    told = {entry.node for entry in offenders}
    offenders += [_offender(drafted, *failing) for failing in _failing(drafted, told)]
    if not offenders:  # only the whole shows it
        advice = "Compile its parts to find out which of them shows it."
        offenders.append(Offender("the whole", "model", drafted.source, _reason(failure), advice))
    raise UnsupportedError(offenders)


def prepare(
    model: Model,
    shapes: Mapping[str, Sequence[int]] | None = None,
    public: Collection[str] = (),
    tables: TableOptions = AS_USUAL,
) -> Prepared:
    """The model as the importer sees it, for comparing layer by layer; arguments as there.

    Its tensors are those that `node_outputs` names; its trailing inputs are the weights.

    Raises:
        UsageError, UnsupportedError: as `import_model`.
    """
    drafted = draft(model, shapes or {}, public, tables)
    offenders = known_unsupported(drafted)
    if offenders:
        raise UnsupportedError(offenders)
    return convert(drafted)


def _import(prepared: Prepared) -> Graph:
    converted = convert(prepared)
    graph = translate(lower(converted), converted.weights)
    graph.clips, classical = prepared.clips, prepared.classical
    graph.labels, graph.whole = classical.labels, classical.whole
    graph.structures = classical.structures
    graph.given, graph.columns = dict(classical.given), dict(classical.columns)
    return graph


def _with_what_no_shape_helps(
    model: Model,
    shapes: Mapping[str, Sequence[int]],
    public: Collection[str],
    missing: OpenShape,
) -> UsageError | UnsupportedError:
    """What to tell of a model with an open shape: that, and all that is unsupported anyway."""
    try:
        drafted = _guessed(model, shapes, public, missing)
    except UsageError:
        return missing  # the guess doesn't fit
    offenders = unsupported_at_any_shape(drafted)
    told = {entry.node for entry in known_unsupported(drafted)}
    if not told and _imports(drafted):
        return missing
    offenders += [
        _offender(drafted, node, error)
        for node, error in _failing(drafted, told)
        if isinstance(error, Untranslatable) and error.whatever_shapes
    ]
    if not offenders:
        return missing
    source = drafted.source
    shape = Offender(missing.info.name, "input", source, missing.message, missing.hint)
    return UnsupportedError([shape, *offenders])


def _imports(drafted: Prepared) -> bool:
    try:
        _import(drafted)
    except FAILURES:
        return False
    return True


def _guessed(
    model: Model,
    shapes: Mapping[str, Sequence[int]],
    public: Collection[str],
    missing: OpenShape,
) -> Prepared:
    """The draft with 1 for every extent that is open."""
    guessed = {**shapes, missing.info.name: missing.least}
    try:
        return draft(model, guessed, public)
    except OpenShape as another:
        return _guessed(model, guessed, public, another)


def _failing(drafted: Prepared, told: set[str]) -> Iterator[tuple[NodeProto, Exception]]:
    """Nodes that fail alone, of those not told yet whose inputs' types are known."""
    tensors = drafted.tensors()
    for node in drafted.model.graph.node:
        names = [*filter(None, node.input), *filter(None, node.output)]
        if node.name in told or not all(_is_readable(tensors.get(name)) for name in names):
            continue
        try:
            _import(drafted.alone(node, tensors))
        except FAILURES as error:
            yield node, error


def _offender(drafted: Prepared, node: NodeProto, error: Exception) -> Offender:
    names = _numbers_to_publish(drafted, node)
    if names:
        operands = f"{' and '.join(names)}, which it computes with,"
        reason = f"{operands} would have to be public: each is the owner's."
        flags = " ".join(f"--public {name}" for name in names)
        return offender(node, drafted.source, reason, f"If all may know it: {flags}.")
    return offender(node, drafted.source, _reason(error), _way_out(node, error))


def _numbers_to_publish(drafted: Prepared, node: NodeProto) -> list[str]:
    """The weights that a node reads, if it could be imported were they public."""
    names = [name for name in node.input if name in drafted.weights]
    if not names:
        return []
    known = {n: numpy_helper.from_array(np.asarray(drafted.weights[n]), n) for n in names}
    alone = drafted.alone(node, drafted.tensors() | known)
    try:
        _import(replace(alone, weights={}, public=tuple(names)))
    except FAILURES:
        return []
    return names


def _is_readable(tensor: TensorProto | ValueInfoProto | None) -> bool:
    """Whether it is a literal, or a tensor of numbers of known shape."""
    if not isinstance(tensor, ValueInfoProto):
        return tensor is not None
    kind = tensor.type.tensor_type
    return bool(kind.elem_type in NUMBERS and kind.HasField("shape"))


def _reason(error: Exception) -> str:
    if isinstance(error, Untranslatable):
        return error.refused[0].reason
    if isinstance(error, Unsupported):
        return error.reason
    if isinstance(error, ir.MLIRError):
        return "The importer lowers no such operator, or not in this form."
    # The converter's assertions say where they stand in its source, then what failed.
    detail = str(error).strip().splitlines()[0].rpartition("failed: ")[2].rstrip(".")
    return f"It can't be converted: {detail}."


def _way_out(node: NodeProto, error: Exception) -> str:
    given = ""
    if isinstance(error, Untranslatable):
        given = error.refused[0].way_out
    elif isinstance(error, Unsupported):
        given = error.way_out
    return given or way_out(node)
