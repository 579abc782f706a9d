"""Where a ReLU's derivative is masked, half of what was rounded to zero counts as negative."""

from __future__ import annotations

import numpy as np
import pytest

from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.meaning.secret import evaluate
from veilgraph.ir.mlir import context
from veilgraph.passes.encode.encode_fixed_point import EncodeFixedPoint
from veilgraph.passes.graph.infer_visibility import InferVisibility
from veilgraph.passes.ranges.calibrate import calibrate

ROWS, COLUMNS = 8, 3


def masked() -> Graph:
    """A ReLU, its derivative's mask, and what that is multiplied by."""
    shapes = {"x": (ROWS, COLUMNS), "w": (COLUMNS, COLUMNS), "g": (ROWS, COLUMNS)}
    graph = Graph.create(context(), shapes, {})
    x, w, g = graph.inputs.values()
    with graph.end("op"):
        y = ops.Matmul.build(x, w)
        bit = ops.Step.build(y)
        outputs = {"relu": ops.Mul.build(y, bit), "passed": ops.Mul.build(g, bit)}
    graph.finish(outputs)
    return graph


@pytest.mark.parametrize("trains", [True, False])
def test_zeros_pass_what_they_mask_in_every_second_row(trains: bool) -> None:
    graph = masked()
    generator = np.random.default_rng(1)
    shapes = {"x": (4, ROWS, COLUMNS), "w": (4, COLUMNS, COLUMNS), "g": (4, ROWS, COLUMNS)}
    samples = {n: generator.normal(size=s).astype(np.float32) for n, s in shapes.items()}
    visibility = InferVisibility(dict.fromkeys(("x", "w", "g", "weights"), "alice")).run(graph)
    encode = EncodeFixedPoint(frac_bits=6, trains=trains)
    program = encode.run(graph, visibility, calibrate(graph, samples))
    ones = {name: np.ones(value.shape[1:], np.float32) for name, value in samples.items()}
    found = evaluate(program, {**ones, "x": 0 * ones["x"]}, generator).outputs
    wanted = np.ones((ROWS, COLUMNS))
    if trains:
        wanted[1::2] = 0
    np.testing.assert_allclose(found["passed"], wanted, atol=0.05)
    assert not found["relu"].any()
    signs = np.where(np.arange(ROWS) < ROWS // 2, 1, -1)[:, None] * ones["x"]
    found = evaluate(program, {**ones, "x": signs.astype(np.float32)}, generator).outputs
    np.testing.assert_allclose(found["passed"], signs > 0, atol=0.05)
    np.testing.assert_allclose(found["relu"], COLUMNS * (signs > 0), atol=0.3)
