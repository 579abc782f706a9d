"""A quantised model's clips are left out where the samples never reach them.

    clip to [-1, 127/128], samples in [-0.9, 0.97]   ->  nothing
    clip to [0, 255/256], samples in [-2, 0.97]      ->  a ReLU

A quantiser clips every tensor to what its integers can say, and mostly takes those ends from where
the values were. Such a clip costs two comparisons and does nothing. One that takes the place of a
ReLU acts on the samples, and stays. A value may be beyond a bound by a step of its integers: the
roundings before it, which are left out as well, move it by as much.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray
from torch_mlir import ir

from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph, defining, name_of
from veilgraph.ir.meaning.graph import evaluate

Array = NDArray[np.float32]
MOST_SHOWN = 8  # names, in a sentence


class End(Enum):
    """Which end of a clip a bound is."""

    LOWER = "lower"
    UPPER = "upper"


@dataclass(frozen=True)
class DroppedClips:
    """Bounds of quantisers that were left out, and how many there were.

    Attributes:
        names: the quantisers, in program order; one that lost both ends is there once.
    """

    names: tuple[str, ...] = ()
    bounds: int = 0
    all_bounds: int = 0

    def __str__(self) -> str:
        shown = ", ".join(self.names[:MOST_SHOWN])
        more = ", ..." if len(self.names) > MOST_SHOWN else ""
        return (
            f"{self.bounds} of {self.all_bounds} bounds of quantisers' clips are left out, which "
            f"no sample reaches: {shown}{more}"
        )


@dataclass(frozen=True)
class DropClips:
    """Drops what no sample reaches; without samples, nothing.

    Here quantiser `q` clips to [w, h], which is [-4, 4]. Its step is 0.5, and x lies in [-3, 5] on
    the samples.

    Before::

        func.func @main(%x: tensor<2xf32> {graph.name = "x", graph.role = "input"},
            %w: tensor<f32> {graph.name = "w", graph.role = "weight"},
            %h: tensor<f32> {graph.name = "h", graph.role = "weight"})
            -> (tensor<2xf32> {graph.name = "y"}) {
          %0 = "graph.maximum"(%x, %w) : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32> loc("q/max")
          %1 = "graph.sub"(%x, %h) : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32> loc("q/sub")
          %2 = "graph.relu"(%1) : (tensor<2xf32>) -> tensor<2xf32> loc("q/relu")
          %3 = "graph.sub"(%0, %2) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32> loc("q")
          return %3 : tensor<2xf32>
        }

    After::

        func.func @main(%x: tensor<2xf32> {graph.name = "x", graph.role = "input"},
            %h: tensor<f32> {graph.name = "h", graph.role = "weight"})
            -> (tensor<2xf32> {graph.name = "y"}) {
          %0 = "graph.sub"(%x, %h) : (tensor<2xf32>, tensor<f32>) -> tensor<2xf32> loc("q/sub")
          %1 = "graph.relu"(%0) : (tensor<2xf32>) -> tensor<2xf32> loc("q/relu")
          %2 = "graph.sub"(%x, %1) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32> loc("q")
          return %2 : tensor<2xf32>
        }

    Attributes:
        samples: inputs by name, samples on a new first axis.
    """

    samples: Mapping[str, Array]

    def run(self, graph: Graph) -> DroppedClips:
        """What was dropped from `graph`, which is changed in place."""
        bounds = list(_bounds(graph))
        beyond = self._beyond(graph, bounds) if bounds else []
        idle = [
            bound
            for bound, most in zip(bounds, beyond, strict=True)
            if most <= graph.clips[bound.clip].slack
        ]
        for bound in sorted(idle, key=lambda each: each.end is End.LOWER):
            bound.drop(graph)
        graph.tidy()
        return DroppedClips(tuple(dict.fromkeys(b.clip for b in idle)), len(idle), len(bounds))

    def _beyond(self, graph: Graph, bounds: list[_Bound]) -> list[float]:
        """How far the samples are beyond each bound; negative where all are within it."""
        beyond = [-np.inf] * len(bounds)
        arguments = {value: name for name, value in graph.inputs.items()}
        by_name = defaultdict[str, list[int]](list)
        for place, bound in enumerate(bounds):
            x = bound.compared[0]
            by_name[arguments.get(x, "") or name_of(defining(x))].append(place)

        def observe(name: str, value: Array) -> None:
            for place in by_name.get(name, ()):
                limit = _weight(graph, bounds[place].compared[1])
                over = value - limit if bounds[place].end is End.UPPER else limit - value
                beyond[place] = max(beyond[place], float(over.max(initial=-np.inf)))

        for number in range(min(len(array) for array in self.samples.values())):
            sample = {name: array[number] for name, array in self.samples.items()}
            for name, array in sample.items():
                observe(name, array)
            evaluate(graph, sample, observe)
        return beyond


@dataclass(frozen=True)
class _Bound:
    """One end of a clip.

    Attributes:
        clip: the quantiser's name.
        op: the maximum or minimum, or the difference that takes off what is above.
        compared: the value, and what it is compared with.
    """

    clip: str
    end: End
    op: ir.OpView
    compared: tuple[ir.Value, ir.Value]

    def drop(self, graph: Graph) -> None:
        kept = self.compared[0] if self.end is End.LOWER else self.op.operation.operands[0]
        left = defining(kept)
        graph.replace(self.op, kept)
        if left is not None and _clip_of(left, graph) == self.clip:
            _alone(graph, left, self.clip)


def _alone(graph: Graph, op: ir.OpView, clip: str) -> None:
    """What is left of a clip gets its name; a maximum of zero is a ReLU."""
    op.location = ir.Location.name(clip, context=op.operation.context)
    if not isinstance(op, ops.Maximum):
        return
    x, limit = op.operation.operands
    if not _weight(graph, limit).any():
        with graph.before(op):
            relu = ops.Relu.build(x)
        graph.replace(op, relu)


def _bounds(graph: Graph) -> Iterator[_Bound]:
    """The bounds of all quantisers' clips, in program order."""
    weights = set(graph.parameters.values())
    for op in graph.operations:
        clip = _clip_of(op, graph)
        if not clip:
            continue
        first, second = (*op.operation.operands, None)[:2]
        if isinstance(op, ops.Maximum) and second in weights and graph.clips[clip].has_lower:
            yield _Bound(clip, End.LOWER, op, (first, second))
        if isinstance(op, ops.Minimum) and second in weights:
            yield _Bound(clip, End.UPPER, op, (first, second))
        if isinstance(op, ops.Sub) and (above := _over(second)) and above[1] in weights:
            yield _Bound(clip, End.UPPER, op, above)


def _weight(graph: Graph, value: ir.Value) -> Array:
    return graph.weights[next(name for name, found in graph.parameters.items() if found == value)]


def _over(value: ir.Value) -> tuple[ir.Value, ir.Value] | None:
    """(x, limit) of relu(x - limit)."""
    relu = defining(value)
    difference = defining(relu.operation.operands[0]) if isinstance(relu, ops.Relu) else None
    if not isinstance(difference, ops.Sub):
        return None
    x, limit = difference.operation.operands
    return x, limit


def _clip_of(op: ir.OpView, graph: Graph) -> str:
    """The quantiser whose clip the operation is a part of; "" for none."""
    name = name_of(op)
    stem = name.rpartition("/")[0]
    return next((each for each in (name, stem) if each in graph.clips), "")
