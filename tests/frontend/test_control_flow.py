"""If, Loop and Scan are written out: what is imported computes what ONNX Runtime computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from models import run_onnx
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

import veilgraph
from veilgraph.frontend.onnx.importer import import_model
from veilgraph.ir.errors import UnsupportedError
from veilgraph.ir.graph.program import kind_of
from veilgraph.ir.meaning.graph import evaluate
from veilgraph.runtime.simulate import simulate

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
SHAPE = (2, 3)


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    name = outputs.split()[0]
    given = ["" if i == "-" else i for i in inputs.split()]
    return helper.make_node(operator, given, outputs.split(), name=name, **attributes)


def constants(**arrays: Any) -> list[TensorProto]:
    return [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]


def body(nodes: list[NodeProto], inputs: str, outputs: str, **arrays: Any) -> GraphProto:
    """A body whose inputs and outputs are named with their types: "i:int64 x:float:2,3"."""

    def info(text: str) -> Any:
        name, kind, *shape = text.split(":")
        extents = [int(n) for n in shape[0].split(",") if n] if shape else []
        return helper.make_tensor_value_info(
            name, TensorProto.DataType.Value(kind.upper()), extents
        )

    given, made = ([info(text) for text in texts.split()] for texts in (inputs, outputs))
    return helper.make_graph(nodes, "body", given, made, constants(**arrays))


def model(*nodes: NodeProto, outputs: str = "y", **arrays: Any) -> ModelProto:
    x = helper.make_tensor_value_info("x", FLOAT, SHAPE)
    made = [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs.split()]
    graph = helper.make_graph(nodes, "g", [x], made, constants(**arrays))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def agrees(proto: ModelProto, *inputs: NDArray[Any]) -> Any:
    """The imported program, once it was compared with ONNX Runtime."""
    graph = import_model(proto)
    for x in inputs or (np.random.default_rng(0).normal(size=SHAPE).astype(np.float32),):
        found, expected = evaluate(graph, {"x": x}), run_onnx(proto, {"x": x})
        for name, value in expected.items():
            assert found[name].shape == value.shape
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)
    return graph


BRANCHES = {
    "then_branch": body([node("Relu", "x", "a")], "", "a:float:2,3"),
    "else_branch": body([node("Mul", "x w", "b")], "", "b:float:2,3", w=np.full((2, 3), 3.0, "f")),
}


def test_a_condition_on_shapes_takes_one_branch() -> None:
    proto = model(
        node("Shape", "x", "s"),
        node("Gather", "s at", "n", axis=0),
        node("Equal", "n two", "c"),
        node("If", "c", "y", **BRANCHES),
        at=np.int64(0),
        two=np.int64(2),
    )
    assert [kind_of(op) for op in agrees(proto).operations] == ["relu"]


def secret_if(**branches: GraphProto) -> ModelProto:
    return model(
        node("ReduceSum", "x", "t", keepdims=0),
        node("Greater", "t zero", "c"),
        node("If", "c", "y", **branches),
        zero=np.float32(0),
    )


def test_a_secret_condition_chooses_between_both_branches() -> None:
    x = np.arange(6, dtype=np.float32).reshape(SHAPE)
    proto = secret_if(**BRANCHES)
    agrees(proto, x, -x)
    samples = np.stack([x, -x])
    plan, weights = veilgraph.compile(proto, calibrate={"x": samples})
    for given in samples:
        found = simulate(plan, weights, {"x": given}).outputs["y"]
        np.testing.assert_allclose(found, run_onnx(proto, {"x": given})["y"], atol=0.02)


def test_branches_of_different_shapes_need_a_public_condition() -> None:
    short = body([node("ReduceSum", "x", "a", keepdims=0)], "", "a:float")
    with pytest.raises(UnsupportedError, match="its branches may give different shapes"):
        import_model(secret_if(then_branch=short, else_branch=BRANCHES["else_branch"]))


def test_a_loop_of_known_length_with_rows_and_a_weight() -> None:
    turn = body(
        [
            node("Identity", "go", "on"),
            node("Mul", "v w", "u"),
            node("Add", "u x", "next"),
            node("ReduceSum", "next", "row", keepdims=0),
        ],
        "i:int64 go:bool v:float:2,3",
        "on:bool next:float:2,3 row:float",
        w=np.linspace(0.5, 1, 6, dtype=np.float32).reshape(SHAPE),
    )
    proto = model(
        node("Loop", "four yes x", "y rows", body=turn),
        outputs="y rows",
        four=np.int64(4),
        yes=np.array(True),
    )
    graph = agrees(proto)
    assert len(graph.weights) == 1  # one weight for all turns


def counting(limit: str, **arrays: Any) -> ModelProto:
    turn = body(
        [node("Add", "v v", "next"), node("Less", f"i {limit}", "on")],
        "i:int64 go:bool v:float:2,3",
        "on:bool next:float:2,3",
    )
    return model(node("Loop", "- - x", "y", body=turn), **arrays)


def test_a_loop_that_ends_itself_in_public() -> None:
    graph = agrees(counting("three", three=np.int64(3)))
    assert [kind_of(op) for op in graph.operations] == ["add"] * 4


def test_a_loop_that_ends_itself_in_secret_is_refused() -> None:
    turn = body(
        [
            node("Add", "v v", "next"),
            node("ReduceSum", "next", "t", keepdims=0),
            node("Less", "t ten", "on"),
        ],
        "i:int64 go:bool v:float:2,3",
        "on:bool next:float:2,3",
    )
    proto = model(node("Loop", "- - x", "y", body=turn), ten=np.float32(10))
    with pytest.raises(UnsupportedError, match="How often it runs is computed from data"):
        import_model(proto)


def test_a_loop_without_end_is_refused() -> None:
    turn = body(
        [node("Identity", "go", "on"), node("Relu", "v", "next")],
        "i:int64 go:bool v:float:2,3",
        "on:bool next:float:2,3",
    )
    with pytest.raises(UnsupportedError, match="or too often"):
        import_model(model(node("Loop", "- - x", "y", body=turn)))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("backwards", [0, 1])
def test_a_scan_goes_along_any_axis_either_way(axis: int, backwards: int) -> None:
    size = SHAPE[1 - axis]
    step = body(
        [node("Add", "s p", "t"), node("Mul", "t p", "q")],
        f"s:float:{size} p:float:{size}",
        f"t:float:{size} q:float:{size}",
    )
    scan = node(
        "Scan",
        "start x",
        "y rows",
        body=step,
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_input_directions=[backwards],
        scan_output_axes=[1],
        scan_output_directions=[backwards],
    )
    agrees(model(scan, outputs="y rows", start=np.ones(size, np.float32)))


def test_an_if_within_a_loop_is_decided_by_the_turn() -> None:
    even = body([node("Add", "v x", "a")], "", "a:float:2,3")
    odd = body([node("Sub", "v half", "b")], "", "b:float:2,3", half=np.float32(0.5))
    turn = body(
        [
            node("Mod", "i two", "r"),
            node("Equal", "r nought", "c"),
            node("If", "c", "next", then_branch=even, else_branch=odd),
            node("Identity", "go", "on"),
        ],
        "i:int64 go:bool v:float:2,3",
        "on:bool next:float:2,3",
        two=np.int64(2),
        nought=np.int64(0),
    )
    proto = model(
        node("Loop", "three yes x", "y", body=turn), three=np.int64(3), yes=np.array(True)
    )
    kinds = [kind_of(op) for op in agrees(proto).operations if kind_of(op) != "constant"]
    assert kinds == ["add", "sub", "add"]
