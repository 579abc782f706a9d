"""What a program will send, by the rings that its values live in: the price of a choice of rings.

Which protocols there will be is read off the graph as merge_truncations.py will have it; what each
sends is counted on a trace of it in the target's suite, never by a formula of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from math import prod
from typing import Any

from torch_mlir import ir

from veilgraph.ir.attributes import element_count, shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.facts import Arithmetic
from veilgraph.ir.graph.program import attributes, kind_of
from veilgraph.ir.plan.tables import WEIGHTS
from veilgraph.ir.secret.function_forms import FunctionForm
from veilgraph.passes.encode.scales.fraction_bits import ScaleProblem, Trial
from veilgraph.passes.secret.function_protocols import computing
from veilgraph.passes.secret.padded_sums import takes_truncated
from veilgraph.passes.secret.protocols.costs import (
    FIRST,
    any_tables,
    communication,
    computed,
    kept,
    of_call,
    parties_of,
    source,
)
from veilgraph.targets.blocks.linear import additive
from veilgraph.targets.parties import Member, Operation, Parties, Sharing
from veilgraph.targets.target import Target

SAMPLE = 64  # elements of a trace: bit planes are sent in words of 64


@dataclass
class Tracer:
    """Bits that protocols send in a suite, all parties together, offline and online.

    A process counts each once.
    """

    target: Target

    @cached_property
    def _known(self) -> dict[tuple[object, ...], float]:
        return kept(self.target, self._source(), Tracer)

    def an_element(self, op: str, k: int, K: int, **attrs: int) -> float:
        """Of an element-wise protocol on an operand in Z_2^k with a result in Z_2^K.

        The operand is as products leave it.
        """
        key = (op, k, K, *sorted(attrs.items()))
        if key not in self._known:
            self._known[key] = self._element(op, k, K, attrs) / SAMPLE
        return self._known[key]

    def a_sharing(self, k: int) -> float:
        """Of an element of an input in Z_2^k."""
        key = ("share", k)
        if key not in self._known:
            x = source(
                parties_of(self.target), self.target, "x", (SAMPLE,), k, giver=self._source()
            )
            self._known[key] = communication(x).all_bits / SAMPLE
        return self._known[key]

    def a_function(self, k: int, in_bits: int, out_bits: int) -> float:
        """Of an element of a typical real function in Z_2^k: its form is known when it is fitted,
        which is too late."""
        key = ("function", k, in_bits, out_bits)
        if key not in self._known:
            form = self.target.suite.typical(k, in_bits, out_bits)
            self._known[key] = self._function(k, form, form.frac_bits - out_bits) / SAMPLE
        return self._known[key]

    def a_product(self, op: ir.OpView, constant: Sequence[bool]) -> float:
        """Of a product, for each bit of its ring; `constant` operands are weights."""
        parties = parties_of(self.target)
        shapes = [shape_of(value) for value in op.operation.operands][:2]
        operands = [
            source(parties, self.target, f"x{j}", shape, 8, setup)
            for j, (shape, setup) in enumerate(zip(shapes, constant, strict=True))
        ]
        result = shape_of(op.operation.results[0])
        operation = Operation(kind_of(op), result, 8, dict(attributes(op)))
        return self._sent(parties, operation, operands) / 8

    def _element(self, op: str, k: int, K: int, attrs: Mapping[str, int]) -> int:
        parties = parties_of(self.target)
        x = computed(parties, self.target, "x", (SAMPLE,), k)
        return self._sent(parties, Operation(op, (SAMPLE,), K, attrs), [additive(parties, x)])

    def _function(self, k: int, form: FunctionForm, dropped_bits: int) -> int:
        parties = parties_of(self.target)
        x = source(parties, self.target, "x", (SAMPLE,), k)
        operation = computing(form, (SAMPLE,), k, dropped_bits)
        return self._sent(parties, operation, [x, *any_tables(parties, form)])

    def _source(self) -> Member:
        """Who gives inputs: a client, if one does, since the most is sent of those."""
        inputs = {who for what, who in self.target.owners.items() if what != WEIGHTS}
        clients = sorted(inputs.difference(self.target.parties))
        return self.target.member(clients[0]) if clients else FIRST

    def _sent(self, p: Parties, operation: Operation, operands: Sequence[Sharing]) -> int:
        """As whoever multiplies the result has it: its replica is sent too."""
        first = len(p.program.nodes)
        result = of_call(p, self.target, operation, operands)
        whole = result if result.replica is None else result.replica
        return communication(whole, first).all_bits


class Priced(Enum):
    """What a call is priced as."""

    SHARING = auto()
    TRUNCATION = auto()
    TRUNCATED_RELU = auto()
    COMPARISON = auto()
    STEP = auto()
    MAP = auto()
    FUNCTION = auto()


@dataclass(frozen=True)
class Call:
    """A protocol on so many elements.

    Attributes:
        root: of the class that its result belongs to.
        operand: of a real function, the root of the class that it takes.
        lifts: whether it takes it in its result's ring.
        accumulator: of a truncation, the root of the accumulator that is truncated.
        whole_bits: of a comparison, bits before the point of what is compared.
        a_bit: of a map by integers, what it sends for each bit of its ring.
    """

    priced: Priced
    elements: int
    root: ir.Value
    accumulator: ir.Value | None = None
    operand: ir.Value | None = None
    lifts: bool = False
    whole_bits: int | None = None
    a_bit: float = 0.0


class CommunicationCost:
    """The bits of a program, for any rings.

    Args:
        tracer: counts what the target's protocols send.
    """

    def __init__(self, problem: ScaleProblem, tracer: Tracer) -> None:
        self._problem, self._tracer = problem, tracer
        self._calls = list(self._find_calls())
        self._products = dict(self._find_products())
        self._places = {root: number for number, root in enumerate(self._products)}

    def bits(self, trial: Trial) -> float:
        """What all parties send in one inference, in the rings and scales of a trial."""
        return sum(self.each(trial))

    def each(self, trial: Trial) -> list[float]:
        """The bits of each accumulator's products, then those of each call."""
        products = [bits * trial.accumulators[root] for root, bits in self._products.items()]
        return products + [call.elements * self._price(call, trial) for call in self._calls]

    def each_changed(
        self, each: Sequence[float], trial: Trial, accumulator: ir.Value
    ) -> list[float]:
        """What `each` makes of a trial.

        Args:
            each: of a trial whose rings are the same but for that of `accumulator`.
        """
        found = list(each)
        if accumulator in self._products:
            ring_bits = trial.accumulators[accumulator]
            found[self._places[accumulator]] = self._products[accumulator] * ring_bits
        for number in self._reached[accumulator]:
            call = self._calls[number]
            found[len(self._products) + number] = call.elements * self._price(call, trial)
        return found

    @cached_property
    def _reached(self) -> Mapping[ir.Value, Sequence[int]]:
        """The calls whose price the ring of an accumulator bears on, by their number."""
        numbers: dict[ir.Value, list[int]] = defaultdict(list)
        truncated: dict[ir.Value, list[int]] = defaultdict(list)
        for number, call in enumerate(self._calls):
            for root in {call.root, call.operand} - {None}:
                numbers[root].append(number)
            if call.accumulator is not None:
                truncated[call.accumulator].append(number)
        return {
            accumulator: sorted(
                {number for root in (*reach.classes, *reach.scaled) for number in numbers[root]}
                | {number for root in reach.wide for number in truncated[root]}
            )
            for accumulator, reach in self._problem.reach.items()
        }

    def window_bits(self, trial: Trial) -> dict[ir.Value, int]:
        """The widest comparison of each class that is compared, by root."""
        found: dict[ir.Value, int] = {}
        for call in self._calls:
            if call.whole_bits is not None:
                bits = trial.scales[call.root] + call.whole_bits + 1  # with the sign's
                found[call.root] = max(found.get(call.root, 0), bits)
        return found

    def _price(self, call: Call, trial: Trial) -> float:
        K, s = trial.classes[call.root], trial.scales[call.root]
        if call.priced is Priced.SHARING:
            return self._tracer.a_sharing(K)
        if call.priced is Priced.MAP:
            return call.a_bit * K
        if call.priced is Priced.STEP:
            seen = self._problem.sign_bits(call.root)
            bits = s if seen is None else min(s, seen)
            window = min(max(2, bits + (call.whole_bits or 0) + 1), K - 1)
            return self._tracer.an_element("step", K, K, window_bits=window, dropped_bits=0)
        if call.operand is not None:
            k = trial.classes[call.operand]
            taken = max(k, K) if call.lifts else k
            sent = self._tracer.a_function(taken, trial.scales[call.operand], s)
            return sent + (self._tracer.an_element("lift", k, K) if k < K else 0.0)
        compared = max(2, s + (call.whole_bits or 0) + 1)  # bits, the sign's included
        if call.accumulator is None:
            window = min(compared, K - 1)
            return self._tracer.an_element("relu", K, K, window_bits=window, dropped_bits=0)
        k = trial.accumulators[self._problem.rings[call.accumulator]]
        f = min(trial.wide[call.accumulator] - s, k - 3)
        if f <= 0:
            return self._tracer.an_element("lift", k, K) if k < K else 0.0
        if call.priced is Priced.TRUNCATION:
            return self._tracer.an_element("truncate", k, K, bits=f)
        window = min(f + compared, k - 1, K + f)
        return self._tracer.an_element(
            "truncate_relu", k, K, bits=f, window_bits=window, dropped_bits=f
        )

    def _find_products(self) -> Iterator[tuple[ir.Value, float]]:
        """Bits of each accumulator's products for each bit of its ring."""
        structure = self._problem.structure
        found: dict[ir.Value, float] = {}
        for product in structure.products:
            accumulator = structure.rings.root(product.result)
            found[accumulator] = found.get(accumulator, 0.0) + self._sent_a_bit(product.op)
        yield from found.items()

    def _sent_a_bit(self, op: ir.OpView) -> float:
        """What a product sends for each bit of its ring."""
        adaptable = self._problem.structure.adaptable
        return self._tracer.a_product(op, [v in adaptable for v in op.operation.operands[:2]])

    def _find_calls(self) -> Iterator[Call]:
        problem = self._problem
        roots = problem.structure.stored
        for value in problem.graph.inputs.values():
            yield Call(Priced.SHARING, element_count(shape_of(value)), roots.root(value))
        for op in problem.graph.operations:
            result = op.operation.results[0]
            if result in problem.structure.deferred and self._is_read_narrow(result):
                yield from self._truncation(Priced.TRUNCATION, result)
            facts = ops.facts_of(op)
            if facts.arithmetic is Arithmetic.COMPARISON:
                yield from self._comparison(op)
            elif isinstance(op, ops.Step):
                (x,) = op.operation.operands
                known = problem.statistics.get(x)
                bits = problem.budget.whole_bits(known) if known else 0
                yield Call(Priced.STEP, element_count(shape_of(x)), roots.root(x), whole_bits=bits)
            elif result in problem.structure.maps:
                sent = self._sent_a_bit(op)
                yield Call(Priced.MAP, 1, roots.root(result), a_bit=sent)
            elif facts.is_real_function:
                operand = roots.root(op.operation.operands[0])
                count = element_count(shape_of(result))
                lifts = problem.structure.lifts(op)
                yield Call(Priced.FUNCTION, count, roots.root(result), operand=operand, lifts=lifts)

    def _is_read_narrow(self, value: ir.Value) -> bool:
        """By what takes truncated integers alone, functions apart: they are priced whole."""
        return any(takes_truncated(use.owner) for use in value.uses)

    def _truncation(
        self, priced: Priced, value: ir.Value, whole_bits: int | None = None
    ) -> Iterator[Call]:
        structure = self._problem.structure
        accumulator = structure.accumulators.root(value)
        if accumulator in self._problem.accumulators:
            count = element_count(shape_of(value))
            root = structure.stored.root(value)
            yield Call(priced, count, root, accumulator, whole_bits=whole_bits)

    def _comparison(self, op: ir.OpView) -> Iterator[Call]:
        problem, operands = self._problem, list(op.operation.operands)
        known = [problem.statistics.get(value) for value in operands]
        bits = max((problem.budget.whole_bits(k) for k in known if k), default=0)
        if isinstance(op, ops.Relu):
            deferred = operands[0] in problem.structure.deferred
            if deferred and not self._is_read_narrow(operands[0]):
                yield from self._truncation(Priced.TRUNCATED_RELU, operands[0], bits)
                return
        else:
            bits += 1  # differences reach twice as far
        root = problem.structure.stored.root(op.operation.results[0])
        yield Call(Priced.COMPARISON, comparisons(op), root, whole_bits=bits)


def comparisons(op: ir.OpView) -> int:
    """How many pairs a comparing operation compares."""
    given, made = shape_of(op.operation.operands[0]), shape_of(op.operation.results[0])
    if isinstance(op, ops.ReduceMax):
        return prod(given) - prod(made)
    if isinstance(op, ops.MaxPool):
        named: dict[str, Any] = attributes(op)
        rows, columns = (int(extent) for extent in named["kernel"])
        return prod(made[:2]) * made[3] * (given[2] * (columns - 1) + made[2] * (rows - 1))
    return prod(made)
