"""Operators that are written out before the importer sees them, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from operator_rows import INT64, Row, check_matches_onnxruntime, ints, number

IMAGE = (2, 4, 9, 8)


def floats(*values: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.array(values, dtype=np.float32)


def drawn(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


ELEMENTARY = [
    Row("Softsign", [IMAGE]),
    Row("Shrink", [IMAGE], {"lambd": 0.4, "bias": 0.3}),
    Row("Shrink", [IMAGE], {"lambd": 0.4}),
    Row("Sinh", [IMAGE]),
    Row("Cosh", [(7,)]),
    Row("Asinh", [IMAGE]),
    Row("Hardmax", [IMAGE], {"axis": 1}),
    Row("Hardmax", [(3, 5)]),
    Row("Trilu", [IMAGE], {"upper": 0}),
    Row("Trilu", [(5, 3)], {}, {"k": np.array(-1)}),
    Row("Trilu", [(2, 3, 4)], {}, {"k": np.array(1)}, takes=INT64, gives=INT64),
    Row("ReduceProd", [(3, 5, 2)], {"keepdims": 0}, {"a": ints(1)}),
    Row("ReduceProd", [(3, 5, 2)], {}, {"a": ints(0, -1)}),
    Row("ReduceProd", [(2, 3)]),
    Row("LpNormalization", [(3, 4)], {"axis": 0, "p": 1}),
    Row("LpNormalization", [(3, 4, 2)], {"axis": 1}),
    Row("GroupNormalization", [IMAGE, (4,), (4,)], {"num_groups": 2}),
    Row("MeanVarianceNormalization", [IMAGE]),
    Row("InstanceNormalization", [IMAGE, (4,), (4,)]),
    Row("Pow", [(3, 4)], {}, {"e": floats(0, 1, 5, 7)}),
    Row("Pow", [(3, 1)], {}, {"e": floats(2, 6)}),
    Row("Pow", [(3, 4)], {}, {"e": number(9)}),
    Row("Pow", [(3, 4), (4,)], positive=True),
    Row("Pow", [(3, 4)], {}, {"e": ints(3)}, takes=INT64, gives=INT64),
    Row("LpPool", [IMAGE], {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [1, 0, 0, 1]}),
    Row("LpPool", [(1, 2, 9)], {"kernel_shape": [3], "p": 1}),
    Row("LpPool", [(1, 2, 9)], {"kernel_shape": [3], "p": 4}, positive=True),
    *(
        Row(
            "AveragePool",
            [IMAGE],
            {"kernel_shape": [2, 3], "dilations": [2, 2], "pads": [1, 2, 0, 1], **more},
        )
        for more in ({}, {"count_include_pad": 1})
    ),
]

INDICES = [
    Row("OneHot", [(2, 3)], {}, {"d": np.array(5), "v": floats(-1, 3)}, takes=INT64),
    Row("OneHot", [(4,)], {"axis": 0}, {"d": np.array(3), "v": floats(0, 1)}, takes=INT64),
    Row("OneHot", [(2, 2)], {"axis": 1}, {"d": np.array(4), "v": floats(0, 1)}, takes=INT64),
    Row("Pad", [IMAGE], {"mode": "reflect"}, {"p": ints(0, 1, 2, 1, 0, 0, 3, 7)}),
    Row("Pad", [IMAGE], {"mode": "edge"}, {"p": ints(1, 1, 2, 1, 0, 0, 3, -2)}),
    Row("Pad", [(3, 4)], {"mode": "wrap"}, {"p": ints(2, 1, 3, 0)}),
    Row("ReverseSequence", [(4, 3, 2)], {"time_axis": 0, "batch_axis": 1}, {"l": ints(4, 1, 3)}),
    Row("CenterCropPad", [(5, 6)], {}, {"s": ints(8, 3)}),
    *(
        Row("ScatterElements", [(3, 4)], {"axis": 1, **more}, {
            "i": np.array([[1, -1], [0, 2], [3, 0]]), "u": drawn(3, 2)
        })
        for more in ({}, {"reduction": "add"}, {"reduction": "mul"}, {"reduction": "max"})
    ),
    *(
        Row("ScatterND", [(4, 3)], {"reduction": reduction}, {
            "i": np.array([[1], [3], [1]]), "u": drawn(3, 3)
        })
        for reduction in ("add", "mul", "max", "min")
    ),
    Row("ScatterND", [(4, 3)], {}, {"i": np.array([[1, 2], [3, 0]]), "u": drawn(2)}),
    Row("Col2Im", [(2, 8, 6)], {"pads": [0, 1, 0, 0]}, {"s": ints(3, 3), "b": ints(2, 2)}),
]  # fmt: skip

FORMS = [
    {"coordinate_transformation_mode": mode, "mode": how}
    for mode in ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
    for how in ("nearest", "linear", "cubic")
]
RESIZE = [
    *(
        Row("Resize", [IMAGE], form, {"r": floats(), "s": floats(1, 1, *scales)})
        for form in FORMS
        for scales in ((2, 1.5), (0.5, 0.75))
        # of a length that is no integer ONNX Runtime aligns other corners than the standard
        if scales == (2, 1.5) or form["coordinate_transformation_mode"] != "align_corners"
    ),
    *(
        Row(
            "Resize", [IMAGE], {"mode": "nearest", "nearest_mode": rounding},
            {"r": floats(), "s": floats(), "n": ints(2, 4, 7, 12)},
        )
        for rounding in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    ),
    *(
        Row("Resize", [IMAGE], {"mode": how, "antialias": 1}, {
            "r": floats(), "s": floats(1, 1, 0.5, 0.4)
        })
        for how in ("linear", "cubic")
    ),
    Row("Resize", [IMAGE], {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5}, {
        "r": floats(), "s": floats(1, 1, 1.25, 2)
    }),
    Row("Resize", [IMAGE], {
        "mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize",
        "extrapolation_value": 10.0,
    }, {"r": floats(0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7), "s": floats(), "n": ints(2, 4, 3, 3)}),
    Row("Resize", [(1, 2, 3, 4, 5)], {"mode": "linear"}, {
        "r": floats(), "s": floats(1, 1, 2, 2, 0.6)
    }),
    Row("Resize", [IMAGE], {"mode": "linear", "axes": [3, 2]}, {
        "r": floats(), "s": floats(), "n": ints(4, 5)
    }),
    Row("Upsample", [(1, 2, 3, 4)], {"mode": "nearest"}, {"s": floats(1, 1, 2, 3)}, opset=9),
    *(
        Row("Resize", [IMAGE], {"mode": "cubic", "coordinate_transformation_mode": mode, **more}, {
            "r": floats(), "s": floats(1, 1, 1.5, 2)
        }, opset=19)
        for mode in ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric")
        for more in ({"exclude_outside": 1}, {"cubic_coeff_a": -0.6}, {"antialias": 1})
    ),
]  # fmt: skip

SAMPLED = [
    *(
        Row(
            "GridSample", [(2, 3, 4, 5, 3)[:rank + 2]],
            {"mode": mode, "padding_mode": padding, "align_corners": aligned},
            {"g": drawn(2, 2, 3, 4, rank) if rank == 3 else drawn(2, 2, 3, rank)}, opset=20,
        )
        for rank in (2, 3)
        for mode in (("linear", "nearest", "cubic") if rank == 2 else ("linear", "nearest"))
        for padding in ("zeros", "border", "reflection")
        for aligned in (0, 1)
    ),
    Row("GridSample", [(1, 2, 3, 1, 4)], {"padding_mode": "reflection", "align_corners": 1}, {
        "g": drawn(1, 2, 2, 2, 3)
    }, opset=20),
    *(
        Row("GridSample", [(1, 3, 4, 5)], {"mode": mode}, {"g": drawn(1, 3, 2, 2)}, opset=16)
        for mode in ("bilinear", "bicubic", "nearest")
    ),
]  # fmt: skip

LENGTH, BATCH, WIDTH, SIZE = 4, 2, 3, 5


def layer(operator: str, gates: int, directions: int, states: int = 0, **attributes: object) -> Row:
    """With so many states before the first step."""
    shapes = [
        (LENGTH, BATCH, WIDTH),
        (directions, gates * SIZE, WIDTH),
        (directions, gates * SIZE, SIZE),
        (directions, 2 * gates * SIZE),
    ]
    outputs = 3 if operator == "LSTM" else 2
    given = {f"state{i}": drawn(directions, BATCH, SIZE) for i in range(states)}
    if states:
        given = {"lengths": np.full(BATCH, LENGTH, np.int32), **given}
    named = {"hidden_size": SIZE, **attributes}
    return Row(operator, shapes, named, given, outputs=outputs, public=True)


RECURRENT = [
    *(
        layer(operator, gates, directions, direction=name)
        for operator, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4))
        for name, directions in (("forward", 1), ("reverse", 1), ("bidirectional", 2))
    ),
    layer("GRU", 3, 1, linear_before_reset=1),
    layer("LSTM", 4, 1, clip=0.3),
    layer("LSTM", 4, 1, input_forget=1),
    layer("GRU", 3, 2, 1, direction="bidirectional"),
    layer("GRU", 3, 1, 1, linear_before_reset=1),
    layer("LSTM", 4, 2, 2, direction="bidirectional"),
    layer("RNN", 1, 2, direction="bidirectional", activations=["Relu", "Sigmoid"]),
    layer("LSTM", 4, 1, activations=["HardSigmoid", "Tanh", "Relu"], activation_alpha=[0.3],
          activation_beta=[0.4]),
]  # fmt: skip

Q4, K4 = (2, 4, 3, 6), (2, 2, 5, 6)
ATTENTION = [
    Row("Attention", [Q4, (2, 4, 5, 6), (2, 4, 5, 7)], opset=23),
    Row("Attention", [Q4, K4, (2, 2, 5, 7)], {"scale": 0.3}, opset=23),
    Row("Attention", [Q4, K4, K4, (3, 5)], {"softcap": 2.0}, opset=23),
    Row("Attention", [Q4, (2, 4, 3, 6), (2, 4, 3, 6)], {"is_causal": 1}, opset=23),
    Row(
        "Attention",
        [(2, 3, 24), (2, 3, 12), (2, 3, 12)],
        {"q_num_heads": 4, "kv_num_heads": 2, "is_causal": 1},
        opset=23,
    ),
    Row("Attention", [(2, 3, 24), (2, 5, 24), (2, 5, 20)], {"q_num_heads": 4, "kv_num_heads": 4},
        {"m": np.array([[1, 0, 1, 1, 0]] * 3, dtype=bool)}, opset=23),
    Row("RMSNormalization", [IMAGE, (8,)], opset=23),
    Row("RMSNormalization", [IMAGE, (9, 8)], {"axis": 2, "epsilon": 0.1}, opset=23),
    *(
        Row("RotaryEmbedding", [(2, 3, 4, 8), (2, 4, 4), (2, 4, 4)], more, opset=23)
        for more in ({}, {"interleaved": 1})
    ),
    Row(
        "RotaryEmbedding", [(2, 4, 24), (9, 4), (9, 4)], {"num_heads": 3},
        {"p": np.array([[0, 1, 2, 3], [8, 7, 1, 0]])}, opset=23,
    ),
    Row(
        "RotaryEmbedding", [(2, 3, 4, 8), (2, 4, 2), (2, 4, 2)], {"rotary_embedding_dim": 4},
        opset=23,
    ),
]  # fmt: skip
ROWS = [*ELEMENTARY, *INDICES, *RESIZE, *SAMPLED, *RECURRENT, *ATTENTION]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_operator_matches_onnxruntime(row: Row) -> None:
    check_matches_onnxruntime(row)
