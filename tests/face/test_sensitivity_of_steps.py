"""How long a shortened gradient is at most: by the plan's program, against its exact integers."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, parser
from torch_mlir import ir
from training_cases import BATCH, DATA, Perceptron

import veilgraph
from veilgraph.checks.plan_programs import program_of
from veilgraph.ir.meaning.secret import evaluate
from veilgraph.ir.plan.tables import EACH
from veilgraph.ir.secret.types import Tensor
from veilgraph.training.noise.sensitivity import Sensitivity, sensitivity_of

ROWS, WIDTH = 4, 24
GENERATOR = np.random.default_rng(5)


def summed() -> ModelProto:
    """The loss is linear in w: its gradient is the mean row."""
    zeros = ", ".join(["0.0"] * WIDTH)
    return parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]>
        summed (float[{ROWS}, {WIDTH}] x) => (float[1] loss)
        <float[{WIDTH}, 1] w = {{{zeros}}}, int64[1] one = {{1}}>
        {{ y = MatMul(x, w) m = ReduceMean<keepdims = 0>(y) loss = Reshape(m, one) }}"""
    )


def rows(norm: float, count: int) -> Any:
    """Batches whose mean row is of this length."""
    mean = GENERATOR.standard_normal((count, 1, WIDTH))
    return np.repeat(norm * mean / np.linalg.norm(mean, axis=2, keepdims=True), ROWS, axis=1)


@cache
def compiled(clip_norm: float, low: float, high: float, momentum: float) -> veilgraph.Plan:
    """Rehearsed on gradients from `low` to `high`, of one direction: they do not cancel."""
    direction = rows(1.0, 1)[0, 0]
    samples = (np.geomspace(low, high, 160)[:, np.newaxis] * direction).astype(np.float32)
    plan, _ = veilgraph.compile_training(
        summed(), {"x": samples}, loss="loss", batch=ROWS, rate=0.05, steps=30, noise=0.5,
        optimizer=veilgraph.SGD(momentum=momentum), clip_norm=clip_norm, suite="cleartext",
    )  # fmt: skip
    return plan


def updates(plan: veilgraph.Plan, batches: Any, rate: float) -> list[tuple[float, float]]:
    """Of each batch, how long its mean gradient is and what a step takes of it, over the rate."""
    program = program_of(plan, 0)
    assert program is not None
    given = {a.name: np.zeros(a.tensor.shape) for a in program.arguments}
    given["step_size"] = np.array(rate / ROWS)
    (noise,) = (
        value
        for value, argument in zip(program.block.arguments, program.arguments, strict=True)
        if argument.owner == EACH
    )
    (reader,) = (use.owner for use in noise.uses)
    rounding, found = np.random.default_rng(1), []
    for x in batches:
        seen: list[float] = []

        def observe(op: ir.OpView, integers: Any, real: Any, seen: list[float] = seen) -> None:
            if op.operation == reader.operation:
                unit = 2.0 ** -Tensor.of(op.operation.results[0]).encoding.frac_bits
                seen.append(float(np.linalg.norm(np.asarray(integers, np.float64) * unit)))

        evaluate(program, {**given, "x": x}, rounding, observe=observe)
        found.append((float(np.linalg.norm(x.mean(axis=0))), seen[0] / rate))
    return found


RATE = 0.046875  # in whole units of any encoding: told as it is


@pytest.mark.parametrize(
    ("clip_norm", "low", "high", "momentum"),
    [(1.0, 0.2, 1.6, 0.0), (1.0, 0.3, 8.0, 0.9), (0.25, 1.0, 10.0, 0.0)],
)
def test_no_gradient_is_longer_than_it_says(
    clip_norm: float, low: float, high: float, momentum: float
) -> None:
    """Shorter than the limit, at its edge, and as long as the plan's numbers reach."""
    plan = compiled(clip_norm, low, high, momentum)
    found = sensitivity_of(plan, RATE)
    assert found is not None
    assert clip_norm <= found.norm < 1.4 * clip_norm
    assert found.reach > clip_norm
    near = clip_norm * np.linspace(0.98, 1.02, 300)
    far = np.geomspace(clip_norm / 4, found.reach, 500)
    batches = [rows(norm, 1)[0] for norm in np.concatenate([near, far])]
    within = [update for norm, update in updates(plan, batches, RATE) if norm <= found.reach]
    assert len(within) > 600
    assert 0.9 * clip_norm < max(within) <= found.norm


def test_it_reaches_no_further_than_the_rehearsal_did() -> None:
    """Gradients that were never shortened there: a longer one passes, or wraps around."""
    plan = compiled(1.0, 0.1, 0.5, 0.0)
    found = sensitivity_of(plan, RATE)
    assert found is not None
    assert found.reach < 1.0
    far = updates(plan, [rows(norm, 1)[0] for norm in np.linspace(1.0, 1.4, 40)], RATE)
    assert max(update for _, update in far) > found.norm


def test_a_lower_rate_is_rounded_more() -> None:
    plan = compiled(0.25, 1.0, 10.0, 0.0)
    reaches = [sensitivity_of(plan, rate).reach for rate in (RATE, RATE / 64)]  # type: ignore[union-attr]
    assert reaches[1] < reaches[0]


def test_what_noise_gives() -> None:
    """rho = (2 C')^2 / (2 sigma^2): Canonne, Kamath, Steinke 2020, theorem 4."""
    found = Sensitivity(norm=1.5, reach=2.0)
    assert found.of_a_row == 3.0
    assert found.rho(spread=3.0) == 0.5


@pytest.mark.parametrize("options", [{"noise": 0.05}, {"clip_norm": 1.0}])
def test_without_noise_or_a_limit_nothing_is_said(options: dict[str, float]) -> None:
    plan, _ = veilgraph.compile_training(
        Perceptron().train(), DATA, loss="cross_entropy", batch=BATCH, steps=4, **options
    )
    assert sensitivity_of(plan, 0.1) is None


def test_a_rehearsal_tells_it() -> None:
    plan, weights = veilgraph.compile_training(
        Perceptron().train(), DATA, loss="cross_entropy", batch=BATCH, rate=0.1, steps=20,
        noise=0.05, clip_norm=0.3,
    )  # fmt: skip
    found = veilgraph.rehearse(plan, weights, Perceptron().train(), DATA, rate=0.1)
    assert found.sensitivity == sensitivity_of(plan, 0.1)
    assert "Another row in place of one moves" in found.noise_line
