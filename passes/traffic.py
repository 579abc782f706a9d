"""What a program will send, by the rings that its values live in: the price of a choice of rings.

Which protocols there will be is read off the graph as merge_truncations.py will have it; what each
sends is counted on a trace of it in the target's suite, never by a formula of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from torch_mlir import ir

from veilgraph.ir.attributes import Shape, element_count, shape_of
from veilgraph.ir.graph import attributes, kind_of
from veilgraph.ir.legality import CALLS
from veilgraph.ir.party import Program
from veilgraph.ir.plan import Phase
from veilgraph.ir.secret_types import MAX_RING_BITS
from veilgraph.ir.types import words
from veilgraph.ir.waves import FINE_BITS, Split, Waves
from veilgraph.passes.batch_rounds import batch_rounds
from veilgraph.passes.scale_structure import NONLINEAR, PRODUCTS
from veilgraph.passes.scales import ScaleProblem, Trial
from veilgraph.targets.linear import additive
from veilgraph.targets.suite import Form, Operation, Parties, Sharing
from veilgraph.targets.target import Target

# What reads its operands truncated: as merge_truncations.NARROW, by the graph's names.
NARROW = PRODUCTS | frozenset(("maximum", "max_pool", "reduce_max", "pad", "expand"))
SAMPLE = 64  # elements of a trace: bit planes are sent in words of 64
WAVES_A_BIT = 2 / 3  # of a result's precision: measured 0.5 to 1, by function and range
PERIOD_BITS = 4  # before the point, of what a function opens


@dataclass
class Tracer:
    """Bits that protocols send in a suite, all parties together, offline and online."""

    target: Target
    _known: dict[tuple[Any, ...], float] = field(default_factory=dict)

    def an_element(self, op: str, k: int, K: int, **attrs: int) -> float:
        """Of an element-wise protocol on an operand in Z_2^k with a result in Z_2^K.

        The operand is as products leave it; "share" is the sharing of an input.
        """
        key = (op, k, K, *sorted(attrs.items()))
        if key not in self._known:
            self._known[key] = self._element(op, k, K, attrs) / SAMPLE
        return self._known[key]

    def a_function(self, k: int, in_bits: int, out_bits: int) -> float:
        """Of an element of a typical real function in Z_2^k: which waves it takes is known when
        they are fitted, which is too late."""
        key = ("function", k, in_bits, out_bits)
        if key not in self._known:
            waves = typical_waves(k, in_bits, out_bits)
            self._known[key] = self._function(k, waves, waves.frac_bits - out_bits) / SAMPLE
        return self._known[key]

    def a_product(self, op: ir.OpView, constant: Sequence[bool]) -> float:
        """Of a product, for each bit of its ring; `constant` operands are weights."""
        parties = self._parties()
        shapes = [shape_of(value) for value in op.operation.operands][:2]
        operands = [
            self._shared(parties, f"x{j}", shape, 8, setup)
            for j, (shape, setup) in enumerate(zip(shapes, constant, strict=True))
        ]
        result = shape_of(op.operation.results[0])
        operation = Operation(kind_of(op), result, 8, dict(attributes(op)))
        return self._sent(parties, operation, operands) / 8

    def _element(self, op: str, k: int, K: int, attrs: Mapping[str, int]) -> int:
        parties = self._parties()
        x = self._shared(parties, "x", (SAMPLE,), k, setup=False)
        if op == "share":
            return _sends(x, 0)
        return self._sent(parties, Operation(op, (SAMPLE,), K, attrs), [additive(x)])

    def _function(self, k: int, waves: Waves, dropped_bits: int) -> int:
        parties = self._parties()
        x = self._shared(parties, "x", (SAMPLE,), k, setup=False)
        split = Split.of(waves.window_bits)
        made = (
            parties.program.constant(number, (2, 1 << bits), words(MAX_RING_BITS))
            for number, bits in enumerate((split.high, split.low))
        )
        tables = [Sharing((table,), Form.PUBLIC) for table in made]
        attrs = waves.attributes() | {"bits": dropped_bits}
        operation = Operation("masked_function", (SAMPLE,), k, attrs)
        return self._sent(parties, operation, [x, *tables])

    def _parties(self) -> Parties:
        count = len(self.target.parties)
        dealer = count if self.target.dealer else None
        return Parties(Program(self.target.everyone), tuple(range(count)), dealer)

    def _shared(self, p: Parties, name: str, shape: Shape, bits: int, setup: bool) -> Sharing:
        role, phase = ("weight", Phase.SETUP) if setup else ("input", Phase.ONLINE)
        with p.program.in_phase(phase):
            value = p.program.source(role, name, 0, shape, words(bits))
            shared: Sharing = self.target.suite.protocols["share"](p, 0, value)
        return shared

    def _sent(self, p: Parties, operation: Operation, operands: Sequence[Sharing]) -> int:
        before = len(p.program.nodes)
        protocol = self.target.suite.offered(operation.name)
        result: Sharing = protocol(p, operation, *operands)
        return _sends(result, before)


def _sends(result: Sharing, first: int) -> int:
    """Bits of the messages that a result needs, those of the setup and before node `first` apart.

    All parties' parts of it are made.
    """
    program = result[0].program
    for number, part in enumerate(result.parts):
        for party in part.at:
            program.output(part, party, f"part{number}", 0)
    nodes = [program.nodes[i] for i in batch_rounds(program).live if i >= first]
    sends = (node for node in nodes if node.op == "send" and node.phase != Phase.SETUP)
    return sum(node.type.bits * node.elements for node in sends)


def typical_waves(k: int, in_bits: int, out_bits: int) -> Waves:
    """As many as a function with so many fraction bits is likely to be a sum of, in Z_2^k."""
    out_bits = max(1, out_bits)
    count = max(1, round(WAVES_A_BIT * out_bits))
    cosine_bits, factor_bits = out_bits + 2, out_bits + 2 + count.bit_length()
    return Waves(
        window_bits=max(1, min(in_bits + PERIOD_BITS, k)),
        first=1,
        step=1,
        cosines=(1,) * count,
        sines=(1,) * count,
        coefficient_bits=FINE_BITS,
        constant=0,
        slope=0,
        cosine_bits=cosine_bits,
        factor_bits=factor_bits,
        sum_bits=min(cosine_bits + factor_bits + PERIOD_BITS, MAX_RING_BITS),
    )


@dataclass(frozen=True)
class Call:
    """A protocol on so many elements.

    Attributes:
        root: of the class that its result belongs to.
        operand: of a real function, the root of the class that it takes.
        unit: of a truncation, the root of the accumulator that is truncated.
        whole_bits: of a comparison, bits before the point of what is compared.
    """

    op: str
    elements: int
    root: ir.Value
    unit: ir.Value | None = None
    operand: ir.Value | None = None
    whole_bits: int | None = None


class Traffic:
    """The bits of a program, for any rings.

    Args:
        tracer: counts what the target's protocols send.
    """

    def __init__(self, problem: ScaleProblem, tracer: Tracer) -> None:
        self._problem, self._tracer = problem, tracer
        self._calls = list(self._find_calls())
        self._products = dict(self._find_products())

    def bits(self, trial: Trial) -> float:
        """What all parties send in one inference, in the rings and scales of a trial."""
        sent = 0.0
        for unit, bits in self._products.items():
            sent += bits * trial.units[unit]
        for call in self._calls:
            sent += call.elements * self._price(call, trial)
        return sent

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
        if call.op == "share":
            return self._tracer.an_element("share", K, K)
        if call.operand is not None:
            k = trial.classes[call.operand]
            sent = self._tracer.a_function(k, trial.scales[call.operand], s)
            return sent + (self._tracer.an_element("lift", k, K) if k < K else 0.0)
        compared = max(2, s + (call.whole_bits or 0) + 1)  # bits, the sign's included
        if call.unit is None:
            window = min(compared, K - 1)
            return self._tracer.an_element("relu", K, K, window_bits=window, dropped_bits=0)
        k = trial.units[self._problem.rings[call.unit]]
        f = min(trial.wide[call.unit] - s, k - 3)
        if f <= 0:
            return self._tracer.an_element("lift", k, K) if k < K else 0.0
        if call.op == "truncate":
            return self._tracer.an_element("truncate", k, K, bits=f)
        window = min(f + compared, k - 1, K + f)
        return self._tracer.an_element(
            "truncate_relu", k, K, bits=f, window_bits=window, dropped_bits=f
        )

    def _find_products(self) -> Iterator[tuple[ir.Value, float]]:
        """Bits of each unit's products for each bit of its ring."""
        structure = self._problem.structure
        found: dict[ir.Value, float] = {}
        for product in structure.products:
            unit = structure.rings.root(product.result)
            constant = [value in structure.adaptable for value in (product.x, product.y)]
            sent = self._tracer.a_product(product.op, constant)
            found[unit] = found.get(unit, 0.0) + sent
        yield from found.items()

    def _find_calls(self) -> Iterator[Call]:
        problem = self._problem
        roots = problem.structure.stored
        for value in problem.graph.inputs.values():
            yield Call("share", element_count(shape_of(value)), roots.root(value))
        for op in problem.graph.operations:
            result = op.operation.results[0]
            if result in problem.structure.pending and self._is_read_narrow(result):
                yield from self._truncation("truncate", result)
            if kind_of(op) in NONLINEAR:
                yield from self._comparison(op)
            elif kind_of(op) in CALLS:
                operand = roots.root(op.operation.operands[0])
                count = element_count(shape_of(result))
                yield Call("function", count, roots.root(result), operand=operand)

    def _is_read_narrow(self, value: ir.Value) -> bool:
        users = [use.owner for use in value.uses if use.owner.operation.name != "func.return"]
        return any(kind_of(user) in NARROW for user in users)

    def _truncation(
        self, op: str, value: ir.Value, whole_bits: int | None = None
    ) -> Iterator[Call]:
        structure = self._problem.structure
        unit = structure.units.root(value)
        if unit in self._problem.units:
            count = element_count(shape_of(value))
            root = structure.stored.root(value)
            yield Call(op, count, root, unit, whole_bits=whole_bits)

    def _comparison(self, op: ir.OpView) -> Iterator[Call]:
        problem, operands = self._problem, list(op.operation.operands)
        known = [problem.statistics.get(value) for value in operands]
        bits = max((problem.budget.whole_bits(k) for k in known if k), default=0)
        if kind_of(op) == "relu":
            pending = operands[0] in problem.structure.pending
            if pending and not self._is_read_narrow(operands[0]):
                yield from self._truncation("truncate_relu", operands[0], bits)
                return
        else:
            bits += 1  # differences reach twice as far
        root = problem.structure.stored.root(op.operation.results[0])
        yield Call("relu", comparisons(op), root, whole_bits=bits)


def comparisons(op: ir.OpView) -> int:
    """How many pairs a comparing operation compares."""
    given, made = shape_of(op.operation.operands[0]), shape_of(op.operation.results[0])
    if kind_of(op) == "reduce_max":
        return prod(given) - prod(made)
    if kind_of(op) == "max_pool":
        named: dict[str, Any] = attributes(op)
        rows, columns = (int(extent) for extent in named["kernel"])
        return prod(made[:2]) * made[3] * (given[2] * (columns - 1) + made[2] * (rows - 1))
    return prod(made)
