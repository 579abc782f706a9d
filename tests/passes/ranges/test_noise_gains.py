"""What noise gains predict, and the backward pass in ONNX Runtime against that in NumPy."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from graph_cases import CASES, Build, program
from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.errors import UnsupportedError
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.meaning.onnx_runtime import OnnxProgram
from veilgraph.ir.mlir import context
from veilgraph.passes.graph.differentiate import differentiate
from veilgraph.passes.ranges.noise_gains import BackwardPass, noise_gains

Case = tuple[str, list[tuple[int, ...]], Build]


def derivatives(case: Case, feeds: dict[str, npt.NDArray[np.float32]]) -> dict[str, ir.Value]:
    """Of the sum of y times the last input, by each input; none where there is none."""
    _, shapes, build = case

    def weighted(*operands: ir.Value) -> ir.Value:
        *given, seed = operands
        product = ops.Mul.build(build(*given), seed)
        flat = ops.Reshape.build(product, shape=(math.prod(shape_of(product)),))
        return ops.ReduceSum.build(flat, axes=(0,), keepdims=False)

    graph = program([*shapes, feeds[f"x{len(shapes)}"].shape], weighted)
    try:
        names = differentiate(graph, ["y"], [f"x{i}" for i in range(len(shapes))])
    except UnsupportedError:
        return {}
    found = evaluate(graph, feeds, dtype=np.float64)
    return {name: found[output] for name, output in names.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_slopes_are_those_of_the_backward_pass(case: Case) -> None:
    _, shapes, build = case
    graph, generator = program(shapes, build), np.random.default_rng(3)
    feeds = {
        f"x{i}": generator.standard_normal(shape).astype(np.float32)
        for i, shape in enumerate(shapes)
    }
    seed = generator.standard_normal(shape_of(graph.outputs["y"])).astype(np.float32)
    slopes = dict(BackwardPass(graph).run(OnnxProgram(graph).run(feeds), [seed]))
    wanted = derivatives(case, {**feeds, f"x{len(shapes)}": seed})
    assert {name for name, value in graph.inputs.items() if value in slopes} == wanted.keys()
    for name, d in wanted.items():
        slope = slopes[graph.inputs[name]]
        assert slope.power == pytest.approx(np.sum(np.square(d)), rel=1e-4)
        assert slope.peak == pytest.approx(np.abs(d).max(), rel=1e-4)
        assert slope.effect == pytest.approx(np.sum(np.square(d * feeds[name])), rel=1e-4)


def test_slopes_of_large_derivatives_are_numbers() -> None:
    """Their squares are beyond float32."""
    graph = program([(2,)], lambda x: ops.Mul.build(x, ops.constant(1e25)))
    values = OnnxProgram(graph).run({"x0": np.array([3.0, 4.0])})
    slopes = dict(BackwardPass(graph).run(values, [np.array([1.0, 1.0])]))
    slope = slopes[graph.inputs["x0"]]
    assert slope.power == pytest.approx(2e50)
    assert slope.effect == pytest.approx(25e50)


def test_a_value_of_zeros_has_no_size_to_be_off_by() -> None:
    graph = program([(2,)], lambda x: ops.Neg.build(x))
    values = OnnxProgram(graph).run({"x0": np.zeros(2)})
    slope = dict(BackwardPass(graph).run(values, [np.ones(2)]))[graph.inputs["x0"]]
    assert slope.effect == math.inf


def test_a_value_that_is_two_outputs_has_the_sum_of_their_seeds() -> None:
    graph = Graph.create(context(), {"x": (2,)}, {"seed0": np.ones(2, np.float32)})
    with graph.end("y"):
        y = ops.Mul.build(graph.inputs["x"], graph.parameters["seed0"])
    graph.finish({"y": y, "again": y})
    values = OnnxProgram(graph).run({"x": np.ones(2)})
    slope = dict(BackwardPass(graph).run(values, [np.ones(2), np.ones(2)]))[graph.inputs["x"]]
    wanted = [graph.inputs["x"]]
    alone = BackwardPass(graph).run(values, [np.ones(2), np.ones(2)], wanted)
    assert alone == [(graph.inputs["x"], slope)]
    assert slope.power == pytest.approx(8)


def test_a_maximum_of_single_numbers_is_its_operand() -> None:
    """It has no tree, and the derivative of what it is of."""
    graph = program(
        [(1, 3)], lambda x: ops.ReduceMax.build(ops.Neg.build(x), axes=(0,), keepdims=False)
    )
    values = OnnxProgram(graph).run({"x0": np.array([[1.0, 2.0, 3.0]])})
    slopes = dict(BackwardPass(graph).run(values, [np.array([1.0, 2.0, 3.0])]))
    assert all(slopes[value].power == pytest.approx(14) for value in graph.outputs.values())
    assert slopes[graph.inputs["x0"]].effect == pytest.approx(1 + 16 + 81)


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
