"""Quantised models are decoded: they compute what their integers say, without their rounding."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from exact_integers import exact
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

import veilgraph
from veilgraph.checks.checking import check
from veilgraph.frontend.onnx.importer import import_model
from veilgraph.frontend.onnx.operators.quantised import RULES
from veilgraph.frontend.onnx.prepare import draft
from veilgraph.ir.errors import UnsupportedError, UsageError
from veilgraph.ir.graph.program import kind_of
from veilgraph.ir.plan.tables import CLIPS, Phase
from veilgraph.runtime.simulate import simulate

Array = NDArray[Any]
SHAPE = (1, 3, 12, 12)


def weight(rng: np.random.Generator, name: str, *shape: int) -> TensorProto:
    values = rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]))
    return numpy_helper.from_array(values.astype(np.float32), name)


def cnn() -> ModelProto:
    """Two convolutions, a residual, a dense layer."""
    rng = np.random.default_rng(0)
    shapes = {"w1": (8, 3, 3, 3), "b1": (8,), "w2": (8, 8, 3, 3), "b2": (8,), "w3": (10, 8)}
    weights = [weight(rng, name, *shape) for name, shape in (*shapes.items(), ("b3", (10,)))]
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p1", "w2", "b2"], ["c2"], pads=[1] * 4),
        helper.make_node("LeakyRelu", ["c2"], ["r2"], alpha=0.1),
        helper.make_node("Add", ["r2", "p1"], ["a2"]),
        helper.make_node("GlobalAveragePool", ["a2"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], transB=1),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])
    graph = helper.make_graph(nodes, "cnn", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Samples(CalibrationDataReader):
    """Feeds of the one input."""

    def __init__(self, samples: Array) -> None:
        self._feeds: Iterator[dict[str, Array]] = iter([{"x": sample} for sample in samples])

    def get_next(self) -> dict[str, Array] | None:
        return next(self._feeds, None)


FORMS = ["qdq", "qdq by channel", "qlinear", "qlinear by channel", "dynamic"]


def quantised(form: str, folder: Path, samples: Array, weight_bits: int = 8) -> Path:
    source, goal = folder / "cnn.onnx", folder / f"{form}.onnx"
    onnx.save(cnn(), source)
    if form == "dynamic":
        quantize_dynamic(source, goal, reduce_range=weight_bits == 7)
        return goal
    by_channel = form.endswith("by channel")
    quantize_static(
        source,
        goal,
        Samples(samples),
        quant_format=QuantFormat.QOperator if form.startswith("qlinear") else QuantFormat.QDQ,
        per_channel=by_channel,
        reduce_range=weight_bits == 7,
        activation_type=QuantType.QInt8 if by_channel else QuantType.QUInt8,
    )
    return goal


def run(path: Path, x: Array) -> Array:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.mark.parametrize("form", FORMS)
def test_a_quantised_network_agrees_with_its_integers_to_their_own_noise(
    form: str, tmp_path: Path
) -> None:
    samples = np.random.default_rng(1).normal(size=(6, *SHAPE)).astype(np.float32)
    path = quantised(form, tmp_path, samples)
    plan, weights = veilgraph.compile(path, calibrate={"x": samples})
    own, integers = [], []
    for x in samples[:2]:
        found = simulate(plan, weights, {"x": x}).outputs["y"]
        theirs, real = exact(path, x), run(tmp_path / "cnn.onnx", x)
        size = np.abs(real).max()
        assert np.abs(found - theirs).max() < 0.02 * size  # 8 bits an activation
        own.append(np.abs(found - real))
        integers.append(np.abs(theirs - real))
    # Without the rounding of activations it is no further from the model in real numbers. Of the
    # mean that holds for any rounding; the largest of ten errors scatters by a half.
    assert np.mean(own) < np.mean(integers)


@pytest.mark.parametrize("form", FORMS)
def test_the_integers_are_those_of_onnxruntime(form: str, tmp_path: Path) -> None:
    """With weights of 7 bits, whose products it saturates on no processor."""
    samples = np.random.default_rng(1).normal(size=(6, *SHAPE)).astype(np.float32)
    path = quantised(form, tmp_path, samples, weight_bits=7)
    for x in samples:
        np.testing.assert_allclose(exact(path, x), run(path, x), atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_what_samples_run_through_has_no_integers_left(form: str, tmp_path: Path) -> None:
    """Neither `check` nor calibration asks ONNX Runtime for products of 8 bits."""
    samples = np.random.default_rng(1).normal(size=(4, *SHAPE)).astype(np.float32)
    graph = draft(quantised(form, tmp_path, samples), {}).model.graph
    kinds = {TensorProto.INT8, TensorProto.UINT8}
    assert not {node.op_type for node in graph.node} & set(RULES)
    assert not {tensor.data_type for tensor in graph.initializer} & kinds


def test_integer_weights_become_the_owners_real_weights(tmp_path: Path) -> None:
    samples = np.random.default_rng(1).normal(size=(4, *SHAPE)).astype(np.float32)
    path = quantised("qlinear", tmp_path, samples)
    drafted = draft(path, {})
    literals = [numpy_helper.to_array(t) for t in drafted.model.graph.initializer]
    assert all(array.size <= 2 for array in literals)  # a bound of a clip, a shape
    assert {array.shape for array in drafted.weights.values()} >= {(8, 3, 3, 3), (8, 8, 3, 3)}
    assert not {node.op_type for node in drafted.model.graph.node} & {"QLinearConv", "Cast"}


def model(*nodes: NodeProto, shape: tuple[int, ...] = (2, 3), **constants: Any) -> ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", 0, None)
    initialisers = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], initialisers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def node(operator: str, inputs: str, outputs: str = "y", **attributes: Any) -> NodeProto:
    return helper.make_node(operator, inputs.split(), outputs.split(), outputs, **attributes)


CODE = {"s": np.float32(0.5), "z": np.uint8(10)}


# A clip to bounds that follow from the owner's scale: low + relu(x - low) - relu(x - high), where
# low is no larger than high, which weights alone decide.
CLIPPED = ["minimum", "maximum", "sub", "relu", "sub"]


def test_a_pair_is_a_clip_and_a_second_one_nothing() -> None:
    kinds = [kind_of(op) for op in import_model(_pairs()).operations]
    assert kinds == [*CLIPPED, "reshape"]


def _pairs() -> ModelProto:
    return model(
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "r"),
        node("QuantizeLinear", "r s z", "p"),
        node("Reshape", "p sizes", "o"),
        node("DequantizeLinear", "o s z"),
        sizes=np.array([3, 2]),
        **CODE,
    )


def test_a_relu_before_makes_the_lower_bound_idle() -> None:
    proto = model(
        node("Relu", "x", "r"),
        node("QuantizeLinear", "r s z", "q"),
        node("DequantizeLinear", "q s z"),
        s=np.float32(0.5),
        z=np.uint8(0),
    )
    imported = import_model(proto)
    kinds = [kind_of(op) for op in imported.operations]
    assert kinds == ["constant", *CLIPPED]  # the constant is where the ReLU clips


def test_what_would_cut_less_than_rounding_changes_is_left_out() -> None:
    narrower = node("QuantizeLinear", "r t z", "p"), node("DequantizeLinear", "p t z", "o")
    proto = model(
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "c"),
        node("LeakyRelu", "c", "r", alpha=0.5),
        *narrower,
        node("Neg", "o", "y"),
        s=np.float32(0.5),
        t=np.float32(0.4995),
        z=np.uint8(128),
    )
    kinds = [kind_of(op) for op in import_model(proto).operations]
    assert kinds == [*CLIPPED, "leaky_relu", "neg"]


def test_integers_that_are_asked_for_are_rounded() -> None:
    x = np.array([[-20, -4.9, 0.26], [3.2, 100, 200]], np.float32)
    proto = model(node("QuantizeLinear", "x s z"), **CODE)
    plan, weights = veilgraph.compile(proto, calibrate={"x": x[None]})
    found = simulate(plan, weights, {"x": x}).outputs["y"]
    assert found.tolist() == [[0, 0, 11], [16, 210, 255]]


@pytest.mark.parametrize("shape", [(2, 3), ()])
def test_a_scale_that_does_not_fit_is_told(shape: tuple[int, ...]) -> None:
    scales = {"s": np.ones(4, np.float32), "z": np.zeros(4, np.uint8)}
    proto = model(node("QuantizeLinear", "x s z"), shape=shape, **scales)
    with pytest.raises(UsageError, match=r"of shape \(4,\) doesn't fit"):
        import_model(proto)


# Scales from data


def of_onnxruntime(proto: ModelProto, x: Array) -> Array:
    """What ONNX Runtime computes of the one input; the output is said to be real numbers."""
    typed = ModelProto()
    typed.CopyFrom(proto)
    typed.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    typed.ir_version = 8
    session = onnxruntime.InferenceSession(typed.SerializeToString())
    return np.asarray(session.run(None, {"x": x})[0])


def biased_product(divisor: str = "units", rounding: str = "Floor") -> list[NodeProto]:
    """A convolution as older versions of ONNX Runtime quantised it: its bias in units of the
    product, rounded to integers."""
    return [
        node("DynamicQuantizeLinear", "x", "q s z"),
        node("Mul", "s ws", "units"),
        node("Div", f"b {divisor}", "quotient"),
        node(rounding, "quotient", "whole"),
        node("Cast", "whole", "integers", to=TensorProto.INT32),
        node("Reshape", "integers column", "bias"),
        node("ConvInteger", "q w z wz", "product", pads=[1] * 4),
        node("Add", "product bias", "sum"),
        node("Cast", "sum", "real", to=TensorProto.FLOAT),
        node("Mul", "real units"),
    ]


def conv_weights() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {
        "w": rng.integers(-127, 128, (8, 3, 3, 3)).astype(np.int8),
        "wz": np.int8(3),
        "ws": np.float32(0.002),
        "b": rng.normal(size=8).astype(np.float32),
        "column": np.array([1, -1, 1, 1]),
    }


def test_a_bias_in_units_of_a_dynamic_scale() -> None:
    proto = model(*biased_product(), shape=SHAPE, **conv_weights())
    proto.opset_import[0].version = 12
    graph = import_model(proto)
    kinds = {kind_of(op) for op in graph.operations}
    assert kinds <= {"conv", "add", "mul", "div", "constant", "reshape"}  # by the owner's numbers
    x = np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)
    theirs = exact(proto, x)
    plan, weights = veilgraph.compile(proto, calibrate={"x": x[None]})
    found = simulate(plan, weights, {"x": x}).outputs["y"]
    real = {n: np.asarray(a, np.float64) for n, a in conv_weights().items()}
    unrounded = onnx_conv(x, (real["w"] - real["wz"]) * real["ws"], real["b"])
    assert np.abs(found - unrounded).max() < 0.005 * np.abs(unrounded).max()
    assert np.abs(theirs - unrounded).max() < 0.05 * np.abs(unrounded).max()


def scaled_product(*more: NodeProto) -> ModelProto:
    """[2, 3] x [3, 4] in integers, as onnxruntime.quantization writes it, and what else is read."""
    rng = np.random.default_rng(4)
    return model(
        node("DynamicQuantizeLinear", "x", "q s z"),
        node("MatMulInteger", "q w z wz", "product"),
        node("Cast", "product", "real", to=TensorProto.FLOAT),
        node("Mul", "s ws", "units"),
        node("Mul", "real units", "scaled"),
        *more,
        w=rng.integers(0, 255, (3, 4)).astype(np.uint8),
        wz=np.uint8(128),
        ws=np.float32(0.01),
        column=np.array([1, 1]),
    )


def test_a_scale_that_goes_into_its_products_alone() -> None:
    graph = import_model(scaled_product(node("Relu", "scaled")))
    assert "matmul" in [kind_of(op) for op in graph.operations]


@pytest.mark.parametrize(
    "more",
    [
        [node("Mul", "x s")],  # the scale itself
        [node("Mul", "real ws")],  # a product without it
        [node("Mul", "s s", "square"), node("Mul", "real square")],
        [node("Mul", "units s", "square"), node("Mul", "real square")],
        [node("Reshape", "s column", "moved"), node("Add", "scaled moved")],
        [node("Div", "x units")],
    ],
)
def test_a_scale_from_data_that_is_read_otherwise(more: list[NodeProto]) -> None:
    """Any scale would do for what it makes real again, and for nothing else."""
    with pytest.raises(UnsupportedError, match="DynamicQuantizeLinear"):
        import_model(scaled_product(*more))


def onnx_conv(x: Array, w: Array, b: Array) -> Array:
    """A convolution with pads of one, by ONNX Runtime."""
    proto = model(
        node("Conv", "x w b", pads=[1] * 4),
        shape=SHAPE,
        w=w.astype(np.float32),
        b=b.astype(np.float32),
    )
    return of_onnxruntime(proto, x)


def lstm(by_gate: bool, weight_bits: int = 8) -> tuple[ModelProto, ModelProto, Array]:
    """An LSTM of integers, the same in real numbers, and what goes in."""
    rng, hidden, most = np.random.default_rng(5), 4, 2 ** (weight_bits - 1) - 1
    steps, inputs, gates = 5, 6, 4 * hidden
    scales = (2, gates) if by_gate else (2,)
    biases = {
        "b": rng.normal(size=(2, 2 * gates)).astype(np.float32),
        "h": rng.normal(size=(2, 1, hidden)).astype(np.float32),
        "c": rng.normal(size=(2, 1, hidden)).astype(np.float32),
    }
    integers: dict[str, Any] = {}
    reals: dict[str, Any] = {}
    for name, columns in (("w", inputs), ("r", hidden)):
        q = rng.integers(-most, most + 1, (2, columns, gates)).astype(np.int8)
        scale = rng.uniform(0.25, 0.75, scales) / most
        integers |= {name: q, f"{name}s": scale.astype(np.float32)}
        integers[f"{name}z"] = np.zeros(scales, np.int8)
        reals[name] = (q * scale.reshape(2, 1, -1)).transpose(0, 2, 1).astype(np.float32)
    named = {"direction": "bidirectional", "hidden_size": hidden}
    both = []
    for operator, domain, read, given in (
        ("DynamicQuantizeLSTM", "com.microsoft", "x w r b  h c  ws wz rs rz", integers),
        ("LSTM", "", "x w r b  h c", reals),
    ):
        cell = helper.make_node(operator, read.split(" "), ["y"], "lstm", domain=domain, **named)
        proto = model(cell, shape=(steps, 1, inputs), **given, **biases)
        proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        both.append(proto)
    return both[0], both[1], rng.normal(size=(steps, 1, inputs)).astype(np.float32)


@pytest.mark.parametrize("by_gate", [False, True])
def test_an_lstm_of_integers(by_gate: bool) -> None:
    proto, real, x = lstm(by_gate)
    wanted = of_onnxruntime(real, x)
    plan, weights = veilgraph.compile(proto, calibrate={"x": x[None]})
    found = simulate(plan, weights, {"x": x}).outputs["y"]
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() < 0.005


@pytest.mark.parametrize("by_gate", [False, True])
def test_an_lstm_of_integers_is_that_of_onnxruntime(by_gate: bool) -> None:
    """With weights of 7 bits, whose products it saturates on no processor."""
    proto, real, x = lstm(by_gate, weight_bits=7)
    assert np.abs(of_onnxruntime(proto, x) - of_onnxruntime(real, x)).max() < 0.01


def test_an_lstm_whose_scales_do_not_fit() -> None:
    q = np.zeros((1, 6, 16), np.int8)
    scales = {name: np.ones(3, np.float32) for name in ("ws", "rs")}
    zeros = {name: np.zeros(3, np.int8) for name in ("wz", "rz")}
    names = ["x", "w", "r", "", "", "", "", "", "ws", "wz", "rs", "rz"]
    cell = helper.make_node("DynamicQuantizeLSTM", names, ["y"], hidden_size=4,
                            domain="com.microsoft")  # fmt: skip
    proto = model(cell, shape=(5, 1, 6), w=q, r=q[:, :4], **scales, **zeros)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(UsageError, match=r"of shape \(3,\) doesn't fit weights of shape"):
        import_model(proto)


@pytest.mark.parametrize(
    "proto",
    [
        model(*biased_product(divisor="ws"), shape=SHAPE, **conv_weights()),
        model(node("DynamicQuantizeLinear", "x", "y s z")),
        model(
            node("ReduceMax", "x", "t", keepdims=0),
            node("QuantizeLinear", "x t z"),
            z=np.uint8(0),
        ),
    ],
)
def test_scales_that_follow_from_data_are_refused(proto: ModelProto) -> None:
    with pytest.raises(UnsupportedError, match="Its scale is computed from data"):
        import_model(proto)


# Clips that samples do not reach


def online(plan: veilgraph.Plan) -> tuple[int, int]:
    return plan.rounds(Phase.ONLINE), sum(plan.sent_bytes(Phase.ONLINE).values())


@pytest.mark.parametrize("form", ["qdq", "qlinear"])
def test_a_quantised_network_costs_what_its_float_twin_costs(form: str, tmp_path: Path) -> None:
    samples = np.random.default_rng(1).normal(size=(16, *SHAPE)).astype(np.float32)
    path = quantised(form, tmp_path, samples)
    twin, _ = veilgraph.compile(tmp_path / "cnn.onnx", calibrate={"x": samples})
    plan, weights = veilgraph.compile(path, calibrate={"x": samples})
    kept, _ = veilgraph.compile(path, calibrate={"x": samples}, keep_clips=True)
    assert online(plan) == online(twin)
    assert online(kept)[0] > 1.5 * online(plan)[0]
    assert online(kept)[1] > 2 * online(plan)[1]
    (said,) = [d.why for d in plan.manifest.disclosures if d.what == CLIPS]
    assert said.startswith("11 of 12 bounds of quantisers' clips are left out")
    assert not [d for d in kept.manifest.disclosures if d.what == CLIPS]
    assert kept.manifest.options["keep_clips"] is True
    found = simulate(plan, weights, {"x": samples[0]}).outputs["y"]
    theirs = exact(path, samples[0])
    assert np.abs(found - theirs).max() < 0.02 * np.abs(theirs).max()


def test_without_samples_every_clip_stays(tmp_path: Path) -> None:
    path = quantised("qdq", tmp_path, np.ones((2, *SHAPE), np.float32))
    plan, _ = veilgraph.compile(path)
    assert not [d for d in plan.manifest.disclosures if d.what == CLIPS]
    assert plan.ir["secret"].count("secret.maximum") == 6


def test_beyond_a_clip_that_was_dropped_values_go_on() -> None:
    proto = model(node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z"), **CODE)
    x = np.linspace(-4, 120, 6, dtype=np.float32).reshape(2, 3)  # of [-5, 122.5]
    plan, weights = veilgraph.compile(proto, calibrate={"x": x[None]})
    kept, kept_weights = veilgraph.compile(proto, calibrate={"x": x[None]}, keep_clips=True)
    beyond = np.float32([[-7, 0, 1], [2, 3, 200]])
    found = simulate(plan, weights, {"x": beyond}).outputs["y"]
    clipped = simulate(kept, kept_weights, {"x": beyond}).outputs["y"]
    np.testing.assert_allclose(found, beyond, atol=2)
    np.testing.assert_allclose(clipped, np.clip(beyond, -5, 122.5), atol=2)
    assert "sub" not in plan.ir["secret"]


def test_check_names_what_leaves_its_range_where_a_clip_was_dropped() -> None:
    proto = model(
        node("Add", "x x", "a"),
        node("QuantizeLinear", "a s z", "q"),
        node("DequantizeLinear", "q s z"),
        **CODE,
    )
    x = np.linspace(-2, 60, 6, dtype=np.float32).reshape(1, 2, 3)
    plan, weights = veilgraph.compile(proto, calibrate={"x": x})
    assert not check(plan, weights, proto, {"x": x}).excursions
    found = check(plan, weights, proto, {"x": 4 * x}, tolerance=1000.0)
    assert [name for name, _ in found.excursions] == ["x", "a", "y as revealed"]


def test_integers_that_are_asked_for_keep_their_clip() -> None:
    x = np.float32([[-4, -1, 0.26], [3.2, 50, 100]])
    proto = model(
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "r"),
        node("Identity", "q"),
        **CODE,
    )
    proto.graph.output.append(helper.make_tensor_value_info("r", TensorProto.FLOAT, None))
    plan, weights = veilgraph.compile(proto, calibrate={"x": x[None]})
    beyond = np.float32([[-7, 0, 1], [2, 3, 130]])
    found = simulate(plan, weights, {"x": beyond}).outputs["y"]
    assert found.tolist() == [[0, 10, 12], [14, 16, 255]]
