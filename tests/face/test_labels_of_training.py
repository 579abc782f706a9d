"""Labels that losses compare with: shares of classes, weights of rows, and what are no labels."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from training_cases import BATCH, CLASSES, RATE, ROWS, Perceptron, X, Y, logistic

import veilgraph
from veilgraph.ir.errors import UsageError
from veilgraph.training.batches import orders

STEPS = 10
ONE_HOT = np.eye(CLASSES, dtype=np.float32)[Y]
WEIGHTS = np.array([1.0, 3.0, 0.5], np.float32)  # of the classes
SHARES = np.random.default_rng(3).dirichlet(np.ones(CLASSES), ROWS).astype(np.float32)


def compiled(labels: Any, **options: Any) -> tuple[veilgraph.Plan, Any]:
    model = Perceptron().train()
    given: dict[str, Any] = {"loss": "cross_entropy", "batch": BATCH, "steps": STEPS} | options
    told = {"parameters": "alice", "loss": "alice"}
    return veilgraph.compile_training(
        model, {"x": X, "labels": labels}, rate=RATE, reveal=told, **given
    )


def by_torch(labels: np.ndarray[Any, Any]) -> tuple[list[float], dict[str, Any]]:
    model, losses = Perceptron().train(), []
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    for rows in islice(orders(ROWS, BATCH, 0), STEPS):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(torch.tensor(X[rows])), torch.tensor(labels[rows]))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: x.detach().numpy() for name, x in model.named_parameters()}


@pytest.mark.parametrize("labels", [SHARES, ONE_HOT * WEIGHTS], ids=["shares", "weights"])
def test_rows_of_labels_train_as_in_torch(labels: np.ndarray[Any, Any]) -> None:
    """A row that sums to s weighs s, in its loss and in what it changes."""
    plan, weights = compiled(labels)
    rows = {"x": X, "labels": labels}
    found = veilgraph.simulate_training(plan, weights, rows, rate=RATE, steps=STEPS)
    losses, parameters = by_torch(labels)
    assert found.losses == pytest.approx(losses, abs=0.01)
    for name, wanted in parameters.items():
        assert found.parameters[name] == pytest.approx(wanted, abs=0.01)
    rehearsed = veilgraph.rehearse(plan, weights, Perceptron().train(), rows, rate=RATE)
    real, fixed = rehearsed.epochs[-1]
    assert fixed.loss == pytest.approx(real.loss, abs=0.01)


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (ONE_HOT * WEIGHTS, r"The label of row \d+ sums to (3|0\.5), and not to 1"),
        (ONE_HOT - 0.5 * ONE_HOT[::-1], r"The label of row \d+ is below 0"),
    ],
)
def test_rows_that_a_plan_was_not_made_for(labels: np.ndarray[Any, Any], told: str) -> None:
    """They would train by another derivative, and nobody would see it."""
    plan, weights = compiled(Y)
    with pytest.raises(UsageError, match=told):
        veilgraph.simulate_training(plan, weights, {"x": X, "labels": labels}, rate=RATE, steps=1)


@pytest.mark.parametrize("wrong", [2.0, -1.0])
def test_what_is_no_chance_of_two(wrong: float) -> None:
    labels = (ONE_HOT > 0).astype(np.float32)
    labels[7, 1] = wrong
    with pytest.raises(UsageError, match="The label of row 7 is no number from 0 to 1"):
        veilgraph.compile_training(
            logistic(), {"x": X, "labels": labels}, loss="binary_cross_entropy", batch=BATCH
        )
