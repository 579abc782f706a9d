"""The networks that the package onnx carries: imported, folded, and equal to ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from models import light_model, run_onnx
from numpy.typing import NDArray

from veilgraph.frontend.onnx.importer import import_model, node_outputs, prepare
from veilgraph.ir.graph.program import kind_of
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.passes.graph.fold_batch_norm import FoldBatchNorm
from veilgraph.passes.graph.fold_constants import FoldConstants

Array = NDArray[np.float32]
NETWORKS = [
    "squeezenet",
    "resnet50",
    "shufflenet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    pytest.param("bvlc_alexnet", marks=pytest.mark.slow),
    pytest.param("zfnet512", marks=pytest.mark.slow),
    pytest.param("vgg19", marks=pytest.mark.slow),
]


def worst(actual: dict[str, Array], expected: dict[str, Array]) -> float:
    """The largest error of any value, relative to the value's largest element."""
    return max(
        float(np.abs(value - expected[name]).max() / np.abs(expected[name]).max())
        for name, value in actual.items()
    )


@pytest.mark.parametrize("network", NETWORKS)
def test_network_equals_onnxruntime_layer_by_layer(network: str) -> None:
    proto = light_model(network, seed=1)
    (info,) = proto.graph.input
    shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
    x = {info.name: np.random.default_rng(2).standard_normal(shape).astype(np.float32)}
    prepared = prepare(proto)
    tensors = run_onnx(prepared.model, {**x, **prepared.weights}, every=True)
    expected = {node: tensors[name] for node, name in node_outputs(prepared.model).items()}
    graph = import_model(proto)
    FoldConstants().run(FoldBatchNorm().run(graph)).verify()
    kinds = {kind_of(op) for op in graph.operations}
    seen: dict[str, Array] = {}
    outputs = evaluate(graph, x, lambda name, value: seen.update({name: value}))
    compared = {name: value for name, value in seen.items() if name in expected}
    assert "batch_norm" not in kinds
    assert len(compared) >= 20
    assert worst(compared, expected) < 1e-3
    assert worst(outputs, run_onnx(proto, x)) < 1e-3
    assert all(0.01 < value.std() < 100 for value in compared.values() if value.size > 1000)
