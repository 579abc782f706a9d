"""Which ring every value lives in: its accumulator's while it is deferred, else one that fits all.

A deferred value is in the ring of its accumulator: all that meets in one accumulator. A stored
value is in the widest ring of the accumulators that read it, so that no reader has to lift it:
reducing it for the others is free, and the truncation that makes it changes the ring in passing
(docs/encoding.md). So what an accumulator's width costs is paid where its inputs are made.

    %a = conv %x, %w      accumulator A: 24 bits
    %b = relu %a          read by accumulators B, 32 bits, and C, 40: truncated from 24 into 40
    %c = conv %b, %v      accumulator B: reads %b reduced to 32
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from torch_mlir import ir

from veilgraph.ir.attributes import element_count, shape_of
from veilgraph.ir.graph.ops import Singular, facts_of
from veilgraph.ir.graph.program import Graph
from veilgraph.passes.encode.scales.accumulators import Structure

CANDIDATE_WIDTHS = (24, 32, 40, 48, 56, 64)  # that are chosen from: whole bytes on the wire
FEW = 64  # times fewer elements than its class has a value that is lifted where it is read


@dataclass(frozen=True)
class Readers:
    """Which accumulators read each class of stored values.

    Attributes:
        accumulators: all there are, by their root, in program order. A class that nothing reads,
            and that no accumulator makes, is an accumulator of its own: its width bears on nothing
            but itself.
        of: of each class's root.
        makers: of each class's root, the accumulators that values are truncated from into it.
        functions: of those, what stands for real functions that read a class, or make it, where
            accumulators around them may be narrower.
        updates: of accumulators that make the next value of a state, the root of its class.
    """

    accumulators: tuple[ir.Value, ...]
    of: Mapping[ir.Value, tuple[ir.Value, ...]]
    makers: Mapping[ir.Value, tuple[ir.Value, ...]]
    functions: frozenset[ir.Value] = frozenset()
    updates: Mapping[ir.Value, ir.Value] = field(default_factory=dict)

    def around_function(self, root: ir.Value) -> tuple[ir.Value, ...]:
        """The accumulators that have to be wide where a real function reads or makes a class."""
        own = tuple(reader for reader in self.of[root] if reader in self.functions)
        return own or (*self.of[root], *self.makers.get(root, ()))

    def widths(self, accumulators: Mapping[ir.Value, int]) -> dict[ir.Value, int]:
        """The ring of each class, given those of the accumulators."""
        return {root: self.width(root, accumulators) for root in self.of}

    def width(self, root: ir.Value, accumulators: Mapping[ir.Value, int]) -> int:
        """The ring of one class."""
        return max(accumulators[u] for u in self.of[root])

    def neighbours(self) -> dict[ir.Value, tuple[ir.Value, ...]]:
        """The accumulators that meet each accumulator in some class, itself among them."""
        found: dict[ir.Value, dict[ir.Value, None]] = {
            accumulator: {accumulator: None} for accumulator in self.accumulators
        }
        for root, readers in self.of.items():
            together = dict.fromkeys((*readers, *self.makers.get(root, ())))
            for accumulator in together:
                found[accumulator] |= together
        return {accumulator: tuple(others) for accumulator, others in found.items()}


@dataclass(frozen=True)
class Rings:
    """The ring of every value.

    Attributes:
        accumulators: by the root of an accumulator's ring class.
        classes: by the root of a class of stored values.
    """

    structure: Structure
    accumulators: Mapping[ir.Value, int]
    classes: Mapping[ir.Value, int]

    @staticmethod
    def of_accumulators(
        structure: Structure, readers: Readers, accumulators: Mapping[ir.Value, int]
    ) -> Rings:
        """All rings, given those of the accumulators.

        What a state becomes is in its ring: it would be lifted there, else.
        """
        classes = readers.widths(accumulators)
        kept = {a: max(accumulators[a], classes[root]) for a, root in readers.updates.items()}
        raised = {**accumulators, **kept}
        return Rings(structure, raised, readers.widths(raised))

    def of(self, value: ir.Value) -> int:
        """Where a value is computed."""
        if value in self.structure.deferred:
            return self.accumulators[self.structure.rings.root(value)]
        return self.stored(value)

    def taken(self, op: ir.OpView) -> int:
        """Where a real function takes its operand."""
        (operand,), result = op.operation.operands, op.operation.results[0]
        kept = self.stored(operand)
        return max(kept, self.stored(result)) if self.structure.lifts(op) else kept

    def stored(self, value: ir.Value) -> int:
        """Where a value is kept: what a deferred one is truncated into."""
        return self.classes[self.structure.stored.root(value)]


def find_readers(graph: Graph, structure: Structure, *, trains: bool = False) -> Readers:
    """The accumulators of a program, and which of them read what.

    Where a program trains a step has rounds enough. So the sum of a gradient over rows is lifted
    where it is read, and what real functions take is lifted from their makers' rings: the many
    elements before need no ring as wide.
    """
    found: dict[ir.Value, dict[ir.Value, None]] = {}
    makers: dict[ir.Value, dict[ir.Value, None]] = {}
    for value in _values(graph):
        root = structure.stored.root(value)
        found.setdefault(root, {})
        if value in structure.deferred:
            makers.setdefault(root, {})[structure.rings.root(value)] = None
    sizes = _sizes(graph, structure) if trains else {}
    for reader, value in _reads(structure):
        root = structure.stored.root(value)
        if FEW * element_count(shape_of(value)) > sizes.get(root, 0):
            found[root][structure.rings.root(reader)] = None
    for root, accumulators in found.items():
        if not accumulators:
            accumulators.update(makers.get(root, {}))
    functions = dict(_functions(graph, structure)) if trains else {}
    for root, function in functions.items():
        found[root][function] = None
    _follow(structure, found)
    for root, accumulators in found.items():
        if not accumulators:
            accumulators[root] = None
    every = dict.fromkeys(
        accumulator for accumulators in makers.values() for accumulator in accumulators
    )
    every |= dict.fromkeys(
        accumulator for accumulators in found.values() for accumulator in accumulators
    )
    readers = {root: tuple(accumulators) for root, accumulators in found.items()}
    made = {root: tuple(accumulators) for root, accumulators in makers.items()}
    updates = dict(_updates(graph, structure)) if trains else {}
    return Readers(tuple(every), readers, made, frozenset(functions.values()), updates)


def _updates(graph: Graph, structure: Structure) -> Iterator[tuple[ir.Value, ir.Value]]:
    """(accumulator that a state is added to for its next value, root of the state's class).

    A bias is added to a layer's products too, which are many, and need no ring as wide.
    """
    states = {graph.inputs[name] for name in graph.states}
    after = {*graph.outputs.values()}
    for total, value in structure.residuals:
        if value in states and total in after:
            yield structure.rings.root(total), structure.stored.root(value)


def _sizes(graph: Graph, structure: Structure) -> dict[ir.Value, int]:
    """Elements of each class's largest value, by root."""
    sizes: dict[ir.Value, int] = {}
    for value in _values(graph):
        root = structure.stored.root(value)
        sizes[root] = max(sizes.get(root, 0), element_count(shape_of(value)))
    return sizes


def _functions(graph: Graph, structure: Structure) -> Iterator[tuple[ir.Value, ir.Value]]:
    """(root of a class, result of a real function that reads or makes it).

    None where any has a singularity: that one takes its operand as its accumulator has it, and what
    is near the singularity is all that matters there.
    """
    if any(isinstance(op, Singular) for op in graph.operations):
        return
    for op in graph.operations:
        if facts_of(op).is_real_function:
            result = op.operation.results[0]
            for value in (*op.operation.operands, result):
                yield structure.stored.root(value), result


def _values(graph: Graph) -> list[ir.Value]:
    arguments = [*graph.inputs.values(), *graph.parameters.values()]
    return [*arguments, *(op.operation.results[0] for op in graph.operations)]


def _reads(structure: Structure) -> list[tuple[ir.Value, ir.Value]]:
    """(deferred value, stored value that it is made of)."""
    pairs = [(p.result, operand) for p in structure.products for operand in (p.x, p.y)]
    pairs += structure.residuals
    pairs += [(total, value) for total, value in structure.offsets if total in structure.deferred]
    factors = ((result, operand) for result, operand, _ in structure.factors)
    pairs += [pair for pair in factors if pair[1] not in structure.deferred]
    return pairs


def _follow(structure: Structure, found: dict[ir.Value, dict[ir.Value, None]]) -> None:
    """A weight that is added to stored values has to be in their ring."""
    for total, value in structure.offsets:
        if total not in structure.deferred:
            readers = found[structure.stored.root(total)] or {structure.stored.root(total): None}
            found[structure.stored.root(value)].update(readers)
