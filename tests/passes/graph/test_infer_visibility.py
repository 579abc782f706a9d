"""Who owns what, what is public, and owners that make no sense."""

from __future__ import annotations

import numpy as np
import pytest
from before_after import example, listing

from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.mlir import context
from veilgraph.ir.secret.types import Secrecy
from veilgraph.passes.graph.infer_visibility import InferVisibility


def program() -> Graph:
    graph = Graph.create(context(), {"x": (2,)}, {"w": np.ones(2), "v": np.ones(2)})
    for name in ("1", "2", "3", "4"):
        with graph.end(name):
            if name == "1":
                value = ops.Constant.build(value=np.full(2, 3, np.float32))
            elif name == "2":
                value = ops.Add.build(value, value)
            elif name == "3":
                value = ops.Mul.build(graph.inputs["x"], value)
            else:
                value = ops.Add.build(value, graph.parameters["w"])
    with graph.end("5"):
        value = ops.Mul.build(value, graph.parameters["v"])
    graph.finish({"y": value})
    return graph


def test_docstring_example() -> None:
    graph = program()
    lines = listing(graph).splitlines()[:4]
    assert "\n".join(lines) == example(InferVisibility, "Before")
    found = InferVisibility({"x": "alice", "weights": "bob"}).run(graph)
    shown = [f"%{n} {s.value}" for n, s in found.operations.items() if n != "5"]
    assert ", ".join(shown) == example(InferVisibility, "After")
    assert found.owners == {"x": "alice", "w": "bob", "v": "bob"}
    assert found.secrecy("x") is Secrecy.SECRET


def test_a_weight_may_have_an_owner_of_its_own() -> None:
    found = InferVisibility({"x": "alice", "weights": "bob", "v": "carol"}).run(program())
    assert found.owners == {"x": "alice", "w": "bob", "v": "carol"}


def test_public_inputs_and_weights_make_public_values() -> None:
    found = InferVisibility({"x": "public", "weights": "bob", "w": "public"}).run(program())
    public = [name for name, secrecy in found.operations.items() if secrecy is Secrecy.PUBLIC]
    assert public == ["1", "2", "3", "4"]
    assert found.secrecy("w") is Secrecy.PUBLIC


@pytest.mark.parametrize(
    ("owners", "message"),
    [
        ({"x": "alice", "weights": "bob", "z": "carol"}, "'z', which is no input"),
        ({"weights": "bob"}, "owner of 'x'"),
        ({"x": "alice", "w": "bob"}, "owner of 'v'"),
    ],
)
def test_owners_that_make_no_sense(owners: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        InferVisibility(owners).run(program())
    assert caught.value.hint
