"""Programs in ONNX Runtime against their meaning in NumPy, operation by operation."""

from __future__ import annotations

import numpy as np
import pytest
from graph_cases import CASES, Build, program

from veilgraph.ir.graph import ops
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.meaning.onnx_runtime import ROWS, OnnxProgram


def test_every_operation_but_constants_is_tried() -> None:
    encoded = {kind for kind in ops.OPERATIONS if ops.facts_of_kind(kind).is_encoded}
    names = {kind.OPERATION_NAME.partition(".")[2] for kind in encoded}
    assert {name for name, _, _ in CASES} | {"constant"} == names
    assert encoded <= set(ROWS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_onnx_runtime_computes_what_is_meant(
    case: tuple[str, list[tuple[int, ...]], Build],
) -> None:
    _, shapes, build = case
    graph, generator = program(shapes, build), np.random.default_rng(4)
    inputs = {f"x{i}": generator.standard_normal(shape) for i, shape in enumerate(shapes)}
    found = OnnxProgram(graph).run(inputs)
    assert len(found) == len(graph.inputs) + len(list(graph.operations))
    wanted = evaluate(graph, inputs)["y"]
    np.testing.assert_allclose(found[graph.outputs["y"]], wanted, rtol=1e-5, atol=1e-6)
