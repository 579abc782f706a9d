"""Models of a few numbers each, whose plans have what a LeNet's have not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import veilgraph
from veilgraph.ir.plan.plan import Plan

OPSET = 21
Array = npt.NDArray[np.float32]


def softmax() -> ModelProto:
    """A maximum, exponentials, sums of them and a quotient."""
    return model_of((2, 5), [helper.make_node("Softmax", ["x"], ["y"])], {})


def gelu() -> ModelProto:
    """A Fourier series with a product."""
    return model_of((2, 4), [helper.make_node("Gelu", ["x"], ["y"])], {})


def attention() -> ModelProto:
    """softmax((x q) (x k)^T) (x v), whose two products of secrets are batched."""
    rng = np.random.default_rng(3)
    projections = {name: 0.5 * rng.standard_normal((4, 4)) for name in ("q", "k", "v")}
    made = [
        *(helper.make_node("MatMul", ["x", name], [f"x{name}"]) for name in projections),
        helper.make_node("Transpose", ["xk"], ["keys"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["xq", "keys"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"]),
        helper.make_node("MatMul", ["weights", "xv"], ["y"]),
    ]
    return model_of((2, 3, 4), made, projections)


def mixed_rings() -> ModelProto:
    """A convolution, a pool of maxima and a dense layer of small weights, which takes less."""
    rng = np.random.default_rng(4)
    weights = {
        "k": rng.standard_normal((4, 3, 3, 3)),
        "d": 1e-3 * rng.standard_normal((16, 3)),
    }
    made = [
        helper.make_node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "d"], ["y"]),
    ]
    return model_of((1, 3, 4, 4), made, weights)


MAX_ERROR = {"mixed_rings": 1e-4}
MODELS: dict[str, Callable[[], ModelProto]] = {
    made.__name__: made for made in (softmax, gelu, attention, mixed_rings)
}


def tiny_plan(name: str, suite: str) -> tuple[Plan, dict[str, Array], Array]:
    """The plan of a model with rings chosen, its weights, and an input."""
    model = MODELS[name]()
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    samples = np.random.default_rng(5).standard_normal((8, *shape), dtype=np.float32)
    dealer = {"parties": ["alice", "bob"], "dealer": "dave"} if suite == "additive" else {}
    plan, weights = veilgraph.compile(
        model, suite=suite, calibrate={"x": samples}, max_error=MAX_ERROR.get(name), **dealer
    )
    return plan, weights, samples[0]


def model_of(
    shape: Sequence[int], nodes: list[NodeProto], weights: dict[str, npt.NDArray[np.float64]]
) -> ModelProto:
    """From `x` to `y`."""
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)
