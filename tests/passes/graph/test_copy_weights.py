"""Products read a coarser copy of a state, where they are many, and updates the state itself."""

from __future__ import annotations

import numpy as np
from graph_examples import example
from torch_mlir import ir

from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, users
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.ir.mlir import context
from veilgraph.passes.graph.public_factors import number_of
from veilgraph.passes.graph.training.copy_weights import FEWER, CopyWeights

COLUMNS = 2


def step(rows: int) -> tuple[Graph, ir.Value]:
    """A product with a weight, one with the weight turned round, and the weight's next value."""
    shapes = {"x": (rows, COLUMNS), "w": (COLUMNS, COLUMNS), "g": (COLUMNS, COLUMNS)}
    graph = Graph.create(context(), shapes, {})
    x, w, g = graph.inputs.values()
    with graph.end("op"):
        y = ops.Matmul.build(x, w)
        back = ops.Matmul.build(y, ops.Transpose.build(w, permutation=(1, 0)))
        after = ops.Sub.build(w, g)
    graph.finish({"back": back, "after": after})
    graph.declare_states(["w"])
    return graph, graph.inputs["w"]


def test_docstring_example() -> None:
    before, after = example(CopyWeights.__doc__, context())
    assert CopyWeights().run(before).text(names=False) == after.text(names=False)


def test_products_read_the_copy_and_the_update_the_state() -> None:
    graph, w = step(rows=FEWER * COLUMNS)
    given = {n: np.random.default_rng(1).normal(size=s) for n, s in shapes_of(graph).items()}
    wanted = evaluate(graph, given, dtype=np.float64)
    CopyWeights().run(graph)
    graph.verify()
    found = evaluate(graph, given, dtype=np.float64)
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)
    copies = [op for op in users(w) if isinstance(op, ops.Mul)]
    assert [number_of(op.operation.operands[1]) for op in copies] == [1.0]
    assert {type(op) for op in users(w)} == {ops.Mul, ops.Sub}
    assert {type(op) for op in users(copies[0].operation.results[0])} == {ops.Matmul, ops.Transpose}


def test_a_weight_with_as_many_elements_has_no_copy() -> None:
    """Two products of so many rows are computed of it, but not FEWER times its elements."""
    graph, _ = step(rows=FEWER // 2 - 1)
    before = graph.text()
    assert CopyWeights().run(graph).text() == before


def test_what_nothing_multiplies_has_no_copy() -> None:
    graph = Graph.create(context(), {"w": (2,), "g": (2,)}, {})
    w, g = graph.inputs.values()
    with graph.end("op"):
        after = ops.Sub.build(w, g)
    graph.finish({"after": after})
    graph.declare_states(["w"])
    before = graph.text()
    assert CopyWeights().run(graph).text() == before


def shapes_of(graph: Graph) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.type.shape) for name, value in graph.inputs.items()}
