"""Types, operations and programs of the secret level: built, verified, printed and parsed."""

from __future__ import annotations

import numpy as np
import pytest
from torch_mlir import ir

from veilgraph.ir.meaning.secret import evaluate
from veilgraph.ir.mlir import context
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.dialect import SecretOp, Stated, attributes_of
from veilgraph.ir.secret.exponential import ExpSegments, ExpSums
from veilgraph.ir.secret.fourier import FourierSeries
from veilgraph.ir.secret.function_forms import carried
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import Encoding, RangeSource, RealRange, Secrecy, Tensor

WHOLE = RealRange(-1.0, 1.5, RangeSource.CALIBRATED)
PUBLIC = Encoding(40, 9, Secrecy.PUBLIC)
IMAGE = {"strides": (1, 1), "pads_low": (0, 0), "pads_high": (0, 0)}
WINDOW = {"window_bits": 20, "dropped_bits": 0}
SUMS = ExpSums(8, 5, 3, 12, 12, 40, 9)
POWER = ExpSegments(8, 5, 3, 12, 12, 40, 9, 30, 12)
REAL: dict[str, object] = {
    "function": "gelu none",
    "least": -1.0,
    "most": 1.5,
    "origin": 0.0,
    "error": 2.0**-10,
}
SERIES = FourierSeries(5, 1, 2, (1 << 20, -3), (0, 7), 20, -9, 4, 14, 16, 40)


def program(**shapes: tuple[int, ...]) -> SecretProgram:
    """A program of secret inputs in Z_2^40 with 9 fraction bits, without operations."""
    arguments = [
        Argument(name, "input", "alice", Tensor(shape, Encoding(40, 9)), WHOLE)
        for name, shape in shapes.items()
    ]
    return SecretProgram.create(context(), arguments, {})


# (op, operands' shapes, attributes, what is stated, result's shape and (ring, fraction) bits)
CASES: list[
    tuple[type[SecretOp], list[tuple[int, ...]], dict[str, object], Stated, tuple[int, ...], int]
] = [
    (secret_ops.Add, [(2, 3), (3,)], {}, Stated(), (2, 3), 9),
    (secret_ops.Sub, [(2, 1), (1, 3)], {}, Stated(), (2, 3), 9),
    (secret_ops.Neg, [(2, 3)], {}, Stated(), (2, 3), 9),
    (secret_ops.Mul, [(2, 3), ()], {}, Stated(), (2, 3), 18),
    (secret_ops.Matmul, [(5, 2, 3), (3, 4)], {}, Stated(), (5, 2, 4), 18),
    (
        secret_ops.Conv,
        [(1, 4, 6, 6), (8, 2, 3, 3)],
        {**IMAGE, "dilations": (2, 2), "groups": 2},
        Stated(),
        (1, 8, 2, 2),
        18,
    ),
    (secret_ops.Scale, [(2,)], {"factor": -3}, Stated(frac_bits=12), (2,), 12),
    (secret_ops.Reinterpret, [(2,)], {}, Stated(frac_bits=-2), (2,), -2),
    (secret_ops.Reduce, [(2,)], {}, Stated(ring_bits=24), (2,), 9),
    (secret_ops.Lift, [(2,)], {}, Stated(ring_bits=48), (2,), 9),
    (secret_ops.Truncate, [(2,)], {"bits": 5}, Stated(ring_bits=40), (2,), 4),
    (secret_ops.RoundOff, [(2,)], {"bits": 5}, Stated(ring_bits=40), (2,), 4),
    (secret_ops.Step, [(2,)], WINDOW, Stated(), (2,), 0),
    (
        secret_ops.OneHot,
        [(2,)],
        {"depth": 5, "wraps": True, **WINDOW},
        Stated(ring_bits=40),
        (2, 5),
        0,
    ),
    (secret_ops.Relu, [(2,)], WINDOW, Stated(), (2,), 9),
    (secret_ops.TruncateRelu, [(2,)], {"bits": 9, **WINDOW}, Stated(ring_bits=40), (2,), 0),
    (secret_ops.Maximum, [(2,), (3, 1)], WINDOW, Stated(), (3, 2), 9),
    (
        secret_ops.Function,
        [(3,)],
        REAL | {"form": carried(SERIES)},
        Stated(frac_bits=18, ring_bits=40),
        (3,),
        18,
    ),
    (
        secret_ops.Function,
        [(3, 5)],
        REAL | {"form": carried(POWER)},
        Stated(frac_bits=14, ring_bits=40),
        (3, 5),
        14,
    ),
    (
        secret_ops.ClippedFunction,
        [(3,)],
        REAL | WINDOW | {"form": carried(SERIES), "edge": 5, "beyond": 7, "reach": 2.0},
        Stated(frac_bits=18, ring_bits=40),
        (3,),
        18,
    ),
    (secret_ops.RowSums, [(3, 5)], REAL | {"form": carried(SUMS)}, Stated(), (3, 8), 24),
    (secret_ops.SumPool, [(1, 2, 5, 4)], {**IMAGE, "kernel": (2, 2)}, Stated(), (1, 2, 4, 3), 9),
    (
        secret_ops.TruncateReluPool,
        [(1, 2, 4, 4)],
        {**IMAGE, "kernel": (2, 2), "dilations": (1, 1), "bits": 9, **WINDOW},
        Stated(ring_bits=40),
        (1, 2, 3, 3),
        0,
    ),
    (
        secret_ops.MaxPool,
        [(1, 2, 5, 4)],
        {**IMAGE, "kernel": (2, 2), "dilations": (1, 1), **WINDOW},
        Stated(),
        (1, 2, 4, 3),
        9,
    ),
    (secret_ops.ReduceSum, [(2, 3)], {"axes": (1,), "keepdims": False}, Stated(), (2,), 9),
    (
        secret_ops.ReduceMax,
        [(2, 3)],
        {"axes": (0, 1), "keepdims": True, **WINDOW},
        Stated(),
        (1, 1),
        9,
    ),
    (secret_ops.Reshape, [(2, 3)], {}, Stated(shape=(6,)), (6,), 9),
    (secret_ops.Transpose, [(2, 3)], {"permutation": (1, 0)}, Stated(), (3, 2), 9),
    (secret_ops.Concat, [(2, 3), (2, 1)], {"axis": 1}, Stated(), (2, 4), 9),
    (secret_ops.Slice, [(2, 3)], {"starts": (1, 2), "steps": (1, -2)}, Stated((1, 2)), (1, 2), 9),
    (secret_ops.Pad, [(2, 3)], {"low": (0, 1), "high": (0, 0)}, Stated(), (2, 4), 9),
    (secret_ops.Broadcast, [(3, 1)], {}, Stated(shape=(2, 3, 4)), (2, 3, 4), 9),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].OPERATION_NAME)
def test_every_op_is_built_verified_and_read_back(
    case: tuple[type[SecretOp], list[tuple[int, ...]], dict[str, object], Stated, object, int],
) -> None:
    kind, shapes, attributes, stated, shape, frac_bits = case
    made = program(**{f"x{i}": s for i, s in enumerate(shapes)})
    with made.at("layer"):
        y = kind.build(*made.block.arguments, range=WHOLE, stated=stated, **attributes)
    made.finish({"y": y})
    assert Tensor.of(y) == Tensor(shape, Encoding(stated.ring_bits or 40, frac_bits))
    text = made.module.operation.get_asm(enable_debug_info=True)
    read = SecretProgram.parse(context(), str(text), {})
    (op,) = read.operations
    assert isinstance(op, kind)
    assert attributes_of(op) == attributes
    assert RealRange.of(op) == WHOLE
    assert op.location.name_str == "layer"
    assert read.arguments == made.arguments
    assert list(read.outputs) == ["y"]


def test_every_op_is_in_the_table() -> None:
    dialect = {op for op in secret_ops.SecretDialect.operations if hasattr(op, "OPERATION_NAME")}
    named = {op.OPERATION_NAME for op in dialect if op.OPERATION_NAME}
    assert named == {case[0].OPERATION_NAME for case in CASES} | {"secret.constant"}


@pytest.mark.parametrize("value", [np.array(3), np.array([[1, -2]]), np.full((2, 2), -(2**39))])
def test_constants_keep_their_integers(value: np.ndarray) -> None:
    made = program()
    with made.at("c"):
        y = secret_ops.Constant.build(range=WHOLE, stated=Stated((), 9, 40), value=value)
    made.finish({"y": y})
    assert Tensor.of(y) == Tensor(value.shape, PUBLIC)
    np.testing.assert_array_equal(attributes_of(made.operations[0])["value"], value)


def test_secret_and_public_is_secret() -> None:
    made = program(x=(2,))
    with made.at("c"):
        c = secret_ops.Constant.build(range=WHOLE, stated=Stated((), 9, 40), value=np.array([1, 2]))
        both = secret_ops.Add.build(made.block.arguments[0], c, range=WHOLE)
        neither = secret_ops.Add.build(c, c, range=WHOLE)
    assert Tensor.of(both).encoding.secrecy is Secrecy.SECRET
    assert Tensor.of(neither).encoding.secrecy is Secrecy.PUBLIC


@pytest.mark.parametrize(
    ("kind", "shapes", "attributes", "reason"),
    [
        (secret_ops.Add, [(2,), (3,)], {}, "broadcast"),
        (secret_ops.Truncate, [(2,)], {"bits": 39}, "can't go"),
        (secret_ops.Truncate, [(2,)], {"bits": 0}, "can't go"),
        (secret_ops.Reduce, [(2,)], {}, "can't be reduced"),
        (secret_ops.Lift, [(2,)], {}, "can't be lifted"),
        (secret_ops.Matmul, [(2, 3), (2, 3)], {}, "differ"),
        (secret_ops.Concat, [(2, 3), (3, 3)], {"axis": 1}, "don't join"),
    ],
)
def test_operands_that_do_not_fit_are_refused(
    kind: type[SecretOp],
    shapes: list[tuple[int, ...]],
    attributes: dict[str, object],
    reason: str,
) -> None:
    made = program(**{f"x{i}": s for i, s in enumerate(shapes)})
    with made.at("layer"), pytest.raises(ValueError, match=reason):
        kind.build(*made.block.arguments, range=WHOLE, stated=Stated(ring_bits=40), **attributes)


def test_operands_of_other_scales_or_rings_are_refused() -> None:
    x, y, z = (Tensor((2,), Encoding(ring, bits)) for ring, bits in ((40, 9), (40, 8), (32, 9)))
    for other in (y, z):
        with pytest.raises(ValueError, match="differ"):
            secret_ops.Add.infer([x, other], {}, Stated())
    assert secret_ops.Mul.infer([x, y], {}, Stated()).encoding.frac_bits == 17
    with pytest.raises(ValueError, match="differ"):
        secret_ops.Mul.infer([x, z], {}, Stated())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bits = 5 : i64", "bits = 5.0 : f64"),
        ("bits = 5 : i64, ", ""),
        ("bits = 5 : i64", "bits = 6 : i64"),
        ("frac_bits = 4", "frac_bits = 3"),
        ('range_source = "calibrated"', 'range_source = "guessed"'),
        ("range = array<f64: -1.000000e+00, 1.500000e+00>, ", ""),
        ("ring = 40", "ring = 65"),
        ('secrecy = "secret"', 'secrecy = "open"'),
    ],
)
def test_the_verifier_refuses_edited_text(old: str, new: str) -> None:
    made = program(x=(2,))
    with made.at("layer"):
        x = made.block.arguments[0]
        y = secret_ops.Truncate.build(x, range=WHOLE, stated=Stated(ring_bits=40), bits=5)
    made.finish({"y": y})
    text = str(made.module)
    assert old in text
    with pytest.raises(ir.MLIRError):
        SecretProgram.parse(context(), text.replace(old, new), {})


def test_what_an_owner_may_give() -> None:
    accepted = {source: RealRange(-1.0, 3.0, source).accepted(2.0) for source in RangeSource}
    assert accepted == {
        RangeSource.PROVEN: (-1.0, 3.0),
        RangeSource.CALIBRATED: (-4.0, 6.0),
        RangeSource.ASSUMED: (-np.inf, np.inf),
    }


def test_ranges_are_widened_by_what_their_source_needs() -> None:
    ranges = {source: RealRange(-1.0, 4.0, source) for source in RangeSource}
    assert ranges[RangeSource.CALIBRATED].widened(2.0) == (-5.0, 8.0)
    assert ranges[RangeSource.PROVEN].widened(2.0) == (-1.25, 4.25)
    assert ranges[RangeSource.ASSUMED].widened(2.0) == (-1.0, 4.0)
    assert ranges[RangeSource.CALIBRATED].magnitude(2.0) == 8.0
    assert RealRange.assumed(Encoding(40, 30)).bound == 2.0**8


def test_unused_operations_are_dropped() -> None:
    made = program(x=(2,))
    with made.at("layer"):
        secret_ops.Neg.build(
            secret_ops.Neg.build(made.block.arguments[0], range=WHOLE), range=WHOLE
        )
    made.finish({"x": made.block.arguments[0]})
    assert made.operations == []


def test_equal_constants_are_there_once() -> None:
    made = program(x=(2,))
    stated = Stated((), 9, 40)
    with made.at("sum"):
        total = made.block.arguments[0]
        for number in (5, 7, 5):
            value = np.array(number)
            addend = secret_ops.Constant.build(range=WHOLE, stated=stated, value=value)
            total = secret_ops.Add.build(total, addend, range=WHOLE)
    made.finish({"y": total})
    kinds = [op.operation.name for op in made.operations]
    assert kinds.count("secret.constant") == 2
    assert kinds.count("secret.add") == 3
    x = {"x": np.zeros(2, np.float32)}
    expected = 17 / 2**9
    np.testing.assert_array_equal(
        evaluate(made, x, np.random.default_rng(0)).outputs["y"], expected
    )
