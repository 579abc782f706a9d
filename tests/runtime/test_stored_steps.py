"""Steps whose offline phases were run before: parties train over TLS from stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_trainer import OWN, Parties
from three_parties import run_threads
from training_cases import BATCH, DATA, RATE, SUITES, TOLD, Perceptron, by_torch

import veilgraph
from veilgraph.ir.errors import PeerError, ResourceLimitError, SecurityAbort, UsageError
from veilgraph.ir.plan.tables import Phase
from veilgraph.runtime.store.weights import save_weights
from veilgraph.session import Session


class Stored(Parties):
    """Three parties that prepare steps, and train from them."""

    def store(self, name: str, number: int) -> Path | None:
        is_online = self.plan.manifest.role(name).online
        return self.folder / f"{name}.store{number}" if is_online else None

    def prepare(self, count: int, number: int, entry: str = "step") -> None:
        def one(name: str) -> None:
            weights = self.folder / "model.weights" if name == "bob" else None
            config = self.files[name]
            with Session(self.plan, name, config, weights=weights, trust_author=True) as session:
                session.prepare(self.store(name, number), count, entry)

        assert run_threads([lambda n=n: one(n) for n in self.files]) == [None] * 3

    def stores(self, number: int) -> dict[str, dict[str, Any]]:
        return {name: {"store": self.store(name, number)} for name in self.files}


def fit(steps: int, every: int | None = None) -> Any:
    return lambda trainer, name: trainer.fit(rate=RATE, steps=steps, every=every)


def offline_rounds(trainer: Any) -> list[int]:
    return [run.phases[Phase.OFFLINE].rounds for run in trainer.session.transcripts]


@pytest.mark.parametrize("suite", SUITES)
def test_steps_come_from_a_store_till_it_is_used_up(suite: str, tmp_path: Path) -> None:
    """All else runs live; what was done is saved, and goes on with another store, or none."""
    parties = Stored(tmp_path, suite)
    parties.prepare(5, 1)
    parties.prepare(3, 2)
    losses: dict[str, list[Any]] = {name: [] for name in OWN}

    def begin(trainer: Any, name: str) -> Any:
        assert trainer.session.left_in_store == 5
        with pytest.raises(ResourceLimitError) as error:
            trainer.fit(
                rate=RATE, steps=12, every=2, on_step=lambda _, loss: losses[name].append(loss)
            )
        kept = " The checkpoint after step 5 is saved." if trainer.plan.party(name).states else ""
        assert error.value.message == f"The store is used up after step 5 of 12.{kept}"
        assert "--resume" in error.value.hint
        return offline_rounds(trainer)

    def go_on(trainer: Any, name: str) -> Any:
        assert trainer.step == 5
        losses[name] += trainer.fit(rate=RATE, steps=3)
        assert trainer.session.left_in_store == 0
        trainer.audit()
        trainer.save() if trainer.plan.party(name).states else None
        return trainer.evaluate({"x": OWN["alice"]["x"]} if name == "alice" else None)

    def end(trainer: Any, name: str) -> Any:
        assert (trainer.step, trainer.session.left_in_store) == (8, None)
        losses[name] += trainer.fit(rate=RATE, steps=4)
        return trainer.reveal()

    rounds = parties.run(begin, **parties.stores(1))
    for name, own in rounds.items():
        assert not isinstance(own, Exception), (name, own)
        assert len(own) == 1 + 5 + 3  # steps, the start, and audits after steps 2, 4 and 5
        steps = [own[i] for i in (1, 2, 4, 5, 7)]
        assert steps == [0] * 5
        assert own[3] == own[6] == own[8] > 0
    evaluated = parties.run(go_on, resumes=True, **parties.stores(2))
    assert evaluated["bob"]["output"].shape == (160, 3)
    found = parties.run(end, resumes=True)
    wanted, parameters = by_torch("logistic", [RATE] * 12)
    assert np.abs(np.array(losses["alice"]) - wanted).max() < 0.1
    for name, value in parameters.items():
        assert np.abs(found["alice"][name] - value).max() < 0.05


def test_a_store_that_is_empty_from_the_start(tmp_path: Path) -> None:
    """Told before anything is run, the parameters' begin included."""
    parties = Stored(tmp_path, "rep3")
    parties.prepare(1, 1)
    parties.run(fit(1), **parties.stores(1))
    found = parties.run(fit(1), **parties.stores(1))
    told = "The store is used up after step 0 of 1."
    assert {error.message for error in found.values()} == {told}


@pytest.mark.parametrize("suite", SUITES)
def test_steps_of_a_store_and_live_runs_by_turns(suite: str, tmp_path: Path) -> None:
    """Frozen weights are shared twice, by setups of their own; each run finds its own."""
    parties = Stored(tmp_path, suite)
    parties.plan, weights = veilgraph.compile_training(
        Perceptron().train(), DATA, loss="cross_entropy", batch=BATCH, rate=RATE, steps=5,
        freeze=["hidden.*"], reveal=TOLD, owners={"labels": "bob"}, **SUITES[suite],
    )  # fmt: skip
    save_weights(weights, tmp_path / "model.weights", parties.plan.digest)
    parties.prepare(4, 1)

    def act(trainer: Any, name: str) -> Any:
        rows, found = {"x": OWN["alice"]["x"][:BATCH]} if name == "alice" else None, []
        for _ in range(2):
            trainer.fit(rate=RATE, steps=2)
            found.append(trainer.evaluate(rows))
        return found, trainer.reveal()

    stored = parties.run(act, **parties.stores(1))
    live = parties.run(act)
    for one, other in zip(stored["bob"][0], live["bob"][0], strict=True):
        assert np.abs(one["output"] - other["output"]).max() < 0.02
    for name, value in stored["alice"][1].items():
        assert np.abs(value - live["alice"][1][name]).max() < 0.02


@pytest.mark.parametrize("suite", SUITES)
def test_who_has_no_store_and_who_has_another(suite: str, tmp_path: Path) -> None:
    parties = Stored(tmp_path, suite)
    parties.prepare(1, 1)
    parties.prepare(1, 2)
    found = parties.run(fit(1), **parties.stores(1) | {"bob": {}})
    told = "bob has no store, and others take prepared runs from one."
    assert all(isinstance(error, SecurityAbort) for error in found.values()), found
    assert {error.message for error in found.values()} == {told}
    mixed = parties.run(fit(1), **parties.stores(1) | {"bob": {"store": parties.store("bob", 2)}})
    told = "was made in another session."
    assert all(isinstance(error, SecurityAbort | PeerError) for error in mixed.values())
    assert any(told in str(error) for error in mixed.values())
    both = parties.run(fit(1), **parties.stores(1))  # nothing was spent
    assert not any(isinstance(each, Exception) for each in both.values()), both


def test_a_store_of_another_entry_or_at_a_dealer(tmp_path: Path) -> None:
    """Refused before a link is opened."""
    parties = Stored(tmp_path, "additive")
    parties.prepare(1, 1, "reveal")
    config = parties.files["alice"]
    options: dict[str, Any] = {"data": OWN["alice"], "trust_author": True}
    with pytest.raises(UsageError, match="prepared for entry `reveal`, and runs of `step` are"):
        veilgraph.Trainer(parties.plan, "alice", config, store=parties.store("alice", 1), **options)
    with pytest.raises(UsageError, match="carol is the dealer, and keeps nothing"):
        veilgraph.Trainer(
            parties.plan, "carol", parties.files["carol"], rows=160, store=tmp_path / "none",
            trust_author=True,
        )  # fmt: skip
