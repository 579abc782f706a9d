"""A product that a public number multiplies is in a ring with room for that, if one is at hand."""

from __future__ import annotations

import pytest
from torch_mlir import ir

from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.mlir import context
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import Encoding, RangeSource, RealRange, Secrecy, Tensor
from veilgraph.passes.encode.multiples import Multiples
from veilgraph.passes.ranges.calibrate import Statistics

SHAPES = {"x": (4, 8), "y": (8, 4), "rate": ()}
SMALL = RealRange(-0.01, 0.01, RangeSource.CALIBRATED)
OWN = 24  # the ring of the product's accumulator
WIDE = Encoding(40, 9), Encoding(40, 13)
RATE = Encoding(64, 17, Secrecy.PUBLIC)


def chosen(
    x: Encoding,
    y: Encoding,
    rate: Encoding,
    *,
    moved: bool = True,
    read_else: bool = False,
    rows: int = 4,
    sum_bits: int = 64,
) -> int:
    """The ring of x y, which is multiplied by a rate; the multiple is at most 0.01.

    Args:
        rows: of x, [rows, 8]; y is [8, 4].
        sum_bits: the ring that the multiple is added up in.
    """
    shapes = SHAPES | {"x": (rows, 8)}
    graph = Graph.create(context(), shapes, {})
    given = graph.inputs
    with graph.end("product"):
        product = ops.Matmul.build(given["x"], given["y"])
    with graph.end("moved"):
        read = ops.Transpose.build(product, permutation=(1, 0)) if moved else product
    with graph.end("multiple"):
        multiple = ops.Mul.build(read, given["rate"])
    outputs = {"out": multiple}
    if read_else:
        with graph.end("sign"):
            outputs["sign"] = ops.Step.build(product)
    graph.finish(outputs)
    encodings = dict(zip(shapes, (x, y, rate), strict=True))
    arguments = [
        Argument(name, "input", "a", Tensor(shapes[name], encoding), SMALL)
        for name, encoding in encodings.items()
    ]
    secret = SecretProgram.create(context(), arguments, {})
    values: dict[ir.Value, ir.Value] = dict(
        zip(given.values(), secret.block.arguments, strict=True)
    )
    found = Multiples(values, {multiple: Statistics(SMALL)}, margin=2.0, ring_of=lambda _: sum_bits)
    return found.ring_of_product(product.owner.opview, OWN)


@pytest.mark.parametrize("moved", [True, False])
def test_it_is_as_wide_as_the_multiple_needs(moved: bool) -> None:
    """39 fraction bits and none of 6 after the point, its sign, and twice as much: 40 bits do."""
    assert chosen(*WIDE, RATE, moved=moved) == 40
    assert chosen(Encoding(64, 9), Encoding(64, 13), RATE) == 40
    assert chosen(Encoding(40, 5), Encoding(40, 9), RATE) == 32


def test_it_stays_where_no_factor_is_as_wide() -> None:
    assert chosen(Encoding(32, 9), Encoding(40, 13), RATE) == OWN
    assert chosen(Encoding(40, 13), Encoding(40, 15), RATE) == OWN


def test_few_elements_are_lifted_for_many() -> None:
    """The 32 of y, for 4 in each row of x: a lift costs about as much as a truncation."""
    y = Encoding(24, 13)
    assert chosen(WIDE[0], y, RATE, rows=32) == 40
    assert chosen(WIDE[0], y, RATE, rows=31) == OWN


def test_it_stays_where_its_sum_is_in_a_narrower_ring() -> None:
    assert chosen(*WIDE, RATE, sum_bits=40) == 40
    assert chosen(*WIDE, RATE, sum_bits=32) == OWN


def test_it_stays_where_all_are_not_told_the_number() -> None:
    assert chosen(*WIDE, Encoding(64, 17)) == OWN


def test_it_stays_where_something_else_reads_it() -> None:
    assert chosen(*WIDE, RATE, read_else=True) == OWN
