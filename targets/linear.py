"""Linear maps, local in every suite whose parts add up to the value.

A linear map of a sum is the sum of the maps: each party works on the parts that it holds. No round,
no message. A public operand is added to one part and multiplies every part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from veilgraph.ir.party import Shape, Value, apply
from veilgraph.targets.suite import Form, Operation, Parties, Protocol, Sharing


def align(x: Sharing, y: Sharing) -> tuple[Sharing, Sharing]:
    """Both in one form: replicated parts are additive ones too, public values one of the parts."""
    if x.form is Form.PUBLIC or y.form is Form.PUBLIC:
        return embedded(x, y), embedded(y, x)
    if x.form == y.form:
        return x, y
    return additive(x), additive(y)


def embedded(x: Sharing, like: Sharing) -> Sharing:
    """A public x in the form of `like`: its first part, where that is held; the others zero."""
    if x.form is not Form.PUBLIC:
        return x
    zero = x[0].program.const(0, x.shape, x.type)
    first, *rest = like.parts
    parts = (x[0].only(*first.at), *(zero.only(*part.at) for part in rest))
    return Sharing(parts, like.form)


def additive(x: Sharing) -> Sharing:
    """x with part j at party j alone; free."""
    if x.form is not Form.REPLICATED:
        return x
    order = range(len(x.parts))
    return Sharing(tuple(x[j].only(_party_of_part(x, j)) for j in order), Form.ADDITIVE)


def _party_of_part(x: Sharing, j: int) -> int:
    """The party that holds parts j and j + 1: in replicated sharing there is one for each j."""
    return next(i for i in x[j].at if i in x[j + 1].at)


def add(p: Parties, op: Operation, x: Sharing, y: Sharing) -> Sharing:
    """[x] + [y].  0 rounds."""
    if y.form is Form.PUBLIC and x.form is not Form.PUBLIC:
        return _add_public(op, x, y[0])
    if x.form is Form.PUBLIC and y.form is not Form.PUBLIC:
        return _add_public(op, y, x[0])
    x, y = align(x, y)
    return Sharing(tuple(a + b for a, b in zip(x.parts, y.parts, strict=True)), x.form)


def _add_public(op: Operation, x: Sharing, public: Value) -> Sharing:
    first, *rest = (_broadcast(part, op.shape) for part in x.parts)
    return Sharing((first + public, *rest), x.form, x.resent)


def negate(p: Parties, op: Operation, x: Sharing) -> Sharing:
    """-[x].  0 rounds."""
    return x.map(lambda part: -part)


def subtract(p: Parties, op: Operation, x: Sharing, y: Sharing) -> Sharing:
    """[x] - [y].  0 rounds."""
    if Form.PUBLIC in (x.form, y.form):
        return add(p, op, x, negate(p, op, y))
    x, y = align(x, y)
    return Sharing(tuple(a - b for a, b in zip(x.parts, y.parts, strict=True)), x.form)


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
    attrs = {name: op[name] for name in ("strides", "pads_low", "dilations", "groups")}
    return apply("conv2d", operands, op.shape, op.type, **attrs)


def _matmul(op: Operation, operands: Sequence[Value]) -> Value:
    """NumPy's matmul of tensors of rank 2 and more, as the kernel's batch of matrices."""
    if all(len(v.shape) == 2 for v in operands[1::2]):
        rows = _count(op.shape[:-1])
        flat = [v if j % 2 else v.reshape((rows, v.shape[-1])) for j, v in enumerate(operands)]
        single = [v.reshape((1, *v.shape)) for v in flat]
        product = apply("matmul", single, (1, rows, op.shape[-1]), op.type)
        return product.reshape(op.shape)
    batch = op.shape[:-2]
    batched = [_broadcast(v, (*batch, *v.shape[-2:])) for v in operands]
    flat = [v.reshape((_count(batch), *v.shape[-2:])) for v in batched]
    shape = (_count(batch), *op.shape[-2:])
    return apply("matmul", flat, shape, op.type).reshape(op.shape)


def _count(shape: Shape) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def bilinear_with_public(p: Parties, op: Operation, x: Sharing, y: Sharing) -> Sharing:
    """[x] (*) y for a public y, or the other way round.  0 rounds; one product a part."""
    if y.form is Form.PUBLIC:
        return x.map(lambda part: product(op, [(part, y[0])]))
    return y.map(lambda part: product(op, [(x[0], part)]))


def sum_pool(p: Parties, op: Operation, x: Sharing) -> Sharing:
    """The sum over each window.  0 rounds."""
    attrs = {name: op[name] for name in ("kernel", "strides", "pads_low")}
    return x.map(lambda part: apply("pool_sum", (part,), op.shape, op.type, **attrs))


def reduce_sum(p: Parties, op: Operation, x: Sharing) -> Sharing:
    """The sum over axes.  0 rounds."""
    axes = tuple(sorted(axis % len(x.shape) for axis in op["axes"]))
    kept = tuple(1 if i in axes else size for i, size in enumerate(x.shape))
    return x.map(
        lambda part: apply("reduce_sum", (part,), kept, op.type, axes=axes).reshape(op.shape)
    )


def _broadcast(value: Value, shape: Shape) -> Value:
    return value if value.shape == shape else apply("broadcast", (value,), shape, value.type)


def reshape(p: Parties, op: Operation, x: Sharing) -> Sharing:
    return x.map(lambda part: part.reshape(op.shape))


def broadcast(p: Parties, op: Operation, x: Sharing) -> Sharing:
    return x.map(lambda part: _broadcast(part, op.shape))


def concat(p: Parties, op: Operation, *operands: Sharing) -> Sharing:
    """[x] and [y] along an axis."""
    x, y = align(*operands)
    axis = int(op["axis"]) % len(op.shape)
    return Sharing(
        tuple(
            apply("concat", (a, b), op.shape, op.type, axis=axis)
            for a, b in zip(x.parts, y.parts, strict=True)
        ),
        x.form,
    )


def layout(*names: str) -> Callable[[Parties, Operation, Sharing], Sharing]:
    """A protocol that moves elements: the party op of the same name with these attributes."""

    def protocol(p: Parties, op: Operation, x: Sharing) -> Sharing:
        attrs: dict[str, Any] = {name: tuple(op[name]) for name in names}
        return x.map(lambda part: apply(op.name, (part,), op.shape, op.type, **attrs))

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
    "transpose": layout("permutation"),
    "slice": layout("starts", "steps"),
    "pad": layout("low", "high"),
}
