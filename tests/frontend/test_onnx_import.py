"""What importing promises beyond operators: names, ownership, shapes, opsets, determinism."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from models import model, run_onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from veilgraph.frontend.onnx.importer import import_model, node_outputs, prepare
from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph.program import Graph, attributes, kind_of, name_of
from veilgraph.ir.meaning.graph import evaluate

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 1, 8, 8)).astype(np.float32)


def draw(*shape: int) -> NDArray[np.float32]:
    return RNG.uniform(0.5, 1.5, shape).astype(np.float32)


WEIGHTS = {
    "w": draw(4, 1, 3, 3),
    "b": draw(4),
    **{name: draw(4) for name in ("gamma", "beta", "mean", "var")},
    "fw": draw(10, 64) / 64,
    "fb": draw(10),
}


def cnn(opset: int) -> ModelProto:
    """conv, norm, relu, dropout, pool, flatten by shape arithmetic, gemm, softmax; batch open."""
    size = numpy_helper.from_array(np.array([0]), "index")
    rest = numpy_helper.from_array(np.array([-1]), "rest")
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv1", pads=[1, 1, 1, 1]),
        helper.make_node(
            "BatchNormalization", ["c", "gamma", "beta", "mean", "var"], ["n"], name="bn1"
        ),
        helper.make_node("Relu", ["n"], ["r"], name="relu1"),
        helper.make_node("Dropout", ["r"], ["d"], name="drop"),
        helper.make_node(
            "MaxPool", ["d"], ["p"], name="pool1", kernel_shape=[2, 2], strides=[2, 2]
        ),
        helper.make_node("Shape", ["p"], ["shape"], name="shape"),
        helper.make_node("Constant", [], ["index"], value=size),
        helper.make_node("Constant", [], ["rest"], value=rest),
        helper.make_node("Gather", ["shape", "index"], ["batch"], name="batch"),
        helper.make_node("Concat", ["batch", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["p", "target"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "fw", "fb"], ["logits"], name="fc", transB=1),
        helper.make_node("Softmax", ["logits"], ["y"], axis=1),
    ]
    return model(nodes, {"x": ("batch", 1, 8, 8)}, ["y"], WEIGHTS, opset)


def names_and_kinds(graph: Graph) -> list[tuple[str, str]]:
    return [(name_of(op), kind_of(op)) for op in graph.operations]


@pytest.mark.parametrize("opset", [7, 9, 10, 11, 12, 13, 17, 18, 21, 22, 24])
def test_opsets(opset: int) -> None:
    proto = cnn(opset)
    graph = import_model(proto, {"x": X.shape})
    graph.verify()
    actual = evaluate(graph, {"x": X})["y"]
    np.testing.assert_allclose(actual, run_onnx(proto, {"x": X})["y"], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("opset", [1, 6])
def test_older_opsets_are_read_where_no_operator_has_changed_since(opset: int) -> None:
    proto = model([helper.make_node("Transpose", ["x"], ["y"])], {"x": (2, 3)}, ["y"], {}, opset)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(evaluate(import_model(proto), {"x": x})["y"], x.T)


@pytest.mark.parametrize("opset", [7, 9, 21])
def test_operations_are_named_after_nodes(opset: int) -> None:
    graph = import_model(cnn(opset), {"x": X.shape})
    assert names_and_kinds(graph) == [
        ("conv1", "conv"),
        ("bn1", "batch_norm"),
        ("relu1", "relu"),
        ("pool1", "max_pool"),
        ("flat", "reshape"),
        ("fc/transpose", "transpose"),
        ("fc/matmul", "matmul"),
        ("fc", "add"),
        ("y", "softmax"),
    ]


@pytest.mark.parametrize("opset", [7, 21])
def test_every_named_value_is_that_of_its_node(opset: int) -> None:
    proto = cnn(opset)
    seen: dict[str, NDArray[np.float32]] = {}
    evaluate(import_model(proto, {"x": X.shape}), {"x": X}, lambda n, v: seen.update({n: v}))
    prepared = prepare(proto, {"x": X.shape})
    tensors = run_onnx(prepared.model, {"x": X, **prepared.weights}, every=True)
    outputs = node_outputs(prepared.model)
    compared = [name for name in seen if name in outputs]
    assert compared == ["conv1", "bn1", "relu1", "pool1", "flat", "fc", "y"]
    for name in compared:
        np.testing.assert_allclose(seen[name], tensors[outputs[name]], rtol=1e-5, atol=1e-6)


def test_importing_twice_gives_the_same_text() -> None:
    texts = {import_model(cnn(9), {"x": X.shape}).text() for _ in range(3)}
    assert len(texts) == 1


def test_bytes_path_and_model_are_the_same(tmp_path: Path) -> None:
    proto = cnn(13)
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    given = [proto, proto.SerializeToString(), path, str(path)]
    graphs = [import_model(one, {"x": X.shape}) for one in given]
    assert len({graph.text() for graph in graphs}) == 1
    assert all(graph.weights.keys() == graphs[0].weights.keys() for graph in graphs)


def test_the_given_model_is_left_alone() -> None:
    proto = cnn(9)
    before = proto.SerializeToString()
    import_model(proto, {"x": X.shape})
    assert proto.SerializeToString() == before


def test_nodes_of_one_name_are_told_apart() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"], name="act")]
    nodes += [helper.make_node("Neg", ["a"], ["b"], name="act")]
    nodes += [helper.make_node("Abs", ["b"], ["act"], name="act")]
    nodes += [helper.make_node("Neg", ["act"], ["y"], name="act")]
    graph = import_model(model(nodes, {"x": (2,)}, ["y"]))
    assert names_and_kinds(graph) == [("act", "relu"), ("b", "neg"), ("act.2", "abs"), ("y", "neg")]


def test_outputs_of_one_node_are_told_apart() -> None:
    node = helper.make_node("Split", ["x"], ["a", "b"], name="split", axis=0, num_outputs=2)
    proto = model([node], {"x": (2, 3)}, ["a", "b"])
    assert names_and_kinds(import_model(proto)) == [("split", "slice"), ("split:1", "slice")]
    assert node_outputs(prepare(proto).model) == {"split": "a", "split:1": "b"}


# --- ownership -----------------------------------------------------------------------------------


def test_parameters_in_disguise_are_weights() -> None:
    values = numpy_helper.from_array(np.array([1, 2], dtype=np.float32))
    fill = numpy_helper.from_array(np.array([0.5], dtype=np.float32))
    nodes = [
        helper.make_node("Constant", [], ["c"], value=values),
        helper.make_node("Constant", [], ["floats"], value_floats=[3.0, 4.0]),
        helper.make_node("ConstantOfShape", ["two"], ["filled"], value=fill),
        helper.make_node("Cast", ["integers"], ["cast"], to=TensorProto.FLOAT),
        helper.make_node("Sum", ["x", "c", "floats", "filled", "cast", "init"], ["y"]),
    ]
    integers = {"two": np.array([2]), "integers": np.array([7, 8])}
    initialisers = {**integers, "init": np.array([1, 1], dtype=np.float32)}
    graph = import_model(model(nodes, {"x": (2,)}, ["y"], initialisers))
    assert {name: array.tolist() for name, array in graph.weights.items()} == {
        "init": [1, 1],
        "c": [1, 2],
        "floats": [3, 4],
        "filled": [0.5, 0.5],
        "cast": [7, 8],
    }
    assert "constant" not in [kind_of(op) for op in graph.operations]
    assert evaluate(graph, {"x": np.zeros(2)})["y"].tolist() == [12.5, 15.5]


@pytest.mark.parametrize("form", ["value", "value_float", "value_floats"])
@pytest.mark.parametrize(("number", "is_public"), [(2.5, True), (0.2137, False)])
def test_single_numbers_of_constant_nodes_are_public_where_people_write_such(
    form: str, number: float, is_public: bool
) -> None:
    value = {"value": numpy_helper.from_array(np.array([number], np.float32))}
    given = value.get(form) or ([number] if form == "value_floats" else number)
    nodes = [
        helper.make_node("Constant", [], ["c"], **{form: given}),
        helper.make_node("Mul", ["x", "c"], ["y"]),
    ]
    graph = import_model(model(nodes, {"x": (2, 3)}, ["y"], {}))
    assert list(graph.weights) == ([] if is_public else ["c"])
    if is_public:
        constant, _ = graph.operations
        assert float(np.asarray(attributes(constant)["value"])) == number
    found = evaluate(graph, {"x": np.ones((2, 3))})["y"]
    np.testing.assert_allclose(found, np.full((2, 3), number), rtol=1e-6)


@pytest.mark.parametrize("number", [2.5, 0.0, 0.2137])
def test_single_numbers_of_initialisers_are_the_owners_unless_named_public(number: float) -> None:
    one = np.array([[number]], dtype=np.float32)
    proto = model([helper.make_node("Mul", ["x", "c"], ["y"])], {"x": (2, 3)}, ["y"], {"c": one})
    graph = import_model(proto)
    assert {name: array.tolist() for name, array in graph.weights.items()} == {"c": one.tolist()}
    public = import_model(proto, public=("c",))
    assert public.weights == {}
    assert [kind_of(op) for op in public.operations] == ["constant", "mul"]


def test_a_tensor_that_is_named_public_is_a_constant() -> None:
    c = draw(2, 3)
    proto = model([helper.make_node("Mul", ["x", "c"], ["y"])], {"x": (2, 3)}, ["y"], {"c": c})
    graph = import_model(proto, public=("c",))
    assert graph.weights == {}
    np.testing.assert_allclose(evaluate(graph, {"x": np.ones((2, 3))})["y"], c)


def test_a_public_name_that_is_none_is_told() -> None:
    c = draw(2, 3)
    proto = model([helper.make_node("Mul", ["x", "c"], ["y"])], {"x": (2, 3)}, ["y"], {"c": c})
    with pytest.raises(UsageError, match="no parameter 'cc' to make public") as caught:
        import_model(proto, public=("cc",))
    assert caught.value.hint == "Parameters with names like it: c."


@pytest.mark.parametrize(
    ("count", "hint"),
    [
        (0, "It has none."),
        (2, "Its parameters are: c0, c1."),
        (10, "Its parameters are: c0, c1, c2, c3, c4, c5, c6, c7, and 2 more."),
    ],
)
def test_a_public_name_like_none_lists_parameters(count: int, hint: str) -> None:
    names = [f"c{i}" for i in range(count)]
    sums = ["x", *(f"y{i}" for i in range(count))]
    nodes = [
        helper.make_node("Add", [sums[i], name], [sums[i + 1]]) for i, name in enumerate(names)
    ]
    nodes.append(helper.make_node("Relu", [sums[-1]], ["y"]))
    proto = model(nodes, {"x": (2, 3)}, ["y"], {name: draw(2, 3) for name in names})
    with pytest.raises(UsageError) as caught:
        import_model(proto, public=("temperature",))
    assert caught.value.hint == hint


@pytest.mark.parametrize("exponent", [2.0, 2.1234])
def test_an_exponent_that_is_learnt_is_the_owners(exponent: float) -> None:
    number = np.array(exponent, np.float32)
    proto = model([helper.make_node("Pow", ["x", "p"], ["y"])], {"x": (2, 3)}, ["y"], {"p": number})
    graph = import_model(proto)
    assert list(graph.weights) == ([] if exponent == 2.0 else ["p"])
    x = {"x": draw(2, 3) ** 2 + 1}
    np.testing.assert_allclose(evaluate(graph, x)["y"], run_onnx(proto, x)["y"], rtol=1e-4)


@pytest.mark.parametrize(("low", "high"), [(-0.537, 0.777), (0.537, -0.777)])
def test_a_clip_to_bounds_of_the_owners_publishes_neither(low: float, high: float) -> None:
    bounds = {"low": np.array(low, np.float32), "high": np.array(high, np.float32)}
    clip = helper.make_node("Clip", ["x", "low", "high"], ["y"])
    proto = model([clip], {"x": (2, 3)}, ["y"], bounds)
    graph = import_model(proto)
    assert set(graph.weights) == {"low", "high"}
    x = {"x": 2 * draw(2, 3)}
    found, wanted = evaluate(graph, x)["y"], run_onnx(proto, x)["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("extents", [[], [1], [1, 1]])
def test_a_filled_tensor_of_one_element_is_a_constant(extents: list[int]) -> None:
    shape = {"shape": np.array(extents, dtype=np.int64)}
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["zero"]),
        helper.make_node("Sub", ["zero", "x"], ["y"]),
    ]
    graph = import_model(model(nodes, {"x": (2, 3)}, ["y"], shape))
    assert graph.weights == {}
    assert evaluate(graph, {"x": np.ones((2, 3))})["y"].tolist() == [[-1] * 3] * 2


def test_values_that_shapes_need_are_no_weights() -> None:
    scale = numpy_helper.from_array(np.array([2.0, 0.5], dtype=np.float32))
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Cast", ["shape"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Constant", [], ["scale"], value=scale),
        helper.make_node("Mul", ["floats", "scale"], ["scaled"]),
        helper.make_node("Cast", ["scaled"], ["target"], to=TensorProto.INT64),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    graph = import_model(model(nodes, {"x": (3, 4)}, ["y"]))
    assert graph.weights == {}
    assert evaluate(graph, {"x": np.ones((3, 4))})["y"].shape == (6, 2)


def test_weights_that_nothing_reads_are_dropped() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    graph = import_model(model(nodes, {"x": (2,)}, ["y"], {"left": draw(3)}))
    assert graph.weights == {}


def test_sizes_and_parts_of_shapes_are_folded() -> None:
    nodes = [
        helper.make_node("Size", ["x"], ["size"]),
        helper.make_node("Shape", ["x"], ["last"], start=1, end=2),
        helper.make_node("Div", ["size", "last"], ["rows"]),
        helper.make_node("Concat", ["last", "rows1"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    nodes.insert(3, helper.make_node("Unsqueeze", ["rows0", "zero"], ["rows1"]))
    nodes.insert(3, helper.make_node("Squeeze", ["rows"], ["rows0"]))
    graph = import_model(model(nodes, {"x": (6, 4)}, ["y"], {"zero": np.array([0])}))
    assert [kind_of(op) for op in graph.operations] == ["reshape"]
    assert evaluate(graph, {"x": np.ones((6, 4))})["y"].shape == (4, 6)


def test_shapes_from_pools_that_round_up_are_those_of_the_runtime() -> None:
    """Opset 21 infers an extent of 4 where every runtime computes 3."""
    pool = {"kernel_shape": [3, 3], "strides": [2, 3], "pads": [1] * 4, "ceil_mode": 1}
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], name="pool", **pool),
        helper.make_node("Shape", ["p"], ["last"], start=3, end=4),
        helper.make_node("Concat", ["rest", "last"], ["target"], axis=0),
        helper.make_node("Reshape", ["p", "target"], ["y"]),
    ]
    proto = model(nodes, {"x": (1, 2, 9, 8)}, ["y"], {"rest": np.array([-1])})
    x = {"x": draw(1, 2, 9, 8)}
    actual = evaluate(import_model(proto), x)["y"]
    assert actual.shape == (10, 3)
    np.testing.assert_array_equal(actual, run_onnx(proto, x)["y"])


def test_the_default_domain_has_two_names() -> None:
    node = helper.make_node("Relu", ["x"], ["y"], domain="ai.onnx")
    proto = model([node], {"x": (2,)}, ["y"])
    proto.opset_import[0].domain = "ai.onnx"
    assert [kind_of(op) for op in import_model(proto).operations] == ["relu"]


def test_old_models_list_initialisers_as_inputs() -> None:
    proto = cnn(9)
    info = helper.make_tensor_value_info("w", TensorProto.FLOAT, (4, 1, 3, 3))
    proto.graph.input.append(info)
    proto.ir_version = 3
    graph = import_model(proto, {"x": X.shape})
    assert list(graph.inputs) == ["x"]
    assert set(graph.weights) == set(WEIGHTS)


# --- shapes --------------------------------------------------------------------------------------

PAIR = [helper.make_node("Add", ["a", "b"], ["y"])]


def test_a_symbol_is_bound_in_all_inputs() -> None:
    graph = import_model(model(PAIR, {"a": ("n", 3), "b": ("n", 3)}, ["y"]), {"a": (5, 3)})
    assert evaluate(graph, {"a": np.ones((5, 3)), "b": np.ones((5, 3))})["y"].shape == (5, 3)


@pytest.mark.parametrize(
    ("shape", "which"),
    [
        (("batch", "seq", 4), "Dimensions 0 (batch) and 1 (seq)"),
        (("n", None, 3, "w"), "Dimensions 0 (n), 1 and 3 (w)"),
    ],
)
def test_all_open_dimensions_are_named(shape: tuple[str | int | None, ...], which: str) -> None:
    proto = model([helper.make_node("Relu", ["x"], ["y"])], {"x": shape}, ["y"])
    with pytest.raises(UsageError) as caught:
        import_model(proto)
    assert caught.value.message == f"{which} of input x have no fixed extent."
    fixed = "x".join(str(extent) if isinstance(extent, int) else "1" for extent in shape)
    assert caught.value.hint == f"Say them, for example with --shape x={fixed}."


def test_an_input_without_a_shape_takes_the_given_one() -> None:
    proto = model([helper.make_node("Relu", ["x"], ["y"])], {"x": (1,)}, ["y"])
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    assert evaluate(import_model(proto, {"x": (2, 3)}), {"x": np.ones((2, 3))})["y"].shape == (2, 3)


def test_a_first_extent_alone_is_one_and_said(caplog: pytest.LogCaptureFixture) -> None:
    graph = import_model(model(PAIR, {"a": ("n", 3), "b": ("n", 3)}, ["y"]))
    assert {tuple(x.type.shape) for x in graph.inputs.values()} == {(1, 3)}
    (told,) = caplog.messages  # b follows from a
    assert told.startswith("The first extent of input a is open in the model, and 1 is taken: ")
    assert "--shape a=1x3" in told


def test_a_name_with_a_space_is_quoted_for_a_shell() -> None:
    nodes = [helper.make_node("Relu", ["the rows"], ["y"])]
    with pytest.raises(UsageError) as caught:
        import_model(model(nodes, {"the rows": ("n", 3)}, ["y"]), {"the rows": (3,)})
    assert caught.value.hint == "Give it as --shape 'the rows=1x3'."


@pytest.mark.parametrize(
    ("shapes", "message", "hint"),
    [
        ({"c": (1, 3)}, "The model has no input c.", "Its inputs are: a, b."),
        ({"a": (1, 3, 3)}, "Input a has 2 dimensions, but 1x3x3 was given.", "--shape a=1x3."),
        ({"a": (1, 4)}, "Dimension 1 of input a is 3, but 1x4 was given.", "Export the model"),
        ({"a": (0, 3)}, "Shape 0x3 of input a has an extent beyond 1 to 2147483648.", "a="),
        ({"a": (1 << 40, 3)}, "has an extent beyond 1 to", "Give whole numbers, as in --shape a="),
        ({"a": (1, 3), "b": (2, 3)}, "Dimension 0 of input b is 1, but 2x3 was given.", ""),
    ],
)
def test_shapes_that_make_no_sense(
    shapes: dict[str, tuple[int, ...]], message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        import_model(model(PAIR, {"a": ("n", 3), "b": ("n", 3)}, ["y"]), shapes)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_an_input_without_a_shape_needs_one() -> None:
    proto = model([helper.make_node("Relu", ["x"], ["y"])], {"x": (1,)}, ["y"])
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(UsageError, match="Input x has no shape") as caught:
        import_model(proto)
    assert "--shape x=1x3x224x224" in caught.value.hint


# --- what several nodes become -------------------------------------------------------------------

PADS = np.array([0, 0, 1, 0, 0, 0, 2, 1])
POOL = {"kernel_shape": [3, 3], "strides": [2, 2]}


@pytest.mark.parametrize(
    ("pads", "value", "operator", "attributes_", "kinds"),
    [
        (PADS, 0.0, "Conv", {}, "conv"),
        (PADS, 1.0, "Conv", {}, "pad conv"),
        (np.array([0, 1, 0, 0, 0, 0, 0, 0]), 0.0, "Conv", {}, "pad conv"),
        (PADS, 0.0, "MaxPool", POOL, "pad max_pool"),
        (PADS, 0.0, "AveragePool", POOL, "pad avg_pool"),
    ],
)
def test_zeros_around_become_padding_of_a_convolution(
    pads: NDArray[np.int64],
    value: float,
    operator: str,
    attributes_: dict[str, list[int]],
    kinds: str,
) -> None:
    channels = 2 + int(pads[1])
    read = ["p", "w"] if operator == "Conv" else ["p"]
    nodes = [
        helper.make_node("Pad", ["x", "pads", "value"], ["p"]),
        helper.make_node(operator, read, ["y"], **attributes_),
    ]
    weights = {"w": draw(3, channels, 3, 3)} if operator == "Conv" else {}
    extra = {"pads": pads, "value": np.array(value, dtype=np.float32), **weights}
    proto = model(nodes, {"x": (1, 2, 6, 6)}, ["y"], extra)
    x = {"x": draw(1, 2, 6, 6) - 2}
    graph = import_model(proto)
    assert " ".join(kind_of(op) for op in graph.operations) == kinds
    np.testing.assert_allclose(evaluate(graph, x)["y"], run_onnx(proto, x)["y"], rtol=1e-5)


def _constant(name: str, value: NDArray[np.float32]) -> NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value))


@pytest.mark.parametrize(
    ("operators", "kinds"),
    [
        (["Clip", "Clip"], "clip"),
        (["Clip", "High"], "clip clip"),
        (["Transpose", "Transpose"], "transpose"),
        (["Transpose", "Transpose", "Transpose"], ""),
        (["Flatten", "Flatten"], "reshape"),
        (["Grow", "Grow"], "expand"),
        (["Grow", "Add"], "add"),
    ],
)
def test_chains_become_one_operation(operators: list[str], kinds: str) -> None:
    forms: dict[str, tuple[str, list[str], dict[str, list[int]]]] = {
        "Clip": ("Clip", ["zero", "one"], {}),
        "High": ("Clip", ["two", "three"], {}),
        "Transpose": ("Transpose", [], {"perm": [1, 2, 0]}),
        "Flatten": ("Flatten", [], {}),
        "Grow": ("Expand", ["grown"], {}),
        "Add": ("Add", ["z"], {}),
    }
    nodes = []
    for step, operator in enumerate(operators):
        kind, extra, given = forms[operator]
        nodes.append(helper.make_node(kind, [f"v{step}", *extra], [f"v{step + 1}"], **given))
    numbers = {
        n: np.array(v, dtype=np.float32) for v, n in enumerate(("zero", "one", "two", "three"))
    }
    literals = {**numbers, "grown": np.array([2, 3, 4])}
    used = {n: literals[n] for n in literals if any(n in node.input for node in nodes)}
    output = f"v{len(operators)}"
    bounds = [_constant(name, used.pop(name)) for name in numbers if name in used]
    proto = model([*bounds, *nodes], {"v0": (1, 3, 4), "z": (2, 3, 4)}, [output], used)
    feeds = {"v0": draw(1, 3, 4), "z": draw(2, 3, 4)}
    graph = import_model(proto)
    assert " ".join(kind_of(op) for op in graph.operations) == kinds
    np.testing.assert_allclose(evaluate(graph, feeds)[output], run_onnx(proto, feeds)[output])


@pytest.mark.parametrize("numbers", [[1.5], [0.2137], [0.25, 0.2137, 3.0, 1.125]])
def test_what_an_exponent_is_computed_with_is_the_owners(numbers: list[float]) -> None:
    """As the path lengths of an isolation forest, over what they are expected to be."""
    proto = model(
        [
            helper.make_node("Div", ["x", "c"], ["share"]),
            helper.make_node("Pow", ["two", "share"], ["y"]),
        ],
        {"x": (2, 4)},
        ["y"],
        {"c": np.float32(numbers), "two": np.float32([2.0])},
    )
    assert "c" in import_model(proto, public=("two",)).weights


def test_an_exponent_that_follows_from_the_owners_numbers_is_the_owners() -> None:
    proto = model(
        [
            helper.make_node("Add", ["c", "c"], ["exponent"]),
            helper.make_node("Pow", ["x", "exponent"], ["y"]),
        ],
        {"x": (2, 4)},
        ["y"],
        {"c": np.float32([0.2137])},
    )
    graph = import_model(proto)
    assert "c" in graph.weights
    assert not [op for op in graph.operations if kind_of(op) == "constant"]
