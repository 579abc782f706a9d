"""Parties over TLS whose rows are shared once: trained, saved, resumed, told nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_trainer import Parties
from training_cases import DATA, RATE, ROWS, SUITES, by_torch, trained

from veilgraph.ir.plan.tables import Phase
from veilgraph.runtime.store.state_files import layout_of
from veilgraph.runtime.store.weights import save_weights


@pytest.mark.parametrize("suite", SUITES)
def test_parties_share_again_when_they_resume(suite: str, tmp_path: Path) -> None:
    """Checkpoints hold no rows; each session shares them once, and its steps send none."""
    parties = Parties(tmp_path, suite, share_once=True)
    entries = parties.plan.manifest.entries

    def act(trainer: Any, name: str) -> Any:
        losses = trainer.fit(rate=RATE, steps=6, every=3) + trainer.fit(rate=RATE, steps=2, every=1)
        ran = trainer.session.transcripts
        sent = sum(sum(t.phases[Phase.ONLINE].sent_bytes.values()) for t in ran)
        return losses, len(ran), sent, trainer.reveal()

    first, second = parties.run(act), parties.run(act, resumes=True)
    losses, wanted = by_torch("logistic", [RATE] * 16)
    told = first["alice"][0] + second["alice"][0]
    assert np.abs(np.array(told) - losses).max() < 0.1
    for name, array in wanted.items():
        assert np.abs(second["alice"][3][name] - array).max() < 0.05
    runs = {"step": 8, "share": -(-ROWS // 16)}
    for found, others in ((first, {"start": 1, "audit": 4}), (second, {"audit": 5})):
        every = runs | others
        assert found["bob"][1] == sum(every.values())
        planned = (
            count * sum(parties.plan.sent_bytes(Phase.ONLINE, entries.index(entry)).values())
            for entry, count in every.items()
        )
        assert sum(sent for _, _, sent, _ in found.values()) == sum(planned)


def test_a_plan_that_shares_in_each_step_goes_on(tmp_path: Path) -> None:
    """States are the same: rows are none of them."""
    parties, (plan, _) = Parties(tmp_path, "rep3"), trained("logistic", "rep3", share_once=True)
    assert layout_of(parties.plan) == layout_of(plan)
    parties.run(lambda trainer, name: trainer.fit(rate=RATE, steps=5, every=5))
    parties.plan = plan
    save_weights(trained("logistic", "rep3")[1], tmp_path / "model.weights", plan.digest)
    found = parties.run(
        lambda trainer, name: (trainer.fit(rate=RATE, steps=5), trainer.reveal()), resumes=True
    )
    _, wanted = by_torch("logistic", [RATE] * 10)
    for name, array in wanted.items():
        assert np.abs(found["alice"][1][name] - array).max() < 0.05


def test_rows_of_another_number_stop_before_any_is_shared(tmp_path: Path) -> None:
    parties = Parties(tmp_path, "rep3", share_once=True)
    fewer = {"data": {"labels": DATA["labels"][:-1]}, "rows": ROWS - 1}

    def act(trainer: Any, name: str) -> Any:
        try:
            return trainer.fit(rate=RATE, steps=2)
        except Exception as error:
            return str(error), len(trainer.session.transcripts)

    found = parties.run(act, bob=fewer)
    for told, runs in found.values():
        assert "another number of rows" in told
        assert runs == 0
