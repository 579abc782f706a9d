"""A client who has all rows, and is told what comes of them; it computes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from three_parties import run_threads, write_parties
from training_cases import BATCH, DATA, RATE, STEPS, SUITES, Perceptron, X

import veilgraph
from veilgraph.ir.errors import UsageError
from veilgraph.runtime.store.weights import save_weights

CLIENT = "dora"
TOLD = ("parameters", "loss", "output", "correct")


def compiled(suite: str, share_once: bool) -> tuple[veilgraph.Plan, Any]:
    return veilgraph.compile_training(
        Perceptron().train(),
        DATA,
        loss="cross_entropy",
        batch=BATCH,
        rate=RATE,
        steps=STEPS,
        owners={"x": CLIENT, "labels": CLIENT},
        reveal=dict.fromkeys(TOLD, CLIENT),
        share_once=share_once,
        clients=[CLIENT],
        **SUITES[suite],
    )


class Hosts:
    """All parties of a plan on this machine; those that compute keep checkpoints."""

    def __init__(self, folder: Path, suite: str, share_once: bool) -> None:
        self.plan, weights = compiled(suite, share_once)
        self.folder, names = folder, self.plan.manifest.parties
        self.files = write_parties(folder, names=names)
        save_weights(weights, folder / "model.weights", self.plan.digest)

    def trainer(self, name: str, resume: bool) -> veilgraph.Trainer:
        computes = name in self.plan.manifest.computing
        return veilgraph.Trainer(
            self.plan,
            name,
            self.files[name],
            data=DATA if name == CLIENT else None,
            rows=None if name == CLIENT else len(X),
            weights=self.folder / "model.weights" if name == "bob" else None,
            checkpoint=self.folder / f"{name}.state" if computes else None,
            resume=resume,
        )

    def epoch(self, resume: bool) -> dict[str, Any]:
        """What each party is told by an epoch, an evaluation and a revelation."""

        def one(name: str) -> Any:
            with self.trainer(name, resume) as trainer:
                losses = trainer.fit(rate=RATE, every=100)
                outputs = trainer.evaluate(DATA if name == CLIENT else None)
                return losses, outputs, trainer.reveal(), trainer.step

        found = run_threads([lambda name=name: one(name) for name in self.files])
        return dict(zip(self.files, found, strict=True))


@pytest.mark.parametrize("share_once", [False, True])
@pytest.mark.parametrize("suite", SUITES)
def test_a_client_trains_with_its_rows(suite: str, share_once: bool, tmp_path: Path) -> None:
    """Its rows step by step, or shared once; it resumes without a checkpoint of its own."""
    hosts = Hosts(tmp_path, suite, share_once)
    first, second = hosts.epoch(resume=False), hosts.epoch(resume=True)
    steps = len(X) // BATCH
    for name in hosts.files:
        assert (first[name][-1], second[name][-1]) == (steps, 2 * steps)
        if name != CLIENT:
            assert [len(told) for told in second[name][:3]] == [0, 0, 0]
    losses, outputs, parameters, _ = second[CLIENT]
    assert len(losses) == steps
    assert np.mean(losses) < np.mean(first[CLIENT][0])
    model = Perceptron()
    model.load_state_dict({name: torch.tensor(x) for name, x in parameters.items()})
    wanted = model(torch.tensor(X)).detach().numpy()
    assert outputs["output"] == pytest.approx(wanted, abs=0.05)
    labels = DATA["labels"]
    right = outputs["output"].argmax(1) == labels
    assert int(outputs["correct"].item()) == pytest.approx(int(right.sum()), abs=1)


def test_a_client_keeps_no_checkpoint(tmp_path: Path) -> None:
    plan, _ = compiled("rep3", share_once=False)
    files = write_parties(tmp_path, names=plan.manifest.parties)
    with pytest.raises(UsageError, match="dora keeps no state in this plan"):
        veilgraph.Trainer(plan, CLIENT, files[CLIENT], data=DATA, checkpoint=tmp_path / "state")
