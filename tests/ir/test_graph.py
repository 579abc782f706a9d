"""Programs of the graph level: building, names, edits, the text form, and the verifier."""

from __future__ import annotations

import numpy as np
import pytest
from torch_mlir import ir

from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, attributes, defining, kind_of, name_of, users
from veilgraph.ir.mlir import context

SIDE: dict[str, tuple[int, int]] = {
    "strides": (2, 2),
    "pads_low": (1, 1),
    "pads_high": (1, 1),
    "dilations": (1, 1),
}


def small() -> Graph:
    """conv -> clip -> concat with itself, and a weight and an operation that nothing uses."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((4, 3, 3, 3)), "unused": np.ones(2), "b": np.ones(4)}
    graph = Graph.create(context(), {"x": (1, 3, 8, 8)}, weights)
    with graph.end("conv1"):
        x, w, b = graph.inputs["x"], graph.parameters["w"], graph.parameters["b"]
        y = ops.Conv.build(x, w, bias=b, groups=1, **SIDE)
    with graph.end("join"):
        ops.Relu.build(y)
        y = ops.Clip.build(ops.Clip.build(y, min=-np.inf, max=2.0), min=0.0, max=np.inf)
        y = ops.concat([y, y], 1)
    graph.finish({"y": y})
    return graph


def test_arguments_and_results_have_names_and_roles() -> None:
    graph = small()
    graph.verify()
    assert list(graph.inputs) == ["x"]
    assert list(graph.parameters) == list(graph.weights) == ["w", "b"]
    assert list(graph.outputs) == ["y"]
    assert all(array.dtype == np.float32 for array in graph.weights.values())


def test_every_operation_has_a_name_of_its_own() -> None:
    names = [(name_of(op), kind_of(op)) for op in small().operations]
    assert names == [
        ("conv1", "conv"),
        ("join/clip", "clip"),
        ("join/clip.2", "clip"),
        ("join", "concat"),
    ]


def test_attributes_are_python_values() -> None:
    conv, clip, _, concat = map(attributes, small().operations)
    assert conv == {**SIDE, "groups": 1}
    assert clip == {"min": -np.inf, "max": 2.0}
    assert concat == {"axis": 1}


def test_values_know_their_makers_and_readers() -> None:
    graph = small()
    conv, *_, concat = graph.operations
    assert defining(graph.inputs["x"]) is None
    assert defining(graph.outputs["y"]) == concat
    assert [kind_of(op) for op in users(conv.operation.results[0])] == ["clip"]
    assert graph.known() == set(graph.parameters.values())


@pytest.mark.parametrize("names", [True, False])
def test_text_round_trip(names: bool) -> None:
    graph = small()
    again = Graph.parse(context(), graph.text(names), graph.weights)
    assert again.text(names) == graph.text(names)
    assert small().text() == graph.text()


def test_text_holds_no_weights() -> None:
    assert "dense" not in small().text()


def test_false_and_empty_attributes_are_kept() -> None:
    graph = Graph.create(context(), {"x": ()}, {})
    with graph.end("y"):
        y = ops.Transpose.build(graph.inputs["x"], permutation=())
        y = ops.ReduceSum.build(ops.Reshape.build(y, shape=(1,)), axes=(0,), keepdims=False)
    graph.finish({"y": y})
    graph.verify()
    assert [attributes(op) for op in graph.operations] == [
        {"permutation": ()},
        {},
        {"axes": (0,), "keepdims": False},
    ]


def test_tensors_of_different_numbers_are_attributes_too() -> None:
    numbers = np.array([[1, 2], [3, 4]], dtype=np.float32)
    graph = Graph.create(context(), {}, {})
    with graph.end("y"):
        y = ops.Constant.build(value=numbers.T)
    graph.finish({"y": y})
    np.testing.assert_array_equal(attributes(graph.operations[0])["value"], numbers.T)


def test_a_replacement_takes_the_name() -> None:
    graph = small()
    concat = graph.operations[-1]
    with graph.before(concat):
        inner = ops.Neg.build(concat.operation.operands[0])
        value = ops.concat([inner, inner], 1)
    graph.replace(concat, value)
    graph.tidy()
    graph.verify()
    assert [name_of(op) for op in graph.operations][-2:] == ["join/neg", "join"]


def test_a_value_that_has_a_name_keeps_it_when_it_replaces() -> None:
    graph = small()
    _, first, second, _ = graph.operations
    graph.replace(second, first.operation.results[0])
    graph.tidy()
    assert [name_of(op) for op in graph.operations] == ["conv1", "join/clip", "join"]


def test_weights_can_be_added_and_renamed() -> None:
    graph = small()
    conv = graph.operations[0]
    added = graph.add_weights({"w2": np.zeros((4, 3, 3, 3))})
    conv.operation.operands[1] = added["w2"]
    graph.tidy()
    graph.rename_weights({"w2": "w"})
    graph.verify()
    assert list(graph.weights) == ["b", "w"]
    assert not graph.weights["w"].any()
    with pytest.raises(AssertionError, match="two weights"):
        graph.add_weights({"w": np.zeros(1)})
    with pytest.raises(AssertionError, match="two weights"):
        graph.rename_weights({"w": "b"})


def test_verify_sees_shared_names_and_strange_weights() -> None:
    graph = small()
    graph.operations[1].location = graph.operations[0].location
    with pytest.raises(AssertionError, match="share a name"):
        graph.verify()
    graph = small()
    graph.weights["w"] = np.zeros(3, dtype=np.float32)
    with pytest.raises(AssertionError):
        graph.verify()


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("strides = array<i64: 2, 2>", "strides = array<i64: 0, 2>", "is not legal"),
        ("strides = array<i64: 2, 2>", "strides = [2, 2]", "ArrayAttr is not used"),
        ("strides = array<i64: 2, 2>", "stride = array<i64: 2, 2>", "unexpected keyword"),
        ("groups = 1 : i64", "groups = 1.0 : f64", "isn't of type int"),
        ("groups = 1 : i64", "groups = 3 : i64", "4 channels out in 3 groups"),
        ("max = 2.000000e+00 : f64", "max = 2 : i64", "isn't of type float"),
        ("1x4x4x4xf32", "1x4x4x5xf32", "must be (1, 4, 4, 4)"),
        ("1x4x4x4xf32", "1x4x4x4xf64", "is no tensor<...xf32>"),
        ("1x4x4x4xf32", "1x4x4x?xf32", "is no tensor<...xf32>"),
        ("1x4x4x4xf32", "*xf32", "is no tensor<...xf32>"),
    ],
)
def test_illegal_text_is_refused(old: str, new: str, reason: str) -> None:
    graph = small()
    text = graph.text(names=False)
    assert old in text
    with pytest.raises(ir.MLIRError) as caught:
        Graph.parse(context(), text.replace(old, new), graph.weights)
    assert reason in str(caught.value)


def test_a_missing_attribute_is_refused() -> None:
    graph = Graph.create(context(), {"x": (2, 3)}, {})
    with graph.end("y"):
        y = ops.Softmax.build(graph.inputs["x"], axis=1)
    graph.finish({"y": y})
    with pytest.raises(ir.MLIRError, match="axis"):
        Graph.parse(context(), graph.text().replace("{axis = 1 : i64}", ""), {})


def test_builders_refuse_what_does_not_fit() -> None:
    graph = Graph.create(context(), {"x": (2, 3), "y": (4, 5)}, {})
    x, y = graph.inputs.values()
    with graph.end("bad"):
        with pytest.raises(ValueError, match="don't broadcast"):
            ops.Add.build(x, y)
        with pytest.raises(ValueError, match="permutes"):
            ops.Transpose.build(x, permutation=(0, 2))
        with pytest.raises(TypeError, match="no attribute says"):
            ops.Clip.build(x, min=[1], max=2.0)
