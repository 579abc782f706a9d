"""What ONNX Runtime computes at each node of a model: what `check` compares with.

It computes in real numbers. A quantised model is decoded first, so that none of ONNX Runtime's
products of 8 bits decides: on a processor with AVX2 and without VNNI these saturate, and its option
`session.x64quantprecision`, which avoids that, acts in optimisations that are off here.

For a PyTorch model it is torch itself (torch_references.py); both are a `Reference`
(reference_runs.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import ModelProto, NodeProto, helper

from veilgraph.checks.reference_runs import Array, Feeds, Reference
from veilgraph.compilation.models import Model, is_torch
from veilgraph.frontend.onnx.importer import node_outputs, prepare
from veilgraph.frontend.onnx.operators.quantised import RULES
from veilgraph.ir.graph.table_options import AS_USUAL, TableOptions
from veilgraph.model_files import require_model_file

NUMBERS: Mapping[str, type[np.generic]] = {"tensor(bool)": np.bool_} | {
    f"tensor({name})": getattr(np, name)
    for name in (f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
}
POOL_ATTRIBUTES = ("auto_pad", "ceil_mode", "kernel_shape", "pads", "strides")


def reference_of(
    model: Model,
    inputs: Mapping[str, tuple[int, ...]],
    average_pools: bool = False,
    public: Sequence[str] = (),
    tables: TableOptions = AS_USUAL,
) -> Reference:
    """The model as the importer sees it.

    Args:
        inputs: the shapes of its inputs.
        average_pools: with average pools in place of max pools, as `compile --avgpool`.
        public: parameters that everybody may know, as `compile --public`.
        tables: how models of tables are read.

    Raises:
        UsageError, UnsupportedError: as `veilgraph.compile`.
    """
    if is_torch(model):
        from veilgraph.checks.torch_references import TorchReference

        return TorchReference.of(model, inputs, average_pools, public)
    if isinstance(model, str | Path):
        require_model_file(Path(model))
    return OnnxReference.of(model, inputs, average_pools, public, tables)


@dataclass(frozen=True)
class OnnxReference:
    """A model in ONNX Runtime.

    Attributes:
        nodes: the tensor that each node computes, by the node's name, in the model's order.
        outputs: names of the model's own outputs.
    """

    session: onnxruntime.InferenceSession
    weights: Feeds
    nodes: Mapping[str, str]
    outputs: tuple[str, ...]

    @staticmethod
    def of(
        model: Model,
        inputs: Mapping[str, tuple[int, ...]],
        average_pools: bool,
        public: Sequence[str],
        tables: TableOptions,
    ) -> OnnxReference:
        """See `reference_of`."""
        prepared = prepare(model, inputs, public, tables)
        proto = ModelProto()
        proto.CopyFrom(prepared.model)
        outputs = tuple(info.name for info in proto.graph.output)
        if average_pools:
            _average(proto)
        nodes = node_outputs(proto)
        assert not {node.op_type for node in proto.graph.node} & RULES.keys(), "left undecoded"
        extra = [name for name in nodes.values() if name not in outputs]
        proto.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in extra)
        return OnnxReference(_session(proto), prepared.weights, nodes, outputs)

    def run(self, sample: Feeds) -> dict[str, Array]:
        """Every tensor by name, for one array an input."""
        names = [output.name for output in self.session.get_outputs()]
        types = {
            info.name: NUMBERS.get(info.type, np.float32) for info in self.session.get_inputs()
        }
        feeds = {n: x.astype(types[n]) for n, x in sample.items() if n in types}
        values = self.session.run(names, {**self.weights, **feeds})
        return dict(zip(names, values, strict=True))


def _session(proto: ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # a failure is an exception; a log would show names as they are
    # Nodes are compared one by one: none may be merged with another.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    # Threads that wait for a next node sleep, as those of a compile do.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    content = proto.SerializeToString()
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _average(proto: ModelProto) -> None:
    """Turns the max pools into average pools that `passes.pool_average` would turn."""
    for node in proto.graph.node:
        if node.op_type == "MaxPool" and not _is_dilated(node):
            kept = [a for a in node.attribute if a.name in POOL_ATTRIBUTES]
            node.op_type = "AveragePool"
            del node.attribute[:]
            node.attribute.extend(kept)


def _is_dilated(node: NodeProto) -> bool:
    return any(a.name == "dilations" and any(d != 1 for d in a.ints) for a in node.attribute)
