"""Parties over TLS that add noise: each its own part, afresh in each session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from test_trainer import Parties
from training_cases import BATCH, DATA, RATE, STEPS, SUITES, logistic

import veilgraph
from veilgraph.runtime.store.weights import save_weights

SPREAD = 0.2


def test_two_sessions_add_other_noise(tmp_path: Path) -> None:
    """The parameters of both differ by it alone: rows and their order are the same."""
    parties = Parties(tmp_path, "rep3")
    parties.plan, weights = veilgraph.compile_training(
        logistic(),
        DATA,
        loss="cross_entropy",
        batch=BATCH,
        rate=RATE,
        steps=STEPS,
        noise=SPREAD,
        reveal={"parameters": "alice"},
        owners={"labels": "bob"},
        **SUITES["rep3"],
    )
    save_weights(weights, tmp_path / "model.weights", parties.plan.digest)
    none: dict[str, Any] = {name: {"checkpoint": None} for name in parties.files}
    found = [
        parties.run(lambda t, name: (t.fit(rate=RATE, steps=4), t.reveal())[1], **none)["alice"]
        for _ in range(2)
    ]
    apart = np.concatenate([(found[0][name] - found[1][name]).ravel() for name in found[0]])
    wanted = RATE * SPREAD * np.sqrt(4 * 2 * 3 / 2)  # steps, sessions, parts of half the variance
    assert 0.4 * wanted < np.sqrt((apart**2).mean()) < 1.8 * wanted
