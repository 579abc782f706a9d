"""Ranges of samples: rounded outward, honest about their source."""

from __future__ import annotations

import math

import numpy as np
import pytest
from torch_mlir import ir

from veilgraph.ir.errors import AccuracyError
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, name_of
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.mlir import context
from veilgraph.ir.secret.types import RangeSource, RealRange
from veilgraph.passes.ranges.calibrate import assume, calibrate, nearest, outward

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


def test_what_has_the_elements_of_another_value_lies_where_that_does() -> None:
    graph = Graph.create(context(), {"x": (2, 3)}, {"w": np.float32([[1, -2]])})
    x, w = graph.inputs["x"], graph.parameters["w"]
    with graph.end("made"):
        made = ops.Neg.build(x)
        turned = [ops.Transpose.build(value, permutation=(1, 0)) for value in (made, x, w)]
    graph.finish({str(i): value for i, value in enumerate(turned)})
    found = calibrate(graph, {"x": np.float32([[[1, 2, 4], [0, 0, 0]], [[1, -8, 4], [0, 0, 0]]])})
    values = found.of(graph)
    of_made, of_x, of_w = (values[value].range for value in turned)
    assert (of_made.low, of_made.high) == (values[made].range.low, values[made].range.high)
    assert (of_x.low, of_x.high) == (values[x].range.low, values[x].range.high)
    assert (of_w.low, of_w.high) == outward(-2, 1)
    names = [name_of(op) for op in graph.operations]
    shares = {each.name: each.shares for each in found.magnitudes}
    assert shares[names[1]] == shares[names[0]] == shares[names[2]] == shares["x"]
    assert shares[names[3]] != shares[names[0]]


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


def test_calibrating_twice_gives_the_same() -> None:
    samples = {"x": np.random.default_rng(0).standard_normal((3, 1, 2, 4, 4)).astype(np.float32)}
    assert calibrate(network(), samples) == calibrate(network(), samples)


def test_samples_whose_values_are_not_finite_are_refused() -> None:
    graph = Graph.create(context(), {"x": (2,)}, {})
    steps(graph, inverse=ops.Reciprocal.build)
    graph.finish({"y": graph.block.operations[0].results[0]})
    with pytest.raises(AccuracyError, match="'inverse' are not finite on the samples"):
        calibrate(graph, {"x": np.float32([[1, 0]])})


def test_what_may_be_off_by_more_weighs_less() -> None:
    """An update's error is relative to so many times its root mean square."""
    samples = {"x": np.random.default_rng(5).standard_normal((3, 1, 2, 4, 4)).astype(np.float32)}
    strict = calibrate(network(), samples, updates=["y"])
    loose = calibrate(network(), samples, updates=["y"], tolerances={"y": 3.0})
    size = float(np.sqrt(np.mean([np.square(each["y"]).mean() for each in strict.outputs])))
    assert strict.update_sizes == {"y": pytest.approx(size)}
    assert loose.update_sizes == {"y": pytest.approx(3.0 * size)}
    gains = [each.known["operation", "dense"].gain for each in (strict, loose)]
    assert gains[0] == pytest.approx(9.0 * gains[1], rel=0.3)


def test_a_gain_is_told_for_the_updates_that_a_value_bears_on() -> None:
    """A step is as exact as the worst of its updates: one that is off alone is not averaged.

    It is relative to mean squares. Other outputs' is relative to normal numbers' of as large a mean
    magnitude: here all magnitudes are alike, and that is more by pi / 2.
    """
    graph = Graph.create(context(), {"x": (4,), "z": (4,)}, {})
    x, z = graph.inputs.values()
    with graph.end("op"):
        both = ops.Neg.build(x)
        outputs = {"a": ops.Add.build(both, z), **{f"b{i}": ops.Neg.build(both) for i in range(3)}}
    graph.finish(outputs)
    samples = {n: np.full((2, 4), size, np.float32) for n, size in (("x", 3.0), ("z", 6.0))}
    plain = calibrate(graph, samples)
    told = calibrate(graph, samples, updates=[*outputs])
    for name, times in (("x", 1.0), ("z", 4.0)):
        gains = [ranges.known["input", name].gain for ranges in (plain, told)]
        assert gains[1] == pytest.approx(times * math.pi / 2 * (gains[0] or 0.0), rel=0.1)
