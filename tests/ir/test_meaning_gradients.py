"""Derivatives of every operation against differences, and what noise gains predict."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from torch_mlir import ir

from veilgraph.ir import graph_ops as ops
from veilgraph.ir.graph import Graph
from veilgraph.ir.meaning.gradients import BACK, gradients, noise_gains
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.mlir import context

GEOMETRY = {"strides": (2, 1), "pads_low": (1, 0), "pads_high": (1, 2), "dilations": (1, 2)}
POOL = {"kernel": (2, 3), "strides": (2, 1), "pads_low": (1, 0), "pads_high": (0, 2)}
IMAGE = (2, 4, 6, 5)
Build = Callable[..., ir.Value]


def of_positive(kind: type[ops.Unary]) -> Build:
    """Of 1 + x^2."""
    return lambda x: kind.build(ops.Add.build(ops.Mul.build(x, x), ops.constant(1.0)))


SMOOTH: dict[str, Build] = {
    "sigmoid": ops.Sigmoid.build,
    "tanh": ops.Tanh.build,
    "erf": ops.Erf.build,
    "gelu": lambda x: ops.Gelu.build(x, approximate="none"),
    "silu": ops.Silu.build,
    "softplus": ops.Softplus.build,
    "atan": ops.Atan.build,
    "sin": ops.Sin.build,
    "cos": ops.Cos.build,
    "exp": ops.Exp.build,
    "log": of_positive(ops.Log),
    "sqrt": of_positive(ops.Sqrt),
    "rsqrt": of_positive(ops.Rsqrt),
    "reciprocal": of_positive(ops.Reciprocal),
}
# (operation, shapes of the operands, how it is built)
CASES: list[tuple[str, list[tuple[int, ...]], Build]] = [
    ("add", [(2, 3), (3,)], ops.Add.build),
    ("sub", [(2, 1), (1, 3)], ops.Sub.build),
    ("mul", [(2, 3), (1, 3)], ops.Mul.build),
    ("neg", [(2, 3)], ops.Neg.build),
    ("step", [(2, 3)], ops.Step.build),
    ("floor", [(2, 3)], ops.Floor.build),
    ("round", [(2, 3)], ops.Round.build),
    ("relu", [(2, 3)], ops.Relu.build),
    *((name, [(2, 3)], build) for name, build in SMOOTH.items()),
    ("softmax", [(2, 3, 4)], lambda x: ops.Softmax.build(x, axis=1)),
    ("log_softmax", [(2, 3)], lambda x: ops.LogSoftmax.build(x, axis=1)),
    ("maximum", [(2, 3), (3,)], ops.Maximum.build),
    ("matmul", [(5, 2, 3), (3, 4)], ops.Matmul.build),
    ("matmul", [(3,), (5, 3, 2)], ops.Matmul.build),
    ("matmul", [(2, 3), (3,)], ops.Matmul.build),
    (
        "conv",
        [IMAGE, (6, 2, 3, 2), (6,)],
        lambda x, w, b: ops.Conv.build(x, w, bias=b, groups=2, **GEOMETRY),
    ),
    ("conv", [IMAGE, (4, 1, 1, 3)], lambda x, w: ops.Conv.build(x, w, groups=4, **GEOMETRY)),
    ("max_pool", [IMAGE], lambda x: ops.MaxPool.build(x, dilations=(1, 1), **POOL)),
    ("sum_pool", [IMAGE], lambda x: ops.SumPool.build(x, **POOL)),
    ("reduce_sum", [(2, 3, 4)], lambda x: ops.ReduceSum.build(x, axes=(0, 2), keepdims=False)),
    ("reduce_max", [(2, 3, 4)], lambda x: ops.ReduceMax.build(x, axes=(1,), keepdims=True)),
    ("reshape", [(2, 6)], lambda x: ops.Reshape.build(x, shape=(3, 4))),
    ("transpose", [(2, 3, 4)], lambda x: ops.Transpose.build(x, permutation=(2, 0, 1))),
    ("slice", [(4, 5)], lambda x: ops.Slice.build(x, starts=(3, 0), steps=(-2, 2), shape=(2, 3))),
    ("pad", [(2, 3)], lambda x: ops.Pad.build(x, low=(1, 0), high=(0, 2), value=0.0)),
    ("expand", [(3, 1)], lambda x: ops.Expand.build(x, shape=(2, 3, 4))),
    ("concat", [(2, 3), (2, 1)], lambda x, y: ops.concat([x, y], 1)),
]


def program(shapes: list[tuple[int, ...]], build: Build) -> Graph:
    graph = Graph.create(context(), {f"x{i}": shape for i, shape in enumerate(shapes)}, {})
    with graph.end("op"):
        y = build(*graph.inputs.values())
    graph.finish({"y": y})
    return graph


def test_every_operation_but_constants_is_tried() -> None:
    assert {name for name, _, _ in CASES} | {"constant"} == set(BACK)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_derivatives_are_those_of_differences(
    case: tuple[str, list[tuple[int, ...]], Build],
) -> None:
    _, shapes, build = case
    graph, generator = program(shapes, build), np.random.default_rng(3)
    inputs = {f"x{i}": generator.standard_normal(shape) for i, shape in enumerate(shapes)}
    seed = generator.standard_normal(evaluate(graph, inputs)["y"].shape)
    found = {value: back for value, _, back in gradients(graph, inputs, {"y": seed})}
    for name, value in graph.inputs.items():
        direction = generator.standard_normal(inputs[name].shape)
        sides = [
            np.sum(
                seed
                * evaluate(graph, inputs | {name: inputs[name] + h * direction}, dtype=np.float64)[
                    "y"
                ]
            )
            for h in (1e-5, -1e-5)
        ]
        slope = (sides[0] - sides[1]) / 2e-5
        assert np.sum(found[value] * direction) == pytest.approx(slope, rel=1e-3, abs=1e-3)
        assert found[value].shape == inputs[name].shape


def test_derivatives_of_convolutions_take_an_image_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As those that take all images at once."""
    _, shapes, build = next(case for case in CASES if case[0] == "conv")
    graph, generator = program(shapes, build), np.random.default_rng(4)
    inputs = {f"x{i}": generator.standard_normal(shape) for i, shape in enumerate(shapes)}
    seed = generator.standard_normal(evaluate(graph, inputs)["y"].shape)
    at_once = dict(gradients(graph, inputs, {"y": seed}))
    monkeypatch.setattr("veilgraph.ir.meaning.graph.UNROLLED_BYTES", 1)
    one_by_one = dict(gradients(graph, inputs, {"y": seed}))
    assert at_once.keys() == one_by_one.keys()
    for value, derivative in at_once.items():
        np.testing.assert_allclose(one_by_one[value], derivative, rtol=1e-4, atol=1e-5)


def test_noise_gains_predict_what_noise_does() -> None:
    generator = np.random.default_rng(5)
    w = generator.standard_normal((40, 30)).astype(np.float32)
    v = generator.standard_normal((30, 8)).astype(np.float32)
    graph = Graph.create(context(), {"x": (1, 40)}, {"w": w, "v": v})
    with graph.end("hidden"):
        hidden = ops.Relu.build(ops.Matmul.build(graph.inputs["x"], graph.parameters["w"]))
    with graph.end("y"):
        y = ops.Matmul.build(hidden, graph.parameters["v"])
    graph.finish({"y": y})
    x = generator.standard_normal((1, 40)).astype(np.float32)
    draws = [noise_gains(graph, [{"x": x}], generator)[graph.inputs["x"]] for _ in range(200)]
    exact = evaluate(graph, {"x": x}, dtype=np.float64)["y"]
    errors = []
    for _ in range(400):
        noise = 1e-4 * generator.standard_normal((1, 40))
        errors.append(evaluate(graph, {"x": x + noise}, dtype=np.float64)["y"] - exact)
    measured = np.mean(np.abs(errors)) / np.mean(np.abs(exact)) * 1e4
    assert np.sqrt(np.mean(draws)) == pytest.approx(measured, rel=0.12)


@pytest.mark.parametrize("offset", [0.0, 3.0, 100.0])
def test_a_derivative_that_vanishes_on_the_samples_alone_is_no_sign_of_silence(
    offset: float,
) -> None:
    """A variance's by the mean: to first order it may be off as far as it likes."""
    generator = np.random.default_rng(6)
    w = np.full((10, 1), 0.1, np.float32)
    graph = Graph.create(context(), {"x": (4, 10)}, {"w": w})
    with graph.end("y"):
        mean = ops.Matmul.build(graph.inputs["x"], graph.parameters["w"])
        distance = ops.Sub.build(graph.inputs["x"], mean)
        squares = ops.Mul.build(distance, distance)
        y = ops.ReduceSum.build(squares, axes=(1,), keepdims=False)
    graph.finish({"y": y})
    x = {"x": offset + generator.standard_normal((4, 10)).astype(np.float32)}
    gain = noise_gains(graph, [x], generator)[graph.parameters["w"]]
    exact = evaluate(graph, x, dtype=np.float64)["y"]
    graph.weights["w"] = w * np.float32(1 + 2**-8)
    measured = np.mean(np.abs(evaluate(graph, x, dtype=np.float64)["y"] - exact)) / np.mean(exact)
    predicted = np.sqrt(gain) * np.linalg.norm(w * 2**-8)
    assert measured / 2 < predicted < 16 * measured


def test_where_blurring_leaves_a_domain_the_plain_gain_counts() -> None:
    """x^2 - x^2 + 1e-6 may be negative when each is off by 2^-8, and its root no number."""
    graph = Graph.create(context(), {"x": (2, 8)}, {})
    with graph.end("y"):
        x = graph.inputs["x"]
        squares = [ops.Mul.build(x, x), ops.Mul.build(x, x)]
        nothing = ops.Add.build(ops.Sub.build(*squares), ops.constant(1e-6))
        y = ops.Add.build(ops.Sqrt.build(nothing), x)
    graph.finish({"y": y})
    x = np.random.default_rng(7).standard_normal((2, 8)).astype(np.float32)
    gains = noise_gains(graph, [{"x": x}], np.random.default_rng(8))
    assert all(np.isfinite(gain) for gain in gains.values())
