"""Linear maps, local in every suite whose parts add up to the value.

A linear map of a sum is the sum of the maps: each party works on the parts that it holds. No round,
no message. A public operand is added to one part and multiplies every part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from veilgraph.ir.party import ops
from veilgraph.ir.party.node import Shape
from veilgraph.ir.party.ops import PartyOp
from veilgraph.ir.party.program import Value, apply
from veilgraph.targets.parties import Form, Operation, Parties, Sharing
from veilgraph.targets.variants import Protocol


def align(p: Parties, x: Sharing, y: Sharing) -> tuple[Sharing, Sharing]:
    """Both in one form: replicated parts are additive ones too, public values one of the parts.

    Beside a value that a party has no part of it keeps none of the other's.
    """
    if x.form.is_public or y.form.is_public:
        return embedded(x, y), embedded(y, x)
    if x.form == y.form:
        return x, y
    without = [j for z in (x, y) for j, part in enumerate(z.parts) if part.constant_value() == 0]
    return additive(p, x, without), additive(p, y, without)


def embedded(x: Sharing, like: Sharing) -> Sharing:
    """A public x in the form of `like`: its first part, where that is held; the others zero."""
    if not x.form.is_public:
        return x
    zero = x[0].program.const(0, x.shape, x.type)
    first, *rest = like.parts
    parts = (x[0].only(*first.at), *(zero.only(*part.at) for part in rest))
    return Sharing(parts, like.form)


def with_zeros(x: Sharing, parts: int, form: Form) -> Sharing:
    """A public x as the first of so many parts, the others zero, all of them held by everyone."""
    if not x.form.is_public:
        return x
    zero = x[0].program.const(0, x.shape, x.type)
    return Sharing((x[0], *(zero for _ in range(parts - 1))), form)


def additive(p: Parties, x: Sharing, without: Sequence[int] = ()) -> Sharing:
    """x with each part at one party alone, its form's keeper of it; free.

    Args:
        without: the party, if it is one, whose part is zero: another holder of its part adds it.
    """
    keeper, count = x.form.keeper, len(x.parts)
    if keeper is None:
        return x
    parts = [p.at(part, keeper(j, count)) for j, part in enumerate(x.parts)]
    if len(without) == 1:
        (j,) = without
        other = min(x.form.holders(j, count) - {j})
        parts[other] = parts[other] + p.at(x[j], other)
        parts[j] = p.at(x[j].program.const(0, x.shape, x.type), j)
    return Sharing(tuple(parts), Form.ADDITIVE)


def joint(p: Parties, x: Sharing, y: Sharing, body: Callable[[Value, Value], Value]) -> Sharing:
    """A linear map of two values, part by part, in one form.

    Where each is replicated, or has a replica, so has the result.
    """
    a, b = align(p, x, y)
    parts = tuple(body(*pair) for pair in zip(a.parts, b.parts, strict=True))
    first, second = (z if z.replica is None else z.replica for z in (x, y))
    if (a.replica is None and b.replica is None) or first.form != second.form:
        return Sharing(parts, a.form)
    return Sharing(parts, a.form, replica=joint(p, first, second, body))


def add(p: Parties, op: Operation, x: Sharing, y: Sharing) -> Sharing:
    """[x] + [y].  0 rounds."""
    if y.form.is_public and not x.form.is_public:
        return _add_public(op, x, y[0])
    if x.form.is_public and not y.form.is_public:
        return _add_public(op, y, x[0])
    return joint(p, x, y, lambda a, b: a + b)


def _add_public(op: Operation, x: Sharing, public: Value) -> Sharing:
    made = None if x.replica is None else _add_public(op, x.replica, public)
    first, *rest = (_broadcast(part, op.shape) for part in x.parts)
    return Sharing((first + public, *rest), x.form, x.resent, made)


def negate(p: Parties, op: Operation, x: Sharing) -> Sharing:
    """-[x].  0 rounds."""
    return x.map(lambda part: -part)


def subtract(p: Parties, op: Operation, x: Sharing, y: Sharing) -> Sharing:
    """[x] - [y].  0 rounds."""
    if x.form.is_public or y.form.is_public:
        return add(p, op, x, negate(p, op, y))
    return joint(p, x, y, lambda a, b: a - b)


def scale(p: Parties, op: Operation, x: Sharing) -> Sharing:
    """A public integer times [x].  0 rounds."""
    return x.map(lambda part: part * int(op["factor"]))


def reinterpret(p: Parties, op: Operation, x: Sharing) -> Sharing:
    """The same ring elements, read with other fraction bits."""
    return x


def reduce(p: Parties, op: Operation, x: Sharing) -> Sharing:
    """[x] modulo 2^K, K less than x's ring.  0 rounds."""
    return reduced(x, op.ring_bits)


def reduced(x: Sharing, bits: int) -> Sharing:
    """x modulo 2^bits, where its ring is wider."""
    least = min(x.type.bits, bits)
    return x.map(lambda part: part.mod(least))


def product(op: Operation, pairs: Sequence[tuple[Value, Value]]) -> Value:
    """The sum over pairs of the op's bilinear map; pairs with a public zero are left out."""
    kept = [(a, b) for a, b in pairs if 0 not in (a.constant_value(), b.constant_value())]
    if not kept:
        a, b = pairs[0]
        return a.program.const(0, op.shape, op.type).only(*(i for i in a.at if i in b.at))
    if op.name == "mul":
        total = kept[0][0] * kept[0][1]
        for a, b in kept[1:]:
            total = total + a * b
        return total
    operands = [operand for pair in kept for operand in pair]
    if op.name == "matmul":
        return _matmul(op, operands)
    attrs = {name: op[name] for name in ops.CONV2D.attributes}
    return apply(ops.CONV2D, operands, op.shape, op.type, **attrs)


def _matmul(op: Operation, operands: Sequence[Value]) -> Value:
    """NumPy's matmul of tensors of rank 2 and more, as the kernel's batch of matrices."""
    if all(len(v.shape) == 2 for v in operands[1::2]):
        rows = prod(op.shape[:-1])
        flat = [v if j % 2 else v.reshape((rows, v.shape[-1])) for j, v in enumerate(operands)]
        single = [v.reshape((1, *v.shape)) for v in flat]
        product = apply(ops.MATMUL, single, (1, rows, op.shape[-1]), op.type)
        return product.reshape(op.shape)
    batch = op.shape[:-2]
    batched = [_broadcast(v, (*batch, *v.shape[-2:])) for v in operands]
    flat = [v.reshape((prod(batch), *v.shape[-2:])) for v in batched]
    shape = (prod(batch), *op.shape[-2:])
    return apply(ops.MATMUL, flat, shape, op.type).reshape(op.shape)


def bilinear_with_public(p: Parties, op: Operation, x: Sharing, y: Sharing) -> Sharing:
    """[x] (*) y for a public y, or the other way round.  0 rounds; one product a part.

    Of no source: who prepares for it may not know y, nor anybody before it is told.
    """
    if y.form.is_public:
        made = x.map(lambda part: product(op, [(part, y[0])]))
    else:
        made = y.map(lambda part: product(op, [(x[0], part)]))
    return replace(made, source=None)


def sum_pool(p: Parties, op: Operation, x: Sharing) -> Sharing:
    """The sum over each window.  0 rounds."""
    attrs = {name: op[name] for name in ops.POOL_SUM.attributes}
    if 3 * prod(op.shape) < 2 * x.elements:  # fewer bits are sent of the sums, in any form
        x = replace(x, replica=None)
    return x.map(lambda part: apply(ops.POOL_SUM, (part,), op.shape, op.type, **attrs))


def reduce_sum(p: Parties, op: Operation, x: Sharing) -> Sharing:
    """The sum over axes.  0 rounds."""
    axes = tuple(sorted(axis % len(x.shape) for axis in op["axes"]))
    kept = tuple(1 if i in axes else size for i, size in enumerate(x.shape))
    return x.map(
        lambda part: apply(ops.REDUCE_SUM, (part,), kept, op.type, axes=axes).reshape(op.shape)
    )


def _broadcast(value: Value, shape: Shape) -> Value:
    return value if value.shape == shape else apply(ops.BROADCAST, (value,), shape, value.type)


def moved(x: Sharing, body: Callable[[Value], Value]) -> Sharing:
    """A map that only moves elements, of each part; who knows the value knows the result."""
    made = x.map(body)
    return made if x.known is None else replace(made, known=body(x.known))


def reshape(p: Parties, op: Operation, x: Sharing) -> Sharing:
    return moved(x, lambda part: part.reshape(op.shape))


def broadcast(p: Parties, op: Operation, x: Sharing) -> Sharing:
    return moved(x, lambda part: _broadcast(part, op.shape))


def concat(p: Parties, op: Operation, x: Sharing, y: Sharing) -> Sharing:
    """[x] and [y] along an axis."""
    axis = int(op["axis"]) % len(op.shape)
    return joint(p, x, y, lambda a, b: apply(ops.CONCAT, (a, b), op.shape, op.type, axis=axis))


def layout(moves: PartyOp) -> Callable[[Parties, Operation, Sharing], Sharing]:
    """A protocol that moves elements of each part, with the secret op's attributes."""

    def protocol(p: Parties, op: Operation, x: Sharing) -> Sharing:
        attrs: dict[str, Any] = {name: tuple(op[name]) for name in moves.attributes}
        return moved(x, lambda part: apply(moves, (part,), op.shape, op.type, **attrs))

    return protocol


LINEAR: dict[str, Protocol] = {
    "add": add,
    "sub": subtract,
    "neg": negate,
    "scale": scale,
    "reinterpret": reinterpret,
    "reduce": reduce,
    "sum_pool": sum_pool,
    "reduce_sum": reduce_sum,
    "reshape": reshape,
    "broadcast": broadcast,
    "concat": concat,
    "transpose": layout(ops.TRANSPOSE),
    "slice": layout(ops.SLICE),
    "pad": layout(ops.PAD),
}
