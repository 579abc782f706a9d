"""The party level: local computation placed on parties, draws of randomness, and values that cross
between parties.

A `Program` is a list of immutable nodes, each on one party. Equal nodes are made once (same
operation, operands and party); draws and sends never merge: each draw has a number of its own, and
each send a number of its own.

Protocols are written on `Value`, which is seen from above: one mathematical value with the copies
that some parties hold. An operation on values happens at every party that holds all of its
operands, and nowhere else; only `send` adds a holder. Copies that nobody uses are never emitted.
ir/party/ops.py declares the operations, and ir/meaning/party.py says what each computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSequence, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from veilgraph.ir.party import ops
from veilgraph.ir.party._native import Alike
from veilgraph.ir.party.columns import Nodes, Rows, uncounted
from veilgraph.ir.party.node import Draw, Node, Shape, base_of, broadcast_pattern
from veilgraph.ir.party.ops import PartyOp
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.types import CompareWords, Kind, Type, blocks, planes, point_levels, words

DRAWN = (("number", None),)


class PlacementError(AssertionError):
    """A protocol used a value at a party that does not hold it: a bug in a suite."""


class Program:
    """A party-level program under construction, or complete.

    Args:
        parties: names, in the order of their indices.

    Attributes:
        sends: how many there are.
    """

    def __init__(self, parties: Sequence[str]) -> None:
        self.parties = tuple(parties)
        self.nodes: MutableSequence[Node] = Nodes(Rows())
        self.draws: list[Draw] = []
        self.layers: list[str] = [""]
        self.layer = 0
        self.entry = 0
        self.phase = Phase.OFFLINE
        self._public: dict[tuple[Any, ...], dict[int, int]] = {}
        self._groups: dict[frozenset[int], frozenset[int]] = {}
        self.sends = 0

    def node(
        self,
        op: PartyOp,
        party: int,
        args: tuple[int, ...],
        shape: Shape,
        type: Type,
        phase: Phase,
        **attrs: Any,
    ) -> int:
        """The id of the node that is this operation at this party, made if it is new."""
        pairs, number = uncounted(tuple(sorted(attrs.items())))
        alike = self.rows.alike(op, pairs, shape, type)
        return self.rows.once(alike, party, args, phase, self.entry, self.layer, number)

    @property
    def rows(self) -> Rows:
        """The nodes, to add to."""
        nodes = self.nodes
        if isinstance(nodes, Nodes):
            return nodes.growing or nodes.rows
        self.nodes = Nodes(Rows.of(nodes))
        return self.nodes.rows

    def _add(
        self, alike: Alike, party: int, args: tuple[int, ...], phase: int, number: int = -1
    ) -> int:
        """The id of a node that there is none like."""
        return self.rows.add(alike, party, args, phase, self.entry, self.layer, number)

    @contextmanager
    def in_phase(self, phase: Phase) -> Iterator[None]:
        """Draws made inside belong to `phase` (they are offline otherwise)."""
        before, self.phase = self.phase, phase
        try:
            yield
        finally:
            self.phase = before

    @contextmanager
    def in_entry(self, number: int) -> Iterator[None]:
        """What runs make inside is made by runs of this entry alone."""
        before, self.entry = self.entry, number
        try:
            yield
        finally:
            self.entry = before

    @contextmanager
    def in_layer(self, name: str) -> Iterator[None]:
        """Nodes made inside are counted under `name`."""
        before = self.layer
        self.layers.append(name)
        self.layer = len(self.layers) - 1
        try:
            yield
        finally:
            self.layer = before

    # Sources

    def draw(self, holders: Iterable[int], shape: Shape, type: Type) -> Value:
        """Fresh uniform randomness known to `holders` alone; never the same twice."""
        found = frozenset(holders)
        draw = Draw(len(self.draws), self._groups.setdefault(found, found), self.phase)
        self.draws.append(draw)
        alike = self.rows.alike(ops.DRAW, DRAWN, shape, type)
        at = {i: self._add(alike, i, (), self.phase, draw.number) for i in sorted(draw.holders)}
        return Value(self, at, shape, type)

    def source(self, role: str, name: str, owner: int, shape: Shape, type: Type) -> Value:
        """An "input" (online) or a "weight" (setup) that `owner` encodes and holds in the clear."""
        op = ops.BY_NAME[role]
        assert op.phase is not None, f"{role} is there in no phase of its own"
        return Value(
            self, {owner: self.node(op, owner, (), shape, type, op.phase, name=name)}, shape, type
        )

    def share(
        self, name: str, part: tuple[int, int], holders: Iterable[int], shape: Shape, type: Type
    ) -> Value:
        """Part (number, of how many) of weight `name`, dealt before the session to `holders`."""
        number, parts = part
        at = {
            i: self.node(
                ops.SHARE, i, (), shape, type, Phase.SETUP, name=name, part=number, of=parts
            )
            for i in sorted(holders)
        }
        return Value(self, at, shape, type)

    def state(
        self, name: str, part: tuple[int, int], holders: Iterable[int], shape: Shape, type: Type
    ) -> Value:
        """Part (number, of how many) of state `name` at `holders`, as the last run left it."""
        number, parts = part
        at = {
            i: self.node(
                ops.STATE, i, (), shape, type, Phase.ONLINE, name=name, part=number, of=parts
            )
            for i in sorted(holders)
        }
        return Value(self, at, shape, type)

    def constant(self, number: int, shape: Shape, type: Type) -> Value:
        """Public tensor `number` of the plan's constants, at every party."""
        return self._everywhere(ops.CONSTANT, shape, type, ("number", number))

    def const(self, value: int, shape: Shape, type: Type) -> Value:
        """A public integer, the same for every element, at every party."""
        if type.kind not in ops.CONST.makes:
            raise TypeError(f"there is no constant of {type}")
        return self._everywhere(ops.CONST, shape, type, ("value", value % type.modulus))

    def _everywhere(self, op: PartyOp, shape: Shape, type: Type, *pairs: tuple[str, Any]) -> Value:
        key = (op, shape, type.kind, type.bits, pairs)
        at = self._public.get(key)
        if at is None:
            attrs, number = uncounted(pairs)
            alike, everyone = self.rows.alike(op, attrs, shape, type), range(len(self.parties))
            at = {i: self._add(alike, i, (), Phase.SETUP, number) for i in everyone}
            self._public[key] = at
            if op is ops.CONST:
                self.rows.constants.update(dict.fromkeys(at.values(), pairs[0][1]))
        return Value(self, at, shape, type)

    # Crossings

    def send(self, value: Value, sender: int, receiver: int, declared: str = "") -> Value:
        """`value` with one more holder: one message of its width an element.

        `declared` is empty for a masked message, and "reveal" for a part of an output.
        """
        if sender == receiver or receiver in value.at:
            raise PlacementError(f"party {receiver} holds this value already")
        source, shape, type = value.id_at(sender), value.shape, value.type
        number, self.sends = self.sends, self.sends + 1
        alike = self.rows.alike(ops.SEND, (("declared", declared), ("number", None)), shape, type)
        phase = Phase(self.rows.phase(source))
        received = self._add(alike, receiver, (source,), phase, number)
        return Value(self, value.at | {receiver: received}, shape, type)

    def keep(self, value: Value, name: str, part: tuple[int, int], holders: Iterable[int]) -> None:
        """Lets `value` be part (number, of how many) of state `name` from the end of the run on.

        Of what lies in memory already a copy is kept: another state may take its place.
        """
        number, parts = part
        value = _copied(value)
        for i in sorted(holders):
            ids, shape, type = (value.node_at(i).id,), value.shape, value.type
            self.node(ops.KEEP, i, ids, shape, type, Phase.ONLINE, name=name, part=number, of=parts)

    def output(self, value: Value, party: int, name: str, frac_bits: int) -> None:
        """Gives `value` to the user of `party` under `name`.

        Of a state as it was a copy is given: what it becomes may take its place before.
        """
        node = _copied(value).node_at(party)
        self.node(
            ops.OUTPUT,
            party,
            (node.id,),
            value.shape,
            value.type,
            node.phase,
            name=name,
            frac_bits=frac_bits,
        )


# A frozen dataclass takes several times as long to make: see Node.
@dataclass(slots=True, eq=False)
class Value:
    """One value seen from above: who holds a copy (party -> node id), its shape and type."""

    program: Final[Program]
    at: Final[dict[int, int]]
    shape: Final[Shape]
    type: Final[Type]

    def id_at(self, party: int) -> int:
        if party not in self.at:
            raise PlacementError(f"party {party} does not hold this value; {sorted(self.at)} do")
        return self.at[party]

    def node_at(self, party: int) -> Node:
        return self.program.nodes[self.id_at(party)]

    def only(self, *parties: int) -> Value:
        """The same value, its copies at `parties` alone."""
        return Value(self.program, {i: self.id_at(i) for i in parties}, self.shape, self.type)

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def phase(self) -> Phase:
        return Phase(max(map(self.program.rows.phase, self.at.values())))

    def constant_value(self) -> int | None:
        """The public integer that this is at every element, if it is one."""
        constants = self.program.rows.constants
        for node in self.at.values():
            return constants.get(node)
        return None

    # Word and bit arithmetic

    def __add__(self, other: Value | int) -> Value:
        other = self._like(other)
        if other.constant_value() == 0:
            return _held_by_both(self, other)
        if self.constant_value() == 0:
            return _held_by_both(other, self)
        return apply(ops.ADD, (self, other), _broadcast(self, other), self.type)

    def __sub__(self, other: Value | int) -> Value:
        other = self._like(other)
        if other.constant_value() == 0:
            return _held_by_both(self, other)
        if self.constant_value() == 0:
            return -_held_by_both(other, self)
        return apply(ops.SUB, (self, other), _broadcast(self, other), self.type)

    def __neg__(self) -> Value:
        return apply(ops.NEG, (self,), self.shape, self.type)

    def __mul__(self, other: Value | int) -> Value:
        other = self._like(other)
        shape = _broadcast(self, other)
        for x, y in ((self, other), (other, self)):
            if y.constant_value() == 0:
                return self.program.const(0, shape, self.type).only(*(x.at.keys() & y.at.keys()))
            if y.constant_value() == 1:
                return _held_by_both(x, y)
        return apply(ops.MUL, (self, other), shape, self.type)

    def __and__(self, other: Value) -> Value:
        if 0 in (self.constant_value(), other.constant_value()):
            return self.program.const(0, self.shape, self.type).only(
                *(self.at.keys() & other.at.keys())
            )
        return apply(ops.AND, (self, other), self.shape, self.type)

    def __xor__(self, other: Value) -> Value:
        if other.constant_value() == 0:
            return _held_by_both(self, other)
        if self.constant_value() == 0:
            return _held_by_both(other, self)
        return apply(ops.XOR, (self, other), self.shape, self.type)

    def __invert__(self) -> Value:
        return apply(ops.NOT, (self,), self.shape, self.type)

    def __lshift__(self, bits: int) -> Value:
        if bits >= self.type.bits:
            return self.program.const(0, self.shape, self.type).only(*self.at)
        return self if bits == 0 else apply(ops.SHL, (self,), self.shape, self.type, bits=bits)

    def __rshift__(self, bits: int) -> Value:
        """Logical shift of the value in [0, 2^k)."""
        if bits >= self.type.bits:
            return self.program.const(0, self.shape, self.type).only(*self.at)
        return self if bits == 0 else apply(ops.SHR, (self,), self.shape, self.type, bits=bits)

    def mod(self, bits: int) -> Value:
        """The value in [0, 2^k) taken into Z_2^bits: reduced, or zero-extended."""
        return self if bits == self.type.bits else apply(ops.CAST, (self,), self.shape, words(bits))

    def _like(self, other: Value | int) -> Value:
        if isinstance(other, int):
            return self.program.const(other, (), self.type)
        if other.type is not self.type and other.type != self.type:
            raise TypeError(f"{self.type} meets {other.type}")
        return other

    # Between words and bits

    def bits(self, low: int, count: int = 1) -> Value:
        """Bits low .. low + count - 1 of each element, as planes."""
        if not 0 <= low <= low + count <= self.type.bits:
            raise ValueError(f"bits {low}..{low + count - 1} of {self.type}")
        return apply(ops.PACK, (self,), self.shape, planes(count), low=low)

    def plane(self, start: int, count: int, step: int = 1) -> Value:
        """Planes start, start + step, ...: `count` of them."""
        if count and not 0 <= start <= start + (count - 1) * step < self.type.bits:
            raise ValueError(f"planes {start}..+{count}*{step} of {self.type}")
        if (start, count) == (0, self.type.bits):
            return self
        return apply(ops.SOME_PLANES, (self,), self.shape, planes(count), start=start, step=step)

    def to_words(self, bits: int) -> Value:
        """The number whose bit j is plane j, in Z_2^bits."""
        return apply(ops.UNPACK, (self,), self.shape, words(bits))

    # Shape

    def reshape(self, shape: Shape) -> Value:
        return self if shape == self.shape else apply(ops.RESHAPE, (self,), shape, self.type)

    def chunk(self, start: int, length: int) -> Value:
        """Elements start .. start + length - 1 in row-major order, as a vector."""
        if (start, length) == (0, self.elements):
            return self.reshape((length,))
        return apply(ops.CHUNK, (self,), (length,), self.type, start=start)

    def joined(self, start: int, length: int) -> Value | None:
        """The vector that these elements are, if the value was joined of it and others."""
        found = {party: self._joined(node, start, length) for party, node in self.at.items()}
        vectors = {party: node for party, node in found.items() if node is not None}
        is_joined = len(vectors) == len(found)
        return Value(self.program, vectors, (length,), self.type) if is_joined else None

    def _joined(self, number: int, start: int, length: int) -> int | None:
        """Of one copy."""
        nodes = self.program.nodes
        while nodes[number].op is ops.RESHAPE:
            (number,) = nodes[number].args
        place = 0
        for vector in nodes[number].args if nodes[number].op is ops.JOIN else ():
            if (place, nodes[vector].elements) == (start, length):
                return vector
            place += nodes[vector].elements
        return None


def _broadcast(x: Value, y: Value) -> Shape:
    if x.shape == y.shape or not y.shape:
        return x.shape
    rank = max(len(x.shape), len(y.shape))
    dims = zip(
        (1,) * (rank - len(x.shape)) + x.shape, (1,) * (rank - len(y.shape)) + y.shape, strict=True
    )
    shape = []
    for a, b in dims:
        if a != b and 1 not in (a, b):
            raise TypeError(f"shapes {x.shape} and {y.shape} do not broadcast")
        shape.append(max(a, b) if 0 not in (a, b) else 0)
    return tuple(shape)


def _held_by_both(x: Value, y: Value) -> Value:
    """x where y is held too, in the shape of both together."""
    both = x.only(*(i for i in x.at if i in y.at))
    shape = _broadcast(x, y)
    return both if shape == x.shape else apply(ops.BROADCAST, (both,), shape, x.type)


def _copied(value: Value) -> Value:
    """`value`, in memory of its own where it lies in that of a state."""
    nodes = value.program.nodes
    if not any(base_of(nodes, n).op is ops.STATE for n in value.at.values()):
        return value
    flat = value.reshape((value.elements,))
    copy = apply(ops.SLICE, (flat,), flat.shape, value.type, starts=(0,), steps=(1,))
    return copy.reshape(value.shape)


def apply(op: PartyOp, args: Sequence[Value], shape: Shape, type: Type, **attrs: Any) -> Value:
    """`op` at every party that holds all of `args`."""
    # Without generators: a protocol's bodies come here a million times in a large program.
    program = args[0].program
    if type.kind not in op.makes:
        raise TypeError(f"there is no {op} of {type}")
    if op.alike:
        for arg in args:
            if arg.type is not type and arg.type != type:
                raise TypeError(f"{op}: {' meets '.join(str(a.type) for a in args)}")
    if op.elementwise:
        for arg in args:
            if arg.shape != shape:
                args = [_explicit(a, shape) for a in args]
                break
    if op.keeps_zero:
        for arg in args:
            if arg.constant_value() != 0:
                break
        else:
            return program.const(0, shape, type).only(*_holders(op, args))
    pairs, rows = tuple(sorted(attrs.items())) if attrs else (), program.rows
    alike, copies = rows.alike(op, pairs, shape, type), [arg.at for arg in args]
    at = rows.apply(alike, copies, program.entry, program.layer)
    if not at:
        _holders(op, args)
    return Value(program, at, shape, type)


def _holders(op: PartyOp, args: Sequence[Value]) -> list[int]:
    """The parties that hold all of an operation's operands."""
    found = sorted(set(args[0].at).intersection(*(arg.at for arg in args)))
    if not found:
        raise PlacementError(f"{op}: no party holds all operands: {[sorted(a.at) for a in args]}")
    return found


def _explicit(value: Value, shape: Shape) -> Value:
    """`value`, broadcast by a step of its own where element-wise kernels can't do it in passing."""
    if value.shape == shape or value.type.kind is not Kind.WORDS or not value.shape:
        return value
    if broadcast_pattern(value.shape, shape) is not None:
        return value
    return apply(ops.BROADCAST, (value,), shape, value.type)


def select(bit: Value, one: Value, zero: Value) -> Value:
    """`one` where the plane `bit` is 1, else `zero`."""
    return apply(ops.SELECT, (bit, one, zero), one.shape, one.type)


def look_up(table: Value, index: Value) -> Value:
    """Of a public vector of 2^j words the element at `index` modulo 2^j, for each index."""
    entries = table.elements
    if entries & (entries - 1):
        raise ValueError(f"{entries} entries are no power of two")
    if (value := table.constant_value()) is not None:
        return index.program.const(value, index.shape, table.type).only(*index.at)
    wide = index.mod(table.type.bits)
    both = wide.only(*(i for i in wide.at if i in table.at))
    program, nodes = index.program, index.program.nodes
    at = {}
    for i, n in both.at.items():
        phase = max(nodes[n].phase, nodes[table.at[i]].phase)
        at[i] = program.node(ops.LOOKUP, i, (n, table.at[i]), index.shape, table.type, phase)
    return Value(program, at, index.shape, table.type)


def point_words(
    key: Value, roots: Sequence[Value], index: Value, index_bits: int, ring_bits: int
) -> Value:
    """The words of a point function for each index, [indices, levels + 2], of both parties' roots.

    Boyle, Gilboa, Ishai, CCS 2016; kernels/point has the bits.
    """
    shape = (index.elements, point_levels(index_bits, ring_bits) + 2)
    named = {"index_bits": index_bits, "ring_bits": ring_bits}
    return apply(ops.POINT_WORDS, (key, *roots, index), shape, blocks(), **named)


def point_rows(
    key: Value,
    roots: Value,
    words: Value,
    side: int,
    index_bits: int,
    places: int,
    type: Type,
    opened: Value | None = None,
) -> Value:
    """The first (side 0) or second (1) party's rows, [indices, places]; both add up to units.

    Args:
        opened: numbers c, by which the row's place j is that of c - j, modulo 2^index_bits.
    """
    operands = (key, roots, words) if opened is None else (key, roots, words, opened)
    shape, named = (roots.elements, places), {"index_bits": index_bits, "side": side}
    return apply(ops.POINT_ROWS, operands, shape, type, **named)


def compare_words(
    key: Value, roots: Sequence[Value], threshold: Value, index_bits: int, payloads: Sequence[Value]
) -> list[Value]:
    """The words of a comparison function for each threshold, of both parties' roots, in sections.

    Boyle et al., EUROCRYPT 2021; kernels/compare has the bits. Seeds come first, then the numbers
    of each payload in its ring.
    """
    rings = tuple(payload.type.bits for payload in payloads)
    layout, count = CompareWords(index_bits, rings), threshold.elements
    operands, shape = (key, *roots, threshold, *payloads), (layout.size(count),)
    named: dict[str, Any] = {"index_bits": index_bits, "rings": rings}
    whole = apply(ops.COMPARE_WORDS, operands, shape, words(layout.word_bits), **named)
    seeds, *numbers = (whole.chunk(*each) for each in layout.sections(count))
    return [seeds, *(each.mod(bits) for each, bits in zip(numbers, rings, strict=True))]


def compare_parts(
    key: Value,
    roots: Value,
    points: Value,
    sections: Sequence[Value],
    side: int,
    index_bits: int,
) -> list[Value]:
    """The first (side 0) or second (1) party's parts of each payload below the threshold, else 0.

    Args:
        points: public numbers x; what is added up is the payload where x < threshold.
        sections: of the words of as many thresholds.
    """
    rings, count = tuple(each.type.bits for each in sections[1:]), points.elements
    named: dict[str, Any] = {"index_bits": index_bits, "rings": rings, "side": side}
    operands, shape = (key, roots, points, *sections), (len(rings) * count,)
    whole = apply(ops.COMPARE_PARTS, operands, shape, words(max(rings)), **named)
    return [whole.chunk(j * count, count).mod(bits) for j, bits in enumerate(rings)]


def copies(*values: Value) -> Value:
    """One mathematical value of which each party has made its copy in its own way."""
    at = {i: n for value in values for i, n in value.at.items()}
    return Value(values[0].program, at, values[0].shape, values[0].type)


def stack(values: Sequence[Value]) -> Value:
    """The planes of all values, one after another."""
    values = [v for v in values if v.type.bits]
    if len(values) == 1:
        return values[0]
    return apply(ops.STACK, values, values[0].shape, planes(sum(v.type.bits for v in values)))


def join(chunks: Sequence[Value], shape: Shape) -> Value:
    """Vectors one after another, as a tensor of `shape`."""
    if len(chunks) == 1:
        return chunks[0].reshape(shape)
    flat = apply(ops.JOIN, chunks, (sum(c.elements for c in chunks),), chunks[0].type)
    return flat.reshape(shape)
