"""Truncations moved, merged and fused: the listings say what is left, the integers stay right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from before_after import example, listing
from torch_mlir import ir

from veilgraph.ir.legality import check_secret
from veilgraph.ir.meaning.secret import Rounding, evaluate
from veilgraph.ir.mlir import context
from veilgraph.ir.secret import ops
from veilgraph.ir.secret.dialect import SecretOp, Stated, attributes_of
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import Encoding, RangeSource, RealRange, Secrecy, Tensor
from veilgraph.passes.secret.merge_truncations import MergeTruncations
from veilgraph.passes.secret.padded_sums import is_part_of_a_sum

RING = 32
SMALL = RealRange(-4.0, 4.0, RangeSource.CALIBRATED)
LARGE = RealRange(-(2.0**12), 2.0**12, RangeSource.CALIBRATED)
WINDOW = {"window_bits": RING - 1, "dropped_bits": 0}
Values = dict[str, ir.Value]
Body = Callable[["Writer", Values], ir.Value]


class Writer:
    """Writes ops of a program, all in one range unless told otherwise."""

    def __init__(self, program: SecretProgram) -> None:
        self.program = program

    def __call__(
        self,
        kind: type[SecretOp],
        *operands: ir.Value,
        frac_bits: int = 12,
        within: RealRange = SMALL,
        shape: tuple[int, ...] = (),
        **named: object,
    ) -> ir.Value:
        ring_bits = Tensor.of(operands[0]).encoding.ring_bits if operands else RING
        stated = Stated(shape, frac_bits, ring_bits)
        with self.program.at("layer"):
            return kind.build(*operands, range=within, stated=stated, **named)

    def truncated_product(self, x: ir.Value, w: ir.Value, within: RealRange = SMALL) -> ir.Value:
        product = self(ops.Matmul, x, w, within=within)
        return self(ops.Truncate, product, bits=12, within=within)

    def in_ring(self, x: ir.Value, ring_bits: int) -> ir.Value:
        here = Tensor.of(x).encoding.ring_bits
        kind = ops.Lift if ring_bits > here else ops.Reduce
        with self.program.at("layer"):
            return kind.build(x, range=SMALL, stated=Stated(ring_bits=ring_bits))

    def relu(self, x: ir.Value, ring_bits: int = RING) -> ir.Value:
        return self(ops.Relu, x, **WINDOW | {"window_bits": ring_bits - 1})


def program(body: Body) -> SecretProgram:
    """y = body of x [4, 4], r [4, 4], weights w, v [4, 4] and b [4], all with 12 fraction bits."""
    shapes = {"x": (4, 4), "r": (4, 4), "w": (4, 4), "v": (4, 4), "b": (4,)}
    roles = {"x": "input", "r": "input"}
    arguments = [
        Argument(name, roles.get(name, "weight"), "a", Tensor(s, Encoding(RING, 12)), SMALL)
        for name, s in shapes.items()
    ]
    generator = np.random.default_rng(3)
    weights = {n: generator.uniform(-0.5, 0.5, shapes[n]).astype(np.float32) for n in "wvb"}
    made = SecretProgram.create(context(), arguments, weights, "by hand", 2.0)
    names = dict(zip(shapes, made.block.arguments, strict=True))
    result = body(Writer(made), names)
    made.finish({"y": result})
    return made


def merged(body: Body) -> str:
    """The listing after the pass; the values must be as near the exact ones as before."""
    before = program(body)
    after = MergeTruncations().run(before)
    check_secret(after)
    assert (after.encoding, after.margin) == ("by hand", 2.0)
    generator = np.random.default_rng(0)
    inputs = {name: generator.uniform(-1, 1, (4, 4)) for name in ("x", "r")}
    plain = evaluate(before, inputs, Rounding.NEAREST).outputs["y"]
    deferred = evaluate(after, inputs, Rounding.NEAREST)
    np.testing.assert_allclose(deferred.outputs["y"], plain, atol=8 * 2.0**-12)
    assert deferred.excursions == []
    return listing(after)


def test_docstring_example() -> None:
    def body(write: Writer, v: Values) -> ir.Value:
        return write.relu(write(ops.Add, write.truncated_product(v["x"], v["w"]), v["r"]))

    assert listing(program(lambda w, v: w.truncated_product(body(w, v), v["v"]))).startswith(
        example(MergeTruncations, "Before")
    )
    text = merged(lambda w, v: w.truncated_product(body(w, v), v["v"]))
    assert text.startswith(example(MergeTruncations, "After"))


def test_an_output_is_not_truncated() -> None:
    text = merged(lambda w, v: w.truncated_product(v["x"], v["w"]))
    assert text == "%1 = matmul %x, %w : 24"


def test_a_relu_before_an_output_is_not_truncated_either() -> None:
    before = program(lambda w, v: w.relu(w.truncated_product(v["x"], v["w"])))
    text = listing(MergeTruncations().run(before), windows=True)
    assert text.splitlines() == [
        "%1 = matmul %x, %w : 24",
        "%2 = relu %1 {dropped_bits = 12, window_bits = 31} : 24",
    ]


def test_two_products_and_a_bias_share_one_truncation() -> None:
    def body(w: Writer, v: Values) -> ir.Value:
        total = w(ops.Add, w.truncated_product(v["x"], v["w"]), w.truncated_product(v["r"], v["v"]))
        shifted = w(ops.Add, total, v["b"])
        return w.truncated_product(shifted, v["w"])

    assert merged(body).splitlines() == [
        "%1 = matmul %x, %w : 24",
        "%2 = matmul %r, %v : 24",
        "%3 = add %1, %2 : 24",
        "%4 = scale %b {factor = 4096} : 24",
        "%5 = add %3, %4 : 24",
        "%6 = truncate %5 {bits = 12} : 12",
        "%7 = matmul %6, %w : 24",
    ]


def test_shifts_that_only_align_take_the_truncation_back() -> None:
    def body(w: Writer, v: Values) -> ir.Value:
        wide = w(ops.Scale, w.truncated_product(v["x"], v["w"]), frac_bits=24, factor=4096)
        bias = w(ops.Scale, v["b"], frac_bits=24, factor=4096)
        return w.relu(w(ops.Truncate, w(ops.Add, wide, bias), bits=12))

    assert merged(lambda w, v: w.truncated_product(body(w, v), v["w"])).splitlines() == [
        "%1 = matmul %x, %w : 24",
        "%2 = scale %b {factor = 4096} : 24",
        "%3 = add %1, %2 : 24",
        "%4 = truncate_relu %3 {bits = 12} : 12",
        "%5 = matmul %4, %w : 24",
    ]


def test_truncations_in_a_row_become_one() -> None:
    def body(w: Writer, v: Values) -> ir.Value:
        less = w(ops.Truncate, w.truncated_product(v["x"], v["w"]), bits=4)
        return w(ops.Matmul, less, v["v"])

    assert merged(body).splitlines()[:2] == [
        "%1 = matmul %x, %w : 24",
        "%2 = truncate %1 {bits = 16} : 8",
    ]


def test_layout_and_sums_stay_wide() -> None:
    def body(w: Writer, v: Values) -> ir.Value:
        y = w(ops.Transpose, w.truncated_product(v["x"], v["w"]), permutation=(1, 0))
        y = w(ops.Neg, w(ops.Reshape, y, shape=(1, 1, 4, 4)))
        y = w(ops.SumPool, y, kernel=(2, 2), strides=(2, 2), pads_low=(0, 0), pads_high=(0, 0))
        y = w(ops.ReduceSum, y, axes=(0, 1), keepdims=False)
        y = w(ops.Slice, y, starts=(0, 1), steps=(1, -1), shape=(2, 2))
        return w.relu(w(ops.Matmul, w.relu(y), y))

    kinds = [line.split()[2] for line in merged(body).splitlines()]
    assert kinds[:7] == ["matmul", "transpose", "reshape", "neg", "sum_pool", "reduce_sum", "slice"]
    assert kinds[7:] == ["truncate", "relu", "matmul", "relu"]


def scattered(
    places: Sequence[tuple[int, int]], *, of_one: bool = False, lifts: bool = False
) -> list[str]:
    """The kinds of operations of a sum of columns of a product, each put among zeros (before,
    behind), which is multiplied.

    Args:
        of_one: the same columns are put there.
        lifts: each step of the sum is in a wider ring than what it makes is kept in.
    """

    def body(w: Writer, v: Values) -> ir.Value:
        y = w.truncated_product(v["x"], v["w"])
        cut: dict[str, Any] = {"starts": (0, 0), "steps": (1, 1), "shape": (4, 3)}
        one = w(ops.Slice, y, **cut)
        parts = []
        for before, behind in places:
            part = w(ops.Reshape, one if of_one else w(ops.Slice, y, **cut), shape=(1, 4, 3))
            part = w.in_ring(part, RING + 8) if lifts else part
            parts.append(w(ops.Pad, part, low=(0, 0, before), high=(0, 0, behind)))
        total = parts[0]
        for part in parts[1:]:
            total = w(ops.Add, total, part)
            total = w.in_ring(w.in_ring(total, RING), RING + 8) if lifts else total
        total = w.in_ring(total, RING) if lifts else total
        total = w(ops.Reshape, total, shape=(4, 3 + sum(places[0])))
        total = w(ops.Slice, total, starts=(0, 0), steps=(1, 1), shape=(4, 4))
        return w(ops.Matmul, w.relu(v["x"]), total)

    return [line.split()[2] for line in merged(body).splitlines()]


def test_padded_parts_of_a_sum_are_truncated_behind_it() -> None:
    kinds = scattered([(0, 2), (1, 1), (2, 0)])  # 3 x 12 elements, and 20 in their sum
    assert kinds.count("truncate") == 1
    assert kinds.index("truncate") > max(i for i, kind in enumerate(kinds) if kind == "add")


def test_a_sum_is_one_in_whatever_rings_its_parts_are_kept() -> None:
    kinds = scattered([(0, 2), (1, 1), (2, 0)], lifts=True)
    assert kinds.count("truncate") == 1
    assert "lift" not in kinds


def test_what_all_parts_are_made_of_is_truncated_once() -> None:
    """12 elements, and 20 in their sum."""
    kinds = scattered([(0, 2), (1, 1), (2, 0)], of_one=True)
    assert kinds.count("truncate") == 1
    assert kinds.index("truncate") < min(i for i, kind in enumerate(kinds) if kind == "reshape")


@pytest.mark.parametrize("places", [[(0, 1)], [(0, 9), (9, 0)]])
def test_what_padding_makes_more_of_is_truncated_before_it(places: list[tuple[int, int]]) -> None:
    kinds = scattered(places)
    assert kinds.index("truncate") < kinds.index("pad")


def test_sums_without_end_are_looked_at_in_time() -> None:
    """A long sum, and one whose terms read each other: either would take for ever as a tree."""

    def padded(w: Writer, v: Values) -> ir.Value:
        return w(ops.Pad, w.truncated_product(v["x"], v["w"]), low=(0, 1), high=(0, 0))

    def long(w: Writer, v: Values) -> ir.Value:
        total = w(ops.Slice, padded(w, v), starts=(0, 0), steps=(1, 1), shape=(4, 4))
        for _ in range(3000):
            total = w(ops.Add, total, v["r"])
        return total

    def entangled(w: Writer, v: Values) -> ir.Value:
        x, y = padded(w, v), padded(w, v)
        for _ in range(100):
            x, y = y, w(ops.Sub, y, x)
        return w(ops.Add, padded(w, v), y)

    for body, parts in ((long, [False]), (entangled, [True, False, False])):
        made = program(body)
        pads = [op for op in made.operations if isinstance(op, ops.Pad)]
        assert [*map(is_part_of_a_sum, pads)] == parts


def test_what_is_needed_both_ways_is_truncated_once() -> None:
    def body(w: Writer, v: Values) -> ir.Value:
        y = w.truncated_product(v["x"], v["w"])
        product = w(ops.Matmul, y, v["v"])
        return w(ops.Matmul, w.relu(y), w(ops.Truncate, product, bits=12))

    assert merged(body).splitlines() == [
        "%1 = matmul %x, %w : 24",
        "%2 = truncate %1 {bits = 12} : 12",
        "%3 = matmul %2, %v : 24",
        "%4 = relu %2 : 12",
        "%5 = truncate %3 {bits = 12} : 12",
        "%6 = matmul %4, %5 : 24",
    ]


def test_a_comparison_takes_what_is_truncated_anyway() -> None:
    """A product needs the truncated value: its sign is taken there too, in the smaller window."""

    def body(w: Writer, v: Values) -> ir.Value:
        y = w.truncated_product(v["x"], v["w"])
        return w(ops.Mul, w(ops.Step, y, frac_bits=0, **WINDOW), y)

    before = program(body)
    assert listing(MergeTruncations().run(before), windows=True).splitlines() == [
        "%1 = matmul %x, %w : 24",
        "%2 = truncate %1 {bits = 12} : 12",
        "%3 = step %2 {dropped_bits = 0, window_bits = 31} : 0",
        "%4 = mul %3, %2 : 12",
    ]


def test_a_residual_stream_stays_wide_beside_its_relu() -> None:
    def body(w: Writer, v: Values) -> ir.Value:
        stream = w.truncated_product(v["x"], v["w"])
        branch = w.truncated_product(w.relu(stream), v["v"])
        return w.truncated_product(w.relu(w(ops.Add, stream, branch)), v["w"])

    assert merged(body).splitlines() == [
        "%1 = matmul %x, %w : 24",
        "%2 = truncate_relu %1 {bits = 12} : 12",
        "%3 = matmul %2, %v : 24",
        "%4 = add %1, %3 : 24",
        "%5 = truncate_relu %4 {bits = 12} : 12",
        "%6 = matmul %5, %w : 24",
    ]


def test_a_sum_that_would_not_fit_is_truncated_first() -> None:
    def body(w: Writer, v: Values) -> ir.Value:
        y = w.truncated_product(v["x"], v["w"])
        return w.relu(w(ops.Add, y, v["r"], within=LARGE))

    assert merged(body).splitlines() == [
        "%1 = matmul %x, %w : 24",
        "%2 = truncate %1 {bits = 12} : 12",
        "%3 = add %2, %r : 12",
        "%4 = relu %3 : 12",
    ]


def test_concatenations_stay_wide_when_all_parts_are() -> None:
    def body(w: Writer, v: Values) -> ir.Value:
        parts = [w.truncated_product(v["x"], v[name]) for name in "wv"]
        both = w(ops.Concat, *parts, axis=0)
        one = w(ops.Concat, v["r"], w.truncated_product(v["r"], v["w"]), axis=0)
        return w(ops.Matmul, w.relu(both), w(ops.Transpose, w.relu(one), permutation=(1, 0)))

    kinds = [line.split()[2] for line in merged(body).splitlines()]
    assert kinds == [
        *("matmul", "matmul", "concat", "matmul", "truncate", "concat"),
        *("truncate_relu", "relu", "transpose", "matmul"),
    ]


def test_public_constants_are_shifted_at_compile_time() -> None:
    def body(w: Writer, v: Values) -> ir.Value:
        three = w(ops.Constant, value=np.full((4, 4), 3 << 12), within=SMALL)
        return w.relu(w(ops.Add, w.truncated_product(v["x"], v["w"]), three))

    after = MergeTruncations().run(program(lambda w, v: w(ops.Neg, body(w, v))))
    assert "scale" not in listing(after)
    constants = [op for op in after.operations if isinstance(op, ops.Constant)]
    assert [secret_value(op) for op in constants] == [3 << 24]


def secret_value(op: SecretOp) -> int:
    return int(attributes_of(op)["value"].flat[0])


@pytest.mark.parametrize("kind", [ops.Pad, ops.Broadcast])
def test_what_grows_is_truncated_before(kind: type[SecretOp]) -> None:
    named: dict[str, object] = {"low": (0, 0), "high": (2, 2)} if kind is ops.Pad else {}

    def body(w: Writer, v: Values) -> ir.Value:
        y = w(kind, w.truncated_product(v["x"], v["w"]), shape=(3, 4, 4), **named)
        return w.relu(y)

    kinds = [line.split()[2] for line in merged(body).splitlines()]
    assert kinds[1] == "truncate"


def test_a_shift_beyond_what_is_deferred_takes_all_of_it_back() -> None:
    def body(w: Writer, v: Values) -> ir.Value:
        return w(ops.Scale, w.truncated_product(v["x"], v["w"]), frac_bits=26, factor=1 << 14)

    assert merged(body).splitlines() == [
        "%1 = matmul %x, %w : 24",
        "%2 = scale %1 {factor = 4} : 26",
    ]


# Several rings


def rings(program: SecretProgram) -> list[tuple[str, int, int]]:
    """(kind, operand's ring, result's) of each operation with an operand."""
    found = []
    for op in program.operations:
        operands = list(op.operation.operands)
        if operands:
            widths = (Tensor.of(v).encoding.ring_bits for v in (operands[0], op.result))
            found.append((op.operation.name.partition(".")[2], *widths))
    return found


def changed(write: Writer, value: ir.Value, ring_bits: int) -> ir.Value:
    """The same value in another ring."""
    old = Tensor.of(value).encoding
    kind = ops.Reduce if ring_bits < old.ring_bits else ops.Lift
    with write.program.at("change"):
        return kind.build(value, range=SMALL, stated=Stated(ring_bits=ring_bits))


def merged_rings(body: Body) -> list[tuple[str, int, int]]:
    """What is left of a program in several rings, whose values must stay as near."""
    before = program(body)
    check_secret(before)
    after = MergeTruncations().run(before)
    check_secret(after)
    generator = np.random.default_rng(0)
    inputs = {name: generator.uniform(-1, 1, (4, 4)) for name in ("x", "r")}
    plain = evaluate(before, inputs, Rounding.NEAREST).outputs["y"]
    deferred = evaluate(after, inputs, Rounding.NEAREST).outputs["y"]
    np.testing.assert_allclose(deferred, plain, atol=8 * 2.0**-12)
    return rings(after)


@pytest.mark.parametrize(("ring_bits", "op"), [(40, "lift"), (24, "reduce")])
def test_a_truncation_changes_the_ring_in_passing(ring_bits: int, op: str) -> None:
    def body(w: Writer, v: Values) -> ir.Value:
        y = changed(w, w.truncated_product(v["x"], v["w"]), ring_bits)
        return w.relu(w(ops.Neg, y), ring_bits)

    found = merged_rings(lambda w, v: w(ops.Mul, *2 * [body(w, v)]))
    kinds = [kind for kind, *_ in found]
    assert op not in kinds
    assert ("truncate_relu", 32, ring_bits) in found or ("truncate", 32, ring_bits) in found


def test_what_is_lifted_for_several_is_lifted_once() -> None:
    def body(w: Writer, v: Values) -> ir.Value:
        lifted = changed(w, w(ops.Add, v["x"], v["r"]), 64)
        return w(ops.Mul, lifted, w.relu(lifted, 64))

    assert [kind for kind, *_ in merged_rings(body)].count("lift") == 1


def test_a_sum_in_the_old_ring_takes_the_change_back() -> None:
    def body(w: Writer, v: Values) -> ir.Value:
        home = changed(w, w.truncated_product(v["x"], v["w"]), 48)
        again = changed(w, home, RING)
        return w.relu(w(ops.Add, again, w.truncated_product(v["r"], v["v"])))

    found = merged_rings(lambda w, v: w(ops.Matmul, body(w, v), v["w"]))
    assert [kind for kind, *_ in found] == ["matmul", "matmul", "add", "truncate_relu", "matmul"]
    assert {(k, K) for _, k, K in found} == {(32, 32)}


def test_readers_in_several_rings_share_one_truncation() -> None:
    def body(w: Writer, v: Values) -> ir.Value:
        home = changed(w, w.truncated_product(v["x"], v["w"]), 48)
        narrow = w(ops.Matmul, changed(w, home, RING), v["v"])
        wide = w(ops.Mul, home, home, frac_bits=24)
        return w(ops.Add, changed(w, narrow, 48), wide)

    found = merged_rings(body)
    assert found.count(("truncate", 32, 48)) == 1
    assert found.count(("reduce", 48, 32)) == 1
    assert [kind for kind, *_ in found].count("truncate") == 1


def test_a_lift_without_a_truncation_stays() -> None:
    found = merged_rings(lambda w, v: w(ops.Mul, *2 * [changed(w, v["x"], 40)]))
    assert found == [("lift", 32, 40), ("mul", 40, 40)]


def test_a_lift_that_is_read_reduced_alone_goes() -> None:
    def body(w: Writer, v: Values) -> ir.Value:
        home = changed(w, v["x"], 48)
        return w(ops.Add, *(changed(w, changed(w, home, 40), RING) for _ in range(2)))

    assert merged_rings(lambda w, v: w(ops.Mul, *2 * [body(w, v)])) == [
        ("add", 32, 32),
        ("mul", 32, 32),
    ]


def test_what_is_read_lifted_and_as_it_was_is_lifted_once() -> None:
    def body(w: Writer, v: Values) -> ir.Value:
        home = changed(w, v["x"], 48)
        narrow = w(ops.Mul, *2 * [changed(w, home, RING)], frac_bits=24)
        return w(ops.Add, changed(w, narrow, 48), w(ops.Mul, home, home, frac_bits=24))

    found = merged_rings(body)
    assert found.count(("lift", 32, 48)) == 2  # of x, and of the product
    assert ("reduce", 48, 32) not in found


def test_what_is_needed_at_two_scales_is_truncated_to_the_smaller() -> None:
    """A product takes it, and a difference of another scale: that is shifted, and not truncated."""

    def body(w: Writer, v: Values) -> ir.Value:
        y = w.truncated_product(v["x"], v["w"])
        product = w(ops.Matmul, y, v["v"], frac_bits=24)
        wider = w(ops.Scale, y, factor=4, frac_bits=14)
        offset = w(ops.Scale, v["r"], factor=4, frac_bits=14)
        other = w(ops.Relu, w(ops.Sub, wider, offset, frac_bits=14), frac_bits=14, **WINDOW)
        product = w(ops.Truncate, product, bits=10, frac_bits=14)
        return w(ops.Mul, other, product, frac_bits=28)

    assert merged(body).splitlines() == [
        "%1 = matmul %x, %w : 24",
        "%2 = truncate %1 {bits = 12} : 12",
        "%3 = matmul %2, %v : 24",
        "%4 = scale %r {factor = 4} : 14",
        "%5 = scale %2 {factor = 4} : 14",
        "%6 = sub %5, %4 : 14",
        "%7 = relu %6 : 14",
        "%8 = truncate %3 {bits = 10} : 14",
        "%9 = mul %7, %8 : 28",
    ]


RATE = RealRange(0.0, 0.25, RangeSource.CALIBRATED)


def update(secrecy: Secrecy, ring_bits: int) -> SecretProgram:
    """y = v - rate (x w), truncated before the rate and at the end; v is in another ring."""
    given = {
        "x": Tensor((4, 4), Encoding(RING, 12)),
        "w": Tensor((4, 4), Encoding(RING, 12)),
        "v": Tensor((4, 4), Encoding(ring_bits, 12)),
        "rate": Tensor((), Encoding(64, 2, secrecy)),
    }
    arguments = [Argument(name, "input", "a", tensor, SMALL) for name, tensor in given.items()]
    arguments[-1] = replace(arguments[-1], range=RATE)
    made = SecretProgram.create(context(), arguments, {}, "by hand", 2.0)
    write, (x, w, v, rate) = Writer(made), made.block.arguments
    reduced = changed(write, rate, RING)
    step = write(ops.Mul, write.truncated_product(x, w), reduced, within=SMALL)
    shifted = write(ops.Scale, v, factor=1 << 2, frac_bits=14)
    home = changed(write, shifted, RING) if ring_bits != RING else shifted
    total = write(ops.Sub, home, step, frac_bits=14)
    made.finish({"y": write(ops.Truncate, total, bits=2)})
    check_secret(made)
    return made


@pytest.mark.parametrize("ring_bits", [RING, 40])
@pytest.mark.parametrize(("secrecy", "count"), [(Secrecy.PUBLIC, 1), (Secrecy.SECRET, 2)])
def test_a_product_with_a_number_that_all_are_told_waits(
    secrecy: Secrecy, count: int, ring_bits: int
) -> None:
    """A sum with what is in a wider ring is in the narrower, if that holds it."""
    before = update(secrecy, ring_bits)
    after = MergeTruncations().run(before)
    check_secret(after)
    generator = np.random.default_rng(2)
    inputs = {name: generator.uniform(-1, 1, (4, 4)) for name in "xwv"} | {"rate": np.array(0.25)}
    found = [evaluate(each, inputs, Rounding.NEAREST) for each in (before, after)]
    assert [each.excursions for each in found] == [[], []]
    np.testing.assert_allclose(found[1].outputs["y"], found[0].outputs["y"], atol=2.0**-12)
    assert isinstance(after.outputs["y"].owner.opview, ops.Sub)
    assert [kind for kind, *_ in rings(after)].count("truncate") == count - 1


def test_assumed_ranges_follow_the_scale() -> None:
    assumed = RealRange.assumed(Encoding(RING, 24))
    before = program(
        lambda w, v: w.relu(
            w(ops.Truncate, w(ops.Matmul, v["x"], v["w"], within=assumed), bits=12, within=assumed)
        )
    )
    after = MergeTruncations().run(before)
    assert RealRange.of(after.operations[0]).bound == 2.0 ** (RING - 2 - 24)
