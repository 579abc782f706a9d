"""Softmax in fixed point: the approximation and the rounding together."""

from __future__ import annotations

import numpy as np
import pytest

from veilgraph.ir import graph_ops as ops
from veilgraph.ir.graph import Graph
from veilgraph.ir.meaning.graph import evaluate as evaluate_graph
from veilgraph.ir.meaning.secret import evaluate
from veilgraph.ir.mlir import context
from veilgraph.ir.secret import SecretProgram
from veilgraph.passes.approximate import Approximate
from veilgraph.passes.choose_comparison import ChooseComparison
from veilgraph.passes.encode_fixed_point import EncodeFixedPoint
from veilgraph.passes.fold_divisors import FoldDivisors
from veilgraph.passes.infer_visibility import InferVisibility
from veilgraph.passes.merge_truncations import MergeTruncations
from veilgraph.passes.ranges import assume, calibrate

SPREADS = np.array([[0.0], [0.5], [2.0], [5.0], [12.0]])


def softmax(classes: int) -> Graph:
    graph = Graph.create(context(), {"x": (len(SPREADS), classes)}, {})
    with graph.end("softmax"):
        y = ops.Softmax.build(graph.inputs["x"], axis=1)
    graph.finish({"y": y})
    return graph


def compiled(graph: Graph, samples: np.ndarray | None, ring_bits: int) -> SecretProgram:
    FoldDivisors().run(Approximate().run(graph))
    ranges = assume(graph) if samples is None else calibrate(graph, {"x": samples})
    visibility = InferVisibility({"x": "alice"}).run(graph)
    program = EncodeFixedPoint(ring_bits=ring_bits).run(graph, visibility, ranges)
    return ChooseComparison().run(MergeTruncations().run(program))


@pytest.mark.parametrize("classes", [10, 1000])
@pytest.mark.parametrize(
    ("ring_bits", "calibrated", "bound"),
    [(64, False, 2e-4), (64, True, 2e-4), (40, True, 5e-4), (32, True, 5e-3)],
)
def test_error_in_fixed_point(classes: int, ring_bits: int, calibrated: bool, bound: float) -> None:
    generator = np.random.default_rng(classes)
    draws = SPREADS * generator.uniform(-1, 1, (4, len(SPREADS), classes))
    samples, fresh = draws[:2].astype(np.float32), draws[2:]
    expected = [evaluate_graph(softmax(classes), {"x": x}, dtype=np.float64)["y"] for x in fresh]
    program = compiled(softmax(classes), samples if calibrated else None, ring_bits)
    for x, y in zip(fresh, expected, strict=True):
        found = evaluate(program, {"x": x}, generator)
        assert found.excursions == []
        assert np.abs(found.outputs["y"] - y).max() < bound


def test_no_factor_needs_a_truncation() -> None:
    """A truncation after each product but the last, and one after the chords."""
    program = compiled(softmax(1000), None, 64)
    kinds = [op.operation.name.partition(".")[2] for op in program.operations]
    assert kinds.count("mul") == 13
    assert kinds.count("truncate") == 13
