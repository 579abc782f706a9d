"""Programs in ONNX Runtime against their meaning in NumPy, operation by operation."""

from __future__ import annotations

import numpy as np
import pytest
from graph_cases import CASES, Build, program
from torch_mlir import ir

from veilgraph.ir.graph import ops
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.meaning.onnx_runtime import FEW, ROWS, VIEWS, OnnxProgram


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


VIEWING = [case for case in CASES if case[0] in {kind.__name__.lower() for kind in VIEWS}]


@pytest.mark.parametrize("case", VIEWING, ids=lambda case: case[0])
def test_others_read_what_is_a_view(case: tuple[str, list[tuple[int, ...]], Build]) -> None:
    """ONNX Runtime computes it too, for its readers."""
    _, shapes, build = case
    graph = program(shapes, lambda *x: ops.Neg.build(build(*x)))
    inputs = {"x0": np.random.default_rng(4).standard_normal(*shapes)}
    found = OnnxProgram(graph).run(inputs)
    np.testing.assert_allclose(
        found[graph.outputs["y"]], evaluate(graph, inputs)["y"], rtol=1e-5, atol=1e-6
    )


def test_views_are_no_copies() -> None:
    """Each has the elements of what no view made."""
    made: list[ir.Value] = []

    def build(x: ir.Value) -> ir.Value:
        made.append(ops.Neg.build(x))
        made.append(ops.Transpose.build(made[0], permutation=(1, 0)))
        made.append(ops.Expand.build(made[1], shape=(2, 3, 2)))
        return ops.Neg.build(made[2])

    graph = program([(2, 3)], build)
    runs = OnnxProgram(graph)
    found = runs.run({"x0": np.arange(6.0).reshape(2, 3)})
    assert runs.sources == {made[1]: made[0], made[2]: made[0]}
    assert all(np.shares_memory(found[made[0]], found[view]) for view in made[1:])
    assert (found[graph.outputs["y"]] == np.arange(6.0).reshape(2, 3).T).all()


@pytest.mark.parametrize("shape", [(5, 1, 1), (5, 1, FEW), (5, 1, FEW + 1), (1, 5, 1), (1, 1, 2)])
def test_what_repeats_in_any_way_is_repeated(shape: tuple[int, ...]) -> None:
    grown = (5, 5, shape[-1])
    graph = program([shape], lambda x: ops.Neg.build(ops.Expand.build(x, shape=grown)))
    x = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
    found = OnnxProgram(graph).run({"x0": x})[graph.outputs["y"]]
    assert (found == -np.broadcast_to(x, grown)).all()
