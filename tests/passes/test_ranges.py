"""Ranges seen and proven: rounded outward, honest about their source."""

from __future__ import annotations

import math

import numpy as np
import pytest
from torch_mlir import ir

from veilgraph.ir import graph_ops as ops
from veilgraph.ir.errors import AccuracyError
from veilgraph.ir.graph import Graph
from veilgraph.ir.legality import FUNCTIONS
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.mlir import context
from veilgraph.ir.secret_types import RangeSource, RealRange
from veilgraph.passes.ranges import assume, calibrate, nearest, outward, prove

POOL = {"kernel": (2, 2), "strides": (2, 2), "pads_low": (0, 0), "pads_high": (0, 0)}
CONV = {"strides": (1, 1), "pads_low": (1, 1), "pads_high": (1, 1), "dilations": (1, 1)}


def steps(graph: Graph, **built: object) -> ir.Value:
    """Operations by name, each made from the value before."""
    value: ir.Value = next(iter(graph.inputs.values()))
    for name, build in built.items():
        with graph.end(name):
            value = build(value)  # type: ignore[operator]
    return value


def network() -> Graph:
    generator = np.random.default_rng(4)
    weights = {
        "k": generator.standard_normal((4, 2, 3, 3)),
        "b": generator.standard_normal(4),
        "w": generator.standard_normal((16, 3)),
    }
    graph = Graph.create(context(), {"x": (1, 2, 4, 4)}, weights)
    k, b, w = (graph.parameters[name] for name in ("k", "b", "w"))
    y = steps(
        graph,
        conv=lambda x: ops.Conv.build(x, k, bias=b, groups=1, **CONV),
        relu=ops.Relu.build,
        square=lambda x: ops.Mul.build(x, x),
        pool=lambda x: ops.SumPool.build(x, **POOL),
        less=lambda x: ops.Sub.build(x, ops.ReduceMax.build(x, axes=(1,), keepdims=True)),
        flat=lambda x: ops.Reshape.build(x, shape=(1, 16)),
        dense=lambda x: ops.Matmul.build(x, w),
        negative=ops.Neg.build,
    )
    graph.finish({"y": y})
    return graph


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 1.0, (0.0, 1.0)),
        (-1.0, 3.0, (-1.0, 2 ** (26 / 16))),
        (1.01, 4.0, (1.0, 4.0)),
        (-4.0, -1.01, (-4.0, -1.0)),
        (0.0, 0.0, (0.0, 0.0)),
        (-0.3, 0.0, (-(2 ** (-27 / 16)), 0.0)),
    ],
)
def test_outward_is_to_a_sixteenth_of_a_bit(
    low: float, high: float, expected: tuple[float, float]
) -> None:
    assert outward(low, high) == pytest.approx(expected)
    assert all(math.copysign(1, bound) == 1 for bound in outward(low, high) if bound == 0)


def test_values_that_differ_in_their_last_digits_get_one_range() -> None:
    for x in (1.0, 0.7, 1e-3, 12345.678):
        near = [x * (1 + k * 2.0**-23) for k in (-1, 0, 1)]
        assert len({outward(-v, v) for v in near}) == 1
        assert len({nearest(v) for v in near}) == 1
    assert nearest(0.0) == 0.0


def test_ranges_are_those_that_the_meaning_has() -> None:
    """ONNX Runtime runs the samples; NumPy, operation by operation, says the same."""
    graph, generator = network(), np.random.default_rng(8)
    x = generator.standard_normal((3, 1, 2, 4, 4)).astype(np.float32)
    seen: dict[str, list[np.ndarray]] = {}
    for sample in x:
        evaluate(graph, {"x": sample}, lambda name, y: seen.setdefault(name, []).append(y))
    found = {
        name: s.range
        for (role, name), s in calibrate(graph, {"x": x}).known.items()
        if role == "operation"
    }
    assert found.keys() == seen.keys()
    for name, values in seen.items():
        bounds = outward(min(v.min() for v in values), max(v.max() for v in values))
        assert (found[name].low, found[name].high) == pytest.approx(bounds, rel=1e-6), name


def test_a_program_that_computes_nothing_has_ranges_too() -> None:
    graph = Graph.create(context(), {"x": (2,)}, {})
    graph.finish({"y": graph.inputs["x"]})
    found = calibrate(graph, {"x": np.float32([[1, -2]])})
    assert (found.known["input", "x"].range.low, found.outputs[0]["y"][1]) == (-2, -2)


def test_calibration_sees_the_extremes() -> None:
    graph = Graph.create(context(), {"x": (2,)}, {"w": np.float32([-3, 2])})
    y = steps(graph, scaled=lambda x: ops.Mul.build(x, graph.parameters["w"]))
    graph.finish({"y": y})
    found = calibrate(graph, {"x": np.float32([[0, 1], [4, -2]])})
    known = found.of(graph)
    assert known[graph.inputs["x"]].range == RealRange(-2.0, 4.0, RangeSource.CALIBRATED)
    low, high = outward(-12.0, 2.0)
    assert known[y].range == RealRange(low, high, RangeSource.CALIBRATED)
    low, high = outward(-3.0, 2.0)
    assert known[graph.parameters["w"]].range == RealRange(low, high, RangeSource.PROVEN)
    assert found.origin == "ranges are calibrated on 2 samples"
    size = np.mean([0, 2, 12, 4])
    assert known[y].gain == pytest.approx(1 / (math.pi / 2 * size**2), rel=0.05)


def test_proven_ranges_hold() -> None:
    graph = network()
    found = prove(graph, {"x": (-1.0, 2.0)})
    assert {known.range.source for known in found.known.values()} == {RangeSource.PROVEN}
    generator = np.random.default_rng(0)
    for _ in range(50):
        seen: dict[str, np.ndarray] = {}
        x = generator.choice([-1.0, 2.0], (1, 2, 4, 4))
        evaluate(graph, {"x": x}, lambda name, value, to=seen: to.update({name: value}))
        for name, value in seen.items():
            proven = found.known["operation", name].range
            assert proven.low <= value.min() + 1e-4, name
            assert value.max() <= proven.high + 1e-4, name


def test_proven_ranges_of_a_linear_layer_are_tight() -> None:
    graph = network()
    found = prove(graph, {"x": (-1.0, 2.0)}).known["operation", "conv"].range
    kernel, bias = graph.weights["k"], graph.weights["b"]
    high = np.where(kernel > 0, 2 * kernel, -kernel).sum(axis=(1, 2, 3)) + bias
    assert found.high == pytest.approx(outward(0, float(high.max()))[1])


def test_a_softmax_lies_between_0_and_1_whatever_is_seen() -> None:
    graph = Graph.create(context(), {"x": (2, 50)}, {})
    y = steps(graph, softmax=lambda x: ops.Softmax.build(x, axis=1))
    graph.finish({"y": y})
    samples = {"x": np.random.default_rng(3).standard_normal((1, 2, 50)).astype(np.float32)}
    for ranges in (assume(graph), calibrate(graph, samples)):
        found = ranges.known["operation", "softmax"]
        assert found.range == RealRange(0.0, 1.0, RangeSource.PROVEN)
    assert found.gain is not None


def test_nothing_is_assumed_of_inputs() -> None:
    graph = network()
    ranges = assume(graph)
    assert ranges.known == {}
    assert set(ranges.of(graph)) == set(graph.parameters.values())


@pytest.mark.parametrize("kind", [ops.Softmax, ops.LogSoftmax])
def test_intervals_of_softmax_hold_its_values(kind: type[ops.AlongAxis]) -> None:
    """Next to the bounds where one element is at an end and all others at the other one."""
    graph = Graph.create(context(), {"x": (2, 50)}, {})
    graph.finish({"y": steps(graph, y=lambda x: kind.build(x, axis=1))})
    found = prove(graph, {"x": (-3.0, 2.0)}).known["operation", "y"].range
    extremes = []
    for end, other in ((-3.0, 2.0), (2.0, -3.0)):
        x = np.full((2, 50), other)
        x[:, 7] = end
        extremes.append(evaluate(graph, {"x": x}, dtype=np.float64)["y"][0, 7])
    assert found.low <= extremes[0]
    assert found.high >= extremes[1]
    if kind is ops.LogSoftmax:
        assert (found.low, found.high) == pytest.approx(extremes, rel=0.05)


def test_calibrating_twice_gives_the_same() -> None:
    samples = {"x": np.random.default_rng(0).standard_normal((3, 1, 2, 4, 4)).astype(np.float32)}
    assert calibrate(network(), samples) == calibrate(network(), samples)


@pytest.mark.parametrize("kind", sorted(FUNCTIONS))
def test_intervals_of_functions_hold_their_values(kind: str) -> None:
    """Monotone, turned round, with a hollow, or turning: on an interval of positive numbers too."""
    build = next(o for o in ops.Unary.__subclasses__() if f"graph.{kind}" == o.OPERATION_NAME)
    named = {"approximate": "none"} if kind == "gelu" else {}
    for low, high in ((0.25, 3.0), (-3.0, 2.0)):
        if low < 0 and kind in ("log", "sqrt", "rsqrt", "reciprocal"):
            continue
        graph = Graph.create(context(), {"x": (50,)}, {})
        with graph.end("y"):
            y = build.build(graph.inputs["x"], **named)
        graph.finish({"y": y})
        found = prove(graph, {"x": (low, high)}).known["operation", "y"].range
        values = evaluate(graph, {"x": np.linspace(low, high, 50)})["y"]
        assert found.low <= values.min()
        assert values.max() <= found.high


def test_samples_whose_values_are_not_finite_are_refused() -> None:
    graph = Graph.create(context(), {"x": (2,)}, {})
    steps(graph, inverse=ops.Reciprocal.build)
    graph.finish({"y": graph.block.operations[0].results[0]})
    with pytest.raises(AccuracyError, match="'inverse' are not finite on the samples"):
        calibrate(graph, {"x": np.float32([[1, 0]])})
