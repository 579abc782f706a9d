"""The exact integers of each operation, rounding in all its modes, and what left its range."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from veilgraph.compilation.native_products import NativeProducts
from veilgraph.ir.meaning.secret import Rounding, evaluate
from veilgraph.ir.mlir import context
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.dialect import SecretOp, Stated
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import Encoding, RangeSource, RealRange, Secrecy, Tensor

ANY = RealRange(-(2.0**62), 2.0**62, RangeSource.ASSUMED)
SQUARE = {"strides": (2, 2), "pads_low": (1, 1), "pads_high": (0, 0)}
WIDEST = {"window_bits": 31, "dropped_bits": 0}


def one_op(
    kind: type[SecretOp],
    shapes: list[tuple[int, ...]],
    ring_bits: int = 32,
    frac_bits: int = 0,
    declared: RealRange = ANY,
    stated: Stated | None = None,
    **attributes: object,
) -> SecretProgram:
    """x0, x1... in Z_2^ring_bits, and y, what the op makes of them."""
    encoding = Encoding(ring_bits, frac_bits)
    arguments = [
        Argument(f"x{i}", "input", "alice", Tensor(shape, encoding), ANY)
        for i, shape in enumerate(shapes)
    ]
    program = SecretProgram.create(context(), arguments, {}, margin=2.0)
    with program.at("layer"):
        y = kind.build(
            *program.block.arguments,
            range=declared,
            stated=stated or Stated(ring_bits=ring_bits, frac_bits=frac_bits),
            **attributes,
        )
    program.finish({"y": y})
    return program


def integers_of(program: SecretProgram, *inputs: object, **options: object) -> np.ndarray:
    given = {f"x{i}": np.asarray(x, np.int64) for i, x in enumerate(inputs)}
    return evaluate(program, given, **options).integers["y"]  # type: ignore[arg-type]


X = np.random.default_rng(0).integers(-50, 50, (1, 2, 5, 5))
FLAT = X[0, 0]

# (op, operands, attributes, the integers expected)
CASES: list[tuple[type[SecretOp], list[np.ndarray], dict[str, object], np.ndarray]] = [
    (secret_ops.Add, [FLAT, FLAT[0]], {}, FLAT + FLAT[0]),
    (secret_ops.Sub, [FLAT, FLAT[0]], {}, FLAT - FLAT[0]),
    (secret_ops.Neg, [FLAT], {}, -FLAT),
    (secret_ops.Mul, [FLAT, FLAT[0]], {}, FLAT * FLAT[0]),
    (secret_ops.Matmul, [FLAT, FLAT.T], {}, FLAT @ FLAT.T),
    (secret_ops.Scale, [FLAT], {"factor": -3}, -3 * FLAT),
    (secret_ops.Reinterpret, [FLAT], {}, FLAT),
    (secret_ops.Step, [FLAT], WIDEST, np.asarray(FLAT >= 0, np.int64)),
    (
        secret_ops.OneHot,
        [FLAT],
        {"depth": 2, "wraps": False, **WIDEST},
        np.asarray(FLAT[..., None] == [0, 1], np.int64),
    ),
    (
        secret_ops.OneHot,
        [FLAT],
        {"depth": 2, "wraps": True, **WIDEST},
        np.isin(FLAT[..., None] - [0, 1], (0, -2)).astype(np.int64),
    ),
    (secret_ops.Relu, [FLAT], WIDEST, np.maximum(FLAT, 0)),
    (secret_ops.Maximum, [FLAT, FLAT[0]], WIDEST, np.maximum(FLAT, FLAT[0])),
    (secret_ops.ReduceSum, [FLAT], {"axes": (1,), "keepdims": False}, FLAT.sum(1)),
    (secret_ops.ReduceMax, [FLAT], {"axes": (0,), "keepdims": True, **WIDEST}, FLAT.max(0)[None]),
    (secret_ops.Transpose, [FLAT], {"permutation": (1, 0)}, FLAT.T),
    (secret_ops.Concat, [FLAT, FLAT], {"axis": 1}, np.concatenate([FLAT, FLAT], 1)),
    (secret_ops.Pad, [FLAT], {"low": (1, 0), "high": (0, 2)}, np.pad(FLAT, [(1, 0), (0, 2)])),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].OPERATION_NAME)
@pytest.mark.parametrize("ring_bits", [24, 40, 64])
def test_each_op(
    case: tuple[type[SecretOp], list[np.ndarray], dict[str, object], np.ndarray], ring_bits: int
) -> None:
    kind, operands, attributes, expected = case
    named = attributes | ({"window_bits": ring_bits - 1} if "window_bits" in attributes else {})
    program = one_op(kind, [x.shape for x in operands], ring_bits, **named)
    np.testing.assert_array_equal(integers_of(program, *operands), expected)
    native = integers_of(program, *operands, products=NativeProducts(least=0))
    np.testing.assert_array_equal(native, expected)


def test_pools_and_shapes() -> None:
    pools = {"kernel": (3, 3), **SQUARE}
    padded = np.pad(X, [(0, 0), (0, 0), (1, 0), (1, 0)])
    views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    program = one_op(secret_ops.SumPool, [X.shape], **pools)
    np.testing.assert_array_equal(integers_of(program, X), views.sum((-1, -2)))
    program = one_op(secret_ops.MaxPool, [X.shape], dilations=(1, 1), **pools, **WIDEST)
    below = integers_of(program, X - 1000)
    assert below.max() < 0, "padding never wins"
    np.testing.assert_array_equal(below[:, :, 1:, 1:], views.max((-1, -2))[:, :, 1:, 1:] - 1000)
    for kind, stated, expected in (
        (secret_ops.Reshape, Stated((10, 5)), X.reshape(10, 5)),
        (secret_ops.Broadcast, Stated((3, 2, 5, 5)), np.broadcast_to(X, (3, 2, 5, 5))),
    ):
        program = one_op(kind, [X.shape], stated=stated)
        np.testing.assert_array_equal(integers_of(program, X), expected)
    program = one_op(
        secret_ops.Slice, [(5, 5)], stated=Stated((2, 3)), starts=(1, 4), steps=(2, -2)
    )
    np.testing.assert_array_equal(integers_of(program, FLAT), FLAT[1:5:2, 4::-2])


def test_conv_wraps_in_the_ring() -> None:
    w = np.full((1, 2, 1, 1), 2**23 - 1)
    geometry = {"strides": (1, 1), "pads_low": (0, 0), "pads_high": (0, 0), "dilations": (1, 1)}
    program = one_op(secret_ops.Conv, [X.shape, w.shape], 24, groups=1, **geometry)
    expected = X.sum(axis=1, keepdims=True) * (2**23 - 1)
    wrapped = (expected + 2**23) % 2**24 - 2**23
    np.testing.assert_array_equal(integers_of(program, X, w), wrapped)
    native = integers_of(program, X, w, products=NativeProducts(least=0))
    np.testing.assert_array_equal(native, wrapped)


Z = np.array([-(2**29), -17, -16, -9, -8, -1, 0, 1, 7, 8, 9, 16, 2**29])


@pytest.mark.parametrize(
    ("rounding", "tau"), [(Rounding.FLOOR, 0), (Rounding.NEAREST, 8)], ids=["floor", "nearest"]
)
def test_truncations_round_as_told(rounding: Rounding, tau: int) -> None:
    program = one_op(secret_ops.Truncate, [Z.shape], bits=4)
    expected = (Z + tau) >> 4
    np.testing.assert_array_equal(integers_of(program, Z, rounding=rounding), expected)
    fused = one_op(secret_ops.TruncateRelu, [Z.shape], bits=4, window_bits=31, dropped_bits=4)
    expected = np.maximum(expected, 0)
    np.testing.assert_array_equal(integers_of(fused, Z, rounding=rounding), expected)


def test_random_truncations_are_unbiased_and_within_one_unit() -> None:
    z = np.repeat(np.arange(-16, 17), 4000)
    program = one_op(secret_ops.Truncate, [z.shape], bits=4)
    found = integers_of(program, z, rounding=np.random.default_rng(7))
    up = found - (z >> 4)
    assert set(np.unique(up)) == {0, 1}
    shares = up.reshape(-1, 4000).mean(axis=1)
    np.testing.assert_allclose(shares, np.arange(-16, 17) % 16 / 16, atol=0.04)


def test_truncation_into_another_ring() -> None:
    z = np.array([2**38, -(2**38), 5 << 30])
    for ring_bits, expected in ((64, z >> 8), (24, [0, 0, (5 << 22) - (1 << 24)])):
        program = one_op(
            secret_ops.Truncate, [z.shape], 40, stated=Stated(ring_bits=ring_bits), bits=8
        )
        found = integers_of(program, z, rounding=Rounding.FLOOR)
        np.testing.assert_array_equal(found, expected)


def test_changes_of_the_ring_keep_what_fits() -> None:
    z = np.array([2**29 - 1, -(2**29), 7, -(2**23), 2**23 - 1])
    for kind, ring_bits, expected in (
        (secret_ops.Lift, 40, z),
        (secret_ops.Reduce, 24, [-1, 0, 7, -(2**23), 2**23 - 1]),
    ):
        program = one_op(kind, [z.shape], 32, stated=Stated(ring_bits=ring_bits))
        np.testing.assert_array_equal(integers_of(program, z), expected)


def test_a_comparison_may_pass_small_negatives_for_positive() -> None:
    z = np.array([-9, -8, -7, -1, 0, 3])
    program = one_op(secret_ops.Relu, [z.shape], window_bits=20, dropped_bits=3)
    assert integers_of(program, z, rounding=Rounding.FLOOR).tolist() == [0, 0, 0, 0, 0, 3]
    assert integers_of(program, z, rounding=Rounding.NEAREST).tolist() == [0, 0, 0, -1, 0, 3]
    many = np.tile(z, 1000)
    program = one_op(secret_ops.Relu, [many.shape], window_bits=20, dropped_bits=3)
    found = integers_of(program, many, rounding=np.random.default_rng(0)).reshape(1000, 6)
    assert {frozenset(np.unique(column)) for column in found.T[:2]} == {frozenset({0})}
    assert set(np.unique(found[:, 2])) == {-7, 0}


def test_real_inputs_and_weights_are_encoded_by_their_types() -> None:
    tensor = Tensor((2,), Encoding(32, 8))
    weight = Tensor((2,), Encoding(32, 4, Secrecy.PUBLIC))
    arguments = [
        Argument("x", "input", "alice", tensor, ANY),
        Argument("w", "weight", "bob", weight, ANY),
    ]
    program = SecretProgram.create(context(), arguments, {"w": np.float32([0.5, -2.0])})
    with program.at("layer"):
        y = secret_ops.Mul.build(*program.block.arguments, range=ANY)
    program.finish({"y": y})
    found = evaluate(program, {"x": np.array([1.25, 3.0])})
    assert found.integers["y"].tolist() == [320 * 8, 768 * -32]
    assert found.outputs["y"].tolist() == [0.625, -6.0]
    assert evaluate(program, {"x": np.array([320, 768])}).outputs["y"].tolist() == [0.625, -6.0]


def test_what_left_its_range_is_named() -> None:
    declared = RealRange(-1.0, 4.0, RangeSource.CALIBRATED)
    program = one_op(secret_ops.Neg, [(4,)], declared=declared)
    inside = evaluate(program, {"x0": np.array([5, 4, -8, 0])})
    assert inside.excursions == [], "the margin of two is no excursion"
    (found,) = evaluate(program, {"x0": np.array([6, 7, -9, 0])}).excursions
    assert (found.name, found.op, found.count) == ("layer", "neg", 3)
    assert (found.low, found.high, found.declared) == (-7.0, 9.0, declared)
    assert str(found) == "3 values in neg 'layer' left [-1, 4]: they reach from -7 to 9"


def test_a_range_narrower_than_a_unit_in_the_last_place_is_a_unit() -> None:
    declared = RealRange(0.0, 0.01, RangeSource.CALIBRATED)
    program = one_op(secret_ops.Neg, [(3,)], frac_bits=4, declared=declared)
    assert evaluate(program, {"x0": np.array([1, 0, -1])}).excursions == []
    (found,) = evaluate(program, {"x0": np.array([2, 0, -1])}).excursions
    assert found.count == 1


def test_what_is_proven_is_proven_but_for_rounding() -> None:
    declared = RealRange(-1.0, 1.5, RangeSource.PROVEN)
    program = one_op(secret_ops.Neg, [(3,)], frac_bits=1, declared=declared)
    assert evaluate(program, {"x0": np.array([3, 0, -4])}).excursions == []
    (found,) = evaluate(program, {"x0": np.array([4, 0, -5])}).excursions
    assert found.count == 2


def test_every_operation_is_observed() -> None:
    program = one_op(secret_ops.Neg, [(2,)], frac_bits=1)
    seen: list[tuple[str, list[int], list[float]]] = []
    observe: Callable[..., None] = lambda op, z, x: seen.append(  # noqa: E731
        (op.location.name_str, z.tolist(), x.tolist())
    )
    evaluate(program, {"x0": np.array([1.5, -2.0])}, observe=observe)
    assert seen == [("layer", [-3, 4], [-1.5, 2.0])]


@pytest.mark.parametrize(
    "inputs", [{}, {"x0": np.zeros(3)}, {"x0": np.zeros(2), "x1": np.zeros(2)}]
)
def test_inputs_must_match(inputs: dict[str, np.ndarray]) -> None:
    program = one_op(secret_ops.Neg, [(2,)])
    with pytest.raises(ValueError, match="the program takes"):
        evaluate(program, inputs)


def test_inputs_must_fit() -> None:
    program = one_op(secret_ops.Neg, [(2,)], frac_bits=20)
    with pytest.raises(OverflowError, match="doesn't fit"):
        evaluate(program, {"x0": np.array([2048.0, 0.0])})
