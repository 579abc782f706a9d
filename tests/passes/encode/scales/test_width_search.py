"""Rings chosen by what they cost: the least bytes within the error, and snapped windows."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from torch_mlir import ir

from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.mlir import context
from veilgraph.passes.encode.scales.constraints import Budget
from veilgraph.passes.encode.scales.cost_model import CommunicationCost, Tracer
from veilgraph.passes.encode.scales.fraction_bits import ScaleProblem, Trial
from veilgraph.passes.encode.scales.ring_widths import CANDIDATE_WIDTHS
from veilgraph.passes.encode.scales.width_search import (
    SNAPPED_BITS,
    WIDEST,
    WIDEST_TO_SNAP,
    WidthSearch,
    snapped,
)
from veilgraph.passes.ranges.calibrate import calibrate
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
    """Beside every choice of three neighbouring widths for four accumulators."""
    given = problem(goal)
    names = {"rep3": "abc", "additive": "ab", "cleartext": "a"}[suite]
    dealer = "d" if suite == "additive" else None
    communication = CommunicationCost(given, Tracer(target(suite, tuple(names), dealer=dealer)))
    found = WidthSearch(given, communication, goal**2).run()
    assert found.noise <= goal**2
    middle = CANDIDATE_WIDTHS.index(sorted(found.accumulators.values())[2])
    widths = CANDIDATE_WIDTHS[max(middle - 1, 0) : middle + 2]
    every = itertools.product(widths, repeat=len(given.readers.accumulators))
    tried = [
        given.attempt(dict(zip(given.readers.accumulators, rings, strict=True))) for rings in every
    ]
    least = min(communication.bits(trial) for trial in tried if trial.noise <= goal**2)
    assert communication.bits(found) <= 1.03 * least


def test_a_smaller_error_costs_more_bytes() -> None:
    sent = []
    for goal in (0.03, 3e-3, 3e-4, 3e-5):
        given = problem(goal)
        communication = CommunicationCost(given, Tracer(target()))
        sent.append(communication.bits(WidthSearch(given, communication, goal**2).run()))
    assert sent == sorted(sent)
    assert sent[-1] > 1.5 * sent[0]


def test_what_no_ring_can_do_ends_at_the_widest() -> None:
    given = problem(1e-15)
    found = WidthSearch(given, CommunicationCost(given, Tracer(target())), 1e-30).run()
    assert found.noise > 1e-30
    assert set(found.accumulators.values()) == {CANDIDATE_WIDTHS[-1]}


def test_noise_that_nothing_predicts_keeps_its_accumulators_wide() -> None:
    given = problem(1e-3)
    communication = CommunicationCost(given, Tracer(target()))
    alone = WidthSearch(given, communication, 1e-6).run()
    assert min(alone.accumulators.values()) < 40
    last = list(given.constraints)[-2]
    given.constraints[last].unknown_gain = True
    accumulators = {*given.readers.of[last], *given.readers.makers[last]}
    for spare, ring_bits in ((0, 32), (2, 48)):
        found = WidthSearch(given, communication, 1e-6, spare).run()
        assert min(found.accumulators[accumulator] for accumulator in accumulators) >= ring_bits


def test_accumulators_around_functions_are_no_more_than_a_width_below_one_ring_for_all() -> None:
    given = problem(3e-3)
    communication = CommunicationCost(given, Tracer(target()))
    one_ring = given.narrowest_ring(9e-6)
    last = list(given.constraints)[-2]
    given.constraints[last].wants_ring = True
    accumulators = {*given.readers.of[last], *given.readers.makers[last]}

    def least(around_functions: int) -> int:
        found = WidthSearch(given, communication, 9e-6, around_functions=around_functions).run()
        return min(found.accumulators[accumulator] for accumulator in accumulators)

    assert least(-len(CANDIDATE_WIDTHS)) == least(-1) == one_ring - 8
    assert least(0) == one_ring
    assert least(2) == one_ring + 16
    assert least(WIDEST) == CANDIDATE_WIDTHS[-1]


@dataclass(frozen=True)
class Foretold(ScaleProblem):
    """A problem whose error is a sum over its accumulators: `noises` by accumulator, one for each
    width.
    """

    noises: tuple[tuple[float, ...], ...] = ()

    def attempt(
        self, accumulators: Mapping[ir.Value, int], *limits: Mapping[ir.Value, int]
    ) -> Trial:
        pairs = zip(accumulators.values(), self.noises, strict=True)
        noise = sum(noises[CANDIDATE_WIDTHS.index(ring_bits)] for ring_bits, noises in pairs)
        noises = dict.fromkeys(list(self.constraints)[:1], noise)
        return replace(super().attempt(accumulators, *limits), noises=noises)

    def changed(self, trial: Trial, accumulator: ir.Value, ring_bits: int) -> Trial:
        return self.attempt({**trial.accumulators, accumulator: ring_bits})


class Priced(CommunicationCost):
    """Each accumulator sends so many bits more for each width that it is raised by."""

    def __init__(self, problem: ScaleProblem, prices: tuple[float, ...]) -> None:
        super().__init__(problem, Tracer(target()))
        self.prices = prices

    def each(self, trial: Trial) -> list[float]:
        raised = (CANDIDATE_WIDTHS.index(ring_bits) for ring_bits in trial.accumulators.values())
        return [a * b for a, b in zip(raised, self.prices, strict=True)]

    def each_changed(self, each: object, trial: Trial, accumulator: ir.Value) -> list[float]:
        return self.each(trial)


def test_an_accumulator_is_raised_by_two_widths_where_one_does_nothing() -> None:
    """Two widths of the first accumulator cost 10 bits, one of the next two 8 each; either is
    enough.
    """
    given, never = problem(1e-3), (0.0,) * len(CANDIDATE_WIDTHS)
    late = (0.9, 0.9, 0.0, 0.0, 0.0, 0.0)
    soon = (0.45, 0.0, 0.0, 0.0, 0.0, 0.0)
    facts = {field.name: getattr(given, field.name) for field in fields(given)}
    foretold = Foretold(**facts, noises=(late, soon, soon, never))
    priced = Priced(foretold, prices=(5.0, 8.0, 8.0, 1.0))
    found = WidthSearch(foretold, priced, noise=1.0).run()
    assert list(found.accumulators.values()) == [40, 24, 24, 24]
    assert priced.bits(found) == 10.0


def test_widths_that_nothing_needs_are_given_back_one_by_one() -> None:
    """No accumulator alone lowers the error at first, so all are raised; all but the first go
    back.
    """
    given, never = problem(1e-3), (0.0,) * len(CANDIDATE_WIDTHS)
    late = (2.0, 2.0, 2.0, 2.0, 0.0, 0.0)
    facts = {field.name: getattr(given, field.name) for field in fields(given)}
    foretold = Foretold(**facts, noises=(late, never, never, never))
    priced = Priced(foretold, prices=(5.0, 8.0, 8.0, 1.0))
    found = WidthSearch(foretold, priced, noise=1.0).run()
    assert list(found.accumulators.values()) == [56, 24, 24, 24]


def products() -> Graph:
    """Products of activations, a square among them, that share operands; and a real function."""
    generator = np.random.default_rng(2)
    weights = {f"w{i}": generator.standard_normal((6, 6)) / 2 for i in range(3)}
    graph = Graph.create(context(), {"x": (2, 6)}, weights)
    x = graph.inputs["x"]
    with graph.end("all"):
        a, b = (ops.Relu.build(ops.Matmul.build(x, graph.parameters[w])) for w in ("w0", "w1"))
        c = ops.Relu.build(ops.Mul.build(a, b))
        d = ops.Add.build(ops.Mul.build(c, c), ops.Matmul.build(b, graph.parameters["w2"]))
        y = ops.Mul.build(ops.Tanh.build(d), ops.Sub.build(a, x))
    graph.finish({"y": y})
    return graph


@pytest.mark.parametrize("suite", ["rep3", "additive"])
def test_a_trial_that_is_changed_is_the_one_that_is_made_anew(suite: str) -> None:
    """Ring by ring, in any order, to the last bit: scales, noise and what is sent."""
    graph = products()
    seen = np.random.default_rng(3).standard_normal((3, 2, 6)).astype(np.float32)
    given = ScaleProblem.of(
        graph, calibrate(graph, {"x": seen}).of(graph), Budget(margin=2.0, goal=1e-4)
    )
    assert len(given.products) == 3
    dealer = "d" if suite == "additive" else None
    names = ("a", "b") if suite == "additive" else ("a", "b", "c")
    communication = CommunicationCost(given, Tracer(target(suite, names, dealer=dealer)))
    trial = given.attempt(given.one_ring(32))
    each = communication.each(trial)
    generator = np.random.default_rng(4)
    for _ in range(100):
        accumulator = given.readers.accumulators[
            generator.integers(len(given.readers.accumulators))
        ]
        trial = given.changed(trial, accumulator, int(generator.choice(CANDIDATE_WIDTHS)))
        each = communication.each_changed(each, trial, accumulator)
        anew = given.attempt(trial.accumulators)
        assert trial == anew
        assert (trial.noise, each) == (anew.noise, communication.each(anew))


def test_windows_snap_where_the_error_allows() -> None:
    given = problem(1e-4)
    communication = CommunicationCost(given, Tracer(target()))
    trial = given.attempt(given.one_ring(40))
    windows = communication.window_bits(trial)
    near = {r for r, bits in windows.items() if SNAPPED_BITS < bits <= WIDEST_TO_SNAP}
    assert near, "the example has windows to snap"
    free = snapped(given, communication, trial, noise=1.0)
    assert {communication.window_bits(free)[root] for root in near} == {SNAPPED_BITS}
    assert communication.bits(free) < communication.bits(trial)
    strict = snapped(given, communication, trial, noise=0.0)
    assert trial.noise <= strict.noise <= 1.11 * trial.noise
    assert {r: b for r, b in windows.items() if r not in near} == {
        r: b for r, b in communication.window_bits(free).items() if r not in near
    }


def test_fixed_fraction_bits_are_not_snapped() -> None:
    given = problem(1e-4)
    fixed = replace(given, budget=replace(given.budget, frac_bits=15))
    trial = fixed.attempt(fixed.one_ring(40))
    assert set(trial.scales.values()) == {15}
