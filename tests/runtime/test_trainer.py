"""Parties that train over TLS: as simulated, saved and resumed; what one of them gets wrong."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from three_parties import run_threads, write_parties
from training_cases import (
    BATCH,
    DATA,
    RATE,
    ROWS,
    SUITES,
    Normed,
    Perceptron,
    X,
    by_torch,
    dropped_by_torch,
    logistic,
    trained,
)

import veilgraph
from veilgraph.ir.errors import (
    AccuracyError,
    PeerError,
    ResourceLimitError,
    SecurityAbort,
    UsageError,
)
from veilgraph.ir.training import Recipe
from veilgraph.runtime.store.state_files import before
from veilgraph.runtime.store.weights import save_weights
from veilgraph.training.checkpoints import GIVEN_UP, Checkpoints
from veilgraph.training.masks import drawn
from veilgraph.training.plan_steps import unread_weights
from veilgraph.training.runs.evaluations import Evaluation

OWN: dict[str, dict[str, Any]] = {
    "alice": {"x": DATA["x"]},
    "bob": {"labels": DATA["labels"]},
    "carol": {},
}


class Parties:
    """Three parties on this machine, who train one after another session."""

    def __init__(
        self,
        folder: Path,
        suite: str,
        audit: bool = True,
        kind: str = "logistic",
        timeout_seconds: float = 10.0,
        share_once: bool = False,
    ) -> None:
        self.plan, weights = trained(kind, suite, audit=audit, share_once=share_once)
        self.files = write_parties(folder, timeout_seconds)
        self.folder = folder
        save_weights(weights, folder / "model.weights", self.plan.digest)

    def state(self, name: str) -> Path:
        return self.folder / f"{name}.state"

    def run(
        self, act: Callable[[Any, str], Any], resumes: bool = False, **others: dict[str, Any]
    ) -> dict[str, Any]:
        """What each does with its Trainer; `others` are options that one has by its name."""

        def one(name: str) -> Any:
            options: dict[str, Any] = {
                "data": OWN[name],
                "rows": ROWS,
                "weights": self.folder / "model.weights" if name == "bob" else None,
                "checkpoint": self.state(name) if self.plan.party(name).states else None,
                "resume": resumes,
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
        assert trainer.step == 0
        return trainer.fit(
            rate=RATE,
            steps=5,
            every=2,
            on_step=lambda *told: seen.append(told) if name == "alice" else None,
        )

    def go_on(trainer: Any, name: str) -> Any:
        assert trainer.step == 5
        losses = trainer.fit(rate=lambda step: RATE / (1 + step // 10), steps=7)
        own = {"x": X[: 2 * BATCH]} if name == "alice" else None
        found = losses, trainer.evaluate(own), trainer.reveal()
        every = {"step": (12, 0), "audit": (3, 0), "evaluate": (2, 1), "reveal": (1, 0)}
        assert trainer.revealed == every
        return found

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


@pytest.mark.parametrize("suite", SUITES)
def test_running_statistics_are_in_checkpoints(suite: str, tmp_path: Path) -> None:
    """They go on where they were, as the count of batches does; an evaluation reads them."""
    parties = Parties(tmp_path, suite, kind="normed")
    parties.run(lambda trainer, name: trainer.fit(rate=RATE, steps=6, every=2))

    def go_on(trainer: Any, name: str) -> Any:
        trainer.fit(rate=RATE, steps=7)
        own = {"x": X[: 2 * BATCH]} if name == "alice" else None
        return trainer.evaluate(own), trainer.reveal()

    found = parties.run(go_on, resumes=True)
    _, wanted = by_torch("normed", [RATE] * 13)
    revealed = found["alice"][1]
    assert revealed.keys() == wanted.keys()
    assert revealed["norm.num_batches_tracked"].dtype == np.int64
    assert revealed["norm.num_batches_tracked"] == 13
    for name, array in wanted.items():
        assert np.abs(revealed[name] - array).max() < 0.02
    module = Normed().eval()
    module.load_state_dict({name: torch.tensor(x) for name, x in revealed.items()})
    outputs = module(torch.from_numpy(X[: 2 * BATCH])).detach().numpy()
    assert np.abs(found["bob"][0]["output"] - outputs).max() < 0.05


def test_masks_are_drawn_of_the_session(tmp_path: Path) -> None:
    """All parties compute them; in another session a step has others."""
    parties = Parties(tmp_path, "rep3", kind="dropped")

    def begin(trainer: Any, name: str) -> Any:
        trainer.fit(rate=RATE, steps=4, every=2)
        return trainer.session.id

    def go_on(trainer: Any, name: str) -> Any:
        trainer.fit(rate=RATE, steps=3)
        return trainer.session.id, trainer.reveal()

    first, second = parties.run(begin), parties.run(go_on, resumes=True)
    masks = Recipe.of(parties.plan.manifest.options).masks
    used = [drawn(masks, first["alice"], number)["drop.mask"] for number in range(4)]
    used += [drawn(masks, second["alice"][0], number)["drop.mask"] for number in range(4, 7)]
    assert len({mask.tobytes() for mask in used}) == 7
    again = drawn(masks, second["alice"][0], 0)["drop.mask"]
    assert not np.array_equal(again, used[0])
    _, wanted = dropped_by_torch(used)
    for name, array in wanted.items():
        assert np.abs(second["alice"][1][name] - array).max() < 0.02


def test_parties_that_disagree_on_the_rate(tmp_path: Path) -> None:
    """alice owns the factors, and the others hold her to what they were told."""
    parties = Parties(tmp_path, "rep3")

    def act(trainer: Any, name: str) -> Any:
        return trainer.fit(rate=2 * RATE if name == "alice" else RATE, steps=2)

    found = parties.run(act)
    for name in ("bob", "carol"):
        assert isinstance(found[name], SecurityAbort)
        assert f"and {name} expects" in str(found[name])


def test_an_owner_who_tells_one_unit_more(tmp_path: Path) -> None:
    """At small rates that is a multiple of what was agreed."""
    parties = Parties(tmp_path, "rep3")
    bits = {tensor.name: tensor.frac_bits for tensor in parties.plan.party("alice").inputs}
    unit = BATCH * 2.0 ** -bits["step_size"]

    def act(trainer: Any, name: str) -> Any:
        return trainer.fit(rate=RATE + unit if name == "alice" else RATE, steps=2)

    found = parties.run(act)
    for name in ("bob", "carol"):
        assert isinstance(found[name], SecurityAbort)
        assert f"and {name} expects" in str(found[name])


@pytest.mark.parametrize(
    ("name", "told"),
    [("step_size", "what step_size is in a step"), ("overflow", "whether a parameter overflowed")],
)
def test_a_plan_that_keeps_from_carol_what_she_acts_on(
    name: str, told: str, tmp_path: Path
) -> None:
    parties = Parties(tmp_path, "rep3")
    carol = parties.plan.party("carol")
    outputs = tuple(tensor for tensor in carol.outputs if tensor.name != name)
    assert len(outputs) < len(carol.outputs)
    programs = {**parties.plan.programs, "carol": replace(carol, outputs=outputs)}
    plan = replace(parties.plan, programs=programs)
    with pytest.raises(SecurityAbort, match=f"does not tell carol {told}"):
        veilgraph.Trainer(plan, "carol", parties.files["carol"], rows=ROWS)


@pytest.mark.parametrize(
    ("options", "steps", "fact"),
    [
        ({"seed": 1}, {"steps": 2}, "seed"),
        (
            {"data": {"labels": DATA["labels"][:-1]}, "rows": ROWS - 1},
            {"steps": 2},
            "number of rows",
        ),
        ({}, {"steps": 3}, "number of steps"),
        ({}, {"steps": 2, "every": 1}, "checkpoint interval"),
        ({}, {"steps": 2, "audit_every": 1}, "audit interval"),
    ],
)
def test_parties_whose_rows_do_not_belong_together(
    options: dict[str, Any], steps: dict[str, int], fact: str, tmp_path: Path
) -> None:
    """bob's are others: each party stops before a step, and two of them name him."""
    parties = Parties(tmp_path, "rep3")

    def act(trainer: Any, name: str) -> Any:
        return trainer.fit(rate=RATE, **(steps if name == "bob" else {"steps": 2}))

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
        ("bob", {"data": DATA}, "Rows of `x` are given, and bob owns no such input of `step`"),
        ("carol", {"data": {"z": X}}, "Rows of `z` are given, and carol owns no such input"),
        ("alice", {"data": [X]}, "Rows of alice have no names"),
        ("carol", {"rows": 1.5}, r"A number of 1\.5 rows makes no sense"),
        ("carol", {"rows": ROWS, "seed": -1}, "A seed of -1 makes no sense"),
        ("dave", {"rows": ROWS}, "dave is no party of this plan"),
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
    with pytest.raises(AccuracyError, match=r"Row 37 of `x` holds a number outside the range"):
        veilgraph.Trainer(plan, "alice", tmp_path / "none.yaml", data={"x": far})


def test_what_is_called_after_each_epoch(tmp_path: Path) -> None:
    """At the same step of all parties, so it may evaluate; an epoch is of all steps so far."""
    parties = Parties(tmp_path, "rep3")
    told: dict[str, list[Any]] = {name: [] for name in OWN}

    def act(trainer: Any, name: str) -> Any:
        rows = {"x": X[:5]} if name == "alice" else None

        def ended(epoch: int, loss: float | None) -> None:
            told[name].append((epoch, loss, trainer.evaluate(rows).keys()))

        trainer.fit(rate=RATE, steps=3)
        return trainer.fit(rate=RATE, steps=18, on_epoch=ended)

    losses = parties.run(act)["alice"]
    epoch = ROWS // BATCH
    means = [np.mean(losses[: epoch - 3]), np.mean(losses[epoch - 3 : 2 * epoch - 3])]
    assert told["alice"] == [(i, pytest.approx(mean), set()) for i, mean in enumerate(means)]
    assert told["bob"] == [(i, pytest.approx(mean), {"output"}) for i, mean in enumerate(means)]
    assert told["carol"] == [(0, None, set()), (1, None, set())]


# Checkpoints


def begin(steps: int) -> Callable[[Any, str], Any]:
    return lambda trainer, name: (trainer.fit(rate=RATE, steps=steps, every=1), trainer.step)[1]


def test_all_go_on_from_the_newest_checkpoint_that_all_have(tmp_path: Path) -> None:
    """bob was killed before his last one; what others have of it is given up."""
    parties = Parties(tmp_path, "rep3")
    parties.run(begin(3))
    before(parties.state("bob")).replace(parties.state("bob"))
    found = parties.run(lambda trainer, name: trainer.step, resumes=True)
    assert set(found.values()) == {2}
    assert not before(parties.state("alice")).exists()
    assert set(parties.run(begin(2), resumes=True).values()) == {4}
    assert set(parties.run(lambda trainer, name: trainer.step, resumes=True).values()) == {4}


def test_who_has_none_goes_on_with_who_has_the_first_alone(tmp_path: Path) -> None:
    """From the beginning; with two checkpoints at the others one was lost, and all stop."""
    parties = Parties(tmp_path, "rep3")
    parties.run(begin(1))
    parties.state("bob").unlink()
    first = parties.state("alice").read_bytes()
    assert set(parties.run(begin(2), resumes=True).values()) == {2}
    kept = parties.state("alice").with_name(parties.state("alice").name + GIVEN_UP)
    assert kept.read_bytes() == first
    parties.state("bob").unlink()
    before(parties.state("bob")).unlink()
    found = parties.run(begin(1), resumes=True)
    for name in ("alice", "carol"):
        assert isinstance(found[name], SecurityAbort)
        assert "bob begins from zero, and this party from what run" in str(found[name])
        assert len(Checkpoints(parties.state(name)).files) == 2


@pytest.mark.parametrize("suite", SUITES)
def test_who_goes_on_needs_no_weights(suite: str, tmp_path: Path) -> None:
    """The checkpoint has all of them; where all begin anew it says what is lacking."""
    parties = Parties(tmp_path, suite, timeout_seconds=3.0)
    none = {"bob": {"weights": None}}
    anew = parties.run(begin(1), resumes=True, **none)
    assert isinstance(anew["bob"], UsageError)
    assert "All parties begin anew, and bob gave no weights" in str(anew["bob"])
    assert not any(parties.state(name).exists() for name in OWN)
    parties.run(lambda trainer, name: trainer.fit(rate=RATE, steps=5, every=5))
    found = parties.run(
        lambda trainer, name: (trainer.fit(rate=RATE, steps=7), trainer.reveal())[1], True, **none
    )
    _, parameters = by_torch("logistic", [RATE] * 12)
    for name, wanted in parameters.items():
        assert np.abs(found["alice"][name] - wanted).max() < 0.05


def frozen(weights: str) -> veilgraph.Plan:
    """Of a perceptron, whose first layer is bob's and stays as it is."""
    plan, _ = veilgraph.compile_training(
        Perceptron().train(), DATA, loss="cross_entropy", batch=BATCH, rate=RATE, steps=4,
        freeze=["hidden.*"], owners={"labels": "bob", "weights": weights},
    )  # fmt: skip
    return plan


@pytest.mark.parametrize("weights", ["bob", "shared"])
def test_who_goes_on_gives_frozen_weights_again(weights: str, tmp_path: Path) -> None:
    """Nothing of them is in a checkpoint; told before a link is opened. Others give none."""
    plan, files = frozen(weights), write_parties(tmp_path, 1.0)
    options: dict[str, Any] = {"checkpoint": tmp_path / "bob.state", "resume": True}
    with pytest.raises(UsageError) as error:
        veilgraph.Trainer(plan, "bob", files["bob"], data=OWN["bob"], **options)
    assert error.value.message.endswith("weights that are frozen: `hidden.bias` and 1 more.")
    assert error.value.hint.startswith("Give --weights as before the first step")


def test_who_goes_on_loads_shares_of_the_start_again(tmp_path: Path) -> None:
    plan, _ = veilgraph.compile_training(
        logistic(), DATA, loss="cross_entropy", batch=BATCH, rate=RATE, steps=4,
        owners={"labels": "bob", "weights": "shared"},
    )  # fmt: skip
    with pytest.raises(UsageError, match="without its shares of the weights"):
        unread_weights(plan, "carol")


def test_public_frozen_weights_are_in_the_plan() -> None:
    assert unread_weights(frozen("public"), "bob") is None


def test_checkpoints_of_two_trainings(tmp_path: Path) -> None:
    parties = Parties(tmp_path, "rep3")
    parties.run(begin(2))
    kept = {name: parties.state(name).read_bytes() for name in OWN}
    for name in OWN:
        for file in Checkpoints(parties.state(name)).files:
            file.unlink()
    parties.run(begin(2))
    parties.state("bob").write_bytes(kept["bob"])
    before(parties.state("bob")).unlink()
    found = parties.run(begin(1), resumes=True)
    assert any("begins from" in str(error) for error in found.values())
    assert all(isinstance(error, SecurityAbort | PeerError) for error in found.values())


@pytest.mark.parametrize("change", ["cut", "flipped"])
def test_a_checkpoint_that_was_changed_is_refused(change: str, tmp_path: Path) -> None:
    """Before a peer is called."""
    parties = Parties(tmp_path, "rep3")
    parties.run(begin(1))
    content = bytearray(parties.state("alice").read_bytes())
    content[-40] ^= 1
    whole = bytes(content) if change == "flipped" else bytes(content[:-1])
    parties.state("alice").write_bytes(whole)
    with pytest.raises(SecurityAbort):
        veilgraph.Trainer(
            parties.plan,
            "alice",
            parties.files["alice"],
            data=OWN["alice"],
            checkpoint=parties.state("alice"),
            resume=True,
        )


@pytest.mark.parametrize("left", [0, 40, -1])
def test_a_damaged_newest_counts_as_not_there(
    left: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All go on from the one before, and who has the damage says so."""
    parties = Parties(tmp_path, "rep3")
    parties.run(begin(3))
    content = parties.state("bob").read_bytes()
    parties.state("bob").write_bytes(content[:left])
    found = parties.run(begin(1), resumes=True)
    assert set(found.values()) == {3}, found
    what = {0: "is empty.", 40: "is cut short.", -1: "was changed, or is cut short."}[left]
    assert [r.message for r in caplog.records if r.levelname == "WARNING"] == [
        f"{parties.state('bob')} {what} It is passed over."
    ]
    assert len(Checkpoints(parties.state("bob")).files) == 2


def test_a_damaged_newest_beside_a_peer_that_has_no_other(tmp_path: Path) -> None:
    """They have no checkpoint in common: all stop, and no file is touched."""
    parties = Parties(tmp_path, "rep3")
    parties.run(begin(3))
    parties.state("bob").write_bytes(b"")
    before(parties.state("carol")).unlink()
    found = parties.run(begin(1), resumes=True)
    assert all(isinstance(error, SecurityAbort) for error in found.values()), found
    assert any("begins from" in str(error) for error in found.values())
    assert not parties.state("bob").read_bytes()
    assert len(Checkpoints(parties.state("alice")).files) == 2


def test_checkpoints_of_another_party_plan_or_verb(tmp_path: Path) -> None:
    parties = Parties(tmp_path, "rep3")

    def saves(trainer: Any, name: str) -> None:
        trainer.session.save_state(tmp_path / f"{name}.other", note=b"")
        trainer.fit(rate=RATE, steps=1, every=1)

    parties.run(saves)

    def resumed(file: Path, plan: Any = parties.plan) -> Any:
        own = {"data": OWN["alice"], "checkpoint": file, "resume": True}
        return veilgraph.Trainer(plan, "alice", parties.files["alice"], **own)

    with pytest.raises(SecurityAbort, match="is bob's, and this is alice"):
        resumed(parties.state("bob"))
    other, _ = trained("perceptron", "rep3")
    with pytest.raises(SecurityAbort, match="another layout"):
        resumed(parties.state("alice"), other)
    with pytest.raises(UsageError, match="is a checkpoint already"):
        veilgraph.Trainer(
            parties.plan,
            "alice",
            parties.files["alice"],
            data=OWN["alice"],
            checkpoint=parties.state("alice"),
        )
    found = parties.run(begin(1), True, **{n: {"checkpoint": tmp_path / f"{n}.other"} for n in OWN})
    assert "doesn't say after which step" in str(found["alice"])


def test_plans_that_differ_in_the_batch_or_else(tmp_path: Path) -> None:
    """bob's was compiled otherwise: nobody takes a step, and two wait for the third in vain."""
    parties = Parties(tmp_path, "rep3", timeout_seconds=2.0)
    other, _ = trained("logistic", "rep3", audit=False)

    def one(name: str) -> Any:
        plan = other if name == "bob" else parties.plan
        with veilgraph.Trainer(plan, name, parties.files[name], data=OWN[name], rows=ROWS) as own:
            return own.step

    found = run_threads([lambda n=name: one(n) for name in OWN])
    assert all(isinstance(error, SecurityAbort | PeerError | UsageError) for error in found)
    assert any("plan" in str(error) for error in found)


def test_a_disk_that_fills_leaves_both_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = Parties(tmp_path, "rep3")
    parties.run(begin(2))
    kept = {file: file.read_bytes() for file in tmp_path.glob("*.state*")}
    assert len(kept) == 6

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("veilgraph.ir.files.whole_files.os.replace", full)
    found = parties.run(begin(1), resumes=True)
    for name in OWN:
        assert isinstance(found[name], ResourceLimitError)
        assert "What was there before is whole" in found[name].hint
    assert {file: file.read_bytes() for file in tmp_path.glob("*.state*")} == kept


# Audits


@pytest.mark.parametrize("suite", SUITES)
def test_an_overflow_stops_all_parties_and_the_last_checkpoint_stands(
    suite: str, tmp_path: Path
) -> None:
    """At twice the rehearsed rate parameters outgrow their bounds, which float32 would not mind."""
    parties = Parties(tmp_path, suite)

    def act(trainer: Any, name: str) -> Any:
        trainer.fit(rate=2 * RATE, steps=200, every=20)

    found = parties.run(act)
    computing = parties.plan.manifest.computing
    for name in computing:
        assert isinstance(found[name], AccuracyError)
        told = re.match(
            r"After step (\d+) a parameter, .* checkpoint after step (\d+)", str(found[name])
        )
        assert told
        assert 20 <= int(told[2]) == int(told[1]) - 20
    again = parties.run(lambda trainer, name: trainer.step, resumes=True)
    assert set(again.values()) == {int(told[2])}


def test_audits_between_checkpoints(tmp_path: Path) -> None:
    """On request; without a checkpoint none stands."""
    parties = Parties(tmp_path, "rep3")

    def act(trainer: Any, name: str) -> Any:
        trainer.fit(rate=RATE, steps=4, audit_every=2)
        assert trainer.revealed["audit"] == (2, 0)
        trainer.fit(rate=2 * RATE, steps=200, audit_every=50)

    for error in parties.run(act).values():
        assert isinstance(error, AccuracyError)
        assert "outside of its bounds.\n" in str(error)


def test_a_plan_without_an_audit(tmp_path: Path) -> None:
    parties = Parties(tmp_path, "rep3", audit=False)
    assert "audit" not in parties.plan.manifest.entries
    found = parties.run(lambda trainer, name: trainer.fit(rate=RATE, steps=2, audit_every=1))
    for error in found.values():
        assert isinstance(error, UsageError)
        assert "This plan has no audit" in str(error)


@pytest.mark.parametrize("suite", SUITES)
def test_who_saves_while_another_does_not(suite: str, tmp_path: Path) -> None:
    """No training could go on from such checkpoints; a dealer has none anyway."""
    parties = Parties(tmp_path, suite)
    found = parties.run(lambda t, _: t.fit(rate=RATE, steps=2), bob={"checkpoint": None})
    told = "alice has a place for checkpoints (--save), and bob has not."
    for error in found.values():
        assert isinstance(error, SecurityAbort)
        assert error.message == told


@pytest.mark.parametrize("suite", SUITES)
def test_every_row_is_evaluated_once(suite: str, tmp_path: Path) -> None:
    """Fewer than a batch, and more; who has none is told how many there are."""
    parties = Parties(tmp_path, suite)

    def act(trainer: Any, name: str) -> Any:
        trainer.fit(rate=RATE, steps=1)
        counts = (5, BATCH, 2 * BATCH + 1)
        rows = [{"x": X[:n]} if name == "alice" else None for n in counts]
        return [trainer.evaluate(each) for each in rows], trainer.reveal()

    found = parties.run(act)
    parameters = found["alice"][1]
    outputs = [each["output"] for each in found["bob"][0]]
    assert [len(each) for each in outputs] == [5, BATCH, 2 * BATCH + 1]
    for each in outputs:
        wanted = X[: len(each)] @ parameters["w"] + parameters["b"]
        assert np.abs(each - wanted).max() < 0.1
    assert found["carol"][0] == [{}] * 3


@pytest.mark.parametrize("suite", SUITES)
def test_correct_answers_of_all_rows_are_told_to_one(suite: str, tmp_path: Path) -> None:
    """In each evaluation anew, after a resume too, which has no sum of the session before."""
    plan, weights = veilgraph.compile_training(
        logistic(), DATA, loss="cross_entropy", batch=BATCH, rate=RATE, steps=12,
        optimizer=veilgraph.SGD(momentum=0.5, weight_decay=0.01),
        reveal={"correct": "alice"}, owners={"labels": "bob"}, **SUITES[suite],
    )  # fmt: skip
    parties = Parties(tmp_path, suite)
    parties.plan = plan
    save_weights(weights, tmp_path / "model.weights", plan.digest)
    counts = (5, 2 * BATCH + 1, 5)

    def act(trainer: Any, name: str) -> Any:
        if not trainer.step:
            trainer.fit(rate=RATE, steps=ROWS // BATCH, every=ROWS // BATCH)
        rows = [{key: x[:n] for key, x in OWN[name].items()} for n in counts]
        told = [trainer.evaluate(each or None) for each in rows]
        assert trainer.answers == counts[-1]
        return told, trainer.revealed

    _, parameters = by_torch("logistic", [RATE] * (ROWS // BATCH))
    right = (X @ parameters["w"] + parameters["b"]).argmax(axis=1) == DATA["labels"]
    for resumes in (False, True):
        found = parties.run(act, resumes=resumes)
        told, revealed = found["alice"]
        wanted = [right[:n].sum() for n in counts]
        assert [each["correct"].item() for each in told] == wanted
        assert found["bob"][0] == found["carol"][0] == [{}] * 3
        assert revealed["correct"] == ((6, 5) if resumes else (3, 2))
        assert "evaluate" not in revealed


@pytest.mark.parametrize("suite", SUITES)
def test_a_model_before_its_first_step_is_the_one_that_was_given(
    suite: str, tmp_path: Path
) -> None:
    """Whatever is asked first; who goes on from its checkpoint has it too."""
    parties = Parties(tmp_path, suite)
    weights = trained("logistic", suite)[1]

    def act(trainer: Any, name: str) -> Any:
        keeps = bool(parties.plan.party(name).states)
        if keeps and not trainer.session.resumed:
            with pytest.raises(UsageError, match="no state to save before training begins"):
                trainer.save()
        told = [trainer.evaluate({"x": X[:5]} if name == "alice" else None), trainer.reveal()]
        if keeps:
            trainer.save()
        return told

    for resumes in (False, True):
        found = parties.run(act, resumes=resumes)
        for parameter in ("w", "b"):
            wanted = weights[f"{parameter}.start"]
            assert np.abs(found["alice"][1][parameter] - wanted).max() < 1e-3
        wanted = X[:5] @ weights["w.start"] + weights["b.start"]
        assert np.abs(found["bob"][0]["output"] - wanted).max() < 0.01


def test_an_owner_of_inputs_gives_no_rows_to_evaluate(tmp_path: Path) -> None:
    """Told before anything is sent."""
    parties = Parties(tmp_path, "rep3", timeout_seconds=3.0)
    found = parties.run(lambda trainer, _: trainer.evaluate())
    assert isinstance(found["alice"], UsageError)
    assert "There are no rows of `x`" in str(found["alice"])


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"alice": 3, "bob": 4}, "Rows to evaluate are unlike in number: alice 3, and bob 4."),
        ({"alice": 0, "bob": 0}, "Nobody gives rows to evaluate."),
    ],
)
def test_owners_who_evaluate_other_rows(told: dict[str, int], said: str) -> None:
    plan, _ = trained("logistic", "rep3")
    with pytest.raises(UsageError) as error:
        Evaluation.of(Recipe.of(plan.manifest.options), told)
    assert error.value.message == said


@pytest.mark.parametrize(
    ("option", "what"), [("every", "A checkpoint"), ("audit_every", "An audit")]
)
def test_intervals_that_make_no_sense(option: str, what: str, tmp_path: Path) -> None:
    parties = Parties(tmp_path, "rep3")
    options: dict[str, Any] = {option: 0}
    for error in parties.run(lambda t, _: t.fit(rate=RATE, steps=2, **options)).values():
        assert isinstance(error, UsageError)
        assert f"{what} each 0 steps makes no sense" in str(error)


def test_a_plan_that_saves_no_parameters(tmp_path: Path) -> None:
    """Only rows are shared anew by whoever goes on from a checkpoint."""
    plan, _ = trained("logistic", "rep3")
    options = {**plan.manifest.options, "unsaved": ["weights"]}
    changed = replace(plan, manifest=replace(plan.manifest, options=options))
    with pytest.raises(SecurityAbort, match="leaves parameters out of checkpoints"):
        veilgraph.Trainer(changed, "alice", tmp_path / "parties.yaml")


def test_a_loss_of_several_steps_is_told_over_sessions(tmp_path: Path) -> None:
    """The sum is a state: three steps of one session and two of the next have one mean."""
    plan, weights = veilgraph.compile_training(
        logistic(), DATA, loss="cross_entropy", batch=BATCH, rate=RATE, steps=12,
        optimizer=veilgraph.SGD(momentum=0.5, weight_decay=0.01), loss_every=5,
        reveal={"loss": "alice"}, owners={"labels": "bob"},
    )  # fmt: skip
    parties = Parties(tmp_path, "rep3")
    parties.plan = plan
    save_weights(weights, tmp_path / "model.weights", plan.digest)
    told: list[tuple[int, float | None]] = []

    def act(steps: int) -> Callable[[Any, str], Any]:
        note = told.append
        return lambda trainer, name: trainer.fit(
            rate=RATE,
            steps=steps,
            every=steps,
            on_step=(lambda *each: note(each)) if name == "alice" else None,
        )

    first = parties.run(act(3))
    second = parties.run(act(4), resumes=True)
    losses, _ = by_torch("logistic", [RATE] * 7)
    assert first["alice"] == []
    assert second["alice"] == pytest.approx([np.mean(losses[:5])], abs=0.02)
    assert [number for number, loss in told if loss is not None] == [4]
    assert second["bob"] == second["carol"] == []
