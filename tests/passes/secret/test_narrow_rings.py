"""Numbers that windows alone read are in rings no wider than these; all others stay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from torch_mlir import ir

from veilgraph.ir.legality import check_secret
from veilgraph.ir.meaning.secret import Rounding, evaluate
from veilgraph.ir.mlir import context
from veilgraph.ir.secret import ops
from veilgraph.ir.secret.dialect import SecretOp, Stated
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import Encoding, RangeSource, RealRange, Tensor, ring_of
from veilgraph.passes.secret.narrow_rings import NarrowRings

RING, WINDOW = 40, 18
X = RangeSource.CALIBRATED
SMALL = RealRange(-4.0, 4.0, X)
Build = Callable[..., ir.Value]
Body = Callable[[Build, ir.Value, ir.Value], ir.Value]


def program(body: Body, known: RealRange = SMALL) -> SecretProgram:
    """y = body of x and r, [4] each, with 24 fraction bits."""
    tensor = Tensor((4,), Encoding(RING, 24))
    arguments = [Argument(name, "input", "a", tensor, known) for name in ("x", "r")]
    made = SecretProgram.create(context(), arguments, {}, "by hand", 2.0)

    def build(
        kind: type[SecretOp],
        *operands: ir.Value,
        frac_bits: int = 12,
        ring_bits: int = 0,
        **named: object,
    ) -> ir.Value:
        within = named.pop("within", known)
        ring_bits = ring_bits or Tensor.of(operands[0]).encoding.ring_bits
        with made.at("layer"):
            stated = Stated(frac_bits=frac_bits, ring_bits=ring_bits)
            return kind.build(*operands, range=within, stated=stated, **named)

    made.finish({"y": body(build, *made.block.arguments)})
    check_secret(made)
    return made


def truncated(build: Build, x: ir.Value) -> ir.Value:
    return build(ops.Truncate, x, bits=12)


def sign(build: Build, x: ir.Value) -> ir.Value:
    window = {"window_bits": WINDOW, "dropped_bits": 0}
    return build(ops.Step, x, frac_bits=0, ring_bits=RING, **window)


def narrowed(body: Body, known: RealRange = SMALL) -> list[tuple[str, int]]:
    """Each op with its result's ring, after the pass: the integers are the same."""
    before, after = (program(body, known) for _ in range(2))
    NarrowRings().run(after)
    check_secret(after)
    generator = np.random.default_rng(0)
    inputs = {name: generator.uniform(-4, 4, 4) for name in ("x", "r")}
    found = [evaluate(each, inputs, Rounding.NEAREST) for each in (before, after)]
    assert [each.excursions for each in found] == [[], []]
    np.testing.assert_array_equal(found[0].integers["y"], found[1].integers["y"])
    return [
        (op.operation.name.partition(".")[2], Tensor.of(op.operation.results[0]).encoding.ring_bits)
        for op in after.operations
    ]


def test_what_a_comparison_alone_reads_is_truncated_into_its_window() -> None:
    assert narrowed(lambda b, x, _: sign(b, truncated(b, x))) == [
        ("truncate", WINDOW),
        ("step", RING),
    ]


def test_sums_on_the_way_are_in_the_narrow_ring_too() -> None:
    def body(b: Build, x: ir.Value, r: ir.Value) -> ir.Value:
        number = b(ops.Constant, value=np.array([5]), ring_bits=RING)
        half = b(ops.Sub, truncated(b, x), truncated(b, r), within=RealRange(-8, 8, SMALL.source))
        return sign(b, b(ops.Add, half, number, within=RealRange(-9, 9, SMALL.source)))

    assert narrowed(body) == [
        ("truncate", 19),  # what they make holds 17 bits and its sign, twice over
        ("truncate", 19),
        ("sub", 19),
        ("constant", 19),
        ("add", 19),
        ("step", RING),
    ]


def test_an_argument_is_reduced_where_it_is_added() -> None:
    def body(b: Build, x: ir.Value, r: ir.Value) -> ir.Value:
        scaled = b(ops.Scale, truncated(b, x), factor=1 << 12, frac_bits=24)
        return sign(b, b(ops.Sub, scaled, r, frac_bits=24, within=RealRange(-8, 8, SMALL.source)))

    rings = dict(narrowed(body))
    assert rings["reduce"] == rings["sub"] == rings["scale"] == rings["truncate"] < RING


@pytest.mark.parametrize("reader", [ops.Mul, ops.Maximum])
def test_what_a_product_or_a_maximum_reads_stays(reader: type[SecretOp]) -> None:
    window = {"window_bits": 20, "dropped_bits": 0} if reader is ops.Maximum else {}

    def body(b: Build, x: ir.Value, r: ir.Value) -> ir.Value:
        y = truncated(b, x)
        product = b(reader, y, truncated(b, r), within=RealRange(-64, 64, SMALL.source), **window)
        return b(ops.Mul, product, sign(b, y), within=RealRange(-64, 64, SMALL.source))

    assert {ring for _, ring in narrowed(body)} == {RING}


def test_an_output_stays() -> None:
    assert narrowed(lambda b, x, _: truncated(b, x)) == [("truncate", RING)]


def test_a_lift_for_a_window_goes() -> None:
    def body(b: Build, x: ir.Value, _: ir.Value) -> ir.Value:
        y = truncated(b, x)
        lifted = b(ops.Lift, b(ops.Reduce, y, ring_bits=24), ring_bits=48)
        return b(ops.Mul, sign(b, lifted), y)

    found = narrowed(body)
    assert [kind for kind, _ in found].count("lift") == 0
    assert ("truncate", RING) in found


def test_products_that_a_window_alone_reads_are_in_its_ring() -> None:
    def body(b: Build, x: ir.Value, r: ir.Value) -> ir.Value:
        y = b(ops.Truncate, x, bits=18, frac_bits=6)
        z = b(ops.Truncate, r, bits=18, frac_bits=6)
        return sign(b, b(ops.Mul, y, z, within=RealRange(-16, 16, SMALL.source)))

    assert narrowed(body) == [
        ("truncate", 20),  # twice 16 has 17 bits here, and its sign
        ("truncate", 20),
        ("mul", 20),
        ("step", RING),
    ]


def test_nothing_is_lifted_to_be_padded_and_reduced() -> None:
    """As overlapping windows of an average pool are, in a backward pass."""

    def body(b: Build, x: ir.Value, r: ir.Value) -> ir.Value:
        both = []
        for given, low in ((x, 0), (r, 1)):
            y = b(ops.Truncate, given, bits=12, ring_bits=24)
            lifted = b(ops.Lift, y, ring_bits=RING)
            both.append(b(ops.Pad, lifted, low=(low,), high=(1 - low,)))
        total = b(ops.Add, *both, within=RealRange(-8, 8, SMALL.source))
        return b(ops.Reduce, total, within=RealRange(-8, 8, SMALL.source), ring_bits=24)

    found = narrowed(body)
    assert {ring for _, ring in found} == {24}
    assert {kind for kind, _ in found} == {"truncate", "pad", "add"}


@pytest.mark.parametrize("is_scaled", [False, True])
def test_a_sum_of_what_was_reduced_is_made_before_it(is_scaled: bool) -> None:
    """As the mean of a layer norm is, where the squares of its operand are in a wider ring."""

    def body(b: Build, x: ir.Value, _: ir.Value) -> ir.Value:
        wide = b(ops.Truncate, x, bits=12, ring_bits=48)
        narrow = b(ops.Reduce, wide, ring_bits=RING)
        total = b(ops.ReduceSum, narrow, axes=(0,), keepdims=True, within=RealRange(-16, 16, X))
        if is_scaled:
            total = b(ops.Scale, total, factor=3, frac_bits=12, within=RealRange(-48, 48, X))
        lifted = b(ops.Lift, total, ring_bits=48, within=RealRange(-48, 48, X))
        square = b(ops.Mul, lifted, lifted, within=RealRange(-2304, 2304, X))
        squares = b(ops.Mul, wide, wide, within=RealRange(-16, 16, X))
        return b(ops.Sub, squares, square, within=RealRange(-2320, 2320, X))

    found = narrowed(body)
    assert {ring for _, ring in found} == {48}
    assert not {"lift", "reduce"} & {kind for kind, _ in found}


def test_a_sum_is_made_in_the_ring_of_the_lift_and_no_wider() -> None:
    def body(b: Build, x: ir.Value, _: ir.Value) -> ir.Value:
        wide = b(ops.Truncate, x, bits=12, ring_bits=48)
        narrow = b(ops.Reduce, wide, ring_bits=32)
        total = b(ops.ReduceSum, narrow, axes=(0,), keepdims=True, within=RealRange(-16, 16, X))
        lifted = b(ops.Lift, total, ring_bits=RING, within=RealRange(-16, 16, X))
        square = b(ops.Mul, lifted, lifted, within=RealRange(-256, 256, X))
        squares = b(ops.Mul, wide, wide, within=RealRange(-16, 16, X))
        low = b(ops.Reduce, squares, ring_bits=RING, within=RealRange(-16, 16, X))
        return b(ops.Add, square, low, within=RealRange(-272, 272, X))

    found = narrowed(body)
    assert ("reduce_sum", RING) in found
    assert "lift" not in {kind for kind, _ in found}


def test_an_earlier_op_in_the_ring_of_a_lift_has_a_reduction_of_its_own() -> None:
    def body(b: Build, x: ir.Value, _: ir.Value) -> ir.Value:
        wide = b(ops.Truncate, x, bits=12, ring_bits=48)
        window = {"window_bits": 24, "dropped_bits": 0}
        bit = b(ops.Step, b(ops.Neg, wide), frac_bits=0, ring_bits=24, **window)
        narrow = b(ops.Reduce, wide, ring_bits=18)
        total = b(ops.ReduceSum, narrow, axes=(0,), keepdims=True, within=RealRange(-16, 16, X))
        lifted = b(ops.Lift, total, ring_bits=24, within=RealRange(-16, 16, X))
        squares = b(ops.Mul, wide, wide, within=RealRange(-16, 16, X))
        chosen = b(ops.Mul, bit, lifted, within=RealRange(-16, 16, X))
        shifted = b(ops.Scale, chosen, factor=1 << 12, frac_bits=24, within=RealRange(-16, 16, X))
        low = b(ops.Reduce, squares, ring_bits=24, within=RealRange(-16, 16, X))
        return b(ops.Add, shifted, low, within=RealRange(-32, 32, X))

    before, after = (program(body) for _ in range(2))
    NarrowRings().run(after)
    check_secret(after)
    inputs = {name: np.array([0.5, -1.0, 0.25, 2.0]) for name in ("x", "r")}
    found = [evaluate(each, inputs, Rounding.NEAREST).integers["y"] for each in (before, after)]
    np.testing.assert_array_equal(*found)


def test_what_was_reduced_from_a_ring_too_narrow_is_lifted() -> None:
    def body(b: Build, x: ir.Value, _: ir.Value) -> ir.Value:
        narrow = b(ops.Reduce, truncated(b, x), ring_bits=24)
        total = b(ops.ReduceSum, narrow, axes=(0,), keepdims=True, within=RealRange(-16, 16, X))
        lifted = b(ops.Lift, total, ring_bits=48, within=RealRange(-16, 16, X))
        return b(ops.Mul, lifted, lifted, within=RealRange(-256, 256, X))

    assert ("lift", 48) in narrowed(body)


def spread(b: Build, wide: ir.Value, bits: int) -> ir.Value:
    """4 x less the sum of x, of numbers reduced to a ring, truncated."""
    narrow = b(ops.Reduce, wide, ring_bits=RING)
    total = b(ops.ReduceSum, narrow, axes=(0,), keepdims=True, within=RealRange(-16, 16, X))
    four = b(ops.Scale, narrow, factor=4, within=RealRange(-16, 16, X))
    apart = b(ops.Sub, four, total, within=RealRange(-32, 32, X))
    return b(ops.Truncate, apart, bits=bits, ring_bits=32, within=RealRange(-32, 32, X))


@pytest.mark.parametrize(("bits", "read"), [(RING - 30, RING + 2), (RING - 8, RING)])
def test_what_was_reduced_too_much_for_its_truncation(bits: int, read: int) -> None:
    """By two bits it is not; by more than an overflow costs, it stays."""

    def body(b: Build, x: ir.Value, _: ir.Value) -> ir.Value:
        wide = b(ops.Truncate, x, bits=12, ring_bits=RING + 8)
        squares = b(ops.Mul, wide, wide, within=RealRange(-16, 16, X))
        low = b(ops.Truncate, squares, bits=12 + bits, ring_bits=32)
        return b(ops.Add, spread(b, wide, bits), low, within=RealRange(-48, 48, X))

    before, after = (program(body) for _ in range(2))
    NarrowRings().run(after)
    check_secret(after)
    truncations = [op for op in after.operations if isinstance(op, ops.Truncate)]
    assert read in [ring_of(op.operation.operands[0]) for op in truncations]
    inputs = {name: np.array([0.5, -1.0, 0.25, 2.0]) for name in ("x", "r")}
    found = [evaluate(each, inputs, Rounding.NEAREST).integers["y"] for each in (before, after)]
    np.testing.assert_array_equal(*found)


def test_a_product_of_what_was_reduced_is_made_once() -> None:
    """In a wider ring beside its own it would be sent twice: what it makes is lifted."""

    def body(b: Build, x: ir.Value, _: ir.Value) -> ir.Value:
        wide = b(ops.Truncate, x, bits=12, ring_bits=RING + 8)
        narrow = b(ops.Reduce, wide, ring_bits=RING)
        squares = b(ops.Mul, narrow, narrow, within=RealRange(-16, 16, X))
        return b(ops.Lift, squares, ring_bits=RING + 8, within=RealRange(-16, 16, X))

    after = program(body)
    NarrowRings().run(after)
    assert sum(isinstance(op, ops.Mul) for op in after.operations) == 1
    assert sum(isinstance(op, ops.Lift) for op in after.operations) == 1


def test_sums_of_sums_are_looked_at_once() -> None:
    """Each doubles the paths to what was reduced: 2^40 of them."""

    def body(b: Build, x: ir.Value, _: ir.Value) -> ir.Value:
        wide = b(ops.Truncate, x, bits=12, ring_bits=RING + 8)
        total = b(ops.Reduce, wide, ring_bits=RING)
        for _ in range(40):
            total = b(ops.Add, total, total)
        return b(ops.Lift, total, ring_bits=RING + 8)

    after = program(body)
    NarrowRings().run(after)
    assert not any(isinstance(op, ops.Lift) for op in after.operations)


def test_what_only_is_assumed_stays() -> None:
    known = RealRange.assumed(Encoding(RING, 24))
    window = {"window_bits": RING - 1, "dropped_bits": 0}

    def body(b: Build, x: ir.Value, _: ir.Value) -> ir.Value:
        y = b(ops.Truncate, x, bits=12, within=RealRange.assumed(Encoding(RING, 12)))
        return b(ops.Step, y, frac_bits=0, ring_bits=RING, **window)

    assert dict(narrowed(body, known))["truncate"] == RING


def test_what_leaves_a_narrow_ring_is_named() -> None:
    """Modulo 2^18 it seems to be within its range."""
    made = program(lambda b, x, _: sign(b, truncated(b, x)))
    NarrowRings().run(made)
    far = 2.0**WINDOW / 2.0**12 + 1.0
    found = evaluate(made, {"x": np.full(4, far), "r": np.zeros(4)})
    assert [(each.op, each.high) for each in found.excursions] == [("truncate", far)]


def test_a_sum_that_leaves_a_narrow_ring_is_named_with_what_it_is() -> None:
    """Each number is in its range. Modulo 2^18 their sum is too."""

    def body(b: Build, x: ir.Value, _: ir.Value) -> ir.Value:
        return sign(b, b(ops.ReduceSum, truncated(b, x), axes=(0,), keepdims=True))

    made = program(body)
    NarrowRings().run(made)
    found = evaluate(made, {"x": np.full(4, 16.25), "r": np.zeros(4)})
    assert ("reduce_sum", 65.0) in [(each.op, each.high) for each in found.excursions]
