"""Networks in several rings on native interpreters: every suite, bit for bit as the oracle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from conformance import SETTINGS, Setting
from interpreters import check_interpreters
from torch_mlir import ir

from veilgraph.ir.graph import ops
from veilgraph.ir.graph.program import Graph
from veilgraph.ir.meaning import integers
from veilgraph.ir.meaning import secret as exact
from veilgraph.ir.mlir import context
from veilgraph.ir.secret.program import SecretProgram
from veilgraph.ir.secret.types import Tensor
from veilgraph.passes.encode.encode_fixed_point import EncodeFixedPoint
from veilgraph.passes.encode.scales.fraction_bits import ScaleProblem, Trial
from veilgraph.passes.graph.infer_visibility import InferVisibility
from veilgraph.passes.party.batch_rounds import batch_rounds
from veilgraph.passes.party.expand_protocols import expand_protocols
from veilgraph.passes.party.verify_masking import coalitions, verify_masking
from veilgraph.passes.ranges.calibrate import calibrate
from veilgraph.passes.secret.choose_comparison import ChooseComparison
from veilgraph.passes.secret.merge_truncations import MergeTruncations

CONV = {"strides": (1, 1), "pads_low": (1, 1), "pads_high": (1, 1), "dilations": (1, 1)}
POOL = {"kernel": (2, 2), "strides": (2, 2), "pads_low": (0, 0), "pads_high": (0, 0)}
SHAPE = (1, 3, 6, 6)


def residual() -> Graph:
    """Convolutions with a residual, both kinds of pools, and a dense layer."""
    generator = np.random.default_rng(1)
    shapes = {"k": (4, 3, 3, 3), "l": (4, 4, 3, 3), "c": (4,), "d": (36, 5)}
    weights = {n: 0.3 * generator.standard_normal(s) for n, s in shapes.items()}
    graph = Graph.create(context(), {"x": SHAPE}, weights)
    p, x = graph.parameters, graph.inputs["x"]
    with graph.end("first"):
        first = ops.Relu.build(ops.Conv.build(x, p["k"], bias=p["c"], groups=1, **CONV))
    with graph.end("second"):
        second = ops.Add.build(ops.Conv.build(first, p["l"], bias=None, groups=1, **CONV), first)
    with graph.end("pooled"):
        pooled = ops.MaxPool.build(ops.Relu.build(second), dilations=(1, 1), **POOL)
    with graph.end("flat"):
        flat = ops.Reshape.build(pooled, shape=(1, 36))
    with graph.end("dense"):
        y = ops.Matmul.build(flat, p["d"])
    graph.finish({"y": y})
    return graph


@dataclass(frozen=True)
class Given(EncodeFixedPoint):
    """Every accumulator in the ring given for it, in program order."""

    rings: tuple[int, ...] = ()

    def _trial(self, problem: ScaleProblem, known: bool) -> Trial:
        return problem.attempt(dict(zip(problem.readers.accumulators, self.rings, strict=True)))


def program(setting: Setting, rings: tuple[int, ...]) -> SecretProgram:
    graph = residual()
    samples = np.random.default_rng(8).uniform(-1, 1, (4, *SHAPE)).astype(np.float32)
    owners = {"x": "alice", "weights": setting.target.parties[-1]}
    visibility = InferVisibility(owners).run(graph)
    made = Given(rings=rings).run(graph, visibility, calibrate(graph, {"x": samples}))
    return ChooseComparison().run(MergeTruncations().run(made))


def encoded(value: ir.Value, array: np.ndarray) -> np.ndarray:
    encoding = Tensor.of(value).encoding
    return integers.encode(array, encoding.frac_bits, encoding.ring_bits)


@pytest.mark.parametrize("rings", [(24, 40, 32), (40, 24, 64), (64, 32, 24), (48, 56, 32)])
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_a_network_in_several_rings(setting: Setting, rings: tuple[int, ...]) -> None:
    made = program(setting, rings)
    kept = {Tensor.of(op.operation.results[0]).encoding.ring_bits for op in made.operations}
    assert kept >= set(rings)
    target = setting.target
    expanded = expand_protocols(made, target)
    verify_masking(batch_rounds(expanded.program), coalitions(target), {"y": {0}})
    arguments = zip(made.arguments, made.block.arguments, strict=True)
    named = {argument.name: value for argument, value in arguments}
    weights = {name: encoded(named[name], array) for name, array in made.weights.items()}
    x = np.random.default_rng(9).uniform(-1, 1, SHAPE)
    (found,) = check_interpreters(expanded, [{"x": encoded(named["x"], x)}], weights)
    y = found.outputs[0, "y"].view(np.int64)
    encoding = Tensor.of(made.outputs["y"]).encoding
    real = integers.decode(integers.center(y, encoding.ring_bits), encoding.frac_bits)
    expected = exact.evaluate(made, {"x": x}, np.random.default_rng(0)).outputs["y"]
    np.testing.assert_allclose(real, expected, atol=0.1 * np.abs(expected).max())
