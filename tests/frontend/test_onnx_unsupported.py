"""Models that can't be compiled: all offending nodes at once; and files that are no legal model."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from models import model
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from veilgraph.frontend.onnx import importer as frontend
from veilgraph.frontend.onnx.constant_folding import infer
from veilgraph.frontend.onnx.importer import import_model, prepare
from veilgraph.ir.errors import UnsupportedError, UsageError

IMAGE = (1, 4, 8, 8)


def node(operator: str, inputs: str, output: str, **attributes: Any) -> NodeProto:
    return helper.make_node(operator, inputs.split(), [output], name=f"the_{output}", **attributes)


def unsupported(proto: ModelProto) -> dict[str, tuple[str, str]]:
    """Operator and reason of each offending node."""
    with pytest.raises(UnsupportedError) as caught:
        import_model(proto)
    assert caught.value.exit_code == 3
    assert all(o.source and o.way_out for o in caught.value.offenders)
    return {o.node: (o.operator, o.reason) for o in caught.value.offenders}


def test_everything_unsupported_is_told_at_once() -> None:
    nodes = [
        node("Relu", "x", "a"),
        node("Fancy", "a", "b", domain="com.example"),
        node("Relu", "b", "c"),
        node("Nonsense", "a", "d"),
        node("ConvTranspose", "a w", "e"),
        node("Cumsum", "a", "g"),
        node("CumSum", "a one", "h"),
        node("Det", "a", "i"),
        node("Add", "a a", "y"),
    ]
    initialisers = {"w": np.ones((4, 2, 3, 3), dtype=np.float32), "one": np.array(1)}
    proto = model(nodes, {"x": IMAGE}, ["y", "c", "d", "e", "g", "h", "i"], initialisers)
    proto.opset_import.append(helper.make_opsetid("com.example", 1))
    found = unsupported(proto)
    assert found == {
        "the_b": ("com.example.Fancy", "Operators of the domain com.example aren't supported."),
        "the_d": ("Nonsense", "ONNX opset 21 has no such operator."),
        "the_g": ("Cumsum", "ONNX opset 21 has no such operator."),
        "the_i": ("Det", "The operator linalg_det isn't supported."),
    }


@pytest.mark.parametrize(
    ("domain", "operator", "reason"),
    [
        ("com.microsoft", "Fancy", "Of the domain com.microsoft these alone are supported: "),
        ("com.microsoft", "QLinearAdd", "Its scale is computed from data, or its integers"),
        ("ai.onnx.ml", "DictVectorizer", "No rule writes it as tensor operators."),
    ],
)
def test_operators_of_other_domains(domain: str, operator: str, reason: str) -> None:
    proto = model([node(operator, "x", "y", domain=domain)], {"x": IMAGE}, ["y"])
    proto.opset_import.append(helper.make_opsetid(domain, 1))
    name, found = unsupported(proto)["the_y"]
    assert name == f"{domain}.{operator}"
    assert found.startswith(reason)
    assert ("QLinearAdd" in found) == found.startswith("Of the domain")


def test_a_model_of_other_domains_alone_needs_no_default_opset() -> None:
    """As XGBoost's and scikit-learn's exporters write them."""
    scaler = node("Scaler", "x", "y", domain="ai.onnx.ml", offset=[0.0], scale=[2.0])
    proto = model([scaler], {"x": IMAGE}, ["y"])
    del proto.opset_import[:]
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    import_model(proto)
    proto.graph.node[0].domain = ""
    with pytest.raises(UsageError, match="Of which ONNX opset"):
        import_model(proto)


def test_an_open_shape_hides_nothing_that_no_shape_would_help() -> None:
    nodes = [
        node("Relu", "x", "a"),
        node("Reshape", "x eight", "r"),  # takes 8 and no other extent
        node("Fancy", "a", "b", domain="com.example"),
        node("NonZero", "a", "c"),
        node("Det", "z", "d"),
        node("Relu", "y", "e"),
    ]
    inputs: dict[str, tuple[str | int, ...]] = {"x": (3, "n"), "y": ("m", "n"), "z": (3, 3)}
    proto = model(nodes, inputs, ["b", "c", "d", "e", "r"], {"eight": np.array([8, 3])})
    proto.opset_import.append(helper.make_opsetid("com.example", 1))
    assert unsupported(proto) == {
        "x": ("input", "Dimension 1 (n) of input x has no fixed extent."),
        "the_b": ("com.example.Fancy", "Operators of the domain com.example aren't supported."),
        "the_c": ("NonZero", "The shape of its output depends on data, or is empty."),
        "the_d": ("Det", "The operator linalg_det isn't supported."),
    }


@pytest.mark.parametrize("kept", [["a"], ["a", "r"]])
def test_an_open_shape_alone_is_a_usage_error(kept: list[str]) -> None:
    nodes = [node("Relu", "x", "a"), node("Reshape", "x eight", "r")]
    made = [made for made in nodes if made.output[0] in kept]
    proto = model(made, {"x": (3, "n")}, kept, {"eight": np.array([8, 3])})
    with pytest.raises(UsageError, match=r"Dimension 1 \(n\) of input x has no") as caught:
        import_model(proto)
    assert caught.value.hint == "Say it, for example with --shape x=3x1."
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)


def test_a_loop_on_data_is_refused_beside_quantised_operators() -> None:
    """What its body alone reads is there still when quantised operators have been rewritten."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v", "v"], ["twice"]),
            helper.make_node("ReduceSum", ["twice"], ["total"], keepdims=0),
            helper.make_node("Less", ["total", "limit"], ["going"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, [2, 3]),
        ],
        [
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("twice", TensorProto.FLOAT, [2, 3]),
        ],
    )
    nodes = [
        node("Loop", "hundred yes x", "y", body=body),
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"], name="quantise"),
    ]
    arrays = {"hundred": np.array(100), "yes": np.array(True), "limit": np.float32(5)}
    found = unsupported(model(nodes, {"x": (2, 3)}, ["y"], arrays))
    assert found == {
        "the_y": (
            "Loop",
            "How often it runs is computed from data, or it runs never, or too often.",
        )
    }


def test_the_report_names_node_operator_source_and_way_out() -> None:
    with pytest.raises(UnsupportedError) as caught:
        import_model(model([node("NonZero", "x", "y")], {"x": IMAGE}, ["y"]))
    assert str(caught.value).splitlines() == [
        "1 node of the model can't be compiled:",
        "  the_y: NonZero (output y in the given model): The shape of its output depends on data, "
        "or is empty. "
        "End the model before it, and do it on the revealed output.",
        "`veilgraph ops` lists what is supported.",
    ]


CASES: list[tuple[NodeProto, str]] = [
    (node("Conv", "v6 w6", "y"), "Windows over 4 axes aren't supported, only up to three."),
    (node("Conv", "x w5", "y"), "Its operands don't fit"),
    (node("Conv", "x wrong", "y"), "It isn't legal: 4 channels in, but w takes 3 x 1 groups"),
    (node("MatMul", "x v", "y"), "Its operands don't fit: Incompatible dimensions"),
    (node("Gather", "x outside", "y", axis=1), "An index is outside the extent 4."),
    (node("GatherElements", "x outsides", "y", axis=3), "An index is outside the extent 8."),
    (node("CumSum", "long last", "y"), "It would take a public matrix of 100000000 elements."),
    (node("PRelu", "x c", "y"), "Its slopes are a plain vector."),
    (node("Pad", "x pads learnt", "y"), "learnt, which it computes with, would have to be public"),
    (node("Pow", "x seventeen", "y"), "The power 17 isn't supported"),
    (node("GridSample", "x grid", "y"), "Its grid is computed from data."),
    (node("GridSample", "x far", "y"), "Its grid holds an infinity or a NaN."),
    (node("GridSample", "x places2d", "y", mode="odd"), "Its mode is odd, which no version of"),
    (node("GridSample", "wide fine", "y"), "It would take a matrix of 100000000 elements."),
    (node("ScatterElements", "x places x", "y"), "Its places are computed from data."),
    (node("LpPool", "x", "y", kernel_shape=[2, 2], p=20), "A pool of order 20"),
    (node("LpNormalization", "x", "y", p=3), "isn't supported|don't fit|can't be"),
    (node("RNN", "v3 rw rr", "y", hidden_size=2, activations=["Affine"]), "Its activation Affine"),
    (node("LayerNormalization", "x vector", "y", axis=100), "Its axis, 100, is outside rank 4."),
    (node("Softmax", "x", "y", axis=9), "outside rank 4"),
    (node("QuantizeLinear", "x number", "y"), "Its scale is computed from data"),
    (node("Cast", "x", "y", to=TensorProto.STRING), "Its output is string, and no tensor of"),
    (node("Mod", "x x", "y", fmod=1), "Its divisors are computed from data."),
    (node("Mod", "x nought", "y", fmod=1), "It divides by zero."),
    (node("NonZero", "x", "y"), "The shape of its output depends on data"),
    (node("Reshape", "x size", "y"), "It isn't legal: (1, 4, 8, 8) and (5,) differ"),
    (node("ConstantOfShape", "x", "y"), "can't be inferred|don't fit"),
    (node("Expand", "number huge", "y"), "Its output has 1099511627776 elements."),
    (node("Slice", "x one one", "y"), "depends on data, or is empty"),
    (node("Slice", "x one pair last", "y"), "Its operand last has rank 0, and is to be a list."),
    (node("Slice", "x last pair one", "y"), "Its operand last has rank 0, and is to be a list."),
    (node("ReduceSum", "x last", "y"), "Its operand last has rank 0, and is to be a list."),
    (node("ScatterND", "v2 outside2 vector1", "y"), "ONNX's reference computes none of it: index"),
    (node("SequenceConstruct", "x", "y"), "The shape of its output can't be inferred."),
    (node("Celu", "x", "y", alpha=0.0), "It divides by zero."),
    (node("BatchNormalization", "x c c c c", "y", training_mode=1), "normalises by its batch"),
    (node("InstanceNormalization", "plane c c", "y"), "It normalises over no axis.|don't fit"),
]
EXTRAS = {
    "w5": np.ones((4, 4, 2, 2, 2), dtype=np.float32),
    "w6": np.ones((4, 4, 2, 2, 2, 2), dtype=np.float32),
    "wrong": np.ones((2, 3, 3, 3), dtype=np.float32),
    "vector": np.ones(8, dtype=np.float32),
    "pair": np.array([0, 2]),
    "outside": np.array([0, 4]),
    "outsides": np.array([[[[-9, 1]]]]),
    "last": np.array(1),
    "outside2": np.array([[9]]),
    "vector1": np.ones((1, 4), dtype=np.float32),
    "far": np.full((1, 2, 2, 2), np.inf, dtype=np.float32),
    "places2d": np.zeros((1, 2, 2, 2), dtype=np.float32),
    "fine": np.zeros((1, 100, 100, 2), dtype=np.float32),
    "nought": np.array(0, dtype=np.float32),
    "learnt": np.array(0.2137, dtype=np.float32),
    "seventeen": np.array(17, dtype=np.float32),
    "rw": np.ones((1, 2, 4), dtype=np.float32),
    "rr": np.ones((1, 2, 2), dtype=np.float32),
    "size": np.array([5]),
    "huge": np.array([1 << 20, 1 << 20]),
    "one": np.array([1]),
    "c": np.ones(4, dtype=np.float32),
    "scale": np.array(0.1, dtype=np.float32),
    "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
}


@pytest.mark.parametrize(("bad", "reason"), CASES, ids=lambda case: getattr(case, "op_type", ""))
def test_forms_that_are_not_supported(bad: NodeProto, reason: str) -> None:
    used = {name: array for name, array in EXTRAS.items() if name in bad.input}
    inputs = {
        "x": IMAGE,
        "v": (1, 4, 5, 5, 5),
        "v6": (1, 4, 3, 3, 3, 3),
        "number": (),
        "plane": (2, 4),
        "v2": (4, 4),
        "long": (1, 10000),
        "wide": (1, 1, 100, 100),
    }
    inputs |= {"grid": (1, 8, 8, 2), "places": IMAGE, "v3": (3, 1, 4)}
    proto = model([bad], inputs, ["y"], used)
    ((operator, told),) = unsupported(proto).values()
    assert operator == bad.op_type
    assert any(part in told for part in reason.split("|"))


def test_what_depends_on_an_unknown_shape_is_not_told() -> None:
    nodes = [
        node("Fancy", "x", "a", domain="com.example"),
        node("Shape", "a", "b"),
        node("Reshape", "x b", "y"),
    ]
    proto = model(nodes, {"x": IMAGE}, ["y"])
    proto.opset_import.append(helper.make_opsetid("com.example", 1))
    assert list(unsupported(proto)) == ["the_a"]


def test_inputs_that_are_no_numbers_are_refused() -> None:
    proto = model([node("Relu", "x", "y")], {"x": IMAGE, "ids": (2,)}, ["y"])
    proto.graph.input[1].type.tensor_type.elem_type = TensorProto.STRING
    assert unsupported(proto) == {
        "ids": ("input", "It is text, and nothing in the model encodes it.")
    }
    sequence = helper.make_tensor_sequence_value_info("ids", TensorProto.FLOAT, IMAGE)
    proto.graph.input[1].CopyFrom(sequence)
    assert unsupported(proto) == {
        "ids": ("input", "It is no tensor; inputs are tensors of numbers.")
    }


@pytest.mark.parametrize(
    ("operator", "inputs", "body"),
    [("Loop", "x", None), ("Loop", "x x", 3), ("If", "x", None), ("Scan", "x", "body")],
)
def test_control_flow_without_its_bodies(operator: str, inputs: str, body: Any) -> None:
    given = {} if body is None else {"body": body}
    proto = model([node(operator, inputs, "y", **given)], {"x": IMAGE}, ["y"])
    with pytest.raises(UsageError, match="is no legal ONNX model"):
        import_model(proto)


def test_branches_of_another_number_of_outputs() -> None:
    def branch(*names: str) -> Any:
        nodes = [helper.make_node("Relu", ["x"], [name]) for name in names]
        told = [helper.make_tensor_value_info(name, TensorProto.FLOAT, IMAGE) for name in names]
        return helper.make_graph(nodes, "branch", [], told)

    bodies = {"then_branch": branch("a"), "else_branch": branch("b", "c")}
    nodes = [
        node("ReduceMax", "x", "m", keepdims=0),
        node("Cast", "m", "truth", to=TensorProto.BOOL),
        node("If", "truth", "y", **bodies),
    ]
    with pytest.raises((UsageError, UnsupportedError)):
        import_model(model(nodes, {"x": IMAGE}, ["y"]))


def test_a_type_that_is_none() -> None:
    proto = model([node("Cast", "x", "a", to=2**31 - 1), node("Relu", "a", "y")],
                  {"x": IMAGE}, ["y"])  # fmt: skip
    with pytest.raises((UsageError, UnsupportedError)):
        import_model(proto)


def test_sparse_initialisers_are_refused() -> None:
    proto = model([node("Add", "x s", "y")], {"x": (3,)}, ["y"])
    values = numpy_helper.from_array(np.array([1.0], dtype=np.float32), "s")
    indices = numpy_helper.from_array(np.array([1]), "i")
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [3]))
    assert "s" in unsupported(proto)


def test_what_the_version_converter_refuses_is_told() -> None:
    bad = node("BatchNormalization", "x c c c c", "y", spatial=0)
    proto = model([bad], {"x": IMAGE}, ["y"], {"c": np.ones((4, 8, 8), dtype=np.float32)}, opset=8)
    expected = "It can't be converted: Attribute spatial must have value 1."
    assert unsupported(proto) == {"the_y": ("BatchNormalization", expected)}


def test_shapes_that_inference_refuses() -> None:
    with pytest.raises(UsageError, match="shapes of the model don't fit together"):
        infer(model([node("Reshape", "x", "y")], {"x": IMAGE}, ["y"], opset=7))


def test_inputs_of_unknown_element_types_are_refused() -> None:
    proto = model([node("Relu", "x", "y")], {"x": IMAGE, "odd": (2,)}, ["y"])
    proto.graph.input[1].type.tensor_type.elem_type = 99
    assert "of an unknown type (99)" in unsupported(proto)["odd"][1]


def test_what_only_the_whole_shows_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontend, "_failing", lambda drafted, told: [])
    proto = model([node("Det", "x", "y")], {"x": IMAGE}, ["y"])
    assert unsupported(proto) == {
        "the whole": ("model", "The operator linalg_det isn't supported.")
    }


def test_preparing_refuses_too() -> None:
    with pytest.raises(UnsupportedError):
        prepare(model([node("NonZero", "x", "y")], {"x": IMAGE}, ["y"]))


# --- no legal model ------------------------------------------------------------------------------


def relu() -> ModelProto:
    return model([node("Relu", "x", "y")], {"x": IMAGE}, ["y"])


def set_opset(proto: ModelProto, version: int) -> None:
    proto.opset_import[0].version = version


def drop_outputs(proto: ModelProto) -> None:
    del proto.graph.output[:]


def read_nothing(proto: ModelProto) -> None:
    proto.graph.node[0].input[0] = "nowhere"


def add_attribute(name: str, value: int) -> Callable[[ModelProto], None]:
    return lambda proto: proto.graph.node[0].attribute.append(helper.make_attribute(name, value))


def double_initialiser(proto: ModelProto) -> None:
    tensor = numpy_helper.from_array(np.ones(2, dtype=np.float32), "w")
    proto.graph.initializer.extend([tensor, tensor])


def nan_weight(proto: ModelProto) -> None:
    array = np.array([1, np.nan], dtype=np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(array, "w"))


def short_weight(proto: ModelProto) -> None:
    tensor = numpy_helper.from_array(np.ones(4, dtype=np.float32), "w")
    tensor.dims[0] = 1 << 40
    proto.graph.initializer.append(tensor)


def negative_extent(proto: ModelProto) -> None:
    tensor = numpy_helper.from_array(np.ones((2, 2), dtype=np.float32), "w")
    tensor.dims[:] = [-2, -2]
    proto.graph.initializer.append(tensor)


def huge_fill(proto: ModelProto) -> None:
    size = numpy_helper.from_array(np.array([1 << 40, 1 << 20]), "size")
    proto.graph.initializer.append(size)
    proto.graph.node.append(node("ConstantOfShape", "size", "z"))
    proto.graph.node.append(node("Relu", "z", "zz"))


def impossible_index(proto: ModelProto) -> None:
    proto.graph.initializer.append(numpy_helper.from_array(np.array([1, 2]), "list"))
    proto.graph.initializer.append(numpy_helper.from_array(np.array(5), "index"))
    proto.graph.node.append(node("Gather", "list index", "z"))


def many_outputs(proto: ModelProto) -> None:
    proto.graph.node.append(node("Split", "x", "z", num_outputs=1 << 30))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda proto: set_opset(proto, 5), "has ONNX opset 5; 7 to"),
        (lambda proto: set_opset(proto, 10_000), "has ONNX opset 10000; 7 to"),
        (lambda proto: proto.ClearField("opset_import"), "Of which ONNX opset"),
        (drop_outputs, "an ONNX model without nodes or outputs"),
        (lambda proto: proto.ClearField("graph"), "an ONNX model without nodes or outputs"),
        (read_nothing, "is no legal ONNX model: Nodes in a graph must be topologically sorted"),
        (add_attribute("beta", 1), "is no legal ONNX model: Unrecognized attribute: beta"),
        (double_initialiser, "Two initialisers of the model share a name"),
        (nan_weight, "Weight w holds a NaN or an infinity"),
        (short_weight, "Weight w doesn't fit its shape: 16 bytes for 4398046511104"),
        (negative_extent, "Tensor w has a negative extent"),
        (huge_fill, "makes a tensor of shape (1099511627776, 1048576)"),
        (impossible_index, "can't be evaluated"),
        (many_outputs, "Attribute num_outputs of node the_z (Split) makes no sense: 1073741824"),
    ],
)
def test_damaged_models(damage: Callable[[ModelProto], None], message: str) -> None:
    proto = relu()
    damage(proto)
    with pytest.raises(UsageError) as caught:
        import_model(proto.SerializeToString())
    assert message in caught.value.message
    assert caught.value.hint


def test_a_flag_is_0_or_1() -> None:
    bad = node("MaxPool", "x", "y", kernel_shape=[2, 2], ceil_mode=-3)
    with pytest.raises(UsageError, match="Attribute ceil_mode of node the_y"):
        import_model(model([bad], {"x": IMAGE}, ["y"]))


def test_a_huge_axis_is_refused_before_any_library_sees_it() -> None:
    proto = model([node("Flatten", "x", "y", axis=1 << 40)], {"x": IMAGE}, ["y"])
    with pytest.raises(UsageError, match="Attribute axis of node the_y"):
        import_model(proto)


def test_every_prefix_of_a_model_is_refused() -> None:
    data = relu().SerializeToString()
    for length in range(len(data)):
        with pytest.raises(UsageError):
            import_model(data[:length])


def test_names_that_are_no_text_are_refused() -> None:
    data = relu().SerializeToString()
    assert b"the_y" in data
    with pytest.raises(UsageError, match="names that are no text"):
        import_model(data.replace(b"the_y", b"the_\xff"))


def test_each_number_that_would_have_to_be_public_is_named_with_the_way_out() -> None:
    pads = np.array([0, 0, 1, 1, 0, 0, 1, 1])
    numbers = {name: np.array(0.2137, np.float32) for name in ("edge", "margin")}
    nodes = [node("Pad", "x pads edge", "h"), node("Pad", "h pads margin", "y")]
    proto = model(nodes, {"x": IMAGE}, ["y"], {"pads": pads, **numbers})
    with pytest.raises(UnsupportedError) as caught:
        import_model(proto)
    told = {entry.node: entry.way_out for entry in caught.value.offenders}
    assert list(told.values()) == [
        "If all may know it: --public edge.",
        "If all may know it: --public margin.",
    ]
    assert not import_model(proto, public=tuple(numbers)).weights
