"""Training that goes on with another plan: another batch, rate or loss, the states as they were."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from three_parties import run_threads, write_parties
from torch.nn import functional
from training_cases import CLASSES, DATA, RATE, ROWS, SUITES, Perceptron, X, Y, logistic

import veilgraph
from veilgraph.cli import main
from veilgraph.ir.errors import UsageError
from veilgraph.runtime.store.state_files import layout_of
from veilgraph.runtime.store.weights import save_weights
from veilgraph.training.batches import orders

ONE_HOT = np.eye(CLASSES, dtype=np.float32)[Y]
OPTIMIZER = veilgraph.SGD(momentum=0.5)
STEPS = 6
OTHERS: dict[str, dict[str, Any]] = {
    "batch": {"batch": 32},
    "small batch": {"batch": 4},
    "rate": {"rate": RATE / 2},
    "loss": {"loss": "mse", "labels": ONE_HOT},
    "receivers": {"reveal": {"output": "bob"}},
}


@cache
def first(suite: str) -> tuple[veilgraph.Plan, Any]:
    return compiled(suite)


def compiled(
    suite: str, *, labels: Any = Y, model: Any = None, **options: Any
) -> tuple[veilgraph.Plan, Any]:
    given: dict[str, Any] = {"loss": "cross_entropy", "batch": 16, "rate": RATE, "steps": 12}
    given |= {"reveal": {"parameters": "alice"}, "owners": {"labels": "bob"}} | options
    return veilgraph.compile_training(
        model or Perceptron().train(),
        {"x": X, "labels": labels},
        optimizer=OPTIMIZER,
        **SUITES[suite],
        **given,
    )


class Parties:
    """Three parties on this machine, and what each has."""

    def __init__(self, folder: Path) -> None:
        self.files, self.folder = write_parties(folder, 10.0), folder

    def train(self, made: Any, *, labels: Any = Y, resumes: bool = False) -> Any:
        plan, weights = made
        save_weights(weights, self.folder / "model.weights", plan.digest)
        own = {"alice": {"x": X}, "bob": {"labels": labels}}

        def one(name: str) -> Any:
            options: dict[str, Any] = {
                "data": own.get(name),
                "rows": ROWS,
                "weights": self.folder / "model.weights" if name == "bob" else None,
                "checkpoint": self.folder / f"{name}.state" if plan.party(name).states else None,
                "resume": resumes,
            }
            with veilgraph.Trainer(plan, name, self.files[name], **options) as trainer:
                trainer.fit(rate=RATE, steps=STEPS, every=STEPS)
                return trainer.reveal() if "reveal" in plan.manifest.entries else trainer.step

        names = [*self.files]
        return dict(zip(names, run_threads([lambda n=n: one(n) for n in names]), strict=True))


def by_torch(rows: int, labels: Any, loss: Any, steps: int = STEPS) -> dict[str, Any]:
    """Parameters after steps of 16 rows by cross-entropy, and `steps` others."""
    model = Perceptron().train()
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.5)
    ways = [(16, Y, functional.cross_entropy, 0, STEPS), (rows, labels, loss, STEPS, steps)]
    for batch, wanted, of, done, count in ways:
        for order in islice(orders(ROWS, batch, 0), done, done + count):
            optimizer.zero_grad()
            of(model(torch.tensor(X[order])), torch.tensor(wanted[order])).backward()
            optimizer.step()
    return {name: x.detach().numpy() for name, x in model.named_parameters()}


@pytest.mark.parametrize("suite", SUITES)
def test_training_goes_on_with_another_batch_and_loss(suite: str, tmp_path: Path) -> None:
    """Parameters and velocities are where the first plan left them."""
    parties = Parties(tmp_path)
    parties.train(first(suite))
    made = compiled(suite, batch=32, loss="mse", labels=ONE_HOT, like=first(suite)[0])
    told = parties.train(made, labels=ONE_HOT, resumes=True)["alice"]
    wanted = by_torch(32, ONE_HOT, functional.mse_loss)
    for name, real in wanted.items():
        assert told[name] == pytest.approx(real, abs=0.02)


@pytest.mark.parametrize("suite", SUITES)
def test_a_plan_for_one_row_computes_with_the_states(suite: str, tmp_path: Path) -> None:
    """Nobody has the parameters: they go from a checkpoint into another plan's runs."""
    parties = Parties(tmp_path)
    parties.train(first(suite))
    plan, weights = compiled(suite, batch=1, like=first(suite)[0], reveal={"output": "bob"})
    save_weights(weights, tmp_path / "other.weights", plan.digest)

    def one(name: str) -> Any:
        state = tmp_path / f"{name}.state" if plan.party(name).states else None
        begun = tmp_path / "other.weights" if name == "bob" else None
        config = parties.files[name]
        with veilgraph.Session(plan, name, config, weights=begun, resume=state) as session:
            return session.run({"x": X[:1]} if name == "alice" else {}, "evaluate")

    told = run_threads([lambda n=n: one(n) for n in parties.files])[1]
    wanted = by_torch(16, Y, functional.cross_entropy, steps=0)
    model = Perceptron()
    model.load_state_dict({name: torch.tensor(x) for name, x in wanted.items()})
    expected = model(torch.tensor(X[:1])).detach().numpy()
    assert told["output"] == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize("other", OTHERS)
def test_states_are_kept_as_the_other_plan_keeps_them(other: str) -> None:
    """Without `like`, the same options choose other rings."""
    old, _ = first("rep3")
    plan, weights = compiled("rep3", like=old, **OTHERS[other])
    assert layout_of(plan) == layout_of(old)
    rows = {"x": X, "labels": OTHERS[other].get("labels", Y)}
    model = Perceptron().train()
    found = veilgraph.rehearse(plan, weights, model, rows, rate=RATE / 2)
    real, fixed = found.epochs[-1]
    assert found.status() is None
    assert fixed.loss == pytest.approx(real.loss, abs=0.02)


def test_plans_that_no_other_goes_on_from() -> None:
    old, _ = first("rep3")

    def refused(**options: Any) -> str:
        with pytest.raises(UsageError) as error:
            compiled("rep3", like=old, **options)
        return str(error.value)

    assert "keeps `hidden.weight`, and this one does not" in refused(freeze=["hidden.weight"])
    with pytest.raises(UsageError, match="in suite rep3, and this one's by alice, bob in additive"):
        compiled("additive", like=old)
    narrow = {
        name: replace(program, states=tuple(replace(s, frac_bits=5) for s in program.states))
        for name, program in old.programs.items()
    }
    coarse = replace(old, programs=narrow)
    with pytest.raises(UsageError, match=r"with 5 fraction bits: rounding it adds .* times"):
        compiled("rep3", like=coarse)
    tight = {
        name: replace(
            program,
            states=tuple(replace(s, frac_bits=s.ring_bits) for s in program.states),
        )
        for name, program in old.programs.items()
    }
    with pytest.raises(UsageError, match=r"may reach .*, and the other plan keeps it below 0\.25"):
        compiled("rep3", like=replace(old, programs=tight))


def test_a_rehearsal_that_got_less_far_is_refused() -> None:
    """From the first parameters two small steps tell nothing of where a long training ends."""
    far, _ = compiled("rep3", rate=1.0, steps=150)
    short = {"like": far, "batch": 1, "rate": 0.3, "steps": 2, "max_noise": 1.0}
    with pytest.raises(UsageError, match=r"was seen up to .* where the other plan was rehearsed"):
        compiled("rep3", **short)
    model = Perceptron().train()
    weights = veilgraph.rehearse(far, compiled("rep3")[1], model, DATA, rate=1.0, epochs=15)
    model.load_state_dict({n: torch.tensor(x) for n, x in weights.parameters.items()})
    plan, _ = compiled("rep3", model=model, **short)
    assert layout_of(plan) == layout_of(far)


def test_the_command_line_takes_another_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.onnx").write_bytes(logistic().SerializeToString())
    np.savez("rows.npz", **DATA)
    compiles = "compile model.onnx --train cross_entropy --calibrate rows.npz --rehearse 5"
    for how in ("--batch 16 -o one.plan", "--batch 8 -o two.plan --like one.plan"):
        found = CliRunner().invoke(main, [*compiles.split(), *how.split()])
        assert found.exit_code == 0, found.output
    one, two = (veilgraph.Plan.load(f"{name}.plan") for name in ("one", "two"))
    assert layout_of(one) == layout_of(two)
