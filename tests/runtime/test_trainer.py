"""Parties that train over TLS: as simulated, saved and resumed; what one of them gets wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from three_parties import run_threads, write_parties
from training_cases import BATCH, DATA, RATE, ROWS, SUITES, X, by_torch, trained

import veilgraph
from veilgraph.ir.errors import AccuracyError, SecurityAbort, UsageError
from veilgraph.runtime.store.weights import save_weights

OWN: dict[str, dict[str, Any]] = {
    "alice": {"x": DATA["x"]},
    "bob": {"labels": DATA["labels"]},
    "carol": {},
}


class Parties:
    """Three parties on this machine, who train one after another session."""

    def __init__(self, folder: Path, suite: str) -> None:
        self.plan, weights = trained("logistic", suite)
        self.files = write_parties(folder)
        self.folder = folder
        save_weights(weights, folder / "model.weights", self.plan.digest)

    def state(self, name: str) -> Path:
        return self.folder / f"{name}.state"

    def run(
        self, act: Callable[[Any, str], Any], resumes: bool = False, **others: dict[str, Any]
    ) -> dict[str, Any]:
        """What each does with its Trainer; `others` are options that one has by its name."""

        def one(name: str) -> Any:
            resume = self.state(name) if resumes and self.plan.party(name).states else None
            options: dict[str, Any] = {
                "data": OWN[name],
                "rows": ROWS,
                "weights": self.folder / "model.weights" if name == "bob" else None,
                "resume": resume,
            }
            options |= others.get(name, {})
            trainer = veilgraph.Trainer(self.plan, name, self.files[name], **options)
            with trainer:
                return act(trainer, name)

        names = list(self.files)
        return dict(zip(names, run_threads([lambda n=n: one(n) for n in names]), strict=True))


@pytest.mark.parametrize("suite", SUITES)
def test_parties_train_save_and_resume(suite: str, tmp_path: Path) -> None:
    """Half of the steps in each of two sessions; each is told what the plan says."""
    parties = Parties(tmp_path, suite)
    seen: list[tuple[int, float | None]] = []

    def begin(trainer: Any, name: str) -> Any:
        losses = trainer.fit(
            rate=RATE, steps=5, on_step=lambda *told: seen.append(told) if name == "alice" else None
        )
        if parties.plan.party(name).states:
            trainer.save(parties.state(name))
        return losses

    def go_on(trainer: Any, name: str) -> Any:
        losses = trainer.fit(rate=lambda step: RATE / (1 + step // 10), steps=7, first=5)
        own = {"x": X[: 2 * BATCH]} if name == "alice" else None
        return losses, trainer.evaluate(own, batches=2), trainer.reveal()

    first = parties.run(begin)
    second = parties.run(go_on, resumes=True)
    rates = [RATE] * 10 + [RATE / 2] * 2
    losses, parameters = by_torch("logistic", rates)
    told = first["alice"] + second["alice"][0]
    assert np.abs(np.array(told) - losses).max() < 0.1
    assert [number for number, _ in seen] == list(range(5))
    assert [loss for _, loss in seen] == first["alice"] == first["bob"]
    assert first["carol"] == []
    for name, wanted in parameters.items():
        assert np.abs(second["alice"][2][name] - wanted).max() < 0.05
    assert second["bob"][2] == second["carol"][2] == {}
    outputs = second["bob"][1]["output"]
    assert np.abs(outputs - (X[: 2 * BATCH] @ parameters["w"] + parameters["b"])).max() < 0.1
    assert second["alice"][1] == {}


def test_parties_that_disagree_on_the_rate(tmp_path: Path) -> None:
    """alice owns the factors, and the others hold her to what they were told."""
    parties = Parties(tmp_path, "rep3")

    def act(trainer: Any, name: str) -> Any:
        return trainer.fit(rate=2 * RATE if name == "alice" else RATE, steps=2)

    found = parties.run(act)
    for name in ("bob", "carol"):
        assert isinstance(found[name], SecurityAbort)
        assert f"and {name} expects" in str(found[name])


def test_a_plan_that_keeps_the_rate_from_who_computes(tmp_path: Path) -> None:
    parties = Parties(tmp_path, "rep3")
    carol = parties.plan.party("carol")
    outputs = tuple(t for t in carol.outputs if t.name != "step_size")
    assert len(outputs) < len(carol.outputs)
    programs = {**parties.plan.programs, "carol": replace(carol, outputs=outputs)}
    plan = replace(parties.plan, programs=programs)
    with pytest.raises(SecurityAbort, match="does not tell carol what step_size is in a step"):
        veilgraph.Trainer(plan, "carol", parties.files["carol"], rows=ROWS)


@pytest.mark.parametrize(
    ("options", "steps", "fact"),
    [
        ({"seed": 1}, (0, 2), "seed"),
        ({"data": {"labels": DATA["labels"][:-1]}, "rows": ROWS - 1}, (0, 2), "number of rows"),
        ({}, (1, 2), "first step"),
        ({}, (0, 3), "number of steps"),
    ],
)
def test_parties_whose_rows_do_not_belong_together(
    options: dict[str, Any], steps: tuple[int, int], fact: str, tmp_path: Path
) -> None:
    """bob's are others: each party stops before a step, and two of them name him."""
    parties = Parties(tmp_path, "rep3")

    def act(trainer: Any, name: str) -> Any:
        first, count = steps if name == "bob" else (0, 2)
        return trainer.fit(rate=RATE, steps=count, first=first)

    found = parties.run(act, bob=options)
    for name in ("alice", "carol"):
        assert isinstance(found[name], SecurityAbort)
        assert str(found[name]).startswith(f"bob trains with another {fact} than {name}.")
    assert isinstance(found["bob"], SecurityAbort)


def test_a_rate_that_the_plan_would_lose(tmp_path: Path) -> None:
    parties = Parties(tmp_path, "rep3")
    found = parties.run(lambda trainer, name: trainer.fit(rate=1e-9, steps=2))
    for name in OWN:
        assert isinstance(found[name], UsageError)
        assert "is too small for this plan" in str(found[name])


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("carol", {}, "carol has no rows, and was not told how many"),
        ("carol", {"rows": 4}, "There are 4 rows, and a step takes 16"),
        ("alice", {"data": {"x": X}, "rows": 4}, "There are 4 rows, and alice has 160"),
        ("alice", {"data": {"x": X[:, :4]}}, r"Rows of `x` are of shape \(4,\)"),
        ("bob", {"data": {}}, "There are no rows of `labels`"),
    ],
)
def test_what_fits_no_step_is_refused(name: str, options: Any, told: str, tmp_path: Path) -> None:
    plan, _ = trained("logistic", "rep3")
    with pytest.raises(UsageError, match=told):
        veilgraph.Trainer(plan, name, tmp_path / "parties.yaml", **options)


def test_rows_out_of_range_are_refused_before_a_link_is_opened(tmp_path: Path) -> None:
    """At their batch, whose rows all parties know, they would tell which ones they are."""
    plan, _ = trained("logistic", "rep3")
    far = X.copy()
    far[37] *= 100
    with pytest.raises(AccuracyError, match=r"`x` holds .*, outside the range"):
        veilgraph.Trainer(plan, "alice", tmp_path / "none.yaml", data={"x": far})
