"""Products have no more fraction bits than let what functions read be truncated by parts alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from torch_mlir import ir

from veilgraph.ir.legality import check_secret
from veilgraph.ir.meaning.secret import Rounding, evaluate
from veilgraph.ir.mlir import context
from veilgraph.ir.secret import ops
from veilgraph.ir.secret.dialect import SecretOp, Stated, attributes_of
from veilgraph.ir.secret.fourier import FourierSeries
from veilgraph.ir.secret.function_forms import carried, function_form
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import Encoding, RangeSource, RealRange, Tensor
from veilgraph.passes.secret.local_truncations import LocalTruncations

RING, LENGTH = 40, 16
SMALL = RealRange(-1.0, 1.0, RangeSource.CALIBRATED)
STATED = ("shape", "frac_bits", "ring_bits")
Build = Callable[..., ir.Value]
Body = Callable[..., ir.Value]


def program(body: Body, weight_bits: int = 23) -> SecretProgram:
    """y = body of x [2, 16], of 12 fraction bits, and the weights w [16, 3] and b [3]."""
    tensors = {
        "x": Tensor((2, LENGTH), Encoding(RING, 12)),
        "w": Tensor((LENGTH, 3), Encoding(RING, weight_bits)),
        "b": Tensor((3,), Encoding(RING, 12 + weight_bits)),
    }
    arguments = [
        Argument(name, "input" if name == "x" else "weight", "a", tensor, SMALL)
        for name, tensor in tensors.items()
    ]
    generator = np.random.default_rng(0)
    weights = {
        name: generator.uniform(-0.1, 0.1, tensors[name].shape).astype(np.float32)
        for name in ("w", "b")
    }
    made = SecretProgram.create(context(), arguments, weights, "by hand", 2.0)

    def build(kind: type[SecretOp], *operands: ir.Value, **named: Any) -> ir.Value:
        stated = {key: named.pop(key) for key in STATED if key in named}
        within = named.pop("within", SMALL)
        stated.setdefault("ring_bits", Tensor.of(operands[0]).encoding.ring_bits if operands else 0)
        with made.at("layer"):
            return kind.build(*operands, range=within, stated=Stated(**stated), **named)

    made.finish({"y": body(build, *made.block.arguments)})
    check_secret(made)
    return made


def sign(b: Build, x: ir.Value, window: int) -> ir.Value:
    return b(ops.Step, x, ring_bits=24, window_bits=window, dropped_bits=0)


def layer(b: Build, x: ir.Value, w: ir.Value, bias: ir.Value, dropped: int, into: int) -> ir.Value:
    product = b(ops.Add, bias, b(ops.Matmul, x, w))
    return b(ops.Truncate, product, bits=dropped, ring_bits=into)


def encodings(made: SecretProgram) -> dict[str, tuple[int, int]]:
    """Of each argument, and of the last result of each kind, ring and fraction bits."""
    given = {each.name: each.tensor.encoding for each in made.arguments}
    results = {op.operation.name: Tensor.of(op.operation.results[0]) for op in made.operations}
    found = given | {name.partition(".")[2]: tensor.encoding for name, tensor in results.items()}
    return {name: (encoding.ring_bits, encoding.frac_bits) for name, encoding in found.items()}


def after(made: SecretProgram) -> SecretProgram:
    LocalTruncations().run(made)
    check_secret(made)
    return made


def dropped_bits(made: SecretProgram) -> list[int]:
    return [attributes_of(op)["bits"] for op in made.operations if isinstance(op, ops.Truncate)]


def value_of(made: SecretProgram) -> np.ndarray:
    inputs = {"x": np.random.default_rng(1).uniform(-1, 1, (2, LENGTH))}
    return evaluate(made, inputs, Rounding.NEAREST).outputs["y"]


def test_a_weight_gives_the_bits_that_its_product_has_too_many() -> None:
    def body(b: Build, x: ir.Value, w: ir.Value, bias: ir.Value) -> ir.Value:
        return layer(b, x, w, bias, 26, 16)

    before, made = program(body), after(program(body))
    assert dropped_bits(made) == [24]
    found = encodings(made)
    assert (found["w"], found["b"], found["matmul"]) == ((RING, 21), (RING, 33), (RING, 33))
    assert found["truncate"] == (16, 9)
    assert np.abs(value_of(before) - value_of(made)).max() <= 2.0**-9


def test_bits_are_shared_by_products_of_what_was_truncated() -> None:
    """As scores are, of queries and keys."""

    def body(b: Build, x: ir.Value, w: ir.Value, _: ir.Value) -> ir.Value:
        left = b(ops.Truncate, b(ops.Scale, x, factor=1 << 14, frac_bits=26), bits=8)
        right = b(ops.Truncate, b(ops.Scale, w, factor=1 << 3, frac_bits=26), bits=9)
        scores = b(ops.Matmul, left, right)
        moved = b(ops.Constant, value=np.asarray(-(5 << 35)), frac_bits=35, ring_bits=RING)
        return b(ops.Truncate, b(ops.Sub, scores, moved), bits=23, ring_bits=21)

    before, made = program(body), after(program(body))
    assert dropped_bits(made) == [10, 11, 19]
    assert encodings(made)["constant"] == (RING, 31)
    assert np.abs(value_of(before) - value_of(made)).max() <= 2.0**-11


def test_a_convolution_gives_bits_too() -> None:
    def body(b: Build, x: ir.Value, w: ir.Value, _: ir.Value) -> ir.Value:
        image = b(ops.Reshape, x, shape=(1, 2, 4, 4))
        kernel = b(ops.Reshape, w, shape=(3, 2, 4, 2))
        named = {"strides": (1, 1), "dilations": (1, 1), "groups": 1}
        made = b(ops.Conv, image, kernel, pads_low=(0, 0), pads_high=(0, 0), **named)
        return b(ops.Truncate, made, bits=26, ring_bits=16)

    assert dropped_bits(after(program(body))) == [24]


def unchanged(body: Body, weight_bits: int = 23) -> None:
    before = program(body, weight_bits)
    made = after(program(body, weight_bits))
    assert dropped_bits(made) == dropped_bits(before)
    assert encodings(made) == encodings(before)


@pytest.mark.parametrize(("dropped", "into"), [(24, 16), (26, 14), (30, 10), (26, RING)])
def test_what_is_local_or_far_from_it_stays(dropped: int, into: int) -> None:
    unchanged(lambda b, x, w, bias: layer(b, x, w, bias, dropped, into))


def test_a_weight_keeps_what_its_result_needs() -> None:
    """Of 9 bits, 16 of which are added up, a result of 9 bits would lose more than a unit."""
    unchanged(lambda b, x, w, bias: layer(b, x, w, bias, 12, 32), weight_bits=9)


def test_what_others_read_stays() -> None:
    def twice(b: Build, x: ir.Value, w: ir.Value, bias: ir.Value) -> ir.Value:
        first = layer(b, x, w, bias, 26, 16)
        second = b(ops.Truncate, b(ops.Matmul, x, w), bits=26, ring_bits=14)
        return b(ops.Add, sign(b, first, 16), sign(b, second, 14))

    def returned(b: Build, x: ir.Value, w: ir.Value, bias: ir.Value) -> ir.Value:
        product = b(ops.Matmul, x, w)
        truncated = b(ops.Truncate, product, bits=26, ring_bits=16)
        whole = b(ops.Reduce, product, ring_bits=24)
        return b(ops.Add, sign(b, truncated, 16), sign(b, whole, 24))

    def given(b: Build, x: ir.Value, w: ir.Value, bias: ir.Value) -> ir.Value:
        total = b(ops.Scale, x, factor=1 << 23, frac_bits=35)
        return b(ops.Truncate, total, bits=26, ring_bits=16)

    for body in (twice, returned, given):
        unchanged(body)


def test_many_terms_and_large_factors_take_more_of_a_weights_bits() -> None:
    """A weight's last bit is added up, or multiplied, before it is rounded away."""

    def summed(b: Build, x: ir.Value, w: ir.Value, _: ir.Value) -> ir.Value:
        rows = b(ops.Reshape, x, shape=(2, LENGTH, 1))
        total = b(ops.ReduceSum, b(ops.Mul, rows, w), axes=(1,), keepdims=False)
        return b(ops.Truncate, total, bits=16, ring_bits=28)

    def pooled(b: Build, x: ir.Value, w: ir.Value, _: ir.Value) -> ir.Value:
        kernel = b(ops.Reshape, b(ops.ReduceSum, w, axes=(1,), keepdims=False), shape=(1, 1, 4, 4))
        product = b(ops.Mul, b(ops.Reshape, x, shape=(2, 1, 4, 4)), kernel)
        pads = {"pads_low": (0, 0), "pads_high": (0, 0)}
        total = b(ops.SumPool, product, kernel=(4, 4), strides=(4, 4), **pads)
        return b(ops.Truncate, total, bits=16, ring_bits=28)

    def multiplied(b: Build, x: ir.Value, w: ir.Value, _: ir.Value) -> ir.Value:
        wide = RealRange(-256.0, 256.0, SMALL.source)
        large = b(ops.Reinterpret, x, frac_bits=4, within=wide)
        column = b(ops.Reshape, x, shape=(2, LENGTH, 1))
        rows = b(ops.Reshape, large, shape=(2, LENGTH, 1), within=wide)
        product = b(ops.Mul, b(ops.Mul, column, w), rows)
        return b(ops.Truncate, product, bits=20, ring_bits=24)

    for body in (summed, pooled, multiplied):
        unchanged(body, weight_bits=18)


def test_a_truncation_that_is_local_stays_so() -> None:
    def body(b: Build, x: ir.Value, w: ir.Value, _: ir.Value) -> ir.Value:
        scaled = b(ops.Scale, x, factor=1 << 16, frac_bits=28)
        row = b(ops.Truncate, scaled, bits=8, ring_bits=32)
        product = b(ops.Matmul, row, b(ops.Reduce, w, ring_bits=32))
        return b(ops.Truncate, product, bits=18, ring_bits=16)

    unchanged(body, weight_bits=8)


def test_what_was_zero_on_all_samples_may_be_anything() -> None:
    zero = RealRange(0.0, 0.0, RangeSource.CALIBRATED)

    def body(b: Build, x: ir.Value, w: ir.Value, _: ir.Value) -> ir.Value:
        product = b(ops.Matmul, b(ops.Neg, x, within=zero), w, within=zero)
        return b(ops.Truncate, product, bits=14, ring_bits=34)

    unchanged(body, weight_bits=2)


@pytest.mark.parametrize(("bound", "left"), [(1.5, 14), (2.0, 16)])
def test_numbers_are_as_large_as_if_they_were_spread_evenly(bound: float, left: int) -> None:
    """Two bits of a weight: 16 numbers below 1.5 change by 3.5 units of it, below 2 by 4.6."""

    def body(b: Build, x: ir.Value, w: ir.Value, bias: ir.Value) -> ir.Value:
        numbers = b(ops.Neg, x, within=RealRange(-bound, bound, RangeSource.CALIBRATED))
        return layer(b, numbers, w, bias, dropped=16, into=26)

    assert dropped_bits(after(program(body))) == [left]


RSQRT = {"function": "rsqrt", "least": 0.5, "most": 1.0, "origin": 0.0, "error": 0.1}


@pytest.mark.parametrize("is_told", [False, True])
def test_a_function_drops_what_a_truncation_of_it_would(is_told: bool) -> None:
    """But not of an output, whose receiver is to know nothing of how it was rounded."""
    series = FourierSeries(
        window_bits=20, first=1, step=1, cosines=(1 << 20,), sines=(0,), coefficient_bits=20,
        constant=5 << 30, slope=0, cosine_bits=15, factor_bits=15, sum_bits=34,
    )  # fmt: skip

    def body(b: Build, x: ir.Value, _: ir.Value, __: ir.Value) -> ir.Value:
        y = b(ops.Function, x, frac_bits=14, ring_bits=24, **RSQRT, form=carried(series))
        half = b(ops.Reinterpret, y, frac_bits=15)
        z = b(ops.Truncate, half, bits=4, ring_bits=30)
        return z if is_told else b(ops.Neg, z)

    made, before = after(program(body)), program(body)
    check_secret(made)
    kinds = [type(op) for op in made.operations]
    assert (ops.Truncate in kinds) == is_told
    found = encodings(made)
    assert found["function"] == ((24, 14) if is_told else (30, 10))
    assert found["reinterpret"] == ((24, 15) if is_told else (30, 11))
    x = {"x": np.random.default_rng(0).uniform(-1, 1, (2, LENGTH))}
    wanted, got = (evaluate(each, x).outputs["y"] for each in (before, made))
    assert np.abs(got - wanted).max() <= 2.0**-11


@pytest.mark.parametrize(("ring", "kept"), [(39, 37), (40, 36), (41, 35), (42, 37)])
def test_a_series_has_room_for_a_wide_sum(ring: int, kept: int) -> None:
    """In K + 25 bits: one and two more than 64 are taken off, and no more."""
    series = FourierSeries(
        window_bits=RING, first=1, step=1, cosines=(1 << 20,), sines=(0,), coefficient_bits=20,
        constant=5 << 30, slope=0, cosine_bits=19, factor_bits=18, sum_bits=41,
    )  # fmt: skip

    def body(b: Build, x: ir.Value, _: ir.Value, __: ir.Value) -> ir.Value:
        stated = {"frac_bits": 12, "ring_bits": ring}
        return b(ops.Function, x, **stated, **RSQRT, form=carried(series))

    form = function_form(attributes_of(after(program(body)).operations[-1])["form"])
    assert isinstance(form, FourierSeries)
    assert (form.frac_bits, form.sum_bits) == (kept, kept + 4)
    assert form.constant / 2.0**kept == series.constant / 2.0**37
