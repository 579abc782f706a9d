"""Each graph operation in fixed point: one rule a kind, used by encode_fixed_point.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
from torch_mlir import ir

from veilgraph.ir.attributes import Shape, shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.dialect import GraphOp
from veilgraph.ir.graph.facts import Arithmetic
from veilgraph.ir.graph.program import Graph, attributes, defining, kind_of, name_of, users
from veilgraph.ir.meaning.integers import center, encode
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.ops import COUNTERPARTS, SecretOp, Stated
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.ir.secret.types import Encoding, RealRange, frac_bits_of, ring_of
from veilgraph.passes.encode.builder import public
from veilgraph.passes.encode.functions.calls import FunctionCall
from veilgraph.passes.encode.functions.softmax import SoftmaxCall, Summed
from veilgraph.passes.encode.integer_parts import INTEGER_PARTS
from veilgraph.passes.encode.multiples import Multiples
from veilgraph.passes.encode.scales.accumulators import indices_given
from veilgraph.passes.encode.scales.constraints import is_of_relu
from veilgraph.passes.encode.scales.fraction_bits import Scales
from veilgraph.passes.graph.public_factors import Factor, scaling
from veilgraph.passes.ranges.calibrate import Statistics
from veilgraph.passes.ranges.value_ranges import ValueRange
from veilgraph.targets.functions.function_block import Fitter


class Encoder:
    """Writes a graph's operations into a program whose arguments are there.

    Each value is at home in the ring that it is stored in. An operation computes in its
    accumulator's, or where it is stored; operands change their ring on the way in, once for all
    that need it.

    Args:
        statistics: of the graph's values of which anything is known.
        scales: ring and fraction bits of every value.
        intervals: where values can be that leave their range; of none where all are trusted to
            stay.
        fit: finds forms of real functions, in the suite's building blocks.
        fit_units: what these may be off by, in units of their result's last place.
    """

    def __init__(
        self,
        graph: Graph,
        program: SecretProgram,
        statistics: Mapping[ir.Value, Statistics],
        scales: Scales,
        intervals: Mapping[ir.Value, ValueRange],
        fit: Fitter,
        fit_units: float,
    ) -> None:
        self._graph, self._program, self._value_ranges = graph, program, intervals
        self._fit, self._fit_units = fit, fit_units
        self._statistics, self._rings = statistics, scales.rings
        self._scales = scales
        self._stored, self._most, self._signs = scales.stored, scales.wide, scales.signs
        given = zip(graph.block.arguments, program.block.arguments, strict=True)
        self._values: dict[ir.Value, ir.Value] = dict(given)
        self._wide: dict[ir.Value, ir.Value] = {}  # results as they were computed
        self._changed: dict[tuple[ir.Value, int], ir.Value] = {}
        self._multiples = Multiples(self._values, statistics, program.margin, self._rings.of)
        self._summed: dict[tuple[ir.Value, int, int], Summed] = {}  # by operand, ring and axis

    def encode(self) -> dict[str, ir.Value]:
        """Writes all operations; the outputs by name."""
        for op in self._graph.operations:
            with self._program.at(name_of(op)):
                result = op.operation.results[0]
                operands = [self._operand(op, v) for v in op.operation.operands]
                wide = self._filled(result, self._rule(op)(op, operands))
                home = self._home(op)
                self._wide[result] = wide
                self._values[result] = self._restated(wide, self._stored[result], result, home)
        return {name: self._values[value] for name, value in self._graph.outputs.items()}

    def _filled(self, source: ir.Value, wide: ir.Value) -> ir.Value:
        """What a real function takes, with all the bits that it has room for: shifted up."""
        more = self._scales.filled(source) - frac_bits_of(wide)
        if more <= 0:
            return wide
        named = {"factor": 1 << more}
        return self._build(secret_ops.Scale, [wide], source, frac_bits_of(wide) + more, named)

    def _home(self, op: ir.OpView) -> int:
        """The ring that an op's result is kept in: of a bit, the widest that something reads it in.

        A bit is made in any ring at the same price, nearly, and lifted at that of a comparison.
        """
        result = op.operation.results[0]
        home = self._rings.stored(result)
        if not isinstance(op, ops.Step):
            return home
        readers = [each for use in result.uses for each in use.owner.results]
        return max([home, *map(self._rings.of, readers)])

    def _operand(self, op: ir.OpView, source: ir.Value) -> ir.Value:
        """Where the op computes; steps, integer parts and functions where their operand is.

        That may be wider.

        Functions with a singularity take it as it was computed: its smallest values need the bits.
        What moves to a place of the same ring is moved there, and lifted nowhere in between.
        """
        facts = ops.facts_of(op)
        if isinstance(op, ops.Singular):
            return self._wide.get(source, self._values[source])
        if facts.is_real_function:
            return self._in_ring(source, self._rings.taken(op))
        if facts.is_integer_valued or self._only_moves(op, source):
            return self._values[source]
        return self._in_ring(source, self._ring_of(op))

    def _ring_of(self, op: ir.OpView) -> int:
        """Where an op computes: in its accumulator's ring, or one with room for its multiples."""
        ring_bits = self._rings.of(op.operation.results[0])
        return self._multiples.ring_of_product(op, ring_bits)

    def _only_moves(self, op: ir.OpView, source: ir.Value) -> bool:
        """Whether an op moves elements, and its result is kept in the ring that they are in."""
        home = self._rings.stored(op.operation.results[0])
        return ops.facts_of(op).moves and home == ring_of(self._values[source])

    def _rule(self, op: ir.OpView) -> Callable[[ir.OpView, Sequence[ir.Value]], ir.Value]:
        rule = RULES.get(type(op)) or RULES_BY_ARITHMETIC[ops.facts_of(op).arithmetic]
        return partial(rule, self)

    def _range(self, value: ir.Value, encoding: Encoding) -> RealRange:
        """Of a graph value that is written so."""
        known = self._statistics.get(value)
        return known.range if known else RealRange.assumed(encoding)

    def _value_range_of(self, value: ir.Value, known: RealRange) -> ValueRange:
        return self._value_ranges.get(value) or ValueRange.trusted(known)

    def _build(
        self,
        kind: type[SecretOp],
        operands: Sequence[ir.Value],
        source: ir.Value,
        frac_bits: int,
        named: Mapping[str, Any] | None = None,
        shape: Shape = (),
        ring_bits: int = 0,
    ) -> ir.Value:
        """An op that stands for the graph value `source`, in `frac_bits`.

        Args:
            ring_bits: its result's, where that isn't its operands'.
        """
        ring_bits = ring_bits or ring_of(operands[0])
        stated = Stated(shape, frac_bits, ring_bits)
        encoding = Encoding(ring_bits, frac_bits)
        known = self._range(source, encoding)
        declared = self._value_range_of(source, known).declared(
            known, self._program.margin, encoding
        )
        return kind.build(*operands, range=declared, stated=stated, **(named or {}))

    def _in_ring(self, source: ir.Value, ring_bits: int) -> ir.Value:
        """A graph's value where an operation needs it."""
        home = self._values[source]
        key = (home, ring_bits)
        if key not in self._changed:
            self._changed[key] = self._change_ring(home, source, ring_bits)
        return self._changed[key]

    def _change_ring(self, value: ir.Value, source: ir.Value, ring_bits: int) -> ir.Value:
        """The same integers modulo another power of two: fewer bits for nothing, or lifted."""
        if ring_bits == ring_of(value):
            return value
        constant = _constant_of(source)
        if constant is not None:
            return self._encoded(constant, frac_bits_of(value), ring_bits, ring_of(value))
        kind = secret_ops.Reduce if ring_bits < ring_of(value) else secret_ops.Lift
        return self._build(kind, [value], source, frac_bits_of(value), ring_bits=ring_bits)

    def _restated(
        self, value: ir.Value, frac_bits: int, source: ir.Value, ring_bits: int = 0
    ) -> ir.Value:
        """The same real numbers with other fraction bits: shifted up for nothing, or truncated.

        Args:
            ring_bits: where they are needed, if that isn't where they are.
        """
        ring_bits = ring_bits or ring_of(value)
        more = frac_bits - frac_bits_of(value)
        constant = _constant_of(source)
        if constant is not None:
            return self._encoded(constant, frac_bits, ring_bits)
        if more < 0:
            named = {"bits": -more}
            return self._build(
                secret_ops.Truncate, [value], source, frac_bits, named, ring_bits=ring_bits
            )
        if more > 0:
            value = self._build(secret_ops.Scale, [value], source, frac_bits, {"factor": 1 << more})
        return self._change_ring(value, source, ring_bits)

    def _constant(self, op: ir.OpView, operands: Sequence[ir.Value]) -> ir.Value:
        result = op.operation.results[0]
        return self._encoded(op, self._stored[result], self._rings.stored(result))

    def _encoded(self, op: ir.OpView, bits: int, ring_bits: int, home_bits: int = 0) -> ir.Value:
        """A public constant, written anew where other fraction bits or another ring are wanted.

        Args:
            home_bits: of a ring that it fits, where it is wanted modulo 2^ring_bits.
        """
        value, result = np.asarray(attributes(op)["value"]), op.operation.results[0]
        whole = encode(value, bits, max(ring_bits, home_bits))
        named = {"value": np.asarray(center(whole, ring_bits))}  # a shift makes a scalar of 0-d
        return self._build(secret_ops.Constant, [], result, bits, named, ring_bits=ring_bits)

    def _factor(self, op: ir.OpView) -> ir.Value:
        """Times m 2^e: times m, and e is a matter of what the integers mean."""
        scaled = scaling(op)
        assert scaled is not None
        operand, factor = scaled
        result = op.operation.results[0]
        home, ring_bits = self._values[operand], self._rings.of(result)
        if factor == Factor(1, 0):  # a copy, with as few bits as it is stored with
            return home
        bits = frac_bits_of(home) - factor.exponent
        excess = max(0, bits - self._most.get(result, bits))
        bits -= excess
        if excess:  # before it is in a ring that may hold it without them alone
            value = self._restated(home, frac_bits_of(home) - excess, operand, ring_bits)
        else:
            value = self._in_ring(operand, ring_bits)
        if factor.integer == 1:
            return self._build(secret_ops.Reinterpret, [value], result, bits)
        return self._build(secret_ops.Scale, [value], result, bits, {"factor": factor.integer})

    def _product(self, op: ir.OpView, operands: Sequence[ir.Value]) -> ir.Value:
        if scaling(op) is not None:
            return self._factor(op)
        x, y, *biases = operands
        result = op.operation.results[0]
        bits = frac_bits_of(x) + frac_bits_of(y)
        kind = COUNTERPARTS[type(op)]
        if not biases:
            return self._build(kind, [x, y], result, bits, attributes(op))
        bias = op.operation.operands[2]
        encoding = Encoding(ring_of(x), bits)
        total, added = self._range(result, encoding), self._range(bias, encoding)
        before = RealRange(total.low - added.high, total.high - added.low, total.source)
        named: dict[str, Any] = attributes(op)
        product = kind.build(x, y, range=before, **named)
        if (more := frac_bits_of(biases[0]) - bits) > 0 and _constant_of(bias) is None:
            bits += more  # a shift up of the product is free, and a truncation is not
            stated = Stated(frac_bits=bits)
            product = secret_ops.Scale.build(product, range=before, stated=stated, factor=1 << more)
        aligned = self._restated(biases[0], bits, bias)
        column = (*shape_of(aligned), 1, 1)
        addend = self._build(secret_ops.Reshape, [aligned], bias, bits, shape=column)
        return self._build(secret_ops.Add, [product, addend], result, bits)

    def _sum(self, op: ir.OpView, operands: Sequence[ir.Value]) -> ir.Value:
        sources, result = list(op.operation.operands), op.operation.results[0]
        bits = max(frac_bits_of(value) for value in operands)
        aligned = [self._restated(v, bits, s) for v, s in zip(operands, sources, strict=True)]
        return self._build(COUNTERPARTS[type(op)], aligned, result, bits)

    def _concat(self, op: ir.OpView, operands: Sequence[ir.Value]) -> ir.Value:
        sources, result = list(op.operation.operands), op.operation.results[0]
        bits = self._stored[result]
        aligned = [self._restated(v, bits, s) for v, s in zip(operands, sources, strict=True)]

        def join(x: ir.Value, y: ir.Value) -> ir.Value:
            return self._build(secret_ops.Concat, [x, y], result, bits, attributes(op))

        return reduce(join, aligned)

    def _comparing(self, op: ir.OpView, operands: Sequence[ir.Value]) -> ir.Value:
        """With the widest window; choose_comparison.py narrows it."""
        sources, result = list(op.operation.operands), op.operation.results[0]
        bits = self._stored[result]
        aligned = [self._restated(v, bits, s) for v, s in zip(operands, sources, strict=True)]
        window = {"window_bits": ring_of(aligned[0]) - 1, "dropped_bits": 0}
        kind = COUNTERPARTS[type(op)]
        return self._build(kind, aligned, result, bits, attributes(op) | window)

    def _function(self, op: ir.OpView, operands: Sequence[ir.Value]) -> ir.Value:
        """On the operand's range, beyond which it is clipped where it can be."""
        (source,), (x,), result = op.operation.operands, operands, op.operation.results[0]
        bits = self._stored[result]
        known = self._range(source, Encoding(ring_of(x), frac_bits_of(x)))
        call = FunctionCall(
            " ".join((kind_of(op), *map(str, attributes(op).values()))),
            known,
            self._value_range_of(source, known),
            frac_bits_of(x),
            bits,
            ring_of(x),
            self._program.margin,
            self._fit,
            self._fit_units,
        )
        declared = self._range(result, Encoding(ring_of(x), bits))
        return call.build(x, declared, name_of(op))

    def _softmax(self, op: ir.OpView, operands: Sequence[ir.Value]) -> ir.Value:
        """Along the last axis, where another is moved to and back from.

        What softmaxes and their logarithms have in common is made once, as fine as any wants it.
        """
        (source,), (x,), result = op.operation.operands, operands, op.operation.results[0]
        ring_bits, bits = ring_of(x), self._stored[result]
        declared = self._range(result, Encoding(ring_bits, bits))
        axis: Any = attributes(op)["axis"]
        order = list(range(len(shape_of(source))))
        order[axis], order[-1] = order[-1], order[axis]
        turned = {"permutation": tuple(order)}
        is_last = axis == len(order) - 1
        key = source, ring_bits, axis
        if key not in self._summed:
            last = x
            if not is_last:
                last = self._build(secret_ops.Transpose, [x], source, frac_bits_of(x), turned)
            calls = [
                self._softmax_call(each, x) for each in users(source) if self._shares(each, op)
            ]
            self._summed[key] = max(calls, key=lambda call: call.wanted).summed(last)
        made = self._softmax_call(op, x).build(self._summed[key], declared)
        return made if is_last else self._build(secret_ops.Transpose, [made], result, bits, turned)

    def _shares(self, other: ir.OpView, op: ir.OpView) -> bool:
        """Whether another reader of a softmax's operand has a part in common with it."""
        if not isinstance(other, GraphOp):  # it is an output too
            return False
        if ops.facts_of(other).arithmetic is not Arithmetic.ROW_FUNCTION:
            return False
        alike = attributes(other)["axis"] == attributes(op)["axis"]
        return alike and self._rings.taken(other) == self._rings.taken(op)

    def _softmax_call(self, op: ir.OpView, x: ir.Value) -> SoftmaxCall:
        """What an op asks of its operand x."""
        (source,), result = op.operation.operands, op.operation.results[0]
        known = self._range(source, Encoding(ring_of(x), frac_bits_of(x)))
        return SoftmaxCall(
            isinstance(op, ops.LogSoftmax),
            known,
            self._value_range_of(source, known),
            frac_bits_of(x),
            self._stored[result],
            ring_of(x),
            self._program.margin,
            self._fit,
        )

    def _step(self, op: ir.OpView, operands: Sequence[ir.Value]) -> ir.Value:
        """An integer without fraction bits, made in the ring that it is wanted in.

        The low bits that do not bear on a ReLU are not looked at.
        """
        (x,), result = operands, op.operation.results[0]
        beyond = frac_bits_of(x) - self._signs.get(result, frac_bits_of(x))
        window = {"window_bits": ring_of(x) - 1, "dropped_bits": max(0, beyond)}
        if beyond <= 0 and self._scales.trains and is_of_relu(op, trains=True):
            x = self._halved(op, x)
        home = self._home(op)
        return self._build(secret_ops.Step, [x], result, 0, window, ring_bits=home)

    def _halved(self, op: ir.OpView, x: ir.Value) -> ir.Value:
        """With 1 unit less in every second row: of what was rounded to zero half is negative then.

        x was truncated to few bits, at random, so numbers a little below zero are zero as often as
        those above it. As zeros all would be positive, and pass what derivatives they mask: a
        drift, which no batch averages. A ReLU itself makes 0 of them anyhow.
        """
        (source,), shape = op.operation.operands, shape_of(x)
        axis = next((i for i, extent in enumerate(shape) if extent > 1), None)
        if axis is None:
            return x
        rows = [extent if i == axis else 1 for i, extent in enumerate(shape)]
        less = -(np.arange(shape[axis]) % 2).reshape(rows)
        return self._build(
            secret_ops.Add,
            [x, public(less, frac_bits_of(x), ring_of(x))],
            source,
            frac_bits_of(x),
        )

    def _one_hot(self, op: ir.OpView, operands: Sequence[ir.Value]) -> ir.Value:
        """In the ring of those that read the row: no part of it is lifted.

        What was given says any index. What is computed has a range, which may have no negative one.
        """
        (source,), result = op.operation.operands, op.operation.results[0]
        x = self._restated(operands[0], 0, source)
        known = self._range(source, Encoding(ring_of(x), 0))
        named = attributes(op) | {"window_bits": ring_of(x) - 1, "dropped_bits": 0}
        named["wraps"] &= bool(indices_given(source)) or known.low < 0
        return self._build(
            secret_ops.OneHot, [x], result, 0, named, ring_bits=self._rings.stored(result)
        )

    def _integer(self, op: ir.OpView, operands: Sequence[ir.Value]) -> ir.Value:
        """A truncation that is put right by comparisons."""
        (x,), result = operands, op.operation.results[0]
        declared = self._range(result, Encoding(ring_of(x), 0))
        return INTEGER_PARTS[type(op)](x, declared)

    def _same(self, op: ir.OpView, operands: Sequence[ir.Value]) -> ir.Value:
        result, bits = op.operation.results[0], frac_bits_of(operands[0])
        kind = COUNTERPARTS[type(op)]
        return self._build(kind, operands, result, bits, attributes(op), shape_of(result))

    def _pad(self, op: ir.OpView, operands: Sequence[ir.Value]) -> ir.Value:
        named = attributes(op)
        assert named.pop("value") == 0, "approximate writes other padding as sums"
        result, bits = op.operation.results[0], frac_bits_of(operands[0])
        return self._build(secret_ops.Pad, operands, result, bits, named)


def _constant_of(source: ir.Value) -> ir.OpView | None:
    """The operation that makes a graph value, if that is a constant."""
    op = defining(source)
    return op if isinstance(op, ops.Constant) else None


Rule = Callable[[Encoder, ir.OpView, Sequence[ir.Value]], ir.Value]
RULES_BY_ARITHMETIC: Mapping[Arithmetic, Rule] = {
    Arithmetic.PRODUCT: Encoder._product,
    Arithmetic.SUM: Encoder._sum,
    Arithmetic.LINEAR: Encoder._same,
    Arithmetic.LAYOUT: Encoder._same,
    Arithmetic.COMPARISON: Encoder._comparing,
    Arithmetic.INTEGER: Encoder._integer,
    Arithmetic.FUNCTION: Encoder._function,
    Arithmetic.ROW_FUNCTION: Encoder._softmax,
}
RULES: Mapping[type[ir.OpView], Rule] = {
    ops.Constant: Encoder._constant,
    ops.Concat: Encoder._concat,
    ops.Pad: Encoder._pad,
    ops.Step: Encoder._step,
    ops.OneHot: Encoder._one_hot,
}
