"""A model is trained by parties whose kernels are CUDA's, on the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from training_cases import DATA, RATE, SUITES, X, Y, logistic

import veilgraph
from veilgraph.runtime.simulate import simulate_many
from veilgraph.training.batches import RowOrder
from veilgraph.training.plan_steps import Batches

BATCH, STEPS = 8, 2


@pytest.mark.parametrize("suite", ["rep3", pytest.param("additive", marks=pytest.mark.slow)])
def test_steps_on_the_emulator_are_those_of_float32(suite: str, emulator_cache: None) -> None:
    """Two steps from zero, with momentum, and the parameters at the end."""
    plan, weights = veilgraph.compile_training(
        logistic(),
        DATA,
        loss="cross_entropy",
        batch=BATCH,
        optimizer=veilgraph.SGD(momentum=0.5),
        rate=RATE,
        steps=4,
        reveal={"parameters": "alice"},
        audit=False,
        **SUITES[suite],
    )
    order = RowOrder.of_all(len(Y), BATCH, 0)
    one_hot = np.eye(3, dtype=np.float32)[Y]
    w, u = np.zeros((7, 3)), np.zeros((7, 3))  # the last row is the bias
    runs = list[dict[str, Any]]()
    for rows, factors in Batches.of(plan, order, lambda step: RATE).steps(0, STEPS):
        x, y = X[rows[""]], one_hot[rows[""]]
        whole = np.column_stack([x, np.ones(BATCH)])
        z = np.exp(whole @ w)
        u = 0.5 * u + RATE * whole.T @ (z / z.sum(axis=1, keepdims=True) - y) / BATCH
        w = w - u
        runs.append({"x": x, "labels": y, **factors})
    entries = ["start", *["step"] * STEPS, "reveal"]
    answer = simulate_many(plan, weights, [{}, *runs, {}], entries=entries, device="host-emulator")
    told = answer.runs[-1].outputs
    assert told["w"] == pytest.approx(w[:-1], abs=0.005)
    assert told["b"] == pytest.approx(w[-1], abs=0.005)
