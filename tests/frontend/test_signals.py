"""Fourier transforms, windows and mel filters, against ONNX Runtime or ONNX's reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from operator_rows import Row, check_matches_onnxruntime, ints

import veilgraph
from veilgraph.frontend.onnx.importer import import_model
from veilgraph.ir.errors import UnsupportedError
from veilgraph.ir.graph.program import kind_of
from veilgraph.ir.meaning.graph import evaluate

Array = np.ndarray[Any, np.dtype[Any]]
REAL, COMPLEX = (2, 9, 5, 1), (2, 9, 5, 2)
ROWS = [
    *(
        Row("DFT", [shape], {"inverse": inverse}, {"n": length, "a": axis}, opset=20)
        for shape in (REAL, COMPLEX)
        for inverse in (0, 1)
        for length, axis in (
            (ints(9)[0], ints(1)[0]), (ints(5)[0], ints(-2)[0]), (ints(12)[0], ints(-3)[0]),
            (ints(4)[0], ints(1)[0]), (ints(2)[0], ints(0)[0]),
        )
        if shape == COMPLEX or not inverse
    ),
    *(
        Row("DFT", [REAL], {"onesided": 1}, {"n": ints(n)[0], "a": ints(1)[0]}, opset=20)
        for n in (9, 8, 11)
    ),
    Row("DFT", [REAL], {"axis": 2, "onesided": 1}, opset=17),
    Row("DFT", [COMPLEX], {"inverse": 1}, opset=17),
    *(
        Row("STFT", [(2, 40, parts)], {"onesided": side}, {"s": ints(step)[0], **more}, opset=17)
        for parts, side in ((1, 1), (1, 0), (2, 0))
        for step, more in (
            (8, {"w": np.hanning(16).astype(np.float32)}),
            (5, {"w": np.ones(9, np.float32), "n": ints(9)[0]}),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_transform_is_that_of_onnxruntime(row: Row) -> None:
    check_matches_onnxruntime(row, 2e-5)  # its own numbers are no nearer


def model(body: str, shapes: str, constants: dict[str, Any] | None = None) -> onnx.ModelProto:
    """A model in ONNX's text, of one output z."""
    text = f'<ir_version: 10, opset_import: ["" : 20]> g ({shapes}) => (float[] z) {{{body}}}'
    made = onnx.parser.parse_model(text)
    made.graph.output[0].type.tensor_type.ClearField("shape")
    for name, value in (constants or {}).items():
        made.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return made


def imported(made: onnx.ModelProto, feeds: dict[str, Array]) -> tuple[Array, list[str]]:
    graph = import_model(made)
    return evaluate(graph, feeds)["z"], [kind_of(op) for op in graph.operations]


def drawn(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("length", [9, 10])
def test_half_a_spectrum_goes_back_to_real_numbers(length: int) -> None:
    """ONNX Runtime has no such transform: NumPy's is compared."""
    body = "z = DFT <inverse=1, onesided=1> (x, n, a)"
    made = model(body, "float[2,6,3,2] x", {"n": np.int64(length), "a": np.int64(1)})
    x = drawn(2, 6, 3, 2)
    wanted = np.fft.irfft(x[..., 0] + 1j * x[..., 1], length, axis=1)[..., None]
    np.testing.assert_allclose(imported(made, {"x": x})[0], wanted, atol=1e-6)
    (again,) = ReferenceEvaluator(made).run(None, {"x": x})
    np.testing.assert_allclose(again, wanted, atol=1e-6)


@pytest.mark.parametrize("name", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_windows_are_public_numbers(name: str, periodic: int, kind: int) -> None:
    body = f"w = {name} <periodic={periodic}, output_datatype={kind}> (n) z = Mul(x, w)"
    shapes = "double[3,12] x" if kind == TensorProto.DOUBLE else "float[3,12] x"
    made = model(body, shapes, {"n": np.int64(12)})
    made.graph.output[0].type.tensor_type.elem_type = kind
    x = drawn(3, 12)
    given = x.astype(helper.tensor_dtype_to_np_dtype(kind))
    (wanted,) = ReferenceEvaluator(made).run(None, {"x": given})
    found, kinds = imported(made, {"x": x})
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert kinds == ["constant", "mul"]


def test_a_short_transform_of_a_window_of_a_node_or_of_data() -> None:
    """The window's node is public; a window of data multiplies the kernels."""
    x, w = drawn(2, 40, 1), drawn(8)
    of_node = model("w = HannWindow(n) z = STFT(x, s, w)", "float[2,40,1] x")
    of_data = model("z = STFT(x, s, w)", "float[2,40,1] x, float[8] w")
    alone = model("z = STFT(x, s, , n)", "float[2,40,1] x")
    for made, feeds in ((of_node, {"x": x}), (of_data, {"x": x, "w": w}), (alone, {"x": x})):
        for name, value in (("n", 8), ("s", 5)):
            read = {operand for node in made.graph.node for operand in node.input}
            if name in read:
                made.graph.initializer.append(numpy_helper.from_array(np.int64(value), name))
        (wanted,) = ReferenceEvaluator(made).run(None, feeds)
        found, kinds = imported(made, feeds)
        np.testing.assert_allclose(found, wanted, atol=1e-5)
        assert kinds.count("conv") == 1
        assert "matmul" not in kinds


WRITTEN_OUT = """
    r = Range(zero, n, one)
    f = Cast <to=1> (r)
    a = Mul(f, turn)
    c = Cos(a)
    h = Mul(c, half)
    w = Sub(half, h)
    z = STFT(x, s, w)
"""


def test_a_window_that_is_written_out_is_public_too() -> None:
    numbers = {"zero": 0, "n": 8, "one": 1, "s": 5}
    constants: dict[str, Any] = {name: np.int64(value) for name, value in numbers.items()}
    constants |= {"turn": np.float32(2 * np.pi / 8), "half": np.float32(0.5)}
    made = model(WRITTEN_OUT, "float[2,40,1] x", constants)
    x = drawn(2, 40, 1)
    (wanted,) = ReferenceEvaluator(made).run(None, {"x": x})
    graph = import_model(made)
    np.testing.assert_allclose(evaluate(graph, {"x": x})["z"], wanted, atol=1e-5)
    assert graph.weights == {}


SPEECH = """
    w = HannWindow(length)
    s = STFT(x, step, w, length)
    p = ReduceSumSquare <keepdims=0> (s, last)
    m = MelWeightMatrix(bins, length, rate, low, high)
    e = MatMul(p, m)
    f = Add(e, least)
    z = Log(f)
"""
RATE = {"length": 256, "step": 128, "bins": 20, "rate": 8000}


def speech() -> onnx.ModelProto:
    """Logarithms of mel energies of a tenth of a second and more."""
    numbers = {name: np.int64(value) for name, value in RATE.items()}
    edges = {"low": np.float32(125), "high": np.float32(3800), "least": np.float32(0.5)}
    return model(SPEECH, "float[1,1024,1] x", numbers | edges | {"last": ints(-1)})


def tone(seed: int) -> Array:
    """Two tones in noise."""
    rng, t = np.random.default_rng(seed), np.arange(1024) / 8000
    low, high = rng.uniform(200, 900), rng.uniform(1200, 3000)
    wave = 0.5 * np.sin(2 * np.pi * low * t) + 0.3 * np.sin(2 * np.pi * high * t)
    return (wave + 0.05 * rng.normal(size=1024)).astype(np.float32).reshape(1, 1024, 1)


def test_a_front_end_of_speech_is_that_of_onnxruntime() -> None:
    """Windows, spectra, powers, mel filters and logarithms; the matrices are public."""
    made = speech()
    plan, weights = veilgraph.compile(made, calibrate={"x": np.stack([tone(i) for i in range(8)])})
    session = onnxruntime.InferenceSession(made.SerializeToString())
    for seed in (20, 21):
        (wanted,) = session.run(None, {"x": tone(seed)})
        found = veilgraph.simulate(plan, weights, {"x": tone(seed)}).outputs["z"]
        assert found.shape == (1, 7, 20)
        np.testing.assert_allclose(found, wanted, atol=0.02)


@pytest.mark.parametrize(
    ("body", "shapes", "constants", "named"),
    [
        ("z = DFT(x, n)", "float[2,4,1] x, int64 n", {}, "The shape of its output depends on"),
        ("z = DFT(x, , a)", "float[2,4,1] x", {"a": np.int64(2)}, "Its operands don't fit: axis"),
        ("z = DFT(x, n)", "float[2,4,1] x", {"n": np.int64(0)}, "or is empty"),
        ("z = DFT(x)", "float[2,4097,2] x", {}, "a public matrix of 67141636 elements"),
        (
            "z = STFT(x, s, w, n)", "float[1,40,1] x",
            {"s": np.int64(4), "w": np.ones(8, np.float32), "n": np.int64(9)},
            "Its operands don't fit",
        ),
        (
            "z = STFT(x, s, , n)", "float[1,40,1] x", {"s": np.int64(4), "n": np.int64(41)},
            "Its frames of 41 numbers are longer than a signal of 40.",
        ),
        (
            "z = STFT(x, s, , n)", "float[1,40,1] x", {"s": np.int64(0), "n": np.int64(4)},
            "is empty",
        ),
        ("z = STFT(x, s)", "float[1,40,1] x, int64 s", {}, "shape of its output"),
        (
            "m = MelWeightMatrix(b, n, r, low, high) z = Mul(x, m)", "float[5,3] x, float high",
            {"b": np.int64(3), "n": np.int64(8), "r": np.int64(8000), "low": np.float32(100)},
            "Its upper edges are computed from data.",
        ),
        (
            "m = MelWeightMatrix(b, n, r, low, high) z = Mul(x, m)", "float[5,3] x",
            {
                "b": np.int64(3), "n": np.int64(8), "r": np.int64(8000),
                "low": np.float32(100), "high": np.float32(20000),
            },
            "ONNX's reference computes none of it",
        ),
    ],
    ids=[
        *("length-of-data", "axis", "empty", "large", "window", "long-frames", "no-step"),
        *("step-of-data", "edge-of-data", "edge-beyond"),
    ],
)  # fmt: skip
def test_what_has_no_public_matrix_is_refused(
    body: str, shapes: str, constants: dict[str, Any], named: str
) -> None:
    with pytest.raises(UnsupportedError) as caught:
        import_model(model(body, shapes, constants))
    assert named in str(caught.value)


def test_a_window_of_a_secret_length_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="shape of its output"):
        import_model(model("w = HannWindow(n) z = Mul(x, w)", "float[12] x, int64 n"))
