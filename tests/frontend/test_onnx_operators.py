"""One row an ONNX operator and form: the imported program computes what ONNX Runtime computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from operator_rows import BOOL, INT64, Row, check_matches_onnxruntime, ints, number

IMAGE = (2, 4, 9, 8)
# Of positions: ranked together up to ten numbers, by a tree beyond.
POSITIONS = ((IMAGE, 1, 1), (IMAGE, -2, 0), ((7,), 0, 0), ((12, 3), 0, 0), ((3, 1), 1, 1))
BOX = (2, 3, 4, 7, 6)


def plain(operators: str, **options: Any) -> list[Row]:
    return [Row(operator, [IMAGE], **options) for operator in operators.split()]


SECRET_CLIP = "minimum maximum sub relu sub"  # of bounds that their owner alone knows
ELEMENTWISE = [
    *plain("Relu Neg Abs Exp Sigmoid Tanh Erf HardSwish Softplus Mish Identity Dropout Elu Selu"),
    *plain("Celu HardSigmoid"),
    *plain("Log Sqrt Reciprocal", positive=True),
    Row("Relu", [IMAGE], kinds="relu"),
    Row("Gelu", [IMAGE], kinds="gelu"),
    Row("Gelu", [IMAGE], {"approximate": "tanh"}, kinds="gelu"),
    Row("LeakyRelu", [IMAGE], {"alpha": 0.2}, kinds="leaky_relu"),
    Row("Elu", [IMAGE], {"alpha": 0.5}),
    Row("PRelu", [IMAGE, (4, 1, 1)]),
    Row("PRelu", [IMAGE, (1,)]),
    Row("PRelu", [(3, 4), (4,)]),
    Row("Clip", [IMAGE], {}, {"low": number(0), "high": number(6)}, kinds="clip", public=True),
    Row("Clip", [IMAGE], {}, {"low": number(-0.5)}, kinds="clip", public=True),
    Row("Clip", [IMAGE], {}, {"low": number(0)}, kinds="relu", public=True),
    Row("Clip", [IMAGE], {}, {"low": number(2), "high": number(1)}, kinds="clip", public=True),
    Row("Clip", [IMAGE], {}, {"low": number(-0.5), "high": number(0.5)}, kinds=SECRET_CLIP),
    Row("Clip", [IMAGE], {}, {"low": number(2), "high": number(1)}, kinds=SECRET_CLIP),
    Row("Clip", [IMAGE], {}, {"low": number(-0.5)}, kinds="maximum"),
    Row("Clip", [IMAGE], {"min": 0.0, "max": 6.0}, opset=9, kinds="clip"),
    Row(
        "HardSigmoid", [IMAGE], {"alpha": 0.25, "beta": 0.4}, kinds="constant mul constant add clip"
    ),
    Row("Max", [IMAGE], {}, {"c": number(0)}, kinds="relu", public=True),
    Row("Max", [IMAGE], {}, {"c": number(0.5)}, kinds="maximum"),
    Row("Min", [IMAGE], {}, {"c": number(0.5)}, kinds="clip", public=True),
    Row("Min", [IMAGE], {}, {"c": number(0.5)}, kinds="minimum"),
    Row("Max", [IMAGE, (4, 1, 1), (8,)], kinds="maximum maximum"),
    Row("Min", [IMAGE, (4, 1, 1)], kinds="minimum"),
    Row("Add", [IMAGE, (4, 1, 1)], kinds="add"),
    Row("Sub", [IMAGE, (2, 1, 1, 8)], kinds="sub"),
    Row("Mul", [IMAGE, (8,)], kinds="mul"),
    Row("Div", [IMAGE, IMAGE], positive=True, kinds="div"),
    Row("Div", [IMAGE], {}, {"c": number(3)}, kinds="constant mul", public=True),
    Row("Div", [IMAGE], {}, {"c": number(3)}, kinds="div"),
    Row("Mul", [(4, 1), (1, 5)], kinds="mul"),
    Row("Sum", [IMAGE, (4, 1, 1), IMAGE], kinds="add add"),
    Row("Mean", [IMAGE, (4, 1, 1)], kinds="add constant mul"),
    *(
        Row("Pow", [(3, 4)], {}, {"e": number(e)}, positive=True)
        for e in (2, 3, 0.5, 0.25, 0.75, 0.3, -1, -0.5, 4)
    ),
    Row("LRN", [IMAGE], {"size": 3, "alpha": 0.3, "beta": 0.75, "bias": 2.0}),
    Row("LRN", [IMAGE], {"size": 5, "alpha": 0.1, "beta": 0.4}),
    Row("Cast", [IMAGE], {"to": 1}),
    *plain("Floor Ceil Round Atan"),
    Row("PRelu", [IMAGE, (8,)]),
    Row("Cast", [IMAGE], {"to": INT64}, gives=INT64, kinds="relu floor sub floor sub"),
    *(Row("Div", [IMAGE], {}, {"c": ints(n)}, takes=INT64, gives=INT64) for n in (2, -3)),
    *(
        Row("Mod", [IMAGE], {"fmod": f}, {"c": ints(n)}, takes=INT64, gives=INT64)
        for n in (2, -3)
        for f in (0, 1)
    ),
    Row("Mod", [IMAGE], {"fmod": 1}, {"c": number(0.75)}),
]

LOGIC = [
    *(
        Row(operator, [IMAGE, (4, 1, 1)], gives=BOOL, takes=kind)
        for operator in ["Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"]
        for kind in (TensorProto.FLOAT, INT64)
    ),
    Row("Greater", [IMAGE], {}, {"c": number(0.25)}, gives=BOOL),
    *(Row(op, [IMAGE, (8,)], gives=BOOL, takes=BOOL) for op in ("And", "Or", "Xor", "Equal")),
    Row("Not", [IMAGE], gives=BOOL, takes=BOOL, kinds="constant sub"),
    Row("Cast", [IMAGE], {"to": BOOL}, gives=BOOL, takes=INT64),
    Row("Cast", [IMAGE], {"to": 1}, takes=BOOL),
    Row("Sign", [IMAGE]),
    Row("Sign", [IMAGE], takes=INT64, gives=INT64),
    Row("ThresholdedRelu", [IMAGE], {"alpha": 0.5}),
    *(
        Row(operator, [shape], {"axis": axis, "keepdims": keep}, gives=INT64, takes=kind)
        for operator in ("ArgMax", "ArgMin")
        for shape, axis, keep in POSITIONS
        for kind in (TensorProto.FLOAT, TensorProto.INT32)
    ),
]

WINDOWS = [
    *(
        Row("TopK", [shape], {"axis": a, "largest": n}, {"k": ints(3)}, outputs=2, then=INT64)
        for shape, a in (((3, 40), -1), (IMAGE, 1), ((7,), 0), ((5, 2), 0))
        for n in (0, 1)
    ),
    Row("Conv", [IMAGE, (6, 4, 3, 3), (6,)], {"pads": [1, 1, 1, 1]}, kinds="conv"),
    Row(
        "Conv",
        [IMAGE, (6, 4, 3, 2)],
        {"pads": [0, 1, 2, 1], "strides": [2, 1], "dilations": [1, 2]},
        kinds="conv",
    ),
    Row("Conv", [IMAGE, (6, 2, 3, 3), (6,)], {"group": 2, "strides": [2, 2]}, kinds="conv"),
    Row("Conv", [IMAGE, (4, 1, 3, 3)], {"group": 4, "pads": [2, 2, 2, 2]}, kinds="conv"),
    Row("Conv", [IMAGE, (8, 1, 3, 3)], {"group": 4, "dilations": [2, 3]}, kinds="conv"),
    Row("Conv", [IMAGE, (6, 4, 3, 3)], {"auto_pad": "SAME_LOWER", "strides": [2, 2]}, kinds="conv"),
    Row("Conv", [IMAGE, (6, 4, 3, 3)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, kinds="conv"),
    Row("Conv", [IMAGE, (6, 4, 3, 3)], {"auto_pad": "VALID"}, kinds="conv"),
    Row("Conv", [(2, 4, 9), (6, 4, 3), (6,)], {"pads": [1, 0], "strides": [2]}),
    Row("Conv", [(2, 4, 9), (4, 1, 3)], {"pads": [1, 1], "group": 4, "dilations": [2]}),
    Row("ConvTranspose", [IMAGE, (4, 3, 3, 3), (3,)]),
    Row("ConvTranspose", [IMAGE, (4, 3, 3, 2)], {"strides": [2, 3], "pads": [1, 0, 1, 0]}),
    Row("ConvTranspose", [IMAGE, (4, 2, 2, 2)], {"strides": [2, 2], "group": 2}),
    Row("ConvTranspose", [IMAGE, (4, 3, 1, 1)], {"pads": [1, 1, 1, 1]}),
    Row(
        "ConvTranspose",
        [IMAGE, (4, 3, 3, 3)],
        {"strides": [3, 2], "dilations": [2, 2], "output_padding": [1, 1]},
    ),
    Row("ConvTranspose", [(2, 4, 9), (4, 3, 3)], {"strides": [2]}),
    Row("Conv", [BOX, (4, 3, 3, 2, 3), (4,)], {"pads": [1, 0, 1, 0, 1, 2]}),
    Row("Conv", [BOX, (6, 1, 2, 2, 2)], {"group": 3, "strides": [2, 2, 1]}),
    Row("Conv", [BOX, (2, 3, 2, 2, 3)], {"dilations": [2, 1, 2]}),
    Row("ConvTranspose", [BOX, (3, 2, 2, 3, 2), (2,)], {"strides": [2, 1, 3]}),
    Row(
        "ConvTranspose",
        [BOX, (3, 2, 3, 3, 2)],
        {"strides": [2, 2, 1], "pads": [1, 0, 1, 1, 0, 1], "output_padding": [1, 0, 0], "group": 3},
    ),
    *(
        Row("ConvTranspose", [IMAGE, (4, 3, 3, 2)], {"strides": [2, 3], **more})
        for more in (
            {"auto_pad": "SAME_UPPER"},
            {"auto_pad": "SAME_LOWER"},
            {"pads": [1, 0, 0, 2]},
            {"output_shape": [17, 23]},
        )
    ),
    Row("AveragePool", [BOX], {"kernel_shape": [2, 2, 2], "dilations": [2, 2, 1]}),
    Row("LpPool", [BOX], {"kernel_shape": [2, 2, 2], "p": 1}),
    Row("MaxPool", [BOX], {"kernel_shape": [2, 3, 2], "strides": [1, 2, 2]}),
    Row("MaxPool", [BOX], {"kernel_shape": [2, 2, 2], "pads": [1, 0, 1, 0, 1, 1]}),
    Row("AveragePool", [BOX], {"kernel_shape": [2, 3, 2], "strides": [1, 2, 2]}),
    *(
        Row(
            "AveragePool",
            [BOX],
            {"kernel_shape": [2, 2, 2], "pads": [1, 0, 1, 0, 1, 1], "count_include_pad": count},
        )
        for count in (0, 1)
    ),
    Row("GlobalAveragePool", [BOX]),
    Row("GlobalMaxPool", [BOX]),
    Row("MaxPool", [IMAGE], {"kernel_shape": [3, 3], "strides": [2, 2]}, kinds="max_pool"),
    Row("MaxPool", [IMAGE], {"kernel_shape": [3, 2], "pads": [1, 0, 2, 1]}, kinds="max_pool"),
    Row("MaxPool", [IMAGE], {"kernel_shape": [3, 3], "dilations": [2, 3]}, kinds="max_pool"),
    Row("MaxPool", [(2, 4, 9)], {"kernel_shape": [3], "pads": [1, 1], "strides": [2]}),
    *(
        Row(operator, [IMAGE], {"kernel_shape": k, "strides": s, "pads": p, "ceil_mode": 1, **more})
        for operator, more in (
            ("MaxPool", {}),
            ("AveragePool", {"count_include_pad": 0}),
            ("AveragePool", {"count_include_pad": 1}),
        )
        for k, s, p in (
            ([2, 2], [2, 2], [0, 0, 0, 0]),
            ([3, 3], [2, 2], [0, 0, 0, 0]),
            ([3, 3], [2, 3], [1, 1, 1, 1]),
            ([2, 3], [3, 3], [0, 1, 1, 1]),
        )
    ),
    Row(
        "AveragePool",
        [IMAGE],
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "count_include_pad": 1},
        opset=10,
    ),
    Row(
        "MaxPool",
        [IMAGE],
        {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1, "auto_pad": "SAME_UPPER"},
    ),
    *(
        Row(operator, [IMAGE], {"kernel_shape": [2, 3], "strides": [2, 2], "auto_pad": pad})
        for operator in ("MaxPool", "AveragePool")
        for pad in ("SAME_UPPER", "SAME_LOWER")
    ),
    Row("AveragePool", [IMAGE], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, kinds="avg_pool"),
    Row("AveragePool", [IMAGE], {"kernel_shape": [3, 3], "pads": [0, 0, 1, 1]}, kinds="avg_pool"),
    Row(
        "AveragePool",
        [IMAGE],
        {"kernel_shape": [3, 3], "pads": [1, 0, 2, 1], "strides": [2, 2], "count_include_pad": 1},
        kinds="avg_pool",
    ),
    Row("AveragePool", [(2, 4, 9)], {"kernel_shape": [3], "pads": [1, 1], "strides": [2]}),
    Row("GlobalAveragePool", [IMAGE], kinds="avg_pool"),
    Row("GlobalMaxPool", [IMAGE], kinds="max_pool"),
]

LINEAR = [
    Row("MatMul", [(2, 3), (3, 4)], kinds="matmul"),
    Row("MatMul", [(5, 2, 3), (3, 4)], kinds="matmul"),
    Row("MatMul", [(5, 1, 2, 3), (2, 3, 4)], kinds="matmul"),
    Row("MatMul", [(3,), (3, 4)], kinds="reshape matmul reshape"),
    Row("MatMul", [(5, 2, 3), (3,)], kinds="reshape matmul reshape"),
    Row("MatMul", [(3,), (3,)], kinds="reshape reshape matmul reshape"),
    Row("Gemm", [(2, 3), (3, 4)], kinds="matmul"),
    Row("Gemm", [(2, 3), (3, 4)], {"alpha": 0.5}, kinds="matmul constant mul"),
    Row("Gemm", [(2, 3), (3, 4), (4,)], kinds="matmul add"),
    Row("Gemm", [(2, 3), (4, 3), (4,)], {"transB": 1}, kinds="transpose matmul add"),
    Row("Gemm", [(3, 2), (4, 3), (2, 1)], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}),
    Row("Gemm", [(2, 3), (3, 4), (1, 4)], {"beta": 0.5, "alpha": 2.0}),
    Row("BatchNormalization", [IMAGE, (4,), (4,), (4,), (4,)], {"epsilon": 0.01}, positive=True),
    Row("BatchNormalization", [(3, 4), (4,), (4,), (4,), (4,)], positive=True, kinds="batch_norm"),
    Row("InstanceNormalization", [IMAGE, (4,), (4,)]),
    Row("LayerNormalization", [IMAGE, (8,), (8,)]),
    Row("LayerNormalization", [IMAGE, (9, 8)], {"axis": 2}),
    Row("Softmax", [IMAGE], {"axis": 1}, kinds="softmax"),
    Row("Softmax", [IMAGE], kinds="softmax"),
    Row("Softmax", [(2, 10)], opset=9, kinds="softmax"),
    Row("Softmax", [(2, 3, 4)], {"axis": 1}, opset=11),
    Row("LogSoftmax", [IMAGE], {"axis": -2}, kinds="log_softmax"),
    Row("Einsum", [(2, 3), (3, 4)], {"equation": "ij,jk->ik"}),
    Row("Einsum", [()], {"equation": "->"}),
]

SHAPES = [
    Row("Reshape", [IMAGE], {}, {"s": ints(0, -1, 2)}, kinds="reshape"),
    Row("Flatten", [IMAGE], kinds="reshape"),
    Row("Flatten", [IMAGE], {"axis": 2}, kinds="reshape"),
    Row("Squeeze", [(2, 1, 3, 1)], {}, {"a": ints(1)}, kinds="reshape"),
    Row("Squeeze", [(2, 1, 3, 1)], kinds="reshape"),
    Row("Squeeze", [(2, 1, 3)], {"axes": [1]}, opset=11, kinds="reshape"),
    Row("Unsqueeze", [IMAGE], {}, {"a": ints(0, 5)}, kinds="reshape"),
    Row("Transpose", [IMAGE], {"perm": [0, 2, 3, 1]}, kinds="transpose"),
    Row("Transpose", [(2, 3)], kinds="transpose"),
    Row("Concat", [IMAGE, (2, 1, 9, 8), IMAGE], {"axis": 1}, kinds="concat"),
    Row("Concat", [IMAGE, (2, 4, 9, 1)], {"axis": -1}, kinds="concat"),
    Row(
        "Slice",
        [IMAGE],
        {},
        {"s": ints(1, 8), "e": ints(3, -20), "a": ints(1, 2), "t": ints(1, -2)},
    ),
    Row(
        "Slice",
        [IMAGE],
        {},
        {"s": ints(1), "e": ints(100), "a": ints(2), "t": ints(3)},
        kinds="slice",
    ),
    Row("Slice", [IMAGE], {"starts": [1, -3], "ends": [3, 9], "axes": [1, 3]}, opset=9),
    Row("Split", [IMAGE], {"axis": 1}, {"s": ints(1, 3)}, outputs=2, kinds="slice slice"),
    Row("Split", [IMAGE], {"axis": 2, "num_outputs": 2}, outputs=2),
    Row("Split", [IMAGE], {"axis": 3}, opset=9, outputs=2, kinds="slice slice"),
    Row("Pad", [IMAGE], {}, {"p": ints(0, 0, 1, 1, 0, 0, 2, 2)}, kinds="pad"),
    Row("Squeeze", [(1, 2, 1)], {}, {"a": ints(0, -1)}, kinds="reshape"),
    Row("Pad", [IMAGE], {}, {"p": ints(0, 1, 1, 1, 1, 0, -2, 2), "v": number(3)}),
    Row("Pad", [IMAGE], {"pads": [0, 0, 1, 1, 0, 0, 2, 2], "value": 0.5}, opset=9, kinds="pad"),
    Row("Expand", [(1, 4, 1, 1)], {}, {"s": ints(3, 1, 2, 1)}, kinds="expand"),
    Row("Tile", [(2, 3)], {}, {"r": ints(2, 3)}),
    Row("Tile", [(2, 3, 1, 2)], {}, {"r": ints(2, 1, 3, 2)}),
    Row("Gather", [IMAGE], {"axis": 1}, {"i": np.array(1)}, kinds="slice reshape"),
    Row("Gather", [IMAGE], {"axis": 2}, {"i": ints(-1)}, kinds="slice"),
    Row("Gather", [IMAGE], {"axis": 1}, {"i": ints(2, 0, 3, 3)}),
    Row("Gather", [IMAGE], {"axis": 3}, {"i": np.array([[7, 5, 3], [-8, 1, 2]])}),
    Row("Gather", [(40,)], {}, {"i": ints(*(7 * i * i % 40 for i in range(60)))}),
    Row("GatherElements", [(3, 4)], {"axis": 1}, {"i": np.array([[0, 3], [1, -1], [2, 2]])}),
    Row("GatherND", [(3, 4, 2)], {}, {"i": np.array([[0, 3], [2, 1]])}),
    Row("CumSum", [IMAGE], {}, {"a": np.array(1)}),
    Row("CumSum", [IMAGE], {"reverse": 1, "exclusive": 1}, {"a": np.array(3)}),
    Row("ArgMax", [IMAGE], {"axis": 1, "select_last_index": 1}, gives=INT64),
    Row("DepthToSpace", [IMAGE], {"blocksize": 2}, kinds="reshape transpose reshape"),
    Row("SpaceToDepth", [(1, 4, 8, 8)], {"blocksize": 2}, kinds="reshape transpose reshape"),
    Row("ReduceSum", [IMAGE], {"keepdims": 0}, {"a": ints(2, 3)}, kinds="reduce_sum"),
    Row("ReduceSum", [IMAGE], kinds="reduce_sum"),
    Row("ReduceMean", [IMAGE], {}, {"a": ints(-1)}, kinds="reduce_mean"),
    Row("ReduceMean", [IMAGE], {"axes": [1, 2], "keepdims": 0}, opset=13, kinds="reduce_mean"),
    Row("ReduceMax", [IMAGE], {"keepdims": 0}, {"a": ints(2)}, kinds="reduce_max"),
    Row("ReduceMax", [IMAGE], {}, {"a": ints(2, 3)}),
    Row("ReduceMin", [IMAGE], {}, {"a": ints(1)}),
    Row("ReduceL1", [IMAGE], {}, {"a": ints(1)}),
    Row("ReduceL2", [IMAGE], {}, {"a": ints(1)}),
    Row("ReduceSumSquare", [IMAGE], {}, {"a": ints(1)}),
]


@pytest.mark.parametrize("row", ELEMENTWISE + LOGIC + WINDOWS + LINEAR + SHAPES, ids=str)
def test_operator_matches_onnxruntime(row: Row) -> None:
    check_matches_onnxruntime(row)
