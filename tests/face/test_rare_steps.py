"""A step unlike the others: its values fit, though calibration was shown none of its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from training_cases import BATCH, ROWS, SUITES, X

import veilgraph
from veilgraph.training import rehearsal
from veilgraph.training.batches import orders

RARE, STEPS, RATE = 4, 10, 0.01  # of ten steps, which see each row once; the first is step 0


class Regression(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.hidden, self.last = nn.Linear(X.shape[1], 8), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.hidden(x)))


def labels() -> Any:
    """What the model says of each row as training begins, nearly; of a step's rows the opposite."""
    with torch.no_grad():
        known = Regression()(torch.from_numpy(X)).numpy()
    known += 0.005 * np.random.default_rng(1).standard_normal((ROWS, 1)).astype(np.float32)
    rows = [order for order, _ in zip(orders(ROWS, BATCH, 0), range(STEPS), strict=False)][RARE]
    known[rows] *= -1
    return known


@pytest.mark.parametrize("suite", SUITES)
def test_a_step_that_no_sample_is_of(suite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its loss and its gradients are hundreds of times those of the four steps that are kept."""
    monkeypatch.setattr(rehearsal, "MOST_KEPT", 0)
    data = {"x": X, "labels": labels()}
    plan, weights = veilgraph.compile_training(
        Regression().train(),
        data,
        loss="mse",
        batch=BATCH,
        optimizer=veilgraph.SGD(momentum=0.5),
        rate=RATE,
        steps=STEPS,
        reveal={"parameters": "alice", "loss": "alice"},
        **SUITES[suite],
    )
    found = veilgraph.simulate_training(plan, weights, data, rate=RATE, steps=STEPS)
    module = Regression().train()
    optimizer = torch.optim.SGD(module.parameters(), RATE, momentum=0.5)
    losses = []
    for order, _ in zip(orders(ROWS, BATCH, 0), range(STEPS), strict=False):
        optimizer.zero_grad()
        z = module(torch.from_numpy(X[order]))
        loss = nn.functional.mse_loss(z, torch.from_numpy(data["labels"][order]))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[RARE] > 100 * losses[0]
    assert np.abs(np.array(found.losses) - losses).max() < 0.01
    for name, wanted in module.state_dict().items():
        assert np.abs(found.parameters[name] - wanted.numpy()).max() < 0.002
