"""The last step of a classifier in secret: who receives it learns a class, and no scores.

Positions of the largest numbers come from ranks. In a group of g numbers all g (g - 1) / 2 pairs
are compared at once; the number of comparisons that each loses is its rank, the comparisons with
constants 0 .. k-1 say which ranks come first, and products with what they say pick numbers and
positions. Of larger tensors every group sends its k best into the next turn: rounds grow with the
logarithm of the groups' number, where a tournament of pairs would take that of the numbers'. All
but the comparisons is linear; of equal numbers the first wins.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch_mlir import ir

from veilgraph.ir import graph_ops as ops
from veilgraph.ir.attributes import shape_of
from veilgraph.ir.errors import UsageError
from veilgraph.ir.graph import Graph
from veilgraph.passes.public_numbers import MAX_FACTOR

GROUP = 32  # numbers that are ranked together: 496 comparisons in one turn
FORMS = "argmax, topk:5 or softmax"


@dataclass(frozen=True)
class Form:
    """What is revealed in place of numbers along the last axis.

    Attributes:
        kind: "argmax", "topk" or "softmax".
        count: of positions, largest number first.
    """

    kind: str
    count: int = 1

    @staticmethod
    def parse(text: str) -> Form:
        """`argmax`, `topk:K` or `softmax`; UsageError for anything else."""
        kind, _, count = text.partition(":")
        if text in ("argmax", "softmax"):
            return Form(kind)
        if kind == "topk" and count.isdecimal() and int(count) > 0:
            return Form(kind, int(count))
        raise UsageError(f"Nothing can be revealed as {text!r}.", f"Take {FORMS}.")

    @property
    def decides(self) -> bool:
        """Whether positions are revealed, and no real numbers."""
        return self.kind != "softmax"

    def __str__(self) -> str:
        return f"topk:{self.count}" if self.kind == "topk" else self.kind

    def of(self, x: NDArray[np.floating]) -> NDArray[np.floating]:
        """The same in NumPy, of real numbers."""
        if self.kind == "softmax":
            powers = np.exp(x - x.max(axis=-1, keepdims=True))
            return np.asarray(powers / powers.sum(axis=-1, keepdims=True))
        order = np.argsort(-x, axis=-1, kind="stable").astype(x.dtype)
        return np.asarray(order[..., 0] if self.kind == "argmax" else order[..., : self.count])


def before(name: str, form: Form) -> str:
    """What the output is called that a decision is made of: never revealed, but measured."""
    return f"{name} before {form}"


@dataclass(frozen=True)
class RevealAs:
    """Lets outputs be what is asked for; decisions keep their operand as an output to measure.

    Here with the form softmax for y.

    Before::

        func.func @main(%x: tensor<1x3xf32> {graph.name = "x", graph.role = "input"})
            -> (tensor<1x3xf32> {graph.name = "y"}) {
          return %x : tensor<1x3xf32>
        }

    After::

        func.func @main(%x: tensor<1x3xf32> {graph.name = "x", graph.role = "input"})
            -> (tensor<1x3xf32> {graph.name = "y"}) {
          %0 = "graph.softmax"(%x) {axis = 1 : i64} : (tensor<1x3xf32>) -> tensor<1x3xf32>
          return %0 : tensor<1x3xf32>
        }

    Attributes:
        forms: by the output's name.
    """

    forms: Mapping[str, Form]

    def run(self, graph: Graph) -> Graph:
        """`graph` itself, changed in place.

        Raises:
            UsageError: an output that can't be revealed so.
        """
        outputs: dict[str, ir.Value] = {}
        for name, value in graph.outputs.items():
            form = self.forms.get(name)
            if form is None:
                outputs[name] = value
                continue
            _require_axis(name, form, shape_of(value))
            with graph.ahead_of_return(f"{name}:{form.kind}/"):
                outputs[name] = _revealed(form, value)
            if form.decides:
                outputs[before(name, form)] = value
        graph.replace_outputs(outputs)
        return graph


def _require_axis(name: str, form: Form, shape: tuple[int, ...]) -> None:
    extent = shape[-1] if shape else 1
    if extent < 2 or form.count > extent:
        raise UsageError(
            f"Output {name} has {extent} numbers along its last axis, which can't be revealed as "
            f"{form}.",
            "Reveal it as it is.",
        )


def _revealed(form: Form, x: ir.Value) -> ir.Value:
    shape = shape_of(x)
    if form.kind == "softmax":
        return ops.Softmax.build(x, axis=len(shape) - 1)
    rows = ops.Reshape.build(x, shape=(int(np.prod(shape[:-1])), shape[-1]))
    positions = _largest(rows, form.count)
    kept = shape[:-1] if form.kind == "argmax" else (*shape[:-1], form.count)
    return ops.Reshape.build(positions, shape=kept)


@dataclass(frozen=True)
class _Field:
    """Numbers in the running, [rows, n], and their positions: secret, or known at the start."""

    numbers: ir.Value
    positions: ir.Value | NDArray[np.float32]

    def part(self, start: int, count: int) -> _Field:
        """`count` of them from `start`."""
        known = isinstance(self.positions, np.ndarray)
        places = (
            self.positions[start : start + count]
            if known
            else _columns(self.positions, start, count)
        )
        return _Field(_columns(self.numbers, start, count), places)


def _largest(x: ir.Value, count: int) -> ir.Value:
    """Positions [rows, count] of the largest numbers of each row, the largest first."""
    field = _Field(x, np.arange(shape_of(x)[1], dtype=np.float32))
    size = max(GROUP, 4 * count)
    while (extent := shape_of(field.numbers)[1]) > size:
        whole = extent - extent % size
        winners = [_turn(field.part(0, whole), size, count)]
        if rest := extent - whole:
            last = field.part(whole, rest)
            winners.append(_as_secret(last) if rest <= count else _turn(last, rest, count))
        field = _joined(winners)
    return _picked(_first(field.numbers, count), field.positions)


def _turn(field: _Field, size: int, count: int) -> _Field:
    """The `count` best of each group of `size`."""
    rows, extent = shape_of(field.numbers)
    groups = extent // size
    numbers = ops.Reshape.build(field.numbers, shape=(rows * groups, size))
    hot = _first(numbers, count)
    known = field.positions
    if isinstance(known, np.ndarray):
        starts = known.reshape(groups, size)[:, :1]
        inside = _picked(hot, known[:size] - known[0])
        offsets = np.broadcast_to(starts - 0.0, (groups, count)).astype(np.float32)
        shifted = ops.Reshape.build(inside, shape=(rows, groups * count))
        positions = ops.Add.build(shifted, _public(offsets.reshape(1, -1)))
    else:
        secret = ops.Reshape.build(known, shape=(rows * groups, size))
        positions = ops.Reshape.build(_picked(hot, secret), shape=(rows, groups * count))
    best = ops.Reshape.build(_picked(hot, numbers), shape=(rows, groups * count))
    return _Field(best, positions)


def _joined(fields: list[_Field]) -> _Field:
    if len(fields) == 1:
        return fields[0]
    numbers = ops.concat([field.numbers for field in fields], 1)
    return _Field(numbers, ops.concat([field.positions for field in fields], 1))


def _as_secret(field: _Field) -> _Field:
    """The field as one of several: its positions as a tensor."""
    if not isinstance(field.positions, np.ndarray):
        return field
    rows, extent = shape_of(field.numbers)
    places = np.broadcast_to(field.positions, (rows, extent))
    return _Field(field.numbers, _public(places))


def _first(x: ir.Value, count: int) -> ir.Value:
    """[rows, count, n] of ones where a number has rank 0, 1, ..., count - 1 in its row."""
    rows, extent = shape_of(x)
    pairs = list(itertools.combinations(range(extent), 2))
    differences = np.zeros((extent, len(pairs)), np.float32)
    losses = np.zeros((len(pairs), extent), np.float32)
    for pair, (i, j) in enumerate(pairs):
        differences[[i, j], pair] = 1, -1
        losses[pair, [i, j]] = -1, 1  # the first has one loss less where it wins
    wins = ops.Step.build(ops.Matmul.build(x, _public(differences)))
    later = np.arange(extent - 1, -1, -1, dtype=np.float32)
    # Minus the rank, to be compared from below: rank = losses + (how many come later).
    behind = ops.Neg.build(ops.Matmul.build(wins, _public(losses)))
    behind = ops.Reshape.build(behind, shape=(rows, 1, extent))
    limits = np.arange(count, dtype=np.float32)[:, None] - later[None, :]
    up_to = ops.Step.build(ops.Add.build(behind, _public(limits[None])))  # rank <= 0, 1, ...
    if count == 1:
        return up_to
    lower = ops.Slice.build(
        up_to, shape=(rows, count - 1, extent), starts=(0, 0, 0), steps=(1, 1, 1)
    )
    none = ops.Pad.build(lower, low=(0, 1, 0), high=(0, 0, 0), value=0.0)
    return ops.Sub.build(up_to, none)


def _picked(hot: ir.Value, values: ir.Value | NDArray[np.float32]) -> ir.Value:
    """[rows, count]: of each row's values those that `hot` has ones for; public ones are whole."""
    rows, count, extent = shape_of(hot)
    if not isinstance(values, np.ndarray):
        column = ops.Reshape.build(values, shape=(rows, extent, 1))
        return ops.Reshape.build(ops.Matmul.build(hot, column), shape=(rows, count))
    high, low = np.divmod(values, MAX_FACTOR)
    made = ops.Matmul.build(hot, _public(low.reshape(extent, 1)))
    if high.any():  # factors that cost no truncation end at MAX_FACTOR
        thousands = ops.Matmul.build(hot, _public(high.reshape(extent, 1)))
        made = ops.Add.build(ops.Mul.build(thousands, ops.constant(float(MAX_FACTOR))), made)
    return ops.Reshape.build(made, shape=(rows, count))


def _columns(x: ir.Value, start: int, count: int) -> ir.Value:
    rows = shape_of(x)[0]
    return ops.Slice.build(x, shape=(rows, count), starts=(0, start), steps=(1, 1))


def _public(value: NDArray[np.floating]) -> ir.Value:
    return ops.Constant.build(value=np.ascontiguousarray(value, dtype=np.float32))
