"""Rows of the aten table for comparisons, truth values and positions of extremes.

A truth value is the number 1 or 0. All of it is made from one comparison, `step`: 1 where x >= 0.

    a >= b      step(a - b)                 a > b     1 - step(b - a)
    a = b       step(a - b) + step(b - a) - 1
    a and b     a b                         a xor b   a + b - 2 a b
    where       b + c (a - b)               sign x    step(x) - step(-x)

The position of a maximum of few numbers is that of rank 0 in all their pairs, compared at once. Of
more it is carried through a tree of comparisons. Of equal numbers the first wins.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from torch_mlir import ir

from veilgraph.frontend.lowering import one_hots
from veilgraph.frontend.lowering.layout import part_along
from veilgraph.frontend.lowering.masks import LEAST
from veilgraph.frontend.lowering.operands import Aten, Unsupported, binary, narrow, number_of
from veilgraph.ir import shapes
from veilgraph.ir.attributes import Shape, shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.ranking import Ranked

MOST_RANKED = 10  # numbers whose position is found by all pairs: 45 comparisons where a tree has 9
MOST_ROWS = 1024  # of which pairs weigh less than the rounds that a tree takes more

Row = Callable[[Aten], ir.Value | tuple[ir.Value, ...]]
Compare = Callable[[ir.Value, ir.Value, Shape], ir.Value]


def complement(x: ir.Value) -> ir.Value:
    """1 - x: what is not x."""
    return ops.Sub.build(ops.constant(1.0), x)


def difference(a: ir.Value, b: ir.Value, shape: Shape) -> ir.Value:
    """a - b; a number that is zero is not taken away, for what is left is rounded anew."""
    known = [number_of(narrow(value)) for value in (a, b)]
    if known[1] == 0 and shape_of(a) == shape:
        return a
    if known[0] == 0 and shape_of(b) == shape:
        return ops.Neg.build(b)
    return binary(ops.Sub, a, b, shape)


def at_least(a: ir.Value, b: ir.Value, shape: Shape) -> ir.Value:
    return ops.Step.build(difference(a, b, shape))


def at_most(a: ir.Value, b: ir.Value, shape: Shape) -> ir.Value:
    return at_least(b, a, shape)


def greater(a: ir.Value, b: ir.Value, shape: Shape) -> ir.Value:
    return complement(at_most(a, b, shape))


def less(a: ir.Value, b: ir.Value, shape: Shape) -> ir.Value:
    return complement(at_least(a, b, shape))


def equal(a: ir.Value, b: ir.Value, shape: Shape) -> ir.Value:
    apart = difference(a, b, shape)
    sides = ops.Step.build(apart), ops.Step.build(ops.Neg.build(apart))
    return ops.Add.build(ops.Add.build(*sides), ops.constant(-1.0))


def different(a: ir.Value, b: ir.Value, shape: Shape) -> ir.Value:
    return complement(equal(a, b, shape))


def both(a: ir.Value, b: ir.Value, shape: Shape) -> ir.Value:
    return binary(ops.Mul, a, b, shape)


def either(a: ir.Value, b: ir.Value, shape: Shape) -> ir.Value:
    return ops.Sub.build(binary(ops.Add, a, b, shape), both(a, b, shape))


def one_of(a: ir.Value, b: ir.Value, shape: Shape) -> ir.Value:
    """a xor b."""
    twice = ops.Mul.build(both(a, b, shape), ops.constant(2.0))
    return ops.Sub.build(binary(ops.Add, a, b, shape), twice)


def same(a: ir.Value, b: ir.Value, shape: Shape) -> ir.Value:
    """a = b of truth values, which needs no comparison."""
    return complement(one_of(a, b, shape))


def comparing(compare: Compare, of_truths: Compare | None = None) -> Row:
    """A comparison of two tensors; `of_truths` is the same for truth values, if it is cheaper."""

    def row(a: Aten) -> ir.Value:
        truths = of_truths is not None and a.element(0) == a.element(1) == "i1"
        chosen = of_truths if truths and of_truths else compare
        return chosen(a.tensor(0), a.tensor(1), a.shape)

    return row


def comparing_number(compare: Compare) -> Row:
    """A comparison with a known number."""
    return lambda a: compare(a.tensor(0), ops.constant(a.number(1)), a.shape)


def truth(a: Aten, index: int) -> ir.Value:
    """Operand `index` as a truth value: whether it isn't zero."""
    x = a.tensor(index)
    if a.element(index) == "i1":
        return x
    return different(x, ops.constant(0.0), shape_of(x))


def logical(of_truths: Compare) -> Row:
    return lambda a: of_truths(truth(a, 0), truth(a, 1), a.shape)


def logical_not(a: Aten) -> ir.Value:
    return complement(truth(a, 0))


def bitwise(row: Row) -> Row:
    """The same, where the bits are those of truth values."""

    def guarded(a: Aten) -> ir.Value | tuple[ir.Value, ...]:
        if a.result_element != "i1":
            raise Unsupported("It works on the bits of integers.")
        return row(a)

    return guarded


def where(a: Aten) -> ir.Value:
    """aten.where.self(condition, x, y)."""
    condition, x, y = truth(a, 0), a.tensor(1), a.tensor(2)
    if (number_of(narrow(y)) or 0.0) < LEAST:  # a mask: what it adds is multiplied by a truth value
        return chosen(complement(condition), y, x, a.shape)
    return chosen(condition, x, y, a.shape)


def chosen(condition: ir.Value, x: ir.Value, y: ir.Value, shape: Shape) -> ir.Value:
    """y + condition (x - y)."""
    difference = binary(ops.Sub, x, y, shapes.broadcast(shape_of(x), shape_of(y)))
    product = binary(ops.Mul, condition, difference, shape)
    return ops.Add.build(product, y)


def masked_fill(a: Aten) -> ir.Value:
    """aten.masked_fill.Scalar(x, mask, number)."""
    return chosen(truth(a, 1), ops.constant(a.number(2)), a.tensor(0), a.shape)


def converted(a: Aten) -> ir.Value:
    """aten.to.dtype(x, type, ...): real numbers lose their fractions, truths are 0 and 1."""
    x, source, target = a.tensor(0), a.element(0), a.result_element
    if target == "i1":
        return truth(a, 0)
    if target[0] in "su" and "f" in source and not a.is_whole(0):
        return toward_zero(x)
    return x


def toward_zero(x: ir.Value) -> ir.Value:
    """x without its fraction: the floors of what is above zero and of what is below."""
    above = ops.Relu.build(x)
    return ops.Sub.build(ops.Floor.build(above), ops.Floor.build(ops.Sub.build(above, x)))


def position(sign: int) -> Row:
    """aten.argmax and aten.argmin(x, axis, keepdim)."""

    def row(a: Aten) -> ir.Value:
        x = a.tensor(0)
        values = x if sign > 0 else ops.Neg.build(x)
        return ops.Reshape.build(_position(values, a.axis(1, len(shape_of(x)))), shape=a.shape)

    return row


def reduce_max(a: Aten) -> tuple[ir.Value, ir.Value]:
    """aten.max.dim(x, axis, keepdim): the maxima, and where the first of each is."""
    x = a.tensor(0)
    axis = a.axis(1, len(shape_of(x)))
    largest = ops.ReduceMax.build(x, axes=(axis,), keepdims=a.flag(2))
    return largest, ops.Reshape.build(_position(x, axis), shape=a.shape)


def reduce_min(a: Aten) -> tuple[ir.Value, ir.Value]:
    """aten.min.dim(x, axis, keepdim): minus the maxima of minus x, and where they are."""
    x = ops.Neg.build(a.tensor(0))
    axis = a.axis(1, len(shape_of(x)))
    largest = ops.ReduceMax.build(x, axes=(axis,), keepdims=a.flag(2))
    return ops.Neg.build(largest), ops.Reshape.build(_position(x, axis), shape=a.shape)


def _position(x: ir.Value, axis: int) -> ir.Value:
    """Of the first maximum along `axis`, which stays with extent 1."""
    shape = shape_of(x)
    if 1 < shape[axis] <= MOST_RANKED and math.prod(shape) <= MOST_ROWS * shape[axis]:
        return _apart(Ranked.of(_rows(x, axis), 1).positions(), shape, axis)
    column = [-1 if i == axis else 1 for i in range(len(shape))]
    numbers = np.arange(shape[axis], dtype=np.float32).reshape(column)
    position = ops.Expand.build(ops.Constant.build(value=numbers), shape=shape)
    while (size := shape_of(x)[axis]) > 1:
        half = size // 2
        first, second = (part_along(x, axis, start, 2, half) for start in (0, 1))
        wins = ops.Step.build(ops.Sub.build(first, second))
        larger = chosen(wins, first, second, shape_of(first))
        earlier, later = (part_along(position, axis, start, 2, half) for start in (0, 1))
        place = chosen(wins, earlier, later, shape_of(first))
        if size % 2:
            larger = ops.concat([larger, part_along(x, axis, size - 1, 1, 1)], axis)
            place = ops.concat([place, part_along(position, axis, size - 1, 1, 1)], axis)
        x, position = larger, place
    return position


def top(a: Aten) -> tuple[ir.Value, ir.Value]:
    """aten.topk(x, k, axis, largest, sorted): the numbers in order, and where they were."""
    x, count, axis, largest = a.tensor(0), a.integer(1), a.axis(2, len(a.shape)), a.flag(3)
    rows, shape = _rows(x, axis), shape_of(x)
    ranked = Ranked.of(rows if largest else ops.Neg.build(rows), count)
    numbers = ranked.numbers() if largest else ops.Neg.build(ranked.numbers())
    return _apart(numbers, shape, axis), _apart(ranked.positions(), shape, axis)


def _rows(x: ir.Value, axis: int) -> ir.Value:
    """[rows, n]: what stands along `axis`, which changes places with the last one."""
    last = ops.Transpose.build(x, permutation=_exchanged(len(shape_of(x)), axis))
    *before, extent = shape_of(last)
    return ops.Reshape.build(last, shape=(math.prod(before), extent))


def _apart(rows: ir.Value, shape: Shape, axis: int) -> ir.Value:
    """`_rows` undone: [rows, count] as a tensor of `shape`, with extent `count` along `axis`."""
    order = _exchanged(len(shape), axis)
    *before, _ = (shape[i] for i in order)
    apart = ops.Reshape.build(rows, shape=(*before, shape_of(rows)[1]))
    return ops.Transpose.build(apart, permutation=order)


def _exchanged(rank: int, axis: int) -> tuple[int, ...]:
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]
    return tuple(order)


ROWS: dict[str, Row] = {
    "torch.aten.gt.Tensor": comparing(greater),
    "torch.aten.ge.Tensor": comparing(at_least),
    "torch.aten.lt.Tensor": comparing(less),
    "torch.aten.le.Tensor": comparing(at_most),
    "torch.aten.eq.Tensor": one_hots.equality(comparing(equal, same)),
    "torch.aten.ne.Tensor": comparing(different, one_of),
    "torch.aten.gt.Scalar": comparing_number(greater),
    "torch.aten.ge.Scalar": comparing_number(at_least),
    "torch.aten.lt.Scalar": comparing_number(less),
    "torch.aten.le.Scalar": comparing_number(at_most),
    "torch.aten.eq.Scalar": comparing_number(equal),
    "torch.aten.ne.Scalar": comparing_number(different),
    "torch.aten.logical_and": logical(both),
    "torch.aten.logical_or": one_hots.from_both_ends(logical(either)),
    "torch.aten.logical_xor": logical(one_of),
    "torch.aten.logical_not": logical_not,
    "torch.aten.bitwise_and.Tensor": bitwise(logical(both)),
    "torch.aten.bitwise_or.Tensor": one_hots.from_both_ends(bitwise(logical(either))),
    "torch.aten.bitwise_xor.Tensor": bitwise(logical(one_of)),
    "torch.aten.bitwise_not": bitwise(logical_not),
    "torch.aten.where.self": where,
    "torch.aten.masked_fill.Scalar": masked_fill,
    "torch.aten.to.dtype": converted,
    "torch.aten.argmax": position(1),
    "torch.aten.argmin": position(-1),
    "torch.aten.topk": top,
    "torch.aten.max.dim": reduce_max,
    "torch.aten.min.dim": reduce_min,
}
