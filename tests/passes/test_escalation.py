"""Rings chosen by what they cost: the least bytes within the error, and snapped windows."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from veilgraph.ir import graph_ops as ops
from veilgraph.ir.graph import Graph
from veilgraph.ir.mlir import context
from veilgraph.passes.escalation import (
    SNAPPED_BITS,
    WIDEST,
    WIDEST_TO_SNAP,
    Escalation,
    snapped,
)
from veilgraph.passes.ranges import calibrate
from veilgraph.passes.rings import RUNGS
from veilgraph.passes.scale_drafts import Budget
from veilgraph.passes.scales import ScaleProblem
from veilgraph.passes.traffic import Tracer, Traffic
from veilgraph.targets.target import target

SIZES = (64, 40, 80, 20, 6)


def layers() -> Graph:
    """Dense layers of different sizes with ReLUs between them."""
    generator = np.random.default_rng(0)
    pairs = list(itertools.pairwise(SIZES))
    weights = {
        f"w{i}": generator.standard_normal(shape) / np.sqrt(shape[0] / 2)
        for i, shape in enumerate(pairs)
    }
    graph = Graph.create(context(), {"x": (2, SIZES[0])}, weights)
    x = graph.inputs["x"]
    for i in range(len(pairs)):
        with graph.end(f"dense{i}"):
            x = ops.Matmul.build(x, graph.parameters[f"w{i}"])
        if i + 1 < len(pairs):
            with graph.end(f"relu{i}"):
                x = ops.Relu.build(x)
    graph.finish({"y": x})
    return graph


def samples() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((3, 2, SIZES[0])).astype(np.float32)


def problem(goal: float) -> ScaleProblem:
    graph = layers()
    statistics = calibrate(graph, {"x": samples()}).of(graph)
    return ScaleProblem.of(graph, statistics, Budget(margin=2.0, goal=goal))


@pytest.mark.parametrize("suite", ["rep3", "additive", "cleartext"])
@pytest.mark.parametrize("goal", [0.05, 3e-3, 2e-4])
def test_nearly_the_least_bytes_of_all_choices(suite: str, goal: float) -> None:
    """Beside every choice of three neighbouring rungs for four units."""
    given = problem(goal)
    names = {"rep3": "abc", "additive": "ab", "cleartext": "a"}[suite]
    dealer = "d" if suite == "additive" else None
    traffic = Traffic(given, Tracer(target(suite, tuple(names), dealer=dealer)))
    found = Escalation(given, traffic, goal**2).run()
    assert found.noise <= goal**2
    middle = RUNGS.index(sorted(found.units.values())[2])
    rungs = RUNGS[max(middle - 1, 0) : middle + 2]
    every = itertools.product(rungs, repeat=len(given.readers.units))
    tried = [given.attempt(dict(zip(given.readers.units, rings, strict=True))) for rings in every]
    least = min(traffic.bits(trial) for trial in tried if trial.noise <= goal**2)
    assert traffic.bits(found) <= 1.03 * least


def test_a_smaller_error_costs_more_bytes() -> None:
    sent = []
    for goal in (0.03, 3e-3, 3e-4, 3e-5):
        given = problem(goal)
        traffic = Traffic(given, Tracer(target()))
        sent.append(traffic.bits(Escalation(given, traffic, goal**2).run()))
    assert sent == sorted(sent)
    assert sent[-1] > 1.5 * sent[0]


def test_what_no_ring_can_do_ends_at_the_widest() -> None:
    given = problem(1e-15)
    found = Escalation(given, Traffic(given, Tracer(target())), 1e-30).run()
    assert found.noise > 1e-30
    assert set(found.units.values()) == {RUNGS[-1]}


def test_noise_that_nothing_predicts_keeps_its_units_wide() -> None:
    given = problem(1e-3)
    traffic = Traffic(given, Tracer(target()))
    alone = Escalation(given, traffic, 1e-6).run()
    assert min(alone.units.values()) < 40
    last = list(given.drafts)[-2]
    given.drafts[last].steep = True
    units = {*given.readers.of[last], *given.readers.makers[last]}
    for spare, ring_bits in ((0, 32), (2, 48)):
        found = Escalation(given, traffic, 1e-6, spare).run()
        assert min(found.units[unit] for unit in units) >= ring_bits


def test_units_around_functions_are_no_more_than_a_rung_below_one_ring_for_all() -> None:
    given = problem(3e-3)
    traffic = Traffic(given, Tracer(target()))
    one_ring = given.narrowest_ring(9e-6)
    last = list(given.drafts)[-2]
    given.drafts[last].waves = True
    units = {*given.readers.of[last], *given.readers.makers[last]}

    def least(around_functions: int) -> int:
        found = Escalation(given, traffic, 9e-6, around_functions=around_functions).run()
        return min(found.units[unit] for unit in units)

    assert least(-len(RUNGS)) == least(-1) == one_ring - 8
    assert least(0) == one_ring
    assert least(2) == one_ring + 16
    assert least(WIDEST) == RUNGS[-1]


def test_windows_snap_where_the_error_allows() -> None:
    given = problem(1e-4)
    traffic = Traffic(given, Tracer(target()))
    trial = given.attempt(given.one_ring(40))
    windows = traffic.window_bits(trial)
    near = {r for r, bits in windows.items() if SNAPPED_BITS < bits <= WIDEST_TO_SNAP}
    assert near, "the example has windows to snap"
    free = snapped(given, traffic, trial, noise=1.0)
    assert {traffic.window_bits(free)[root] for root in near} == {SNAPPED_BITS}
    assert traffic.bits(free) < traffic.bits(trial)
    strict = snapped(given, traffic, trial, noise=0.0)
    assert trial.noise <= strict.noise <= 1.11 * trial.noise
    assert {r: b for r, b in windows.items() if r not in near} == {
        r: b for r, b in traffic.window_bits(free).items() if r not in near
    }


def test_fixed_fraction_bits_are_not_snapped() -> None:
    given = problem(1e-4)
    fixed = replace(given, budget=replace(given.budget, frac_bits=15))
    trial = fixed.attempt(fixed.one_ring(40))
    assert set(trial.scales.values()) == {15}
