"""Softmax without a maximum, in exact integers: how close, on which ranges, at which cost."""

from __future__ import annotations

import numpy as np
import pytest
from models import Array, model, run_onnx
from onnx import helper

import veilgraph
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.meaning.graph import evaluate as evaluate_graph
from veilgraph.ir.meaning.secret import evaluate
from veilgraph.ir.mlir import context
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.passes.encode.encode_fixed_point import EncodeFixedPoint
from veilgraph.passes.graph.infer_visibility import InferVisibility
from veilgraph.passes.ranges.calibrate import assume, calibrate
from veilgraph.passes.secret.choose_comparison import ChooseComparison
from veilgraph.passes.secret.merge_truncations import MergeTruncations
from veilgraph.runtime.simulate import simulate

ROWS = 6
Kind = type[ops.AlongAxis]


def along(shape: tuple[int, ...], axis: int = 1, kind: Kind = ops.Softmax) -> Graph:
    graph = Graph.create(context(), {"x": shape}, {})
    with graph.end("softmax"):
        y = kind.build(graph.inputs["x"], axis=axis)
    graph.finish({"y": y})
    return graph


def compiled(graph: Graph, samples: Array | None, ring_bits: int = 64) -> SecretProgram:
    ranges = assume(graph) if samples is None else calibrate(graph, {"x": samples})
    visibility = InferVisibility({"x": "alice"}).run(graph)
    program = EncodeFixedPoint(ring_bits=ring_bits).run(graph, visibility, ranges)
    return ChooseComparison().run(MergeTruncations().run(program))


def difference(program: SecretProgram, graph: Graph, x: Array, seed: int) -> float:
    """The worst, under masks and thresholds at random; nothing may leave its range."""
    found = evaluate(program, {"x": x}, np.random.default_rng(seed))
    assert found.excursions == []
    expected = evaluate_graph(graph, {"x": x}, dtype=np.float64)["y"]
    return float(np.abs(found.outputs["y"] - expected).max())


@pytest.mark.parametrize("classes", [1, 2, 10, 1000])
@pytest.mark.parametrize("deviation", [0.01, 0.5, 2.0, 10.0])
@pytest.mark.parametrize("kind", [ops.Softmax, ops.LogSoftmax])
def test_normal_numbers(kind: Kind, deviation: float, classes: int) -> None:
    """Issue 5: softmax over 1000 classes is within 1e-3."""
    graph = along((ROWS, classes), kind=kind)
    x = np.random.default_rng(classes).normal(0, deviation, (3, ROWS, classes))
    x = x.astype(np.float32)
    program = compiled(graph, x[:2])
    assert not any("reduce_max" in op.operation.name for op in program.operations)
    for seed in range(3):
        assert difference(program, graph, x[2], seed) < (5e-4 if kind is ops.LogSoftmax else 2e-4)


@pytest.mark.parametrize("gap", [0.5, 3.0, 7.0, 12.0, 30.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_one_winner_among_equals_and_one_loser(gap: float, sign: int) -> None:
    graph = along((ROWS, 1000))
    x = np.zeros((1, ROWS, 1000), np.float32)
    x[0, np.arange(ROWS), np.arange(ROWS) * 150] = sign * gap
    program = compiled(graph, x)
    for seed in range(3):
        assert difference(program, graph, x[0], seed) < 2e-4


@pytest.mark.parametrize("classes", [3, 300])
def test_the_edges_of_the_domain(classes: int) -> None:
    """Twice what was calibrated, on both sides: rows at one end, at the other, and at both."""
    graph = along((ROWS, classes))
    ends = 8.0 * np.array([-1.0, 1.0])
    x = np.random.default_rng(7).choice(ends, (1, ROWS, classes)).astype(np.float32)
    x[0, 0], x[0, 1] = ends
    x[0, 2, 1:], x[0, 3, 1:] = ends
    x[0, 2, 0], x[0, 3, 0] = ends[::-1]
    program = compiled(graph, x / 2)
    for seed in range(5):
        assert difference(program, graph, x[0], seed) < 2e-4


@pytest.mark.parametrize("kind", [ops.Softmax, ops.LogSoftmax])
@pytest.mark.parametrize("reach", [3e2, 1e4])
def test_a_range_too_wide_for_pieces_takes_a_maximum(kind: Kind, reach: float) -> None:
    """As where numbers far below all others are masked out; without samples too."""
    graph = along((ROWS, 30), kind=kind)
    x = np.random.default_rng(1).normal(0, 2, (2, ROWS, 30)).astype(np.float32)
    x[:, :, ::7] = -reach
    for samples in (x[:1], None):
        program = compiled(graph, samples)
        assert any("reduce_max" in op.operation.name for op in program.operations)
        bound = 2e-4 if kind is ops.Softmax else 5e-4 * max(1.0, reach / 1e3)
        assert difference(program, graph, x[1], 0) < bound


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_any_axis(axis: int) -> None:
    graph = along((3, 4, 5), axis)
    x = np.random.default_rng(axis).normal(0, 2, (2, 3, 4, 5)).astype(np.float32)
    assert difference(compiled(graph, x[:1]), graph, x[1], axis) < 2e-4


def test_a_single_row_and_the_widest_ranges() -> None:
    """A vector; and samples next to where segments give way to a maximum."""
    graph = along((20,), 0)
    x = np.random.default_rng(0).normal(0, 2, (2, 20)).astype(np.float32)
    assert difference(compiled(graph, x[:1]), graph, x[1], 1) < 2e-4
    for span in (280.0, 320.0):
        x = np.linspace(-span / 4, span / 4, 30, dtype=np.float32).reshape(1, 3, 10)
        program = compiled(along((3, 10)), x)
        assert any("max" in op.operation.name for op in program.operations) == (span > 300)
        assert difference(program, along((3, 10)), x[0], 2) < 2e-4


@pytest.mark.parametrize(("ring_bits", "bound"), [(40, 5e-4), (32, 5e-3)])
def test_narrow_rings(ring_bits: int, bound: float) -> None:
    graph = along((ROWS, 100))
    x = np.random.default_rng(2).normal(0, 2, (2, ROWS, 100)).astype(np.float32)
    assert difference(compiled(graph, x[:1], ring_bits), graph, x[1], 0) < bound


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reach", [4.0, 400.0])
@pytest.mark.parametrize("kinds", [(ops.LogSoftmax, ops.Softmax), (ops.Softmax, ops.LogSoftmax)])
def test_a_softmax_and_its_logarithm_share_their_sums(
    axis: int, reach: float, kinds: tuple[type[ops.GraphOp], ...]
) -> None:
    """As a loss and its derivative have both: one sum of powers, comparison and logarithm.

    Whichever comes first: the logarithm wants more bits of them.
    """
    shape = (6, 6)
    graph = Graph.create(context(), {"x": shape}, {})
    made = {}
    for kind in kinds:
        with graph.end(kind.__name__):
            made[kind] = kind.build(graph.inputs["x"], axis=axis)
    graph.finish({"log": made[ops.LogSoftmax], "y": made[ops.Softmax]})
    x = np.random.default_rng(0).normal(0, reach / 4, (3, *shape)).astype(np.float32)
    program = compiled(graph, x)
    found = [op.operation.name for op in program.operations]
    assert found.count("secret.row_sums") == 1
    assert found.count("secret.reduce_max") == int(reach > 100)
    assert difference(program, graph, x[2], 1) < 2e-3


@pytest.mark.parametrize("suite", ["rep3", "additive"])
@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax"])
def test_in_a_plan(suite: str, operator: str) -> None:
    proto = model([helper.make_node(operator, ["x"], ["y"], axis=1)], {"x": (5, 70)}, ["y"])
    x = np.random.default_rng(6).normal(0, 2, (2, 5, 70)).astype(np.float32)
    dealer = "dave" if suite == "additive" else None
    plan, weights = veilgraph.compile(
        proto, calibrate={"x": x[:1]}, ring=64, suite=suite, dealer=dealer
    )
    found = simulate(plan, weights, {"x": x[1]}).outputs["y"]
    np.testing.assert_allclose(found, run_onnx(proto, {"x": x[1]})["y"], atol=5e-4)


def test_a_thousand_classes_cost_what_issue_5_allows() -> None:
    """Input and output included: 20 rounds and 25 MB; measured 17 and 20."""
    proto = model([helper.make_node("Softmax", ["x"], ["y"], axis=1)], {"x": (128, 1000)}, ["y"])
    x = np.random.default_rng(8).normal(0, 2, (2, 128, 1000)).astype(np.float32)
    plan, weights = veilgraph.compile(proto, calibrate={"x": x[:1]}, ring=64)
    found = simulate(plan, weights, {"x": x[1]}).outputs["y"]
    np.testing.assert_allclose(found, run_onnx(proto, {"x": x[1]})["y"], atol=2e-4)
    cost = plan.cost()
    sent = sum(sum(phase.sent_bytes.values()) for phase in (cost.offline, cost.online))
    assert cost.online.rounds <= 20
    assert sent <= 25e6


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax"])
def test_logits_are_an_output_beside_it(operator: str) -> None:
    generator = np.random.default_rng(0)
    weights = {"w": generator.normal(size=(8, 4)).astype(np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["logits"]),
        helper.make_node(operator, ["logits"], ["p"], axis=-1),
    ]
    proto = model(nodes, {"x": (2, 8)}, {"logits": (2, 4), "p": (2, 4)}, weights)
    samples = generator.normal(size=(8, 2, 8)).astype(np.float32)
    plan, found = veilgraph.compile(proto, calibrate={"x": samples})
    answer = simulate(plan, found, {"x": samples[0]})
    for name, wanted in run_onnx(proto, {"x": samples[0]}).items():
        assert np.abs(answer.outputs[name] - wanted).max() < 0.02
