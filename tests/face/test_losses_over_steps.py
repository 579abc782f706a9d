"""The mean loss of several steps is told, and no step's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from training_cases import BATCH, DATA, RATE, SUITES, Perceptron, by_torch

import veilgraph
from veilgraph.ir.errors import UsageError
from veilgraph.training.plan_steps import inputs_of

EVERY, STEPS = 5, 12
OPTIMIZER = veilgraph.SGD(momentum=0.5, weight_decay=0.01)


def compiled(suite: str, **options: Any) -> tuple[veilgraph.Plan, Any]:
    given = {"loss_every": EVERY, "reveal": {"loss": "bob"}} | options
    return veilgraph.compile_training(
        Perceptron().train(),
        DATA,
        loss="cross_entropy",
        batch=BATCH,
        optimizer=OPTIMIZER,
        rate=RATE,
        steps=STEPS,
        **SUITES[suite],
        **given,
    )


@pytest.mark.parametrize("suite", SUITES)
def test_means_of_losses_are_told(suite: str) -> None:
    """After 5 steps and after 10, and nothing of the last two."""
    plan, weights = compiled(suite)
    found = veilgraph.simulate_training(plan, weights, DATA, rate=RATE, steps=STEPS)
    losses, _ = by_torch("perceptron", [RATE] * STEPS)
    assert found.losses == pytest.approx([np.mean(losses[:5]), np.mean(losses[5:10])], abs=0.02)
    number = plan.manifest.entries.index("step")
    told = {t.name for p in plan.programs.values() for t in p.outputs if t.entry == number}
    assert "loss" not in told
    assert inputs_of(plan, "loss") == []


def test_a_rehearsal_sums_no_further_than_parties_do() -> None:
    plan, weights = compiled("rep3")
    model = Perceptron().train()
    found = veilgraph.rehearse(plan, weights, model, DATA, rate=RATE)
    assert found.status() is None


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"loss_every": 0}, "A loss after each 0 steps makes no sense"),
        ({"reveal": {"parameters": "bob"}}, "after each 5 steps, and nobody receives it"),
    ],
)
def test_intervals_that_make_no_sense(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        compiled("rep3", **options)
