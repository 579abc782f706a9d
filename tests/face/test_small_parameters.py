"""A learnt number is its owner's however few there are: computed right, and in no plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from torch import nn

import veilgraph
from veilgraph.ir.errors import UsageError
from veilgraph.plans import Plan

Array = NDArray[np.float32]
X = np.random.default_rng(3).normal(size=(12, 1, 4)).astype(np.float32)
W = np.random.default_rng(4).normal(size=(4, 2)).astype(np.float32)
ONE = W[:, :1]
SLOPE, BIAS = np.float32(0.2137), np.float32(-0.7713)
SUITES: list[dict[str, Any]] = [
    {"suite": "rep3"},
    {"suite": "additive", "dealer": "dave"},
    {"suite": "cleartext"},
    {"suite": "rep3", "owners": {"weights": "public"}},
    {"suite": "rep3", "owners": {"weights": "shared"}},
    {"suite": "additive", "dealer": "dave", "owners": {"weights": "shared"}},
]


def node(operator: str, inputs: str, output: str, **attributes: Any) -> NodeProto:
    return helper.make_node(operator, inputs.split(), [output], name=output, **attributes)


def model(nodes: list[NodeProto], shape: tuple[int, ...], **weights: Any) -> ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    held = [numpy_helper.from_array(np.asarray(a, np.float32), n) for n, a in weights.items()]
    graph = helper.make_graph(nodes, "small", [x], [y], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def written(name: str, number: np.float32) -> NodeProto:
    """A Constant node, as a frozen parameter is written."""
    return node("Constant", "", name, value=numpy_helper.from_array(np.asarray(number)))


PRODUCT = node("MatMul", "x w", "m")
BATCH_NORM = [
    node("Reshape", "x as_image", "i"),
    node("BatchNormalization", "i g b e v", "n"),
    node("Reshape", "n as_row", "y"),
]
MODELS = {
    "slope": (model([PRODUCT, node("PRelu", "m s", "y")], (1, 2), w=W, s=[SLOPE]), "s"),
    "bias": (model([node("Gemm", "x w b", "y")], (1, 1), w=ONE, b=[BIAS]), "b"),
    "multiplier": (model([PRODUCT, node("Mul", "m t", "y")], (1, 2), w=W, t=SLOPE), "t"),
    "temperature": (model([PRODUCT, node("Div", "m t", "y")], (1, 2), w=W, t=SLOPE), "t"),
    "constant": (
        model([written("t", SLOPE), PRODUCT, node("Mul", "m t", "y")], (1, 2), w=W),
        "t",
    ),
    "clip": (
        model([PRODUCT, node("Clip", "m b s", "y")], (1, 2), w=W, b=BIAS, s=SLOPE),
        "s",
    ),
}


def published(plan: Plan) -> list[str]:
    """The model's own numbers that the plan names as public."""
    return [d.what for d in plan.manifest.disclosures if d.what.startswith("constant")]


def run(plan: Plan, weights: Any, x: Array) -> Array:
    return veilgraph.simulate(plan, weights, {"x": x}).outputs["y"]


@pytest.mark.parametrize("options", SUITES, ids=lambda each: "-".join(map(str, each.values())))
@pytest.mark.parametrize("name", MODELS)
def test_a_single_number_is_the_owners_and_computes_right(
    name: str, options: dict[str, Any]
) -> None:
    proto, _ = MODELS[name]
    plan, weights = veilgraph.compile(proto, calibrate={"x": X}, **options)
    assert not published(plan)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    for x in X[:2]:
        (wanted,) = session.run(None, {"x": x})
        assert np.abs(run(plan, weights, x) - wanted).max() < 0.01 * np.abs(wanted).max() + 0.005


@pytest.mark.parametrize("name", MODELS)
def test_a_plan_says_nothing_of_a_single_number_but_its_scale(name: str) -> None:
    """Two numbers of one binade, calibrated alike, give one plan."""
    proto, parameter = MODELS[name]
    other = ModelProto.FromString(proto.SerializeToString())
    held = [t for t in other.graph.initializer if t.name == parameter]
    held += [n.attribute[0].t for n in other.graph.node if parameter in n.output]
    value = numpy_helper.to_array(held[0]) * np.float32(1.01)
    held[0].CopyFrom(numpy_helper.from_array(value, held[0].name))
    plans = [veilgraph.compile(m, ring=64, frac_bits=12)[0] for m in (proto, other)]
    assert plans[0].digest == plans[1].digest


def test_a_batch_norm_of_one_channel_and_a_weight_of_one_element_are_the_owners() -> None:
    """They fold into one weight."""
    shapes = {"as_image": np.array([1, 1, 2, 2]), "as_row": np.array([1, 4])}
    numbers = {"g": [1.234], "b": [BIAS], "e": [0.321], "v": [0.777], "k": [[[[SLOPE]]]]}
    convolved = [BATCH_NORM[0], node("Conv", "i k", "c"), *BATCH_NORM[1:]]
    convolved[2].input[0] = "c"
    proto = model(convolved, (1, 4), **numbers)
    proto.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in shapes.items())
    plan, weights = veilgraph.compile(proto, calibrate={"x": X})
    assert weights
    assert not published(plan)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    (wanted,) = session.run(None, {"x": X[0]})
    np.testing.assert_allclose(run(plan, weights, X[0]), wanted, atol=0.01)


class Regression(nn.Module):
    """One output, one slope, a temperature, and a number of the code."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.slope = nn.Linear(4, 1), nn.PReLU(init=float(SLOPE))
        self.temperature = nn.Parameter(torch.tensor(1.2345))
        self.register_buffer("shift", torch.tensor([0.4321]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.slope(self.fc(x)) * self.temperature * 0.5 + self.shift
        return found


def test_parameters_and_buffers_of_torch_are_the_owners() -> None:
    torch.manual_seed(0)
    network = Regression().eval()
    x = torch.tensor(X[0])
    plan, weights = veilgraph.compile(network, example_inputs=(x,), calibrate={"x": X})
    assert {"fc.bias", "slope.weight", "temperature", "shift"} <= weights.keys()
    assert all("0.5" in what for what in published(plan))
    (found,) = veilgraph.simulate(plan, weights, {"x": X[0]}).outputs.values()
    with torch.no_grad():
        np.testing.assert_allclose(found, network(x).numpy(), atol=0.01)
    plan, weights = veilgraph.compile(
        network, example_inputs=(x,), calibrate={"x": X}, public=("temperature",)
    )
    assert "temperature" not in weights
    with pytest.raises(UsageError, match="no parameter 'temprature' to make public"):
        veilgraph.compile(network, example_inputs=(x,), public=("temprature",))


def test_a_number_that_is_named_public_is_listed() -> None:
    proto, parameter = MODELS["clip"]
    plan, weights = veilgraph.compile(proto, calibrate={"x": X}, public=(parameter,))
    assert parameter not in weights
    (told,) = published(plan)
    assert str(float(SLOPE)) in told
    assert plan.manifest.options["public"] == [parameter]
