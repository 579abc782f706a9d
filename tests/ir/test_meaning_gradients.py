"""Derivatives of every operation against differences, and what noise gains predict."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from graph_cases import CASES, Build, program
from torch_mlir import ir

from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.meaning.gradients import BACK, gradients, noise_gains
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.meaning.onnx_runtime import ROWS, OnnxProgram
from veilgraph.ir.mlir import context


def test_every_operation_but_constants_is_tried() -> None:
    names = {kind.OPERATION_NAME.partition(".")[2] for kind in BACK}
    assert {name for name, _, _ in CASES} | {"constant"} == names
    assert set(BACK) == {kind for kind in ops.OPERATIONS if ops.facts_of_kind(kind).is_encoded}
    assert set(BACK) <= set(ROWS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_onnx_runtime_computes_what_is_meant(
    case: tuple[str, list[tuple[int, ...]], Build],
) -> None:
    _, shapes, build = case
    graph, generator = program(shapes, build), np.random.default_rng(4)
    inputs = {f"x{i}": generator.standard_normal(shape) for i, shape in enumerate(shapes)}
    found = OnnxProgram(graph).run(inputs)
    assert len(found) == len(graph.inputs) + len(list(graph.operations))
    wanted = evaluate(graph, inputs)["y"]
    np.testing.assert_allclose(found[graph.outputs["y"]], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_derivatives_are_those_of_differences(
    case: tuple[str, list[tuple[int, ...]], Build],
) -> None:
    _, shapes, build = case
    graph, generator = program(shapes, build), np.random.default_rng(3)
    inputs = {f"x{i}": generator.standard_normal(shape) for i, shape in enumerate(shapes)}
    seed = generator.standard_normal(evaluate(graph, inputs)["y"].shape)
    values = OnnxProgram(graph).run(inputs)
    found = {value: back for value, _, back in gradients(graph, values, {"y": seed})}
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

    def derivatives() -> dict[ir.Value, npt.NDArray[np.float32]]:
        values = OnnxProgram(graph).run(inputs)
        return {value: back for value, _, back in gradients(graph, values, {"y": seed})}

    at_once = derivatives()
    monkeypatch.setattr("veilgraph.ir.meaning.graph.UNROLLED_BYTES", 1)
    one_by_one = derivatives()
    assert at_once.keys() == one_by_one.keys()
    for value, derivative in at_once.items():
        np.testing.assert_allclose(one_by_one[value], derivative, rtol=1e-4, atol=1e-5)


def gains_at(
    graph: Graph, x: npt.NDArray[np.float32], generator: np.random.Generator
) -> dict[ir.Value, float]:
    """Those of one sample."""
    return noise_gains(OnnxProgram(graph), [{"x": x}], [evaluate(graph, {"x": x})], generator)


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
    draws = [gains_at(graph, x, generator)[graph.inputs["x"]] for _ in range(200)]
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
    gain = gains_at(graph, x["x"], generator)[graph.parameters["w"]]
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
    gains = gains_at(graph, x, np.random.default_rng(8))
    assert all(np.isfinite(gain) for gain in gains.values())
