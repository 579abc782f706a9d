"""ONNX models for tests and benchmarks: small ones made by hand, and the `light_*` graphs.

The package onnx carries the graphs of well-known networks with weights that are all 0.02, which
overflow and prove nothing: here they get seeded random ones under which activations stay of order
one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Array = NDArray[np.float32]
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
BRANCH_GAIN = 0.3  # of what is added to a residual, so that sums don't grow with depth


def model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Sequence[str],
    initialisers: Mapping[str, NDArray[np.generic]] | None = None,
    opset: int = 21,
) -> ModelProto:
    """A model of float32 inputs of these shapes, whose outputs' shapes are left to inference."""
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (initialisers or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def run_onnx(
    proto: ModelProto, feeds: Mapping[str, Array], every: bool = False
) -> dict[str, Array]:
    """The outputs of the model by ONNX Runtime; of every node with `every`."""
    copy = ModelProto()
    copy.CopyFrom(proto)
    if every:
        present = {output.name for output in copy.graph.output}
        names = {name for node in copy.graph.node for name in node.output if name} - present
        copy.graph.output.extend(helper.make_empty_tensor_value_info(n) for n in sorted(names))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1  # tests run side by side
    session = onnxruntime.InferenceSession(copy.SerializeToString(), options)
    given = [output.name for output in session.get_outputs()]
    return dict(zip(given, session.run(given, dict(feeds)), strict=True))


def light_model(name: str, seed: int) -> ModelProto:
    """A `light_*` graph of the package onnx with seeded random weights as plain initialisers.

    Args:
        name: as in light_resnet50.onnx: "squeezenet", "resnet50", "vgg19", "densenet121",
            "shufflenet", "inception_v1", "inception_v2", "bvlc_alexnet" or "zfnet512".
        seed: of the weights. Kernels have variance 2 / fan-in (He et al., ICCV 2015),
            normalisations are near the identity.
    """
    proto = onnx.load(LIGHT / f"light_{name}.onnx")
    graph = proto.graph
    shapes = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    makers = [node for node in graph.node if node.op_type == "ConstantOfShape"]
    extents = {n.output[0]: tuple(int(v) for v in shapes[n.input[0]]) for n in makers}
    extents |= {name: array.shape for name, array in shapes.items() if array.dtype == np.float32}
    rest = [NodeProto.FromString(n.SerializeToString()) for n in graph.node if n not in makers]
    roles = _roles(rest)
    rng = np.random.default_rng(seed)
    weights = {name: _draw(rng, extents[name], *roles[name]) for name in extents if name in roles}
    used = {name for node in rest for name in node.input}
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    tensors += [t for t in graph.initializer if t.name in used and t.name not in weights]
    inputs = [info for info in graph.input if info.name not in shapes]
    complete = helper.make_graph(rest, name, inputs, list(graph.output), tensors)
    return helper.make_model(complete, opset_imports=list(proto.opset_import), ir_version=8)


def _roles(nodes: Sequence[NodeProto]) -> dict[str, tuple[str, int, float]]:
    """Of each tensor that a node reads: the first operator, the position, and the gain there."""
    readers: dict[str, list[NodeProto]] = {}
    for node in nodes:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    summed = {name for node in nodes if node.op_type == "Sum" for name in node.input}
    centred = {node.output[0] for node in nodes if node.op_type == "BatchNormalization"}
    roles: dict[str, tuple[str, int, float]] = {}
    for name, found in readers.items():
        reader, tensor = found[0], name
        while reader.op_type == "Unsqueeze":
            tensor = reader.output[0]
            reader = readers[tensor][0]
        gain = BRANCH_GAIN if reader.output[0] in summed else 1.0
        if reader.op_type == "Conv" and reader.input[0] in centred:
            gain = math.sqrt(0.5)  # no rectifier before it has halved the mean square
        roles[name] = (reader.op_type, list(reader.input).index(tensor), gain)
    return roles


def _draw(
    rng: np.random.Generator, shape: tuple[int, ...], operator: str, position: int, gain: float
) -> Array:
    """Random values for the input at `position` of `operator`."""
    noise = rng.standard_normal(shape, dtype=np.float32)
    match operator, position:
        case (("Conv" | "Gemm"), 1):
            return noise * np.float32(gain * math.sqrt(2 / math.prod(shape[1:])))
        case "BatchNormalization", 1:
            return np.float32(gain) * (1 + np.float32(0.1) * noise)
        case ("BatchNormalization", 4) | ("Mul", _):
            return np.float32(1) + np.float32(0.2) * np.tanh(noise)
        case _:
            return np.float32(0.1) * noise
