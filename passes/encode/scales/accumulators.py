"""Which values share a scale, and which are sums of products that wait for a truncation.

    %a = conv %x, %w      a product: deferred, at the accumulator's scale s(x) + s(w)
    %b = add %a, %r       still deferred, one accumulator with %a; the residual %r is shifted up
    %c = relu %b          needs the stored scale: %a, %b, %c share one
    %d = sum_pool %c      shares it too

An accumulator (docs/encoding.md): all products that meet in a sum, until the step that needs fewer
bits.

Integers that are known to be ones (what `step`, `floor` and `round` make, public tensors of small
integers, and weights and inputs that a front door declares to be such) have no fraction bits: a
product with them is no product but a linear map, and nothing is truncated. A real function lifts
what such a map makes: it would have the integers in the ring that the function needs, else.

    %s = matmul %m, %w    24 bits: truth values that say where rows end up, and the leaves of trees
    %p = sigmoid %s       64 bits
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from torch_mlir import ir

from veilgraph.ir.graph.facts import Arithmetic, Integers
from veilgraph.ir.graph.ops import Concat, Constant, OneHot, Singular, facts_of
from veilgraph.ir.graph.program import Graph, defining
from veilgraph.passes.graph.public_factors import Factor, are_small_integers, number_of, scaling
from veilgraph.passes.secret.padded_sums import takes_truncated


class Ties:
    """Classes of values that share a number."""

    def __init__(self) -> None:
        self._parents: dict[ir.Value, ir.Value] = {}

    def root(self, value: ir.Value) -> ir.Value:
        """The value that stands for the class of `value`: its first one."""
        parent = self._parents.get(value, value)
        if parent == value:
            return value
        self._parents[value] = self.root(parent)
        return self._parents[value]

    def tie(self, later: ir.Value, earlier: ir.Value) -> None:
        """Joins two classes; the class of `earlier` lends the root."""
        first, second = self.root(earlier), self.root(later)
        if first != second:
            self._parents[second] = first


@dataclass(frozen=True)
class Product:
    """A mul, matmul or conv: result = x times y."""

    op: ir.OpView
    result: ir.Value
    x: ir.Value
    y: ir.Value


@dataclass
class Structure:
    """How scales depend on each other.

    Attributes:
        stored: classes of values stored at one scale.
        accumulators: classes of deferred values, which meet in one accumulator.
        rings: classes of deferred values in one ring: accumulators, and what is made of them by
            factors.
        deferred: values that are sums of products, not truncated yet.
        integral: values without fraction bits; their classes hold nothing else.
        adaptable: weights and constants, that can be encoded at any scale; and their layouts.
        products: in program order.
        residuals: (deferred sum, stored operand of it).
        offsets: (sum or concatenation, adaptable operand of it).
        factors: (result, operand, factor) of multiplications that need no truncation.
        maps: results of linear maps by integers.
    """

    stored: Ties = field(default_factory=Ties)
    accumulators: Ties = field(default_factory=Ties)
    rings: Ties = field(default_factory=Ties)
    deferred: set[ir.Value] = field(default_factory=set)
    integral: set[ir.Value] = field(default_factory=set)
    adaptable: set[ir.Value] = field(default_factory=set)
    products: list[Product] = field(default_factory=list)
    residuals: list[tuple[ir.Value, ir.Value]] = field(default_factory=list)
    offsets: list[tuple[ir.Value, ir.Value]] = field(default_factory=list)
    factors: list[tuple[ir.Value, ir.Value, Factor]] = field(default_factory=list)
    maps: set[ir.Value] = field(default_factory=set)

    def lifts(self, op: ir.OpView) -> bool:
        """Whether a real function lifts its operand into its result's ring."""
        if not self.maps or isinstance(op, Singular):
            return False
        root = self.stored.root(op.operation.operands[0])
        is_map = any(self.stored.root(value) == root for value in self.maps)
        return is_map and all(self.stored.root(value) != root for value in self.deferred)

    def join(self, later: ir.Value, earlier: ir.Value) -> None:
        """Two deferred values meet in one accumulator."""
        self.accumulators.tie(later, earlier)
        self.rings.tie(later, earlier)


def analyse(graph: Graph) -> Structure:
    """The structure of a program in the vocabulary that `encode_fixed_point` takes."""
    named = graph.inputs | graph.parameters
    whole = {value for name, value in named.items() if name in graph.whole}
    adaptable = set(graph.parameters.values()) - whole
    structure = Structure(adaptable=adaptable, integral=whole)
    indices = (op.operation.operands[0] for op in graph.operations if isinstance(op, OneHot))
    structure.integral |= {given for index in indices for given in indices_given(index)}
    for op in graph.operations:
        _analyse(op, structure)
    return structure


def indices_given(index: ir.Value) -> tuple[ir.Value, ...]:
    """The inputs whose elements an index's are; () where some were computed."""
    op = defining(index)
    if op is None:
        return (index,)
    if not (facts_of(op).moves or isinstance(op, Concat)):
        return ()
    found = [indices_given(operand) for operand in op.operation.operands]
    return tuple(chain.from_iterable(found)) if all(found) else ()


def _analyse(op: ir.OpView, structure: Structure) -> None:
    result, facts = op.operation.results[0], facts_of(op)
    operands = list(op.operation.operands)
    if _is_integral(op, structure):
        structure.integral.add(result)
    is_free = facts.is_integer_valued or facts.is_real_function
    if is_free or (isinstance(op, Constant) and result in structure.integral):
        return
    if facts.is_bilinear and any(value in structure.integral for value in operands[:2]):
        structure.offsets += [(result, bias) for bias in operands[2:]]
        _analyse_tied(result, operands[:2], structure, nonlinear=True)
        if result not in structure.integral:
            structure.maps.add(result)
    elif facts.is_layout and all(value in structure.adaptable for value in operands):
        structure.adaptable.add(result)
        for value in operands:
            structure.stored.tie(result, value)
    elif (scaled := scaling(op)) is not None:
        operand, factor = scaled
        structure.deferred.add(result)
        structure.factors.append((result, operand, factor))
        if operand in structure.deferred:
            structure.rings.tie(result, operand)
    elif facts.is_bilinear:
        structure.deferred.add(result)
        structure.products.append(Product(op, result, *operands[:2]))
        for bias in operands[2:]:
            added = structure.offsets if bias in structure.adaptable else structure.residuals
            added.append((result, bias))
    elif facts.arithmetic is Arithmetic.SUM:
        _analyse_sum(result, operands, structure)
    else:
        is_truncated = facts.arithmetic is Arithmetic.COMPARISON or takes_truncated(op)
        _analyse_tied(result, operands, structure, is_truncated)


def _is_integral(op: ir.OpView, structure: Structure) -> bool:
    """Whether every element of the result is an integer, its operands being what they are."""
    operands, integers = list(op.operation.operands), facts_of(op).integers
    if isinstance(op, Constant):
        return are_small_integers(op.operation.results[0])
    if integers is not Integers.KEPT:
        return integers is Integers.ALWAYS
    known = all(_is_whole(value, structure) for value in operands)
    return known and any(value in structure.integral for value in operands)


def _is_whole(value: ir.Value, structure: Structure) -> bool:
    number = number_of(value)
    return value in structure.integral or (number is not None and number.is_integer())


def _analyse_sum(result: ir.Value, operands: Sequence[ir.Value], structure: Structure) -> None:
    deferred = [value for value in operands if value in structure.deferred]
    adaptable = [value for value in operands if value in structure.adaptable]
    stored = [value for value in operands if value not in (*deferred, *adaptable)]
    stored = _of_one_kind(result, stored, structure)
    structure.offsets += [(result, value) for value in adaptable]
    if not deferred:
        for value in stored:
            structure.stored.tie(result, value)
        return
    structure.deferred.add(result)
    structure.residuals += [(result, value) for value in stored]
    for value in deferred:
        structure.stored.tie(result, value)
        structure.join(result, value)


def _of_one_kind(
    result: ir.Value, operands: Sequence[ir.Value], structure: Structure
) -> list[ir.Value]:
    """The operands that can share a scale with the result: an integer is shifted up to others."""
    whole = result in structure.integral
    return [value for value in operands if (value in structure.integral) == whole]


def _analyse_tied(
    result: ir.Value, operands: Sequence[ir.Value], structure: Structure, nonlinear: bool
) -> None:
    structure.offsets += [(result, value) for value in operands if value in structure.adaptable]
    others = [value for value in operands if value not in structure.adaptable]
    others = _of_one_kind(result, others, structure)
    for value in others:
        structure.stored.tie(result, value)
    if not nonlinear and others and all(value in structure.deferred for value in others):
        structure.deferred.add(result)
        for value in others:
            structure.join(result, value)
