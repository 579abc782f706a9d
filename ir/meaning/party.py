"""What each party-level node computes, in NumPy: the oracle of protocols and of lowering.

Words are uint64 arrays of the value in [0, 2^k); planes are uint8 arrays of bits with the planes
on a new first axis; blocks are uint64 arrays of words of 64 bits on a new last axis, the lower one
first. Rings may be of any width, 8 bits and fewer included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from veilgraph.ir.meaning import comparison_functions, point_functions
from veilgraph.ir.party import ops
from veilgraph.ir.party.node import Draw, Node, Shape
from veilgraph.ir.party.ops import PartyOp
from veilgraph.ir.party.program import Program
from veilgraph.ir.types import Kind, Type

Array = npt.NDArray[Any]
DrawSource = Callable[[Draw, Shape, Type], Array]


@dataclass
class Evaluation:
    """Every node's value; what each party received, as (node, value); outputs by (party, name);
    what is kept of states by (party, "part/name")."""

    values: list[Array]
    received: dict[int, list[tuple[Node, Array]]] = field(default_factory=dict)
    outputs: dict[tuple[int, str], Array] = field(default_factory=dict)
    kept: dict[tuple[int, str], Array] = field(default_factory=dict)


def uniform_draws(generator: np.random.Generator) -> DrawSource:
    """Draws for tests, from an explicit generator; the same array for every holder of a draw."""
    made: dict[int, Array] = {}

    def draw(draw: Draw, shape: Shape, type: Type) -> Array:
        if draw.number not in made:
            if type.kind is Kind.PLANES:
                made[draw.number] = generator.integers(0, 2, (type.bits, *shape), dtype=np.uint8)
            elif type.kind is Kind.BLOCKS:
                size = (*shape, type.per_element)
                made[draw.number] = generator.integers(0, 2**64, size, dtype=np.uint64)
            else:
                raw = generator.integers(0, 2**64, shape, dtype=np.uint64, endpoint=False)
                made[draw.number] = reduce(raw, type.bits)
        return made[draw.number]

    return draw


def reduce(x: Array, bits: int) -> Array:
    """x modulo 2^bits."""
    return x & np.uint64((1 << bits) - 1)


def evaluate(
    program: Program,
    sources: Mapping[str, Array],
    draws: DrawSource,
    constants: Sequence[Array] = (),
) -> Evaluation:
    """Runs all parties' nodes in order.

    What several parties compute of the same arrays is computed once, and theirs in common.

    Args:
        sources: integers in [0, 2^k) of each input and weight, by name; of each share
            and each part of a state, by "part/name".
        draws: makes the values of draws.
        constants: the plan's public tensors, by number.
    """
    result = Evaluation([])
    given = Given(program, sources, draws, constants)
    made: dict[tuple[object, ...], tuple[int, Array]] = {}
    nodes = [*program.nodes]
    numbers: list[int] = []  # of each node's value: one and the same for what is computed alike
    with np.errstate(over="ignore"):  # NumPy warns of rank 0 alone
        for node in nodes:
            own = [numbers[i] for i in node.args]
            key = (node.op, node.attrs, node.shape, node.type.kind, node.type.bits, *own)
            if (found := made.get(key)) is None:
                args = [result.values[i] for i in node.args]
                types = [nodes[i].type for i in node.args]
                value = _evaluate_node(given, node, args, types)
                handed_on = bool(args) and value is args[0] and types[0] == node.type
                found = made[key] = own[0] if handed_on else len(made), value
            number, value = found
            numbers.append(number)
            result.values.append(value)
            if node.op is ops.SEND:
                result.received.setdefault(node.party, []).append((node, value))
            elif node.op is ops.OUTPUT:
                result.outputs[node.party, node["name"]] = value
            elif node.op is ops.KEEP:
                result.kept[node.party, f"{node['part']}/{node['name']}"] = value
    return result


@dataclass(frozen=True)
class Given:
    """What sources are made of; as the arguments of `evaluate`."""

    program: Program
    sources: Mapping[str, Array]
    draws: DrawSource
    constants: Sequence[Array]


def _evaluate_node(given: Given, node: Node, args: list[Array], types: list[Type]) -> Array:
    if node.op in SOURCES:
        value = SOURCES[node.op](given, node)
    else:
        value = OPS[node.op](node, args, types)
        if value is args[0] and types[0] == node.type:
            return value  # handed on
    return reduce(value, node.type.bits) if node.type.kind is Kind.WORDS else value


def _named(given: Given, node: Node) -> Array:
    return np.asarray(given.sources[node["name"]], np.uint64)


def _part(given: Given, node: Node) -> Array:
    return np.asarray(given.sources[f"{node['part']}/{node['name']}"], np.uint64)


def _constant(given: Given, node: Node) -> Array:
    return np.asarray(given.constants[node["number"]], np.uint64)


def _draw(given: Given, node: Node) -> Array:
    return given.draws(given.program.draws[node["number"]], node.shape, node.type)


def _splat(given: Given, node: Node) -> Array:
    if node.type.kind is Kind.WORDS:
        return np.full(node.shape, node["value"], np.uint64)
    return np.full((node.type.bits, *node.shape), node["value"], np.uint8)


def _pack(node: Node, args: list[Array], types: list[Type]) -> Array:
    low = node["low"]
    return np.stack([((args[0] >> np.uint64(low + j)) & 1) for j in range(node.type.bits)]).astype(
        np.uint8
    )


def _unpack(node: Node, args: list[Array], types: list[Type]) -> Array:
    value = np.zeros(args[0].shape[1:], np.uint64)
    for j, plane in enumerate(args[0]):
        value += plane.astype(np.uint64) << np.uint64(j)
    return value


def _planes(node: Node, args: list[Array], types: list[Type]) -> Array:
    start, step = node["start"], node["step"]
    return args[0][start : start + (node.type.bits - 1) * step + 1 : step]


def _chunk(node: Node, args: list[Array], types: list[Type]) -> Array:
    start, length = node["start"], node.elements
    if node.type.kind is Kind.PLANES:
        return args[0].reshape(node.type.bits, -1)[:, start : start + length]
    return args[0].reshape(-1, *_words(node.type))[start : start + length]


def _reshape(node: Node, args: list[Array], types: list[Type]) -> Array:
    lead = (node.type.bits,) if node.type.kind is Kind.PLANES else ()
    return args[0].reshape((*lead, *node.shape, *_words(node.type)))


def _join(node: Node, args: list[Array], types: list[Type]) -> Array:
    return np.concatenate([x.reshape(-1, *_words(node.type)) for x in args])


def _words(type: Type) -> tuple[int, ...]:
    """The last axis of blocks."""
    return (type.per_element,) if type.kind is Kind.BLOCKS else ()


def _not(node: Node, args: list[Array], types: list[Type]) -> Array:
    return ~args[0] if node.type.kind is Kind.WORDS else args[0] ^ 1


def _matmul(node: Node, args: list[Array], types: list[Type]) -> Array:
    pairs = zip(args[::2], args[1::2], strict=True)
    return sum((np.matmul(a, b) for a, b in pairs), np.zeros(node.shape, np.uint64))


def _conv2d(node: Node, args: list[Array], types: list[Type]) -> Array:
    pairs = zip(args[::2], args[1::2], strict=True)
    return sum((conv2d(node, x, w) for x, w in pairs), np.zeros(node.shape, np.uint64))


def conv2d(node: Node, x: Array, w: Array) -> Array:
    """[N,C,H,W] with [O,C/groups,KH,KW], one kernel position at a time."""
    groups, (top, left), (dh, dw) = node["groups"], node["pads_low"], node["dilations"]
    out = np.zeros(node.shape, np.uint64)
    for g in range(groups):
        xs = np.split(x, groups, axis=1)[g]
        ws = np.split(w, groups, axis=0)[g]
        channels = slice(g * ws.shape[0], (g + 1) * ws.shape[0])
        for i in range(w.shape[2]):
            for j in range(w.shape[3]):
                window = _window(node, xs, i * dh - top, j * dw - left)
                out[:, channels] += np.einsum("nchw,oc->nohw", window, ws[:, :, i, j])
    return out


def _window(node: Node, x: Array, top: int, left: int) -> Array:
    """For each output position, the image's element at the same position of the kernel."""
    (sh, sw), (height, width) = node["strides"], node.shape[2:]
    rows = top + sh * np.arange(height)
    columns = left + sw * np.arange(width)
    inside = ((rows >= 0) & (rows < x.shape[2]))[:, None] & (
        (columns >= 0) & (columns < x.shape[3])
    )
    taken = x[:, :, rows.clip(0, x.shape[2] - 1)][:, :, :, columns.clip(0, x.shape[3] - 1)]
    window: Array = taken * inside.astype(np.uint64)
    return window


def _pool_sum(node: Node, args: list[Array], types: list[Type]) -> Array:
    (kh, kw), (top, left) = node["kernel"], node["pads_low"]
    windows = (_window(node, args[0], i - top, j - left) for i in range(kh) for j in range(kw))
    return sum(windows, np.zeros(node.shape, np.uint64))


def _slice(node: Node, args: list[Array], types: list[Type]) -> Array:
    index = tuple(
        np.arange(start, start + step * size, step)
        for start, step, size in zip(node["starts"], node["steps"], node.shape, strict=True)
    )
    part: Array = args[0][np.ix_(*index)]
    return part


def _pad(node: Node, args: list[Array], types: list[Type]) -> Array:
    return np.pad(args[0], list(zip(node["low"], node["high"], strict=True)))


def _point_rows(node: Node, args: list[Array], types: list[Type]) -> Array:
    tree = point_functions.Tree(node["index_bits"], node.type.bits)
    return point_functions.rows(tree, node["side"], node.shape[1], *args)


def _compare_words(node: Node, args: list[Array], types: list[Type]) -> Array:
    return comparison_functions.words(_compared(node), *args)


def _compare_parts(node: Node, args: list[Array], types: list[Type]) -> Array:
    return comparison_functions.parts(_compared(node), node["side"], *args)


def _compared(node: Node) -> comparison_functions.Tree:
    return comparison_functions.Tree(node["index_bits"], tuple(node["rings"]))


SOURCES: dict[PartyOp, Callable[[Given, Node], Array]] = {
    ops.INPUT: _named,
    ops.WEIGHT: _named,
    ops.SHARE: _part,
    ops.STATE: _part,
    ops.CONSTANT: _constant,
    ops.CONST: _splat,
    ops.DRAW: _draw,
}

# Of everything else, from the node, its operands' values and their types.
OPS: dict[PartyOp, Callable[[Node, list[Array], list[Type]], Array]] = {
    ops.ADD: lambda n, a, t: a[0] + a[1],
    ops.SUB: lambda n, a, t: a[0] - a[1],
    ops.MUL: lambda n, a, t: a[0] * a[1],
    ops.NEG: lambda n, a, t: np.uint64(0) - a[0],
    ops.AND: lambda n, a, t: a[0] & a[1],
    ops.XOR: lambda n, a, t: a[0] ^ a[1],
    ops.NOT: _not,
    ops.SHL: lambda n, a, t: a[0] << np.uint64(n["bits"]),
    ops.SHR: lambda n, a, t: a[0] >> np.uint64(n["bits"]),
    ops.CAST: lambda n, a, t: a[0],
    ops.SELECT: lambda n, a, t: np.where(a[0][0] == 1, a[1], a[2]),
    ops.LOOKUP: lambda n, a, t: a[1].reshape(-1)[a[0] & np.uint64(a[1].size - 1)],
    ops.PACK: _pack,
    ops.UNPACK: _unpack,
    ops.SOME_PLANES: _planes,
    ops.STACK: lambda n, a, t: np.concatenate(a),
    ops.RESHAPE: _reshape,
    ops.CHUNK: _chunk,
    ops.JOIN: _join,
    ops.CONCAT: lambda n, a, t: np.concatenate(a, axis=n["axis"]),
    ops.TRANSPOSE: lambda n, a, t: a[0].transpose(n["permutation"]),
    ops.SLICE: _slice,
    ops.PAD: _pad,
    ops.BROADCAST: lambda n, a, t: np.broadcast_to(a[0], n.shape),
    ops.MATMUL: _matmul,
    ops.CONV2D: _conv2d,
    ops.POOL_SUM: _pool_sum,
    ops.REDUCE_SUM: lambda n, a, t: a[0].sum(axis=n["axes"], keepdims=True, dtype=np.uint64),
    ops.POINT_WORDS: lambda n, a, t: point_functions.words(n["index_bits"], n["ring_bits"], *a),
    ops.POINT_ROWS: _point_rows,
    ops.COMPARE_WORDS: _compare_words,
    ops.COMPARE_PARTS: _compare_parts,
    ops.SEND: lambda n, a, t: a[0],
    ops.OUTPUT: lambda n, a, t: a[0],
    ops.KEEP: lambda n, a, t: a[0],
}
