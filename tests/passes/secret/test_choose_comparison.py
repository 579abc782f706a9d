"""Windows from ranges: sharp at the top, differences for maxima, and rings that are too narrow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from before_after import example, listing

from veilgraph.ir.errors import AccuracyError
from veilgraph.ir.legality import check_secret
from veilgraph.ir.meaning.secret import Rounding, evaluate
from veilgraph.ir.mlir import context
from veilgraph.ir.secret import ops
from veilgraph.ir.secret.dialect import SecretOp, Stated, attributes_of
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import Encoding, RangeSource, RealRange, Tensor
from veilgraph.passes.secret.choose_comparison import ChooseComparison

POOL = {"kernel": (2, 2), "strides": (2, 2), "pads_low": (0, 0), "pads_high": (0, 0)}


def program(
    kind: type[SecretOp],
    ranges: list[tuple[float, float]],
    ring_bits: int = 64,
    frac_bits: int = 10,
    source: RangeSource = RangeSource.CALIBRATED,
    dropped_bits: int = 0,
    margin: float = 2.0,
    **named: object,
) -> SecretProgram:
    """One comparing op on inputs x, z of these ranges."""
    tensor = Tensor((1, 1, 4, 4), Encoding(ring_bits, frac_bits))
    arguments = [
        Argument(name, "input", "alice", tensor, RealRange(*pair, source))
        for name, pair in zip("xz", ranges, strict=False)
    ]
    made = SecretProgram.create(context(), arguments, {}, margin=margin)
    with made.at("layer"):
        y = kind.build(
            *made.block.arguments,
            range=RealRange(*ranges[0], source),
            stated=Stated(ring_bits=ring_bits),
            window_bits=ring_bits - 1,
            dropped_bits=dropped_bits,
            **named,
        )
    made.finish({"y": y})
    return made


def window(made: SecretProgram) -> int:
    chosen = ChooseComparison().run(made)
    check_secret(chosen)
    return int(attributes_of(chosen.operations[0])["window_bits"])


def test_docstring_example() -> None:
    made = program(ops.Relu, [(-3.0, 5.0)])
    assert listing(made, windows=True) == example(ChooseComparison, "Before")
    assert listing(ChooseComparison().run(made), windows=True) == example(ChooseComparison, "After")


@pytest.mark.parametrize(
    ("low", "high", "margin", "dropped", "expected"),
    [
        (-1.0, 1.0, 1.0, 0, 12),  # 2^10 + 1 is beyond 2^10
        (-1.0, 1.0 - 2**-10, 1.0, 0, 11),  # sharp: 2^10 - 1 and one more is 2^10
        (-1.0, 0.5, 1.0, 0, 11),
        (-1.0, 1.0, 1.5, 0, 12),
        (-1.0, 1.0, 2.0, 0, 13),
        (0.0, 1.0, 2.0, 0, 13),
        (-8.0, 1.0, 2.0, 0, 15),
        (-1.0, 1.0 - 2**-5, 1.0, 5, 11),
        (-1.0, 1.0 - 2**-6, 1.0, 5, 12),
        (-1.0, 1.0 - 2**-12, 1.0, 0, 12),  # rounded up it is 2^10
        (-1.0 - 2**-12, 0.5, 1.0, 0, 12),  # rounded down it is below -2^10
        (0.0, 0.0, 2.0, 9, 11),
    ],
)
def test_relu(low: float, high: float, margin: float, dropped: int, expected: int) -> None:
    made = program(ops.Relu, [(low, high)], margin=margin, dropped_bits=dropped)
    assert window(made) == expected


def test_fused_relu_looks_at_the_wide_integers() -> None:
    made = program(ops.TruncateRelu, [(-4.0, 4.0)], frac_bits=24, dropped_bits=12, bits=12)
    assert window(made) == 1 + 28  # 8 * 2^24 + 2^12 is just beyond 2^27


def test_maxima_compare_differences() -> None:
    assert window(program(ops.MaxPool, [(0.0, 3.0)], dilations=(1, 1), **POOL)) == 15
    named = {"axes": (3,), "keepdims": True}
    assert window(program(ops.ReduceMax, [(-3.0, 3.0)], **named)) == 15
    assert window(program(ops.Maximum, [(0.0, 3.0), (100.0, 101.0)])) == 19


def test_where_nothing_is_known_the_window_is_the_widest() -> None:
    made = program(ops.Relu, [(-1.0, 1.0)], source=RangeSource.ASSUMED)
    assert window(made) == 63


@pytest.mark.parametrize("unknown", [0, 1])
def test_where_one_operand_is_unknown_the_window_is_the_widest(unknown: int) -> None:
    made = program(ops.Maximum, [(-1.0, 1.0), (-1.0, 1.0)])
    ranges = [known for known, _ in made.stated_ranges()]
    ranges[unknown] = replace(ranges[unknown], source=RangeSource.ASSUMED)
    made.state_ranges(ranges)
    assert window(made) == 63


def test_proven_ranges_need_room_for_rounding_only() -> None:
    assert window(program(ops.Relu, [(-0.9, 0.9)], source=RangeSource.PROVEN)) == 11


def test_a_ring_that_is_too_narrow() -> None:
    wide = program(ops.Maximum, [(-2.0, 2.0), (-2.0, 2.0)], ring_bits=15, margin=1.0)
    assert window(wide) == 14
    narrow = program(ops.Maximum, [(-2.0, 2.0), (-2.0, 2.0)], ring_bits=14, margin=1.0)
    with pytest.raises(
        AccuracyError, match=r"'layer' compares numbers up to 4.* 14 bits"
    ) as caught:
        ChooseComparison().run(narrow)
    assert caught.value.exit_code == 4
    assert "--ring" in caught.value.hint


def test_the_edges_of_a_window_are_compared_right() -> None:
    made = ChooseComparison().run(program(ops.Relu, [(-1.0, 1.0 - 2**-10)], margin=1.0))
    edges = np.array([-(2**10), 2**10 - 1, -1, 0], np.int64)
    x = np.resize(edges, (1, 1, 4, 4))
    found = evaluate(made, {"x": x}, Rounding.FLOOR).integers["y"]
    np.testing.assert_array_equal(found, np.maximum(x, 0))
