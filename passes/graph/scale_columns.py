"""The columns of a table get scales of their own: income in thousands, and a rate below one.

    owner:   x_c -> x_c 2^-k_c          before x is encoded; k is public
    weights: W -> diag(2^k) W,  t -> t 2^-k

All numbers of a tensor share one scale, so a column that is small beside another one would be left
with few bits. Powers of two follow a column through what only moves columns, until weights take
them: the rows of a matrix, what is added, what a comparison is made with. Where something else
reads the column, its input keeps one scale. A value that is no longer the model's own has "scaled"
in its name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, attributes, defining, name_of
from veilgraph.ir.meaning.graph import apply
from veilgraph.passes.graph.fold_divisors import SCALED

Array = NDArray[np.float32]
Exponents = NDArray[np.float32]  # integers, of the shape of the value that waits for them
LEAST_GAP = 4  # bits between the largest column and the smallest, from which on scales differ
MOST_GAP = 30  # bits; a column that is smaller still keeps fewer


class _Refused(Exception):
    """Something reads a column that can't take its scale."""


@dataclass(frozen=True)
class ScaleColumns:
    """Scales the columns of inputs [rows, columns] by public powers of two.

    Here the samples' first column reaches 1000, and the second one 0.1: 10 bits lie above it, and
    3 below its ones, so that it is multiplied by 2^13 where x is given.

    Before::

        func.func @main(%x: tensor<1x2xf32> {graph.name = "x", graph.role = "input"},
            %w: tensor<2x1xf32> {graph.name = "w", graph.role = "weight"})
            -> (tensor<1x1xf32> {graph.name = "y"}) {
          %0 = "graph.matmul"(%x, %w)
              : (tensor<1x2xf32>, tensor<2x1xf32>) -> tensor<1x1xf32>
          return %0 : tensor<1x1xf32>
        }

    After::

        func.func @main(%x: tensor<1x2xf32> {graph.name = "x", graph.role = "input"},
            %w: tensor<2x1xf32> {graph.name = "w/scaled", graph.role = "weight"})
            -> (tensor<1x1xf32> {graph.name = "y"}) {
          %0 = "graph.matmul"(%x, %w)
              : (tensor<1x2xf32>, tensor<2x1xf32>) -> tensor<1x1xf32>
          return %0 : tensor<1x1xf32>
        }

    Attributes:
        samples: of all inputs by name, on a new first axis.
        tables: the inputs that may be scaled.
        flags: how many columns at an input's end are flags, which have no scale.
    """

    samples: Mapping[str, Array]
    tables: Collection[str]
    flags: Mapping[str, int] = field(default_factory=dict)

    def run(self, graph: Graph) -> dict[str, tuple[int, ...]]:
        """The exponents k by input; `graph` is changed in place."""
        tables = {
            name: _bits(self.samples[name], self.flags.get(name, 0))
            for name, value in graph.inputs.items()
            if name in self.tables and len(shape_of(value)) == 2
        }
        top = max((int(bits.max(initial=-MOST_GAP)) for bits in tables.values()), default=0)
        found = {}
        for name, bits in tables.items():
            exponents = np.where(bits == _NONE, 0, np.clip(bits - top, -MOST_GAP, 0))
            if exponents.min(initial=0) <= -LEAST_GAP and _Forward(graph).carries(name, exponents):
                found[name] = tuple(map(int, exponents))
        graph.tidy()
        return found


_NONE = np.iinfo(np.int64).min  # bits of a column of zeros


def _bits(samples: Array, flags: int) -> NDArray[np.int64]:
    """The least e for each column whose numbers are all within 2^e; of no flag."""
    size = np.abs(samples, dtype=np.float64).max(axis=(0, 1), initial=0)
    exponents = np.ceil(np.log2(size, out=np.zeros_like(size), where=size > 0))
    is_number = np.arange(len(size)) < len(size) - flags
    return np.where((size > 0) & is_number, exponents, _NONE).astype(np.int64)


@dataclass
class _Forward:
    """Carries the exponents of one input to what takes them; changes nothing before all have."""

    graph: Graph
    waiting: dict[ir.Value, Exponents] = field(default_factory=dict)
    edits: list[Callable[[], None]] = field(default_factory=list)

    def carries(self, name: str, exponents: NDArray[np.int64]) -> bool:
        """Whether everything that reads input `name` took them; the graph is changed if so."""
        value = self.graph.inputs[name]
        self.waiting[value] = np.broadcast_to(exponents, shape_of(value)).astype(np.float32)
        try:
            for op in self.graph.block.operations:
                if any(operand in self.waiting for operand in op.operation.operands):
                    self._visit(op)
        except _Refused:
            return False
        for edit in self.edits:
            edit()
        return True

    def _visit(self, op: ir.OpView) -> None:
        match op:
            case ops.Step():
                return  # whose operand's sign is what it was
            case ops.Add() | ops.Sub():
                self._sum(op)
            case ops.Mul():
                self._product(op)
            case ops.Matmul():
                self._matmul(op)
            case ops.Relu() | ops.Neg():
                self._wait(op, self.waiting[op.operation.operands[0]])
            case ops.Unary() if ops.facts_of(op).moves:
                self._move(op)
            case ops.Concat():
                self._move(op)
            case _:
                raise _Refused

    def _wait(self, op: ir.OpView, exponents: Exponents) -> None:
        if not exponents.any():
            return  # as of flags
        self.waiting[op.operation.results[0]] = exponents
        self._call_scaled(op)

    def _call_scaled(self, op: ir.OpView) -> None:
        """Lets an operation's name say that its value is no longer the model's own."""
        name = ir.Location.name(f"{name_of(op)}/{SCALED}", context=op.operation.context)
        self.edits.append(lambda: setattr(op, "location", name))

    def _move(self, op: ir.OpView) -> None:
        """Exponents move as the numbers do."""
        operands = op.operation.operands
        zeros = (np.zeros(shape_of(value), np.float32) for value in operands)
        exponents = [self.waiting.get(v, z) for v, z in zip(operands, zeros, strict=True)]
        self._wait(op, apply(op, exponents))

    def _sum(self, op: ir.OpView) -> None:
        """Of two at one scale, or of one and weights, which take it."""
        a, b = op.operation.operands
        result = shape_of(op.operation.results[0])
        if a in self.waiting and b in self.waiting:
            x, y = (np.broadcast_to(self.waiting[v], result) for v in (a, b))
            if not np.array_equal(x, y):
                raise _Refused
            self._wait(op, x)
            return
        place = int(a in self.waiting)
        x = np.broadcast_to(self.waiting[op.operation.operands[1 - place]], result)
        self._scale_added(op, place, -_least(x))
        self._wait(op, x)

    def _scale_added(self, op: ir.OpView, place: int, exponents: Exponents) -> None:
        """Lets `op` add a weight times 2^exponents, or a product with one, read here alone."""
        product = defining(op.operation.operands[place])
        if isinstance(product, ops.Mul) and len(list(product.operation.results[0].uses)) == 1:
            named = list(self.graph.parameters.values())
            at = [n for n, value in enumerate(product.operation.operands) if value in named]
            if len(at) == 1:
                self._scale(product, at[0], exponents)
                self._call_scaled(product)
                return
        self._scale(op, place, exponents)

    def _product(self, op: ir.OpView) -> None:
        """Weights take the scale: what comes out has none."""
        a, b = op.operation.operands
        if a in self.waiting and b in self.waiting:
            raise _Refused
        place = int(a in self.waiting)
        x = self.waiting[op.operation.operands[1 - place]]
        self._scale(op, place, _least(x))

    def _matmul(self, op: ir.OpView) -> None:
        """x W: the rows of W take it, or, where W picks columns, they keep it."""
        x, w = op.operation.operands
        exponents = self.waiting.get(x)
        if exponents is None or w in self.waiting or len(shape_of(w)) != 2:
            raise _Refused
        rows = exponents.reshape(-1, exponents.shape[-1])
        if (rows != rows[0]).any():
            raise _Refused
        picks = self._whole(w)
        if picks is not None:
            if not (np.isin(picks, (0, 1)).all() and (picks.sum(axis=0) == 1).all()):
                raise _Refused
            self._wait(op, apply(op, [exponents, picks]))
            return
        self._scale(op, 1, rows[0][:, np.newaxis])

    def _whole(self, value: ir.Value) -> NDArray[Any] | None:
        """A matrix of integers, as everybody knows: a public one, or declared to be such."""
        if isinstance(public := defining(value), ops.Constant):
            return np.asarray(attributes(public)["value"])
        named = self.graph.parameters.items()
        name = next((n for n, v in named if v == value and n in self.graph.whole), None)
        return None if name is None else self.graph.weights[name]

    def _scale(self, op: ir.OpView, place: int, exponents: Exponents) -> None:
        """Lets `op` read a weight times 2^exponents; public zeros are what they are."""
        value = op.operation.operands[place]
        if isinstance(public := defining(value), ops.Constant):
            if np.any(attributes(public)["value"]):
                raise _Refused
            return
        name = next((n for n, found in self.graph.parameters.items() if found == value), "")
        if not name:
            raise _Refused
        scaled = _exactly(self.graph.weights[name], exponents.astype(np.int64))
        self.edits.append(lambda: self._read(op, place, f"{name}/{SCALED}", scaled))

    def _read(self, op: ir.OpView, place: int, name: str, weight: Array) -> None:
        while name in self.graph.weights:
            name += f"/{SCALED}"
        op.operation.operands[place] = self.graph.add_weights({name: weight})[name]


def _exactly(weight: Array, exponents: NDArray[np.int64]) -> Array:
    """weight 2^exponents, unless float32 rounds it."""
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.ldexp(weight, exponents)
        back = np.ldexp(scaled, -exponents)
    if not np.array_equal(back, np.broadcast_to(weight, back.shape)):
        raise _Refused
    return scaled.astype(np.float32)


def _least(exponents: Exponents) -> Exponents:
    """The same without the rows and columns that repeat others, as broadcasting allows."""
    for axis in range(exponents.ndim):
        first = exponents.take([0], axis)
        if (exponents == first).all():
            exponents = first
    return exponents
