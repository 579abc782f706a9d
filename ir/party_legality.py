"""The grammar of the party level: what a pass or a suite may leave behind, and all that a host
believes of a stranger's text before it looks at masks.

Per operation how many operands it takes, which attributes, what becomes of types, and which shapes
go together, as ir/meaning/party.py computes with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from veilgraph.ir.party import (
    BIT_OPS,
    ELEMENTWISE,
    LAYOUT,
    LOADED,
    SUMS,
    VIEWS,
    WORD_OPS,
    Node,
    Program,
    broadcast_pattern,
)
from veilgraph.ir.plan import Phase
from veilgraph.ir.types import Kind, planes

OPS = ELEMENTWISE | VIEWS | LAYOUT | SUMS | {"matmul", "conv2d"}
SOURCES = LOADED | {"const", "draw"}
ENDS = frozenset(("send", "output"))
ALL = OPS | SOURCES | ENDS
MAKES_WORDS = WORD_OPS | SUMS | {"matmul", "conv2d", "lookup", "output", *LOADED}
# Element-wise, with operands of the result's type.
ALIKE = frozenset(("add", "sub", "mul", "neg", "and", "xor", "not", "shl", "shr"))
MOVES = LAYOUT | {"chunk"}  # elements from place to place
CHANGES_TYPE = frozenset(("cast", "select", "unpack", "lookup", "pack", "planes", "stack"))
MANY = frozenset(("stack", "join", "concat", "matmul", "conv2d"))  # of any number of operands
COUNTS = {"add": 2, "sub": 2, "mul": 2, "and": 2, "xor": 2, "select": 3, "lookup": 2}  # others: 1
DECLARED = ("", "reveal")
LARGEST = 1 << 31  # of what is a geometry's: strides, pads, starts, ...
# Attributes and their kinds: a number, numbers, or a text.
ATTRIBUTES: Mapping[str, Mapping[str, type]] = {
    "input": {"name": str},
    "weight": {"name": str},
    "share": {"name": str, "part": int, "of": int},
    "constant": {"number": int},
    "const": {"value": int},
    "draw": {"number": int},
    "send": {"declared": str, "number": int},
    "output": {"name": str, "frac_bits": int},
    "shl": {"bits": int},
    "shr": {"bits": int},
    "pack": {"low": int},
    "planes": {"start": int, "step": int},
    "chunk": {"start": int},
    "concat": {"axis": int},
    "transpose": {"permutation": tuple},
    "slice": {"starts": tuple, "steps": tuple},
    "pad": {"low": tuple, "high": tuple},
    "reduce_sum": {"axes": tuple},
    "pool_sum": {"kernel": tuple, "strides": tuple, "pads_low": tuple},
    "conv2d": {"strides": tuple, "pads_low": tuple, "dilations": tuple, "groups": int},
}

NOTHING: Mapping[str, type] = {}


class IllegalParty(AssertionError):
    """A node that the party level doesn't allow: a bug of a suite or a pass, or a false text."""


def check_party(program: Program) -> None:
    """Every node reads what its own party has, made before it; only sends cross.

    Raises:
        IllegalParty: with the node and the reason.
    """
    drawn: dict[int, tuple[object, ...]] = {}
    for node in program.nodes:
        reason = _illegal(program, node, drawn)
        if reason:
            raise IllegalParty(f"%{node.id} = {node.op}: {reason}")


def _illegal(program: Program, node: Node, drawn: dict[int, tuple[object, ...]]) -> str:
    if node.args and max(node.args) >= node.id:
        return "it reads what is made after it"
    operands = [program.nodes[i] for i in node.args]
    if node.op not in ALL:
        return "there is no such operation"
    if not _has_attributes(node):
        return "its attributes are others"
    if node.op in SOURCES:
        return _illegal_source(program, node, drawn)
    if node.op == "send":
        return _illegal_send(node, operands)
    if not (operands if node.op in MANY else len(operands) == COUNTS.get(node.op, 1)):
        return "it has another number of operands"
    phase = operands[0].phase
    for operand in operands:
        if operand.party != node.party:
            return "it reads what another party has"
        phase = max(phase, operand.phase)
    if phase > node.phase:
        return "it reads what a later phase makes"
    if phase < node.phase:
        return "its operands are made in an earlier phase"
    return _illegal_kind(node) or _illegal_form(program, node, operands)


def _has_attributes(node: Node) -> bool:
    known = ATTRIBUTES.get(node.op, NOTHING)
    if len(known) != len(node.attrs):
        return False
    for name, value in node.attrs:
        if type(value) is not known.get(name):
            return False
        if type(value) is tuple and not all(
            type(each) is int and abs(each) < LARGEST for each in value
        ):
            return False
    return True


def _illegal_source(program: Program, node: Node, drawn: dict[int, tuple[object, ...]]) -> str:
    if node.args:
        return "a source has no operands"
    if node.op == "draw":
        return _illegal_draw(program, node, drawn)
    if node.phase != (Phase.ONLINE if node.op == "input" else Phase.SETUP):
        return "it is there in another phase"
    if node.op == "const":
        bits = node.type.bits if node.type.kind is Kind.WORDS else 1
        return "" if 0 <= node["value"] < 1 << bits else "its value is no element"
    return "" if node.type.kind is Kind.WORDS else "it makes words"


def _illegal_draw(program: Program, node: Node, drawn: dict[int, tuple[object, ...]]) -> str:
    number = node["number"]
    if not 0 <= number < len(program.draws):
        return "there is no such draw"
    if node.party not in program.draws[number].holders:
        return "a party draws from a key that it does not have"
    form = (node.shape, node.type, node.phase)
    if drawn.setdefault(number, form) != form or node.phase != program.draws[number].phase:
        return "the same draw is another elsewhere"
    return ""


def _illegal_send(node: Node, operands: Sequence[Node]) -> str:
    same = len(operands) == 1 and operands[0].party != node.party
    if not same or (operands[0].type, operands[0].shape) != (node.type, node.shape):
        return "it does not cross, or changes"
    if operands[0].phase != node.phase:
        return "it is sent in another phase"
    return "" if node["declared"] in DECLARED else "it declares what there is not"


def _illegal_kind(node: Node) -> str:
    words = node.type.kind is Kind.WORDS
    if node.op in BIT_OPS and words:
        return "it makes planes"
    if node.op in MAKES_WORDS and not words:
        return "it makes words"
    if node.op in MOVES and not words:
        return "it moves words alone: planes are padded"
    return ""


def _illegal_form(program: Program, node: Node, operands: Sequence[Node]) -> str:
    """Whether types or shapes of the operands are not those of the operation."""
    if node.op not in CHANGES_TYPE:
        for x in operands:
            if x.type is not node.type and x.type != node.type:
                return "it changes a type"
    if node.op in ELEMENTWISE:
        for x in operands[:1] if node.op == "lookup" else operands:
            if x.shape != node.shape and not _spreads(x, node):
                return "its operands do not fit its shape"
    fits = FORMS.get(node.op)
    if node.op == "lookup":
        index, table = operands
        is_sound = index.type == node.type and _is_table(program, table, node)
        return "" if is_sound else "it looks up in no table, or at no words"
    return "" if fits is None or fits(node, operands) else "its operands do not fit it"


def _spreads(x: Node, node: Node) -> bool:
    """Whether element-wise kernels read an operand as it is, or repeat it in passing."""
    if x.op == "const" and x.elements == 1:
        return True
    if x.type.kind is Kind.PLANES or len(x.shape) > len(node.shape):
        return False
    lead = len(node.shape) - len(x.shape)
    broadcasts = all(n in (1, node.shape[lead + i]) for i, n in enumerate(x.shape))
    return broadcasts and (not x.shape or broadcast_pattern(x.shape, node.shape) is not None)


def _is_table(program: Program, table: Node, node: Node) -> bool:
    """A public tensor of 2^j entries, or a view of one: it lies in memory, as no `const` does."""
    entries, type = table.elements, table.type
    while table.op in VIEWS:
        table = program.nodes[table.args[0]]
    is_public = table.op == "constant"
    return is_public and entries > 0 and not entries & (entries - 1) and type == node.type


# What goes with what, of operations with a rule of their own

Fits = Callable[[Node, Sequence[Node]], bool]


def _cast(node: Node, x: Sequence[Node]) -> bool:
    return x[0].type.kind is Kind.WORDS


def _select(node: Node, x: Sequence[Node]) -> bool:
    return x[0].type == planes(1) and x[1].type == x[2].type == node.type


def _unpack(node: Node, x: Sequence[Node]) -> bool:
    return x[0].type.kind is Kind.PLANES and 1 <= x[0].type.bits <= node.type.word_bits


def _pack(node: Node, x: Sequence[Node]) -> bool:
    words = x[0].type.kind is Kind.WORDS
    return words and 0 <= node["low"] <= node["low"] + node.type.bits <= x[0].type.bits


def _planes(node: Node, x: Sequence[Node]) -> bool:
    start, step, count = node["start"], node["step"], node.type.bits
    last = start + (count - 1) * step
    some = count == 0 or (start >= 0 and step > 0 and last < x[0].type.bits)
    return some and x[0].type.kind is Kind.PLANES


def _stack(node: Node, x: Sequence[Node]) -> bool:
    return all(each.type.kind is Kind.PLANES for each in x) and node.type.bits == sum(
        each.type.bits for each in x
    )


def _shift(node: Node, x: Sequence[Node]) -> bool:
    return node.type.kind is Kind.WORDS and 0 <= node["bits"] < node.type.bits


def _reshape(node: Node, x: Sequence[Node]) -> bool:
    return node.elements == x[0].elements


def _chunk(node: Node, x: Sequence[Node]) -> bool:
    start = node["start"]
    return len(node.shape) == 1 and 0 <= start <= start + node.elements <= x[0].elements


def _join(node: Node, x: Sequence[Node]) -> bool:
    return node.shape == (sum(each.elements for each in x),)


def _concat(node: Node, x: Sequence[Node]) -> bool:
    axis = node["axis"]
    if not 0 <= axis < len(node.shape) or any(len(y.shape) != len(node.shape) for y in x):
        return False
    sides = {(*y.shape[:axis], *y.shape[axis + 1 :]) for y in (*x, node)}
    return len(sides) == 1 and sum(y.shape[axis] for y in x) == node.shape[axis]


def _transpose(node: Node, x: Sequence[Node]) -> bool:
    order = node["permutation"]
    is_order = sorted(order) == list(range(len(x[0].shape)))
    return is_order and node.shape == tuple(x[0].shape[axis] for axis in order)


def _slice(node: Node, x: Sequence[Node]) -> bool:
    starts, steps, sizes = node["starts"], node["steps"], x[0].shape
    if not len(starts) == len(steps) == len(sizes) == len(node.shape):
        return False
    return all(
        count == 0 or (0 <= start < size and 0 <= start + (count - 1) * step < size)
        for start, step, size, count in zip(starts, steps, sizes, node.shape, strict=True)
    )


def _pad(node: Node, x: Sequence[Node]) -> bool:
    low, high, sizes = node["low"], node["high"], x[0].shape
    if not len(low) == len(high) == len(sizes) or min((*low, *high), default=0) < 0:
        return False
    padded = zip(low, sizes, high, strict=True)
    return node.shape == tuple(a + size + b for a, size, b in padded)


def _broadcast(node: Node, x: Sequence[Node]) -> bool:
    lead = len(node.shape) - len(x[0].shape)
    return lead >= 0 and all(n in (1, node.shape[lead + i]) for i, n in enumerate(x[0].shape))


def _reduce_sum(node: Node, x: Sequence[Node]) -> bool:
    axes, sizes = node["axes"], x[0].shape
    is_set = len(set(axes)) == len(axes) and all(0 <= axis < len(sizes) for axis in axes)
    return is_set and node.shape == tuple(1 if i in axes else n for i, n in enumerate(sizes))


def _matmul(node: Node, x: Sequence[Node]) -> bool:
    if len(x) % 2 or any(len(y.shape) != 3 for y in (*x, node)):
        return False
    batch, rows, columns = node.shape
    return all(
        (a.shape[:2], b.shape[0], b.shape[2]) == ((batch, rows), batch, columns)
        and a.shape[2] == b.shape[1]
        for a, b in zip(x[::2], x[1::2], strict=True)
    )


def _conv2d(node: Node, x: Sequence[Node]) -> bool:
    if len(x) % 2 or any(len(y.shape) != 4 for y in (*x, node)):
        return False
    groups = node["groups"]
    if not (_is_geometry(node, "strides", "dilations") and 0 < groups < LARGEST):
        return False
    if any(y.shape != x[i % 2].shape for i, y in enumerate(x)):
        return False
    image, filters = x[0].shape, x[1].shape
    fits = image[1] == filters[1] * groups and filters[0] % groups == 0
    return fits and node.shape[:2] == (image[0], filters[0])


def _pool_sum(node: Node, x: Sequence[Node]) -> bool:
    ranked = len(node.shape) == len(x[0].shape) == 4 and node.shape[:2] == x[0].shape[:2]
    return ranked and _is_geometry(node, "kernel", "strides")


def _is_geometry(node: Node, *positive: str) -> bool:
    """Pairs, of which these count from one; pads may not be negative."""
    pairs = [node[name] for name in positive]
    pads = node["pads_low"]
    return all(len(p) == 2 and min(p) > 0 for p in pairs) and len(pads) == 2 and min(pads) >= 0


def _output(node: Node, x: Sequence[Node]) -> bool:
    return node.shape == x[0].shape


FORMS: Mapping[str, Fits] = {
    "cast": _cast,
    "select": _select,
    "unpack": _unpack,
    "pack": _pack,
    "planes": _planes,
    "stack": _stack,
    "shl": _shift,
    "shr": _shift,
    "reshape": _reshape,
    "chunk": _chunk,
    "join": _join,
    "concat": _concat,
    "transpose": _transpose,
    "slice": _slice,
    "pad": _pad,
    "broadcast": _broadcast,
    "reduce_sum": _reduce_sum,
    "matmul": _matmul,
    "conv2d": _conv2d,
    "pool_sum": _pool_sum,
    "output": _output,
}
assert FORMS.keys() | ALIKE | {"lookup"} == OPS - {"const", "draw"} | {"output"}
