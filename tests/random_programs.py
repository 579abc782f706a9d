"""Random party-level programs: every operation, at random parties, with random messages."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import prod

import numpy as np
import numpy.typing as npt

from veilgraph.ir.party import ops
from veilgraph.ir.party.node import Shape
from veilgraph.ir.party.program import (
    Program,
    Value,
    apply,
    compare_parts,
    compare_words,
    join,
    look_up,
    point_rows,
    point_words,
    select,
    stack,
)
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.types import Kind, Type, blocks, planes, words
from veilgraph.passes.party.expand_protocols import Expanded

RINGS = (1, 5, 8, 13, 16, 24, 31, 32, 33, 40, 52, 63, 64)
SHAPES: tuple[Shape, ...] = (
    *((), (1,), (2,), (63,), (64,), (65,), (130,)),
    *((3, 5), (1, 7), (4, 1, 3), (2, 3, 4, 5), (1, 2, 6, 6)),
)
MOST_ELEMENTS = 600


def exact(value: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.int64]:
    """Integers near these ring elements that float64 holds, and that fit the ring."""
    signed: npt.NDArray[np.int64] = (value << np.uint64(64 - bits)).view(np.int64) >> (64 - bits)
    signed = np.maximum(signed, 1 - (1 << (bits - 1)))  # an owner can't give the least element
    return signed if bits <= 53 else signed >> (bits - 53) << (bits - 53)


class RandomProgram:
    """A program under construction, whose choices are all made by `choices`."""

    def __init__(self, choices: random.Random, parties: int = 3) -> None:
        self.choices = choices
        self.program = Program(("alice", "bob", "carol", "dave")[:parties])
        self.expanded = Expanded(self.program)
        self.values: list[Value] = []
        self.shapes: dict[str, tuple[Shape, int]] = {}
        self.weights: dict[str, tuple[Shape, int]] = {}
        self.rng = np.random.default_rng(choices.randrange(1 << 30))

    def grow(self, operations: int) -> Expanded:
        """Sources, `operations` random steps, and outputs."""
        for _ in range(self.choices.randint(1, 3)):
            self._source()
        for _ in range(operations):
            self.choices.choice(STEPS)(self)
        outputs = [self.choices.choice(self.values) for _ in range(3)]
        for number, value in enumerate([*outputs, self.values[-1]]):
            if value.type.kind is Kind.PLANES:
                value = value.to_words(max(value.type.bits, 1))
            party = self.choices.choice(sorted(value.at))
            self.program.output(value, party, f"y{number}", 0)
        return self.expanded

    def inputs(self) -> dict[str, npt.NDArray[np.int64]]:
        return {name: self._numbers(*tensor) for name, tensor in self.shapes.items()}

    def weight_values(self) -> dict[str, npt.NDArray[np.int64]]:
        return {name: self._numbers(*tensor) for name, tensor in self.weights.items()}

    def _numbers(self, shape: Shape, bits: int) -> npt.NDArray[np.int64]:
        raw = self.rng.integers(0, (1 << bits) - 1, shape, np.uint64, endpoint=True)
        return exact(np.asarray(raw), bits)

    # Choices

    def _party(self) -> int:
        return self.choices.randrange(len(self.program.parties))

    def _shape(self) -> Shape:
        return self.choices.choice(SHAPES)

    def _ring(self) -> Type:
        return words(self.choices.choice(RINGS))

    def _pick(self, kind: Kind, want: Callable[[Value], bool] = lambda v: True) -> Value | None:
        found = [v for v in self.values if v.type.kind is kind and want(v)]
        return self.choices.choice(found) if found else None

    def _words(self, want: Callable[[Value], bool] = lambda v: True) -> Value | None:
        return self._pick(Kind.WORDS, want)

    def _bits(self, want: Callable[[Value], bool] = lambda v: True) -> Value | None:
        return self._pick(Kind.PLANES, want)

    def _like(self, x: Value, shape: Shape, type: Type) -> Value:
        """A value of this shape and type that someone who holds `x` holds: found, or drawn."""

        def fits(v: Value) -> bool:
            return v.shape == shape and v.type == type and bool(v.at.keys() & x.at.keys())

        found = self._pick(type.kind, fits)
        if found is not None and self.choices.random() < 0.6:
            return found
        made = self._draw(shape, type, self.choices.choice(sorted(x.at)))
        self._keep(made)
        return made

    def _draw(self, shape: Shape, type: Type, holder: int) -> Value:
        holders = {holder, self._party()}
        with self.program.in_phase(self.choices.choice(tuple(Phase))):
            return self.program.draw(holders, shape, type)

    def _keep(self, value: Value) -> None:
        if prod(value.shape) <= MOST_ELEMENTS:
            self.values.append(value)

    # Steps

    def _source(self) -> None:
        shape, ring, owner = self._shape(), self._ring(), self._party()
        match self.choices.randrange(4):
            case 0:
                name = f"x{len(self.shapes)}"
                self.shapes[name] = shape, ring.bits
                self._keep(self.program.source("input", name, owner, shape, ring))
            case 1:
                name = f"w{len(self.weights)}"
                self.weights[name] = shape, ring.bits
                self._keep(self.program.source("weight", name, owner, shape, ring))
            case 2:
                self.expanded.constants.append(self._numbers(shape, ring.bits))
                self.expanded.constant_rings.append(ring.bits)
                number = len(self.expanded.constants) - 1
                self._keep(self.program.constant(number, shape, ring))
            case _:
                self._keep(self._draw(shape, ring, owner))

    def _send(self) -> None:
        value = self.choices.choice(self.values)
        missing = [i for i in range(len(self.program.parties)) if i not in value.at]
        if missing:
            sender = self.choices.choice(sorted(value.at))
            self._keep(self.program.send(value, sender, self.choices.choice(missing)))

    def _arithmetic(self) -> None:
        x = self._words()
        if x is None:
            return
        shapes = [x.shape, x.shape, (), x.shape[-1:], (*x.shape[:1], *(1,) * (len(x.shape) - 1))]
        y = self._like(x, self.choices.choice(shapes), x.type)
        if self.choices.random() < 0.2:
            y = self.program.const(self.choices.randrange(1 << x.type.bits), (), x.type)
        operation = self.choices.randrange(6)
        made = [x + y, x - y, y - x if y.shape == x.shape else x - y, x * y, x * 3, -x][operation]
        self._keep(made)

    def _bitwise(self) -> None:
        x = self.choices.choice(self.values)
        if x.type.bits == 0:
            return
        y = self._like(x, x.shape, x.type)
        self._keep(self.choices.choice((x & y, x ^ y, ~x)))

    def _shift(self) -> None:
        x = self._words()
        if x is not None:
            by = self.choices.randrange(x.type.bits)
            self._keep(self.choices.choice((x << by, x >> by)))

    def _cast(self) -> None:
        x = self._words()
        if x is not None:
            self._keep(x.mod(self.choices.choice(RINGS)))

    def _lookup(self) -> None:
        index = self._words()
        if index is not None:
            entries, ring = 1 << self.choices.randrange(7), self._ring()
            numbers = self._numbers((entries,), ring.bits)
            self.expanded.constants.append(numbers)
            self.expanded.constant_rings.append(ring.bits)
            number = len(self.expanded.constants) - 1
            self._keep(look_up(self.program.constant(number, (entries,), ring), index))

    def _to_bits(self) -> None:
        x = self._words()
        if x is not None:
            low = self.choices.randrange(x.type.bits)
            self._keep(x.bits(low, self.choices.randint(1, x.type.bits - low)))

    def _to_words(self) -> None:
        x = self._bits()
        if x is not None:
            self._keep(x.to_words(self.choices.randint(x.type.bits, 64)))

    def _planes(self) -> None:
        x = self._bits()
        if x is None:
            return
        start, step = self.choices.randrange(x.type.bits), self.choices.randint(1, 3)
        self._keep(x.plane(start, len(range(start, x.type.bits, step)), step))
        others = [v for v in self.values if v.type.kind is Kind.PLANES and v.shape == x.shape]
        y = self.choices.choice(others)
        if x.at.keys() & y.at.keys() and x.type.bits + y.type.bits <= 64:
            self._keep(stack([x, y]))

    def _draw_bits(self) -> None:
        self._keep(self._draw(self._shape(), planes(self.choices.randint(1, 9)), self._party()))

    def _select(self) -> None:
        one = self._words()
        if one is not None:
            bit = self._like(one, one.shape, planes(1))
            zero = self._like(one.only(*(one.at.keys() & bit.at.keys())), one.shape, one.type)
            if one.at.keys() & bit.at.keys() & zero.at.keys():
                self._keep(select(bit, one, zero))

    def _reshape(self) -> None:
        x = self.choices.choice(self.values)
        shapes = [
            s for s in ((x.elements,), (1, x.elements), x.shape[::-1]) if prod(s) == x.elements
        ]
        self._keep(x.reshape(self.choices.choice(shapes)))

    def _chunks(self) -> None:
        x = self._words(lambda v: v.elements > 1)
        if x is None:
            return
        cut = self.choices.randrange(1, x.elements)
        parts = [x.chunk(0, cut), x.chunk(cut, x.elements - cut)]
        if self.choices.random() < 0.5:
            parts = [part * 5 + part for part in parts]
        self._keep(self.choices.choice(parts))
        chosen = self.choices.choice((parts, parts[::-1], [parts[0]] * 3))
        self._keep(join(chosen, (sum(part.elements for part in chosen),)))

    def _layout(self) -> None:
        x = self._words(lambda v: bool(v.shape) and v.elements > 0)
        if x is None:
            return
        rank = range(len(x.shape))
        match self.choices.randrange(5):
            case 0:
                order = tuple(self.choices.sample(rank, len(rank)))
                shape = tuple(x.shape[i] for i in order)
                made = apply(ops.TRANSPOSE, (x,), shape, x.type, permutation=order)
            case 1:
                low, high = (tuple(self.choices.randint(0, 2) for _ in rank) for _ in range(2))
                shape = tuple(a + n + b for a, n, b in zip(low, x.shape, high, strict=True))
                made = apply(ops.PAD, (x,), shape, x.type, low=low, high=high)
            case 2:
                made = self._slice(x)
            case 3:
                shape = tuple(3 if n == 1 else n for n in x.shape)
                shape = (*self.choices.choice(((), (2,))), *shape)
                made = apply(ops.BROADCAST, (x,), shape, x.type)
            case _:
                axis = self.choices.choice(rank)
                y = self._like(x, x.shape, x.type)
                shape = tuple(2 * n if i == axis else n for i, n in enumerate(x.shape))
                made = apply(ops.CONCAT, (x, y), shape, x.type, axis=axis)
        self._keep(made)

    def _slice(self, x: Value) -> Value:
        starts, steps, shape = [], [], []
        for size in x.shape:
            start, step = self.choices.randrange(size), self.choices.choice((1, 2, -1))
            starts.append(start)
            steps.append(step)
            shape.append(len(range(start, size if step > 0 else -1, step)))
        attributes = {"starts": tuple(starts), "steps": tuple(steps)}
        return apply(ops.SLICE, (x,), tuple(shape), x.type, **attributes)

    def _sum(self) -> None:
        x = self._words(lambda v: len(v.shape) > 1)
        if x is None:
            return
        axes = tuple(sorted(self.choices.sample(range(len(x.shape)), self.choices.randint(1, 2))))
        kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
        self._keep(apply(ops.REDUCE_SUM, (x,), kept, x.type, axes=axes))
        image = self._words(lambda v: len(v.shape) == 4 and min(v.shape[2:]) > 1)
        if image is not None:
            n, c, h, w = image.shape
            shape = (n, c, (h + 1 - 2) // 2 + 1, w - 1)
            geometry = {"kernel": (2, 2), "strides": (2, 1), "pads_low": (1, 0)}
            self._keep(apply(ops.POOL_SUM, (image,), shape, image.type, **geometry))

    def _product(self) -> None:
        x = self._words(lambda v: len(v.shape) == 2)
        if x is not None:
            rows, inner = x.shape
            y = self._like(x, (1, inner, 4), x.type)
            held = x.only(*(x.at.keys() & y.at.keys())).reshape((1, rows, inner))
            operands = [held, y] * self.choices.randint(1, 2)
            self._keep(apply(ops.MATMUL, operands, (1, rows, 4), x.type).reshape((rows, 4)))
        image = self._words(lambda v: len(v.shape) == 4)
        if image is not None:
            n, c, h, w = image.shape
            kernel = self._like(image, (2, c, 1, 2), image.type)
            shape = (n, 2, h, (w + 2 - 2) // 2 + 1)
            geometry = {"strides": (1, 2), "pads_low": (0, 1), "dilations": (1, 1), "groups": 1}
            self._keep(apply(ops.CONV2D, (image, kernel), shape, image.type, **geometry))

    def _point(self) -> None:
        """Rows of a point function, by someone who makes both parties' words."""
        index = self._words(lambda v: len(v.shape) == 1 and v.elements <= 65)
        if index is None:
            return
        holder, type = self.choices.choice(sorted(index.at)), self._ring()
        shapes = ((1,), index.shape, index.shape)
        key, *roots = (self._draw(shape, blocks(), holder) for shape in shapes)
        bits = self.choices.randint(1, min(6, index.type.bits))
        told = point_words(key, roots, index, bits, type.bits)
        places, side = self.choices.randint(0, 1 << bits), self.choices.randrange(2)
        opened = self.choices.choice((None, index))
        self._keep(point_rows(key, roots[side], told, side, bits, places, type, opened))

    def _compare(self) -> None:
        """Parts of a comparison function, by someone who makes both parties' words."""
        threshold = self._words(lambda v: len(v.shape) == 1 and v.elements <= 65)
        if threshold is None or threshold.type.bits < 3:
            return
        holder, bits = self.choices.choice(sorted(threshold.at)), self.choices.randint(3, 6)
        index_bits = min(bits, threshold.type.bits)
        shapes = ((1,), threshold.shape, threshold.shape)
        key, *roots = (self._draw(shape, blocks(), holder) for shape in shapes)
        payloads = [
            self._draw(threshold.shape, self._ring(), holder)
            for _ in range(self.choices.randint(1, 3))
        ]
        told = compare_words(key, roots, threshold, index_bits, payloads)
        side = self.choices.randrange(2)
        for part in compare_parts(key, roots[side], threshold, told, side, index_bits):
            self._keep(part)


STEPS: tuple[Callable[[RandomProgram], None], ...] = (
    RandomProgram._source,
    RandomProgram._send,
    RandomProgram._send,
    RandomProgram._arithmetic,
    RandomProgram._arithmetic,
    RandomProgram._bitwise,
    RandomProgram._shift,
    RandomProgram._cast,
    RandomProgram._lookup,
    RandomProgram._to_bits,
    RandomProgram._to_words,
    RandomProgram._planes,
    RandomProgram._draw_bits,
    RandomProgram._select,
    RandomProgram._reshape,
    RandomProgram._chunks,
    RandomProgram._layout,
    RandomProgram._sum,
    RandomProgram._product,
    RandomProgram._point,
    RandomProgram._compare,
)
