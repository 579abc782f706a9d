"""The price of rings is what the plan sends: the same choices compiled, and messages counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from receivers import asked
from test_width_search import problem, samples

from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.mlir import context
from veilgraph.ir.party import ops as party_ops
from veilgraph.ir.plan.tables import Phase
from veilgraph.passes.encode.encode_fixed_point import EncodeFixedPoint
from veilgraph.passes.encode.scales.constraints import Budget
from veilgraph.passes.encode.scales.cost_model import SAMPLE, CommunicationCost, Tracer, comparisons
from veilgraph.passes.encode.scales.fraction_bits import ScaleProblem, Trial
from veilgraph.passes.graph.infer_visibility import InferVisibility
from veilgraph.passes.party.batch_rounds import batch_rounds
from veilgraph.passes.party.expand_protocols import expand_protocols
from veilgraph.passes.party.verify_masking import coalitions, verify_masking
from veilgraph.passes.ranges.calibrate import calibrate
from veilgraph.passes.secret.choose_comparison import ChooseComparison
from veilgraph.passes.secret.merge_truncations import MergeTruncations
from veilgraph.targets.functions.fourier_series import series_of
from veilgraph.targets.target import Target, target

TARGETS = [target(), target("additive", ("alice", "bob"), dealer="dave")]
MIXED = (40, 32, 48, 24)


def sent_bits(target: Target, problem: ScaleProblem, trial: Trial) -> float:
    """Of the expanded program, but for what is revealed."""
    ranges = calibrate(problem.graph, {"x": samples()})
    visibility = InferVisibility({"x": "alice", "weights": "bob"}).run(problem.graph)
    program = Chosen(target=target, trial=trial).run(problem.graph, visibility, ranges)
    program = ChooseComparison().run(MergeTruncations().run(program))
    expanded = expand_protocols(program, target)
    schedule = batch_rounds(expanded.program)
    verify_masking(schedule, coalitions(target), asked(expanded.program))
    nodes = [expanded.program.nodes[i] for i in schedule.live]
    sends = [n for n in nodes if n.op is party_ops.SEND and n.phase != Phase.SETUP]
    return float(sum(n.type.bits * n.elements for n in sends if n["declared"] != "reveal"))


@dataclass(frozen=True)
class Chosen(EncodeFixedPoint):
    """The rings and scales of a trial."""

    trial: Trial | None = None

    def _trial(self, problem: ScaleProblem, known: bool) -> Trial:
        assert self.trial is not None
        return self.trial


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.suite.name)
def test_the_price_is_what_is_sent(target: Target) -> None:
    """But that rep3 need not send a part that only meets the part of a weight that is zero."""
    given = problem(1e-4)
    trial = given.attempt(dict(zip(given.readers.accumulators, MIXED, strict=True)))
    predicted = CommunicationCost(given, Tracer(target)).bits(trial)
    sent = sent_bits(target, given, trial)
    assert sent <= predicted <= 1.08 * sent


def test_a_trace_is_made_once() -> None:
    tracer = Tracer(TARGETS[0])
    first = tracer.an_element("truncate", 32, 40, bits=12)
    assert first == 2 * 32 + 40 + 2 + 40 + 2 * (40 - 32 + 12)
    assert tracer.an_element("truncate", 32, 40, bits=12) == first


@pytest.mark.parametrize(
    ("options", "own", "clients"),
    [
        ({}, 32, 64),
        ({"suite": "additive", "parties": ("alice", "bob"), "dealer": "dave"}, 0, 32),
    ],
)
def test_what_a_client_gives_is_priced_as_it_is_sent(
    options: dict[str, Any], own: int, clients: int
) -> None:
    outside = target(owners={"x": "patient"}, clients=["patient"], **options)
    for chosen, bits in ((target(**options), own), (outside, clients)):
        assert Tracer(chosen).a_sharing(32) == bits


@pytest.mark.parametrize("name", ["gelu none", "sigmoid", "exp"])
@pytest.mark.parametrize("bits", [8, 12, 16])
def test_a_typical_function_costs_what_real_ones_do(name: str, bits: int) -> None:
    tracer = Tracer(TARGETS[0])
    series = series_of(name, -8.0, 8.0 if name != "exp" else 1.0, bits, bits, 64)
    assert series is not None
    sent = tracer._function(48, series, series.frac_bits - bits) / SAMPLE
    assert 0.8 * sent < tracer.a_function(48, bits, bits) < 1.2 * sent


def test_a_function_is_paid_for_and_lifted_to_where_it_is_read() -> None:
    graph = Graph.create(context(), {"x": (4, 16)}, {"w": np.eye(16) / 2, "v": np.eye(16)})
    with graph.end("first"):
        x = ops.Matmul.build(graph.inputs["x"], graph.parameters["w"])
    with graph.end("function"):
        x = ops.Sigmoid.build(x)
    with graph.end("second"):
        graph.finish({"y": ops.Matmul.build(x, graph.parameters["v"])})
    given = np.random.default_rng(1).standard_normal((3, 4, 16)).astype(np.float32)
    statistics = calibrate(graph, {"x": given}).of(graph)
    found = ScaleProblem.of(graph, statistics, Budget(margin=2.0, goal=1e-3))
    tracer = Tracer(TARGETS[0])
    first, second = found.readers.accumulators
    low, high = (found.attempt({first: 32, second: bits}) for bits in (32, 40))
    operand, result = (
        found.structure.stored.root(op.operation.results[0]) for op in list(graph.operations)[:2]
    )
    assert high.classes[operand] < high.classes[result]
    calls = [
        64 * tracer.a_function(32, trial.scales[operand], trial.scales[result])
        for trial in (low, high)
    ]
    lifted = 64 * tracer.an_element("lift", 32, 40)
    more = CommunicationCost(found, tracer).bits(high) - CommunicationCost(found, tracer).bits(low)
    products = [tracer.a_product(p.op, (False, True)) for p in found.structure.products]
    assert more == calls[1] - calls[0] + lifted + 8 * products[1]


def test_signs_and_masks_are_paid_for() -> None:
    """As much as protocols of them send, for each bit of their ring."""
    graph = Graph.create(context(), {"x": (4, 16), "g": (4, 16)}, {})
    x, g = graph.inputs.values()
    with graph.end("masked"):
        bit = ops.Step.build(x)
        graph.finish({"y": ops.Mul.build(g, bit)})
    given = np.random.default_rng(1).standard_normal((3, 4, 16)).astype(np.float32)
    statistics = calibrate(graph, {"x": given, "g": given}).of(graph)
    found = ScaleProblem.of(graph, statistics, Budget(margin=2.0, goal=1e-3, trains=True))
    tracer = Tracer(TARGETS[0])
    trial = found.attempt(found.one_ring(32))
    root = found.structure.stored.root(x)
    window = trial.scales[root] + found.budget.whole_bits(statistics[x]) + 1
    signs = 64 * tracer.an_element("step", 32, 32, window_bits=min(window, 31), dropped_bits=0)
    _, mask = graph.operations
    masked = 32 * tracer.a_product(mask, (False, False))
    given_bits = 2 * 64 * tracer.a_sharing(32)
    assert CommunicationCost(found, tracer).bits(trial) == signs + masked + given_bits


def test_comparisons_are_counted() -> None:
    graph = Graph.create(context(), {"x": (2, 3, 8, 8)}, {})
    x = graph.inputs["x"]
    pads = {"pads_low": (0, 0), "pads_high": (0, 0), "dilations": (1, 1)}
    with graph.end("pool"):
        pooled = ops.MaxPool.build(x, kernel=(2, 2), strides=(2, 2), **pads)
    with graph.end("largest"):
        largest = ops.ReduceMax.build(pooled, axes=(2, 3), keepdims=True)
    with graph.end("relu"):
        y = ops.Relu.build(largest)
    graph.finish({"y": y})
    counted = [comparisons(op) for op in graph.operations]
    assert counted == [2 * 3 * (8 * 4 + 4 * 4), 2 * 3 * 15, 2 * 3]
