"""Random programs of the graph level through all passes to fixed point, against real numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from torch_mlir import ir

from veilgraph.ir.attributes import shape_of
from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.legality import check_graph, check_secret
from veilgraph.ir.meaning.graph import evaluate as evaluate_graph
from veilgraph.ir.meaning.secret import evaluate
from veilgraph.ir.mlir import context
from veilgraph.passes.encode.encode_fixed_point import EncodeFixedPoint
from veilgraph.passes.encode.scales.fraction_bits import ScaleProblem, Trial
from veilgraph.passes.graph.approximate import Approximate
from veilgraph.passes.graph.fold_divisors import FoldDivisors
from veilgraph.passes.graph.infer_visibility import InferVisibility
from veilgraph.passes.graph.public_factors import constant
from veilgraph.passes.ranges.calibrate import assume, calibrate
from veilgraph.passes.secret.choose_comparison import ChooseComparison
from veilgraph.passes.secret.merge_truncations import MergeTruncations

SAME = {"strides": (1, 1), "pads_low": (1, 1), "pads_high": (1, 1)}
WINDOW = {"kernel": (3, 3), **SAME}


class Growing:
    """A program that grows by random operations on images of four channels."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)
        shapes = {f"k{i}": (4, 4, 3, 3) for i in range(6)} | {f"b{i}": (4,) for i in range(6)}
        shapes |= {"scale": (4, 1, 1), "dense": (4, 5)}
        weights = {
            name: self.generator.standard_normal(shape) / math.sqrt(math.prod(shape[1:]) or 1)
            for name, shape in shapes.items()
        }
        self.graph = Graph.create(context(), {"x": (1, 4, 6, 6), "z": (1, 4, 6, 6)}, weights)
        self.values = list(self.graph.inputs.values())
        self.kernels = iter(range(6))

    def grow(self, steps: int) -> Graph:
        for number in range(steps):
            with self.graph.end(f"op{number}"):
                self.values.append(self.step())
        with self.graph.end("last"):
            pooled = ops.ReduceMean.build(self.values[-1], axes=(2, 3), keepdims=False)
            y = ops.Matmul.build(pooled, self.graph.parameters["dense"])
        self.graph.finish({"y": y, "also": self.values[-2]})
        return self.graph

    def pick(self) -> ir.Value:
        """A value, the latest more often than others."""
        back = min(int(self.generator.geometric(0.5)), len(self.values))
        return self.values[-back]

    def step(self) -> ir.Value:
        x, y, p = self.pick(), self.pick(), self.graph.parameters
        choice = int(self.generator.integers(0, 17))
        if choice < 4 and (number := next(self.kernels, None)) is not None:
            bias = p[f"b{number}"] if choice % 2 else None
            dilations = {"dilations": (1, 1), "groups": 1}
            return ops.Conv.build(x, p[f"k{number}"], bias=bias, **SAME, **dilations)
        if choice < 8:
            return ops.Relu.build(x)
        match choice:
            case 8:
                return ops.Add.build(x, y)
            case 9:
                return ops.Sub.build(x, y)
            case 10:
                return ops.Mul.build(x, constant(float(self.generator.choice([0.5, -0.3, 0.1])), x))
            case 11:
                return ops.Clip.build(x, min=-0.5, max=0.8)
            case 12:
                return ops.MaxPool.build(x, dilations=(1, 1), **WINDOW)
            case 13:
                return ops.AvgPool.build(x, count_include_pad=bool(choice % 2), **WINDOW)
            case 14:
                return self.joined(x, y)
            case 15:
                return ops.Mul.build(x, p["scale"])
            case _:
                return ops.Maximum.build(x, y)

    def joined(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """Half of one and half of the other."""
        halves = [
            ops.Slice.build(v, starts=(0, first, 0, 0), steps=(1, 1, 1, 1), shape=(1, 2, 6, 6))
            for v, first in ((x, 0), (y, 2))
        ]
        return ops.concat(halves, 1)


@dataclass(frozen=True)
class RandomRings(EncodeFixedPoint):
    """Every accumulator in a ring of its own, chosen at random."""

    seed: int = 0

    def _trial(self, problem: ScaleProblem, known: bool) -> Trial:
        generator = np.random.default_rng(self.seed)
        accumulators = problem.readers.accumulators
        return problem.attempt({u: int(generator.choice([40, 48, 56, 64])) for u in accumulators})


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed: int) -> None:
    """In one ring, in rings as chosen, and in any rings at all."""
    graph = Growing(seed).grow(8 + seed % 12)
    generator = np.random.default_rng(seed + 1000)
    samples = {
        name: generator.uniform(-1, 1, (3, *shape_of(value))).astype(np.float32)
        for name, value in graph.inputs.items()
    }
    one = {name: array[0] for name, array in samples.items()}
    expected = evaluate_graph(graph, one, dtype=np.float64)
    FoldDivisors().run(Approximate().run(graph))
    check_graph(graph, encodable=True)
    owners = dict.fromkeys(graph.inputs, "alice") | {"weights": "bob"}
    visibility = InferVisibility(owners).run(graph)
    known = calibrate(graph, samples)
    for encode, ranges, bound in (
        (EncodeFixedPoint(ring_bits=32), known, 0.03),
        (EncodeFixedPoint(ring_bits=64), known, 2e-3),
        (EncodeFixedPoint(max_error=1e-3), known, 0.01),
        (RandomRings(seed=seed), known, 0.01),
        (EncodeFixedPoint(ring_bits=64), assume(graph), 2e-3),
    ):
        program = encode.run(graph, visibility, ranges)
        check_secret(program)
        program = ChooseComparison().run(MergeTruncations().run(program))
        check_secret(program)
        found = evaluate(program, one, generator)
        # Ranges that are zero but for the last digits of float32 aren't meant.
        assert [e for e in found.excursions if max(-e.low, e.high) > 0.01] == []
        for name, value in expected.items():
            difference = np.abs(found.outputs[name] - value).max()
            assert difference < bound * max(1.0, np.abs(value).max()), encode
