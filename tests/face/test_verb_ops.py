"""`veilgraph ops`: each operator that it lists can be compiled, and others can't."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from models import model, run_onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from verbs import json_of, reason, run_verb

import veilgraph
from veilgraph.frontend.onnx.classical.expand import RULES
from veilgraph.ir.errors import UnsupportedError
from veilgraph.operators import OPERATORS, find
from veilgraph.runtime.simulate import simulate

IMAGE = (1, 2, 4, 4)


@dataclass(frozen=True)
class Node:
    """A node of one operator: shapes of its inputs, constants after them, attributes, types.

    Its inputs are drawn from [0.5, 2) if `positive`. What is newer than opset 23 ONNX's reference
    computes, and not ONNX Runtime.
    """

    shapes: Sequence[tuple[int, ...]] = (IMAGE,)
    constants: Sequence[Any] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    takes: int = TensorProto.FLOAT
    gives: int = TensorProto.FLOAT
    positive: bool = False
    opset: int = 21


BOOL, INT64 = TensorProto.BOOL, TensorProto.INT64
COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
POOL = {"kernel_shape": [2, 2], "strides": [2, 2]}
NODES: dict[str, Node] = {
    **{name: Node() for name in ("Abs", "Flatten", "GlobalAveragePool", "GlobalMaxPool", "Neg")},
    **{name: Node() for name in ("HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Relu")},
    **{name: Node() for name in ("Dropout", "Softmax", "Transpose", "ReduceSum", "ReduceMean")},
    **{name: Node() for name in ("ReduceSumSquare", "ReduceL1")},
    **{name: Node((IMAGE, IMAGE)) for name in ("Add", "Max", "Mean", "Min", "Mul", "Sub", "Sum")},
    **{name: Node(attributes=POOL) for name in ("AveragePool", "MaxPool")},
    **{name: Node(attributes={"blocksize": 2}) for name in ("SpaceToDepth",)},
    **{name: Node(constants=[np.array([2])]) for name in ("ReduceMax", "ReduceMin")},
    **{name: Node(gives=INT64, attributes={"axis": 2}) for name in ("ArgMax", "ArgMin")},
    **{name: Node((IMAGE, IMAGE), gives=BOOL) for name in COMPARISONS},
    **{name: Node((IMAGE, IMAGE), takes=BOOL, gives=BOOL) for name in ("And", "Or", "Xor")},
    **{name: Node() for name in ("Sign", "ThresholdedRelu")},
    **{name: Node() for name in ("Sigmoid", "Tanh", "Erf", "Gelu", "Softplus", "Mish", "Exp")},
    **{name: Node() for name in ("Sin", "Cos", "Elu", "Selu", "Celu", "LogSoftmax")},
    **{name: Node(positive=True) for name in ("Log", "Sqrt", "Reciprocal")},
    **{name: Node(positive=True) for name in ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")},
    "LRN": Node([(1, 4, 3, 3)], attributes={"size": 3, "alpha": 0.3, "bias": 2.0}),
    "LayerNormalization": Node([(3, 32)], [np.full(32, 0.5, np.float32)]),
    "InstanceNormalization": Node(constants=[np.ones(2, np.float32), np.ones(2, np.float32)]),
    "Not": Node(takes=BOOL, gives=BOOL),
    "Where": Node(constants=[np.ones(IMAGE, np.float32), np.float32(2)], takes=BOOL),
    "BatchNormalization": Node(constants=[np.ones(2, np.float32) * n for n in (2, 1, 3, 4)]),
    "Cast": Node(attributes={"to": 1}),
    "Clip": Node(constants=[np.float32(-0.5), np.float32(0.5)]),
    "Concat": Node((IMAGE, IMAGE), attributes={"axis": 1}),
    "Conv": Node(constants=[np.ones((3, 2, 3, 3), np.float32)], attributes={"pads": [1] * 4}),
    "ConvTranspose": Node(
        constants=[np.ones((2, 3, 3, 3), np.float32)], attributes={"strides": [2, 2]}
    ),
    "CumSum": Node(constants=[np.array(2)]),
    "GatherElements": Node([(2, 3)], [np.array([[0, 1, 1]])]),
    "GatherND": Node([(2, 3)], [np.array([[0, 2], [1, 1]])]),
    "DepthToSpace": Node([(1, 4, 2, 2)], attributes={"blocksize": 2}),
    "Div": Node(constants=[np.array([2, 4, 5, 8], np.float32)]),
    "Einsum": Node([(2, 3), (3, 4)], attributes={"equation": "ij,jk->ik"}),
    "Expand": Node([(1, 2, 1, 4)], [np.array([1, 2, 3, 4])]),
    "Gather": Node(constants=[np.array(1)], attributes={"axis": 1}),
    "Gemm": Node([(2, 3), (4, 3)], attributes={"transB": 1, "alpha": 0.5}),
    "MatMul": Node([(2, 3), (3, 4)]),
    "PRelu": Node(constants=[np.full((2, 1, 1), 0.2, np.float32)]),
    "Pad": Node(constants=[np.array([0, 0, 1, 1, 0, 0, 1, 2])]),
    "Pow": Node(constants=[np.float32(2)]),
    "Reshape": Node(constants=[np.array([2, -1])]),
    "Slice": Node(constants=[np.array([1]), np.array([4]), np.array([2]), np.array([2])]),
    "Split": Node(attributes={"num_outputs": 2, "axis": 1}),
    "Squeeze": Node([(1, 2, 1, 4)], [np.array([2])]),
    "Tile": Node(constants=[np.array([1, 2, 1, 1])]),
    "Unsqueeze": Node(constants=[np.array([0])]),
}
WEIGHT = np.linspace(-0.5, 0.5, 12, dtype=np.float32)
ANGLES = np.linspace(0.1, 0.9, 4, dtype=np.float32).reshape(1, 2, 2)
NODES |= {
    **{name: Node() for name in ("Asinh", "Cosh", "Shrink", "Sinh", "Softsign", "Hardmax")},
    **{name: Node(attributes=POOL, positive=True) for name in ("LpPool",)},
    **{name: Node(constants=[np.array([3])], positive=True) for name in ("ReduceProd",)},
    **{name: Node(positive=True) for name in ("LpNormalization", "MeanVarianceNormalization")},
    "DFT": Node([(2, 6, 1)], attributes={"onesided": 1}, opset=20),
    "STFT": Node([(1, 20, 1)], [np.array(3), np.hanning(8).astype(np.float32)]),
    "Acosh": Node(constants=[], attributes={}, shapes=[(1,)], positive=True),
    "AffineGrid": Node([(1, 2, 3)], [np.array([1, 1, 3, 4])]),
    "Atanh": Node([(1,)]),
    "Attention": Node([(1, 2, 3, 4)] * 3, attributes={"is_causal": 1}, opset=23),
    "CausalConvWithState": Node([(1, 2, 5)], [WEIGHT[:6].reshape(2, 1, 3)], opset=27),
    "CenterCropPad": Node(constants=[np.array([1, 2, 3, 6])]),
    "Col2Im": Node([(1, 4, 4)], [np.array([3, 3]), np.array([2, 2])]),
    "CumProd": Node([(2, 4)], [np.array(1)], opset=26),
    "GRU": Node([(2, 1, 2)], [WEIGHT.reshape(1, 6, 2)] * 2, {"hidden_size": 2}),
    "GridSample": Node([(1, 2, 3, 3)], [WEIGHT.reshape(1, 2, 3, 2)]),
    "GroupNormalization": Node(
        constants=[np.ones(2, np.float32)] * 2, attributes={"num_groups": 2}
    ),
    "LSTM": Node(
        [(2, 1, 1)],
        [WEIGHT[:8].reshape(1, 8, 1)] * 1 + [np.ones((1, 8, 2), np.float32)],
        {"hidden_size": 2},
    ),
    "LinearAttention": Node(
        [(1, 3, 4)] * 3,
        attributes={"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "linear"},
        opset=27,
    ),
    "MaxUnpool": Node([(1, 1, 2, 2)], [np.array([[[[0, 3], [8, 15]]]])], POOL),
    "OneHot": Node([(3,)], [np.array(4), np.array([0, 1], np.float32)], takes=INT64),
    "RMSNormalization": Node([(3, 8)], [np.full(8, 0.5, np.float32)], opset=23),
    "RNN": Node(
        [(2, 1, 3)], [WEIGHT.reshape(1, 4, 3), np.ones((1, 4, 4), np.float32)], {"hidden_size": 4}
    ),
    "Resize": Node(
        constants=[np.zeros(0, np.float32), np.array([1, 1, 2, 1.5], np.float32)],
        attributes={"mode": "linear"},
    ),
    "ReverseSequence": Node([(4, 2)], [np.array([3, 2])]),
    "RotaryEmbedding": Node([(1, 2, 2, 4)], [np.cos(ANGLES), np.sin(ANGLES)], opset=23),
    "Scatter": Node([(4,)], [np.array([1, 3]), np.array([5, 6], np.float32)], opset=10),
    "ScatterElements": Node([(4,)], [np.array([1, 3]), np.array([5, 6], np.float32)]),
    "ScatterND": Node([(4,)], [np.array([[1], [3]]), np.array([5, 6], np.float32)]),
    "SwiGLU": Node([(2, 3)] * 2, opset=28),
    "Swish": Node(opset=24),
    "TensorScatter": Node([(1, 1, 4, 2), (1, 1, 2, 2)], [np.array([1])], opset=24),
    "Trilu": Node(),
    "Upsample": Node(constants=[np.array([1, 1, 2, 2], np.float32)], opset=9),
}
INT8 = TensorProto.INT8
CODE = [np.float32(0.25), np.int8(3)]
NODES |= {
    **{name: Node() for name in ("Atan", "Ceil", "Floor", "Round")},
    **{name: Node([(1,)]) for name in ("Acos", "Asin", "Tan")},
    "ConvInteger": Node(
        constants=[np.ones((3, 2, 3, 3), np.int8), np.int8(1), np.int8(2)],
        takes=INT8,
        gives=TensorProto.INT32,
    ),
    "DequantizeLinear": Node(constants=CODE, takes=INT8),
    "MatMulInteger": Node(
        [(2, 3)],
        [np.arange(12, dtype=np.int8).reshape(3, 4), np.int8(1), np.int8(2)],
        takes=INT8,
        gives=TensorProto.INT32,
    ),
    "Mod": Node(constants=[np.array(3)], takes=INT64, gives=INT64),
    "QLinearConv": Node(
        constants=[*CODE, np.ones((3, 2, 3, 3), np.int8), *CODE, *CODE], takes=INT8, gives=INT8
    ),
    "QLinearMatMul": Node(
        [(2, 3)],
        [*CODE, np.arange(12, dtype=np.int8).reshape(3, 4), *CODE, *CODE],
        takes=INT8,
        gives=INT8,
    ),
    "QuantizeLinear": Node(constants=CODE, gives=INT8),
    "TopK": Node([(2, 9)], [np.array([3])]),
}
# Their own tests: tests/frontend/test_{control_flow,function_bodies,quantised}.py.
IN_NETWORKS = ("DynamicQuantizeLinear", "FlexAttention", "If", "Loop", "Scan")
FOLDED = ("Constant", "ConstantOfShape", "Shape")  # make no values of the inputs: see below
# Nor do these: tests/frontend/test_signals.py.
MATRICES = ("BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix")
TWO_OUTPUTS = ("CausalConvWithState", "LinearAttention", "Split", "TopK")
UNLISTED = ("Det", "NonZero")


def proto_of(operator: str, node: Node) -> Any:
    inputs = {f"x{i}": shape for i, shape in enumerate(node.shapes)}
    constants = {f"c{i}": np.asarray(value) for i, value in enumerate(node.constants)}
    outputs = ["y", "z"] if operator in TWO_OUTPUTS else ["y"]
    names = [*inputs, *constants]
    made = helper.make_node(operator, names, outputs, name="node", **node.attributes)
    proto = model([made], inputs, outputs, constants, opset=node.opset)
    for infos, kind in ((proto.graph.input, node.takes), (proto.graph.output, node.gives)):
        for info in infos:
            info.type.tensor_type.elem_type = kind
    if operator == "TopK":
        proto.graph.output[1].type.tensor_type.elem_type = INT64
    return proto


def test_every_listed_operator_is_tested() -> None:
    # RULES: tests/frontend/test_classical.py; DictVectorizer: test_text_columns.py
    elsewhere = [*IN_NETWORKS, *MATRICES, *RULES, "DictVectorizer"]
    assert sorted([*NODES, *FOLDED, *elsewhere]) == [operator.name for operator in OPERATORS]


@pytest.mark.parametrize("operator", NODES)
def test_listed_operator_compiles_and_computes(operator: str) -> None:
    node = NODES[operator]
    proto = proto_of(operator, node)
    rng = np.random.default_rng(len(operator))
    kind = helper.tensor_dtype_to_np_dtype(node.takes)
    drawn = [
        rng.uniform(0.5, 2, shape) if node.positive else rng.normal(size=shape)
        for shape in node.shapes
    ]
    inputs = {
        f"x{i}": (x > 0 if node.takes == BOOL else x).astype(kind) for i, x in enumerate(drawn)
    }
    samples = {name: x[np.newaxis] for name, x in inputs.items()}
    plan, weights = veilgraph.compile(proto, calibrate=samples, ring=64)
    found = simulate(plan, weights, inputs).outputs
    newest = node.opset > 23
    wanted_of = ReferenceEvaluator(proto).run(None, inputs) if newest else ()
    expected = dict(zip(found, wanted_of, strict=True)) if newest else run_onnx(proto, inputs)
    for name, wanted in expected.items():
        np.testing.assert_allclose(found[name], wanted, atol=0.01)


def test_folded_operators_compile() -> None:
    filled = helper.make_tensor("v", 1, [1], [0.5])
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("ConstantOfShape", ["s"], ["c"], value=filled),
        helper.make_node("Constant", [], ["k"], value_float=2.0),
        helper.make_node("Add", ["x", "c"], ["a"]),
        helper.make_node("Mul", ["a", "k"], ["y"]),
    ]
    plan, weights = veilgraph.compile(model(nodes, {"x": (2, 3)}, ["y"]))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(
        simulate(plan, weights, {"x": x}).outputs["y"], 2 * (x + 0.5), atol=1e-3
    )


@pytest.mark.parametrize("operator", UNLISTED)
def test_unlisted_operator_is_refused(operator: str) -> None:
    with pytest.raises(UnsupportedError):
        veilgraph.compile(proto_of(operator, Node()))


def test_table_and_json_list_all() -> None:
    lines = run_verb("ops").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [operator.name for operator in OPERATORS]
    listed = json_of("ops")["operators"]
    assert [operator["name"] for operator in listed] == [o.name for o in OPERATORS]


def test_one_operator_is_shown_alone() -> None:
    assert find("conv").name == "Conv"
    (listed,) = json_of("ops", "conv")["operators"]
    assert "groups" in listed["forms"]


def test_unknown_operator_is_told_with_the_nearest() -> None:
    code, told = reason("ops", "Convo")
    assert code == 2
    assert told.splitlines()[0] == "Error: `Convo` is no operator that can be compiled."
    assert "Conv" in told.splitlines()[1]
    assert "`veilgraph ops` lists all." in reason("ops", "zzz")[1]


@pytest.mark.parametrize(
    ("name", "why", "way_out"),
    [
        ("nonmaxsuppression", "depends on secret numbers, and shapes are public", "receiver"),
    ],
)
def test_says_why_an_operator_can_not_be_compiled(name: str, why: str, way_out: str) -> None:
    code, told = reason("ops", name)
    assert code == 2
    assert why in told
    assert way_out in told.splitlines()[1]
