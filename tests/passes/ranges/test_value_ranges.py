"""Functions whose operand leaves what samples showed, by inputs that their owners may give."""

from __future__ import annotations

import numpy as np
import pytest
from graph_cases import CASES, Build, program
from models import Array, model, run_onnx
from onnx import ModelProto, helper

import veilgraph
from veilgraph.checks.checking import check
from veilgraph.ir.attributes import shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, name_of
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.mlir import context
from veilgraph.ir.secret.types import Encoding, RangeSource, RealRange
from veilgraph.passes.encode.functions.catalogue import EVERYWHERE, POWER_SLACK, clips_of
from veilgraph.passes.encode.scales.constraints import Budget
from veilgraph.passes.encode.scales.fraction_bits import ScaleProblem, choose_scales
from veilgraph.passes.ranges.calibrate import Statistics, outward
from veilgraph.passes.ranges.value_ranges import ValueRange, value_ranges
from veilgraph.runtime.simulate import simulate
from veilgraph.targets.functions.catalogue import FUNCTIONS

SIZE = 64
CALIBRATED = RangeSource.CALIBRATED
WIDE = Encoding(64, 16)
W = np.full((1, 1, 3, 3), 0.5, np.float32)


def of_difference(operator: str) -> ModelProto:
    """f(x - z), whose difference samples may show far smaller than x and z."""
    nodes = [
        helper.make_node("Sub", ["x", "z"], ["d"], name="difference"),
        helper.make_node(operator, ["d"], ["y"], name="node"),
    ]
    return model(nodes, {"x": (1, SIZE), "z": (1, SIZE)}, ["y"])


def pairs(differences: Array) -> dict[str, Array]:
    """x and z of up to 30 / 2 more than half a difference."""
    middles = np.linspace(-15, 15, differences.size).reshape(differences.shape)
    halves = differences / 2
    return {k: (v[None]).astype(np.float32) for k, v in
            {"x": middles + halves, "z": middles - halves}.items()}  # fmt: skip


def samples(low: float, high: float) -> dict[str, Array]:
    return pairs(np.linspace(low, high, SIZE).reshape(1, SIZE))


def apart(differences: list[float]) -> dict[str, Array]:
    halves = np.resize(np.array(differences), (1, 1, SIZE)) / 2
    return {"x": halves.astype(np.float32), "z": (-halves).astype(np.float32)}


SATURATING = ["Sigmoid", "Tanh", "Erf", "Gelu", "Softplus", "Elu", "Mish", "Softmax", "LogSoftmax"]


@pytest.mark.parametrize("operator", SATURATING)
def test_right_far_from_what_was_seen(operator: str) -> None:
    """Calibrated on differences of up to 1: they reach 6, 20 and -20."""
    proto = of_difference(operator)
    plan, weights = veilgraph.compile(proto, ring=64, calibrate=samples(-1, 1))
    inputs = apart([6.0, -6.0, 20.0, -20.0, 2.0, -2.5, 0.5, 0.0])
    found = check(plan, weights, proto, inputs).outputs[0]
    size = np.abs(run_onnx(proto, {k: v[0] for k, v in inputs.items()})["y"]).max()
    assert found.worst < 2e-3 * max(1.0, size)


@pytest.mark.parametrize(
    ("operator", "low", "high", "ends"),
    [
        ("Exp", 0.3, 3.4, (0.0, np.exp(3.4 + np.log(2) + 1 / 8))),
        ("Exp", -1.0, 1.0, (0.0, np.exp(1.0 + np.log(2) + 1 / 8))),
        ("Atan", -1.0, 1.0, (-np.pi / 2, np.pi / 2)),
        ("Log", 0.3, 3.4, (np.log(0.13), np.log(32))),
        ("Sqrt", 0.3, 3.4, (np.sqrt(0.13), np.sqrt(32))),
        ("Reciprocal", 0.3, 3.4, (1 / 32, 1 / 0.13)),
        ("Reciprocal", -3.4, -0.3, (-1 / 0.13, -1 / 32)),
    ],
)
def test_others_count_as_their_domains_end(
    operator: str, low: float, high: float, ends: tuple[float, float]
) -> None:
    """Right on the range with its margin; and nowhere larger than the function can be made."""
    proto = of_difference(operator)
    plan, weights = veilgraph.compile(proto, ring=64, calibrate=samples(low, high))
    inside = np.linspace(low, high, 16).tolist()
    right = {k: v[0] for k, v in apart(inside).items()}
    found = simulate(plan, weights, right).outputs["y"]
    np.testing.assert_allclose(found, run_onnx(proto, right)["y"], rtol=2e-3, atol=2e-3)
    outside = {k: v[0] for k, v in apart([-30.0, 30.0, 12.0, -12.0, 6.8, -6.8, 0.01]).items()}
    found = simulate(plan, weights, outside).outputs["y"]
    assert ends[0] - 1e-2 <= found.min()
    assert found.max() <= ends[1] * (1.05 if ends[1] > 0 else 0.95)


@pytest.mark.parametrize("value", [-3.0, 6.7])
def test_the_ends_of_what_an_input_may_be(value: float) -> None:
    """A power's margin is a factor of its result: an input's is far wider."""
    proto = model([helper.make_node("Exp", ["x"], ["y"], name="e")], {"x": (SIZE,)}, ["y"])
    seen = np.linspace(0.3, 3.4, SIZE, dtype=np.float32)[None]
    plan, weights = veilgraph.compile(proto, ring=64, calibrate={"x": seen})
    found = simulate(plan, weights, {"x": np.full(SIZE, value, np.float32)}).outputs["y"]
    wanted = np.exp(min(value, 3.4 + np.log(2) + 1 / 8))
    np.testing.assert_allclose(found, wanted, rtol=0.05, atol=2e-3)


@pytest.mark.parametrize(("ring", "far"), [(32, 1 / 8), (64, 1 / 500)])
def test_a_narrow_ring_ends_the_domain_of_a_pole(ring: int, far: float) -> None:
    """No bit of an operand is given up for a wider domain: beyond it, numbers count as its end."""
    differences = np.geomspace(0.01, 4, SIZE).reshape(1, SIZE)
    middles = np.linspace(-200, 200, SIZE).reshape(1, SIZE)
    seen = {"x": middles + differences, "z": middles}
    proto = of_difference("Reciprocal")
    given = {name: x[None].astype(np.float32) for name, x in seen.items()}
    plan, weights = veilgraph.compile(proto, ring=ring, calibrate=given)
    inputs = {name: x[0] for name, x in apart([500.0, -300.0, 0.5, 4.0]).items()}
    found = simulate(plan, weights, inputs).outputs["y"][0, :4]
    lowest = 2 / outward(0.01, 4.0)[0]
    np.testing.assert_allclose(found, [far, lowest, 2.0, 0.25], rtol=0.02, atol=1e-3)


def test_clips_in_order() -> None:
    """No clip up to what a product's ring makes of a range; then the function's own ends."""
    tanh, exp, atan = (FUNCTIONS[name] for name in ("tanh", "exp", "atan"))
    assert list(clips_of(tanh, (-5.0, 8.0), (-30.0, 30.0), 12)) == [EVERYWHERE, (-5.25, 5.25)]
    assert list(clips_of(tanh, (-5.0, 8.0), (-90.0, 30.0), 12)) == [(-5.25, 5.25)]
    assert list(clips_of(tanh, (-50.0, 8.0), (-50.0, 8.0), 12)) == [(-5.25, 5.25)]
    top = 8.0 - POWER_SLACK
    assert list(clips_of(exp, (-5.0, 8.0), (-6.0, 30.0), 12)) == [(-np.inf, top), (-5.0, top)]
    assert next(clips_of(exp, (-5.0, 8.0), (-60.0, 8.0), 12)) == (-9.75, np.inf)
    assert list(clips_of(atan, (-5.0, 8.0), (-60.0, 8.0), 12)) == [EVERYWHERE, (-5.0, 8.0)]


def of_product() -> ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
        helper.make_node("Sigmoid", ["p"], ["y"], name="node"),
    ]
    return model(nodes, {"x": (4, 8), "w": (8, 4)}, ["y"])


def test_trusted_ranges_cost_less_and_are_named() -> None:
    generator = np.random.default_rng(3)
    given = {k: generator.normal(size=(4, *s)).astype(np.float32) for k, s in
             {"x": (4, 8), "w": (8, 4)}.items()}  # fmt: skip
    plans = [
        veilgraph.compile(of_product(), ring=64, calibrate=given, trust_ranges=trusts)[0]
        for trusts in (False, True)
    ]
    guarded, trusting = (plan.cost(network="lan").offline.total_bytes for plan in plans)
    assert trusting < guarded
    assert "hold wherever rings hold what they take" in plans[0].manifest.encoding
    assert "these real functions take: node;" in plans[1].manifest.encoding
    assert plans[1].manifest.options["trust_ranges"] is True


def test_what_cannot_leave_is_not_compared() -> None:
    """1 / (1 + sigmoid x): the sum is 1 at the least, and 2 at the most."""
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["s"], name="bounded"),
        helper.make_node("Add", ["s", "one"], ["t"], name="sum"),
        helper.make_node("Reciprocal", ["t"], ["y"], name="inverse"),
    ]
    proto = model(nodes, {"x": (SIZE,)}, ["y"], {"one": np.ones((), np.float32)})
    x = np.linspace(-4, 4, SIZE, dtype=np.float32)
    plan, weights = veilgraph.compile(proto, ring=64, calibrate={"x": x[None]})
    assert "secret.step" not in plan.ir["secret"]
    found = simulate(plan, weights, {"x": 2 * x}).outputs["y"]
    np.testing.assert_allclose(found, run_onnx(proto, {"x": 2 * x})["y"], atol=2e-3)


def test_intervals_by_operation() -> None:
    """Inputs with their margin; products as far as their ring holds."""
    graph = Graph.create(context(), {"x": (2, 4), "z": (2, 4)}, {})
    x, z = graph.inputs.values()
    with graph.end("y"):
        difference = ops.Sub.build(x, z)
        product = ops.Mul.build(difference, z)
        bounded = ops.Sigmoid.build(product)
        total = ops.ReduceSum.build(ops.Relu.build(bounded), axes=(1,), keepdims=False)
    graph.finish({"y": total})
    known = {
        value: Statistics(RealRange(-1.0, 3.0, CALIBRATED), 1.0)
        for value in (x, z, difference, product)
    }
    known[bounded] = Statistics(RealRange(0.2, 0.9, CALIBRATED), 1.0)
    known[total] = Statistics(RealRange(1.0, 3.0, CALIBRATED), 1.0)
    problem = ScaleProblem.of(graph, known, Budget(2.0, 1e-4))
    scales = choose_scales(problem, problem.attempt(problem.one_ring(64)))
    found = value_ranges(graph, known, scales, 2.0)
    assert (found[x].low, found[x].high) == (-4.0, 6.0)
    assert (found[difference].low, found[difference].high) == (-10.0, 10.0)
    assert found[difference].is_linear
    assert found[product].high == min(60.0, found[product].headroom)
    assert not found[product].is_linear
    assert (found[bounded].low, found[bounded].high) == (0.0, 1.0)
    assert (found[total].low, found[total].high) == (0.0, 4.0)


@pytest.mark.parametrize("kind", [ops.Floor, ops.Round])
def test_integer_parts_may_lie_outside_of_what_they_are_of(kind: type[ops.GraphOp]) -> None:
    """Of numbers between -4.1 and 5.6: -5 is the floor of the first, 6 is the nearest to the last.

    A truncation in front may move each by a unit in the last place, and its integer part by one.
    """
    graph = Graph.create(context(), {"x": (4,)}, {})
    (x,) = graph.inputs.values()
    with graph.end("y"):
        y = kind.build(x)
    graph.finish({"y": y})
    known = {x: Statistics(RealRange(-1.3, 2.8, CALIBRATED), 1.0)}
    known[y] = Statistics(RealRange(-2.0, 3.0, CALIBRATED), 1.0)
    problem = ScaleProblem.of(graph, known, Budget(2.0, 1e-4))
    scales = choose_scales(problem, problem.attempt(problem.one_ring(64)))
    found = value_ranges(graph, known, scales, 2.0)[y]
    numbers = np.linspace(-4.1, 5.6, 98)
    parts = np.floor(numbers) if kind is ops.Floor else np.rint(numbers)
    assert found.low <= parts.min()
    assert parts.max() <= found.high
    assert (found.low, found.high) == pytest.approx((-5.1, 6.6)), "one further, and no more"


def test_a_square_of_a_matrix_is_of_both_signs() -> None:
    """And padding brings zeros to sums of what is never zero."""
    graph = Graph.create(context(), {"x": (4, 4), "image": (1, 1, 4, 4)}, {"w": W})
    x, image = graph.inputs.values()
    with graph.end("y"):
        squares, product = ops.Mul.build(x, x), ops.Matmul.build(x, x)
    with graph.end("z"):
        steps = {"strides": (1, 1), "dilations": (1, 1), "groups": 1}
        ends = {"pads_low": (1, 1), "pads_high": (1, 1)}
        padded = ops.Conv.build(image, graph.parameters["w"], **steps, **ends)
    with graph.end("sum"):
        total = ops.Add.build(squares, product)
    graph.finish({"y": total, "z": padded})
    known = {x: Statistics(RealRange(-1.0, 1.0, CALIBRATED), 1.0)}
    known[graph.parameters["w"]] = Statistics(RealRange(0.5, 0.5, RangeSource.PROVEN), 1.0)
    known[image] = Statistics(RealRange(2.0, 3.0, RangeSource.PROVEN), 1.0)
    for value in (squares, product, padded, *graph.outputs.values()):
        known[value] = Statistics(RealRange(-1.0, 30.0, CALIBRATED), 1.0)
    problem = ScaleProblem.of(graph, known, Budget(2.0, 1e-4))
    scales = choose_scales(problem, problem.attempt(problem.one_ring(64)))
    found = value_ranges(graph, known, scales, 2.0)
    assert (found[squares].low, found[squares].high) == (0.0, 4.0)
    assert (found[product].low, found[product].high) == (-16.0, 16.0)
    assert found[padded].low == 0.0


@pytest.mark.parametrize("ring", ["auto", 32])
def test_a_sum_whose_reach_is_all_that_its_ring_holds(ring: int | str) -> None:
    """Comparisons of it go by the ring, less what a proven range is widened by."""
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], name="sum", keepdims=0),
        helper.make_node("Sub", ["s", "c"], ["d"], name="difference"),
        helper.make_node("Relu", ["d"], ["y"], name="relu"),
    ]
    proto = model(nodes, {"x": (1, SIZE)}, ["y"], {"c": np.float32(16) * np.ones((), np.float32)})
    generator = np.random.default_rng(2)
    seen = generator.normal(0.25, 1, (16, 1, SIZE)).astype(np.float32)
    plan, weights = veilgraph.compile(proto, ring=ring, calibrate={"x": seen})
    for x in seen[:4]:
        found = simulate(plan, weights, {"x": x}).outputs["y"]
        np.testing.assert_allclose(found, run_onnx(proto, {"x": x})["y"], atol=0.2)


def test_what_comparisons_go_by() -> None:
    known = RealRange(-1.0, 3.0, CALIBRATED)
    near, far = (ValueRange(-end, end, 100.0, is_linear=True) for end in (8.0, 12.0))
    assert near.declared(known, 2.0, WIDE) == known, "a window holds all up to a power of two"
    assert far.declared(known, 2.0, WIDE) == RealRange(-12.0, 12.0, RangeSource.PROVEN)
    assert ValueRange(-12.0, 12.0, 12.0).declared(known, 2.0, WIDE) == known, "a ring ends it"
    full = ValueRange(-16.0, 16.0, 16.0, is_linear=True)
    assert full.declared(known, 2.0, WIDE) == RealRange(-15.0, 15.0, RangeSource.PROVEN)
    narrow = Encoding(20, 14)
    assert full.declared(known, 2.0, narrow) == RealRange(-15.0, 15.0, RangeSource.PROVEN)
    assert far.declared(RealRange(-1.0, 1.0, CALIBRATED), 2.0, Encoding(20, 15)).high == 7.5
    assert far.may_leave(known, 2.0)
    assert not ValueRange.trusted(known).may_leave(known, 2.0)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_no_value_is_where_it_cannot_be(
    case: tuple[str, list[tuple[int, ...]], Build],
) -> None:
    """Of each operation, for inputs within their declared range: many of them at its ends."""
    _, shapes, build = case
    graph = program(shapes, build)
    generator = np.random.default_rng(8)
    samples = {name: [] for name in graph.inputs}  # type: dict[str, list[Array]]
    for name, value in graph.inputs.items():
        for _ in range(40):
            x = generator.uniform(-2, 3, shape_of(value))
            x = np.where(generator.random(x.shape) < 0.5, x, generator.choice([-2.0, 3.0], x.shape))
            samples[name].append(np.round(x * 16) / 16)
    seen: dict[str, list[Array]] = {}
    for number in range(40):
        inputs = {name: arrays[number] for name, arrays in samples.items()}
        evaluate(graph, inputs, lambda name, y: seen.setdefault(name, []).append(y), np.float64)
    known = {
        value: Statistics(RealRange(-2.0, 3.0, RangeSource.PROVEN))
        for value in graph.inputs.values()
    }
    extremes = {name: (float(np.min(y)), float(np.max(y))) for name, y in seen.items()}
    results = {name_of(op): op.operation.results[0] for op in graph.operations}
    known |= {
        results[name]: Statistics(RealRange(*outward(*ends), CALIBRATED), 1.0)
        for name, ends in extremes.items()
    }
    problem = ScaleProblem.of(graph, known, Budget(2.0, 1e-4))
    scales = choose_scales(problem, problem.attempt(problem.one_ring(64)))
    found = value_ranges(graph, known, scales, 2.0)
    for name, (low, high) in extremes.items():
        reach = found[results[name]]
        assert reach.low <= low + 1e-6, name
        assert high - 1e-6 <= reach.high, name
