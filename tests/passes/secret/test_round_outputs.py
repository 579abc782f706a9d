"""Outputs are rounded to what the error allowed leaves; what cannot be, or need not, stays."""

from __future__ import annotations

import numpy as np
import pytest
from before_after import example, listing
from models import model
from onnx import ModelProto, helper
from torch_mlir import ir

import veilgraph
from veilgraph.checks.checking import check
from veilgraph.ir.mlir import context
from veilgraph.ir.plan.tables import Phase
from veilgraph.ir.secret import ops as secret_ops
from veilgraph.ir.secret.program import Argument, SecretProgram
from veilgraph.ir.secret.types import Encoding, RangeSource, RealRange, Tensor
from veilgraph.passes.secret.exact_rounding import ExactRounding
from veilgraph.passes.secret.round_outputs import RoundOutputs, enough_bits
from veilgraph.reports.text import plan_outputs

WEIGHTS = {"w": np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)}
SAMPLES = {"x": np.random.default_rng(1).normal(size=(4, 8, 4)).astype(np.float32)}
KNOWN = RealRange(-3.0, 5.0, RangeSource.CALIBRATED)


def dense(*more: helper.NodeProto) -> ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a" if more else "y"], "fc"), *more]
    return model(nodes, {"x": (8, 4)}, ["y"], WEIGHTS)


def secret(*, deferred: bool) -> SecretProgram:
    """One product, with 26 fraction bits; or a fused ReLU of it."""
    tensors = [Tensor(shape, Encoding(40, 13)) for shape in ((1, 4), (4, 3))]
    given = [
        Argument(name, role, "alice", tensor, KNOWN)
        for (name, role), tensor in zip((("x", "input"), ("w", "weight")), tensors, strict=True)
    ]
    program = SecretProgram.create(context(), given, WEIGHTS, margin=2.0)
    with program.at("fc"):
        y: ir.Value = secret_ops.Matmul.build(*program.block.arguments, range=KNOWN)
        if not deferred:
            named = {"bits": 9, "window_bits": 20, "dropped_bits": 9}
            stated = secret_ops.Stated(ring_bits=24)
            y = secret_ops.TruncateRelu.build(y, range=KNOWN, stated=stated, **named)
    program.finish({"y": y})
    return program


def test_the_example() -> None:
    rounded = RoundOutputs({"y": 9}).run(secret(deferred=True))
    assert example(RoundOutputs, "After").splitlines()[:2] == listing(rounded).splitlines()
    assert Tensor.of(rounded.outputs["y"]).encoding == Encoding(40 - 17, 9)
    assert listing(RoundOutputs({"y": 26}).run(secret(deferred=True))) == example(
        RoundOutputs, "Before"
    ).removesuffix("\nreturn %1")


def test_exact_rounding_is_two_steps_where_it_was_one() -> None:
    exact = ExactRounding().run(secret(deferred=False))
    kinds = [op.operation.name for op in exact.operations]
    assert kinds == ["secret.matmul", "secret.round_off", "secret.relu"]


def test_exact_signs_look_at_all_bits() -> None:
    """What passes for positive just below zero would depend on a threshold."""
    program = secret(deferred=True)
    (y,) = program.outputs.values()
    program.reopen()
    window = {"window_bits": 30, "dropped_bits": 12}
    with program.at("signs"):
        signs = {
            "step": secret_ops.Step.build(y, range=KNOWN, stated=secret_ops.Stated(), **window),
            "relu": secret_ops.Relu.build(y, range=KNOWN, stated=secret_ops.Stated(), **window),
        }
    program.finish(signs)
    exact = ExactRounding().run(program)
    windows = [secret_ops.attributes_of(op) for op in exact.operations][1:]
    assert [(w["window_bits"], w["dropped_bits"]) for w in windows] == [(39, 0), (39, 0)]


@pytest.mark.parametrize(
    ("size", "allowed", "bits"),
    [(1.0, 0.005, 9), (0.001, 0.005, 19), (1.0, 1e-4, 14), (1e6, 0.005, 0), (0.0, 0.005, 16)],
)
def test_bits_follow_from_the_error_and_the_size(size: float, allowed: float, bits: int) -> None:
    assert enough_bits(size, allowed) == bits


@pytest.mark.parametrize("suite", ["rep3", "additive", "cleartext"])
@pytest.mark.parametrize(
    ("options", "bits"),
    [
        ({"calibrate": SAMPLES}, 9),
        ({"calibrate": SAMPLES, "max_error": 0.05}, 5),
        ({"calibrate": SAMPLES, "ring": 64}, 14),
        ({"calibrate": SAMPLES, "frac_bits": 6}, 6),
        ({}, 16),
    ],
)
def test_in_every_suite(suite: str, options: dict[str, object], bits: int) -> None:
    dealer = {"dealer": "dave"} if suite == "additive" else {}
    plan, weights = veilgraph.compile(dense(), suite=suite, **dealer, **options)  # type: ignore[arg-type]
    (output,) = plan_outputs(plan)
    assert abs(output.frac_bits - bits) <= (1 if "calibrate" in options else 0)
    found = veilgraph.simulate(plan, weights, {"x": SAMPLES["x"][0]}).outputs["y"]
    assert (np.ldexp(found, output.frac_bits) % 1 == 0).all()
    wanted = SAMPLES["x"][0] @ WEIGHTS["w"]
    assert np.abs(found - wanted).max() <= 1.5 * 2.0**-output.frac_bits + 0.1


def test_it_costs_one_round_and_few_bytes() -> None:
    """Two products' bits, and one of what is left, an element; K of it offline."""
    plan, _ = veilgraph.compile(dense(), calibrate=SAMPLES)
    exact, _ = veilgraph.compile(dense(), calibrate=SAMPLES, frac_bits=9, ring=32)
    assert plan.rounds(Phase.ONLINE) == exact.rounds(Phase.ONLINE) == 3
    assert [layer.op for layer in plan.layers if layer.name == "y"] == ["reveal"]


def test_decisions_and_integers_are_exact() -> None:
    samples = {"x": SAMPLES["x"] * 100}
    for more in (helper.make_node("ArgMax", ["a"], ["y"], axis=1, keepdims=0),
                 helper.make_node("Round", ["a"], ["y"])):  # fmt: skip
        plan, weights = veilgraph.compile(dense(more), calibrate=samples)
        found = veilgraph.simulate(plan, weights, {"x": samples["x"][0]}).outputs["y"]
        assert (found % 1 == 0).all()
    plan, _ = veilgraph.compile(dense(), calibrate=SAMPLES, reveal_as="topk:2")
    assert not [op for op in plan.ir["secret"].splitlines() if "as revealed" in op]


def test_two_receivers_get_the_same_numbers() -> None:
    both = {"y": ("alice", "carol")}
    plan, weights = veilgraph.compile(dense(), calibrate=SAMPLES, receivers=both)
    run = veilgraph.simulate(plan, weights, {"x": SAMPLES["x"][0]})
    assert "y" in run.outputs
    assert {t.frac_bits for p in plan.programs.values() for t in p.outputs} <= {8, 9, 10}


def test_no_layer_drifts_by_it() -> None:
    plan, weights = veilgraph.compile(dense(), calibrate=SAMPLES, max_error=0.2)
    found = check(plan, weights, dense(), SAMPLES, tolerance=0.01)
    assert [layer.name for layer in found.layers] == ["fc"]
    assert found.layers[0].relative < 0.01
