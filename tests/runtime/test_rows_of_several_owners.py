"""Batches whose rows are several owners': one model of rows that lie apart."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper
from three_parties import run_threads, write_parties
from torch.nn import functional
from training_cases import (
    CLASSES,
    DATA,
    INPUTS,
    RATE,
    STEPS,
    SUITES,
    Perceptron,
    X,
    Y,
    logistic,
)

import veilgraph
from veilgraph.cli import main
from veilgraph.ir.errors import SecurityAbort, UsageError
from veilgraph.runtime.store.weights import save_weights
from veilgraph.training import trainer
from veilgraph.training.batches import orders

BATCH_OF = {"alice": 10, "bob": 6}
OF_ALICE, OF_BOB = slice(0, 100), slice(100, 160)
OWN = {
    "alice": {"x": X[OF_ALICE], "labels": Y[OF_ALICE]},
    "bob": {"x": X[OF_BOB], "labels": Y[OF_BOB]},
}
TOLD = {"parameters": "alice", "loss": ["alice", "bob"], "output": "alice"}


@cache
def compiled(suite: str, share_once: bool = False) -> tuple[veilgraph.Plan, Any]:
    return veilgraph.compile_training(
        Perceptron().train(),
        DATA,
        loss="cross_entropy",
        batch=BATCH_OF,
        rate=RATE,
        steps=STEPS,
        reveal=TOLD,
        share_once=share_once,
        **SUITES[suite],
    )


def by_torch(steps: int) -> tuple[list[float], dict[str, Any]]:
    """Losses and parameters, on the rows that a simulation with seed 0 takes."""
    model, losses = Perceptron().train(), []
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    of_alice, of_bob = orders(100, 10, 0), orders(60, 6, 1)
    for alice, bob in islice(zip(of_alice, of_bob, strict=True), steps):
        rows = np.concatenate([alice, bob + OF_BOB.start])
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(torch.tensor(X[rows])), torch.tensor(Y[rows]))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: x.detach().numpy() for name, x in model.named_parameters()}


@pytest.mark.parametrize("share_once", [False, True])
@pytest.mark.parametrize("suite", SUITES)
def test_rows_of_two_owners_train_as_in_float32(suite: str, share_once: bool) -> None:
    """Shared step by step, or once; each owner's rows are taken in an order of its own."""
    plan, weights = compiled(suite, share_once)
    found = veilgraph.simulate_training(plan, weights, OWN, rate=RATE, epochs=3, evaluate=OWN)
    losses, parameters = by_torch(30)
    assert found.losses == pytest.approx(losses, abs=0.02)
    for name, wanted in parameters.items():
        assert found.parameters[name] == pytest.approx(wanted, abs=0.03)
    assert [each["output"].shape for each in found.outputs] == [(16, CLASSES)] * 10


def test_a_rehearsal_takes_rows_as_they_are(tmp_path: Path) -> None:
    """Whoever rehearses has rows that may be seen, and of no owner."""
    plan, weights = compiled("rep3")
    found = veilgraph.rehearse(plan, weights, Perceptron().train(), DATA, rate=RATE, epochs=2)
    assert found.status() is None
    assert found.steps == 20
    (real, fixed) = found.epochs[-1]
    assert fixed.loss == pytest.approx(real.loss, abs=0.02)


class Parties:
    """Three parties on this machine; two have rows, carol computes."""

    def __init__(self, folder: Path, share_once: bool = False) -> None:
        self.plan, weights = compiled("rep3", share_once)
        self.files, self.folder = write_parties(folder, 10.0), folder
        save_weights(weights, folder / "model.weights", self.plan.digest)

    def run(self, act: Any, resumes: bool = False, **others: Mapping[str, Any]) -> dict[str, Any]:
        def one(name: str) -> Any:
            options: dict[str, Any] = {
                "data": OWN.get(name),
                "weights": self.folder / "model.weights" if name == "bob" else None,
                "checkpoint": self.folder / f"{name}.state",
                "resume": resumes,
            }
            options |= others.get(name, {})
            with veilgraph.Trainer(self.plan, name, self.files[name], **options) as trainer:
                return act(trainer, name)

        names = list(self.files)
        return dict(zip(names, run_threads([lambda n=n: one(n) for n in names]), strict=True))


@pytest.mark.parametrize("share_once", [False, True])
def test_parties_train_with_rows_of_their_own(share_once: bool, tmp_path: Path) -> None:
    """carol is told how many rows there are; each owner keeps its order over a resume."""
    parties = Parties(tmp_path, share_once)

    def begin(trainer: Any, name: str) -> Any:
        trainer.fit(rate=RATE, steps=4, every=4)
        return trainer.an_epoch, dict(trainer._order.seeds)

    def go_on(trainer: Any, name: str) -> Any:
        assert trainer.step == 4
        trainer.fit(rate=RATE, epochs=2)
        own = {"x": X[:35]} if name == "alice" else {"x": X[:13]} if name == "bob" else None
        return trainer.reveal(), trainer.evaluate(own), dict(trainer._order.seeds)

    first, second = parties.run(begin), parties.run(go_on, resumes=True)
    assert {name: steps for name, (steps, _) in first.items()} == dict.fromkeys(parties.files, 10)
    assert {n: seeds for n, (_, seeds) in first.items()} == {
        n: seeds for n, (*_, seeds) in second.items()
    }
    known = {name: set(seeds) for name, (_, seeds) in first.items()}
    whose = {"alice": {"alice"}, "bob": {"bob"}, "carol": set()}
    assert known == ({n: {"alice", "bob"} for n in whose} if share_once else whose)
    told, outputs, _ = second["alice"]
    assert outputs["output"].shape == (35 + 13, CLASSES)
    model = Perceptron()
    model.load_state_dict({name: torch.tensor(x) for name, x in told.items()})
    places = [(0, 10), (0, 6), (10, 20), (6, 12), (20, 30), (12, 13), (30, 35)]
    wanted = model(torch.tensor(np.concatenate([X[i:j] for i, j in places]))).detach().numpy()
    assert outputs["output"] == pytest.approx(wanted, abs=0.05)
    right = float((model(torch.tensor(X)).argmax(1).numpy() == Y).mean())
    assert right > float((Perceptron()(torch.tensor(X)).argmax(1).numpy() == Y).mean())


def test_an_owner_with_fewer_rows_begins_anew_sooner(tmp_path: Path) -> None:
    """An epoch is as long as the owner's with the most batches."""
    parties = Parties(tmp_path)
    few = {"data": {"x": X[:13], "labels": Y[:13]}}
    found = parties.run(lambda trainer, name: len(trainer.fit(rate=RATE, epochs=1)), bob=few)
    assert found == {"alice": 10, "bob": 10, "carol": 0}


def test_who_says_too_few_rows_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Trainer would refuse them: what is told is no row."""
    parties = Parties(tmp_path)
    monkeypatch.setattr(trainer, "count_of", lambda *asked: 3)
    for error in parties.run(lambda party, name: None).values():
        assert isinstance(error, SecurityAbort)
        assert "alice says that it has 3 rows, and gives 10 to a step." in str(error)


def test_bad_rows_at_one_party(tmp_path: Path) -> None:
    plan, _ = compiled("rep3")
    files = write_parties(tmp_path, 10.0)

    def refused(name: str, **options: Any) -> str:
        with pytest.raises(UsageError) as error:
            veilgraph.Trainer(plan, name, files[name], **options)
        return str(error.value)

    few = {"x": X[:9], "labels": Y[:9]}
    assert "There are 9 rows of `x`, and a step takes 10" in refused("alice", data=few)
    assert "There are no rows of `labels`" in refused("bob", data={"x": X})
    uneven = {"x": X, "labels": Y[:50]}
    assert "160 of `x`, 50 of `labels`" in refused("alice", data=uneven)
    assert "told that there are 5 rows, and their owners say it" in refused("carol", rows=5)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"batch": {"alice": 0, "bob": 6}}, "A batch of 0 rows of alice"),
        ({"batch": {}}, "A batch has rows of nobody"),
        ({"batch": {"alice": "3"}}, "A batch of 3 rows of alice makes no sense"),
        ({"batch": "16"}, "A batch of 16 rows makes no sense"),
        ({"batch": 16, "optimizer": "sgd"}, "An optimizer of type str makes no sense"),
        ({"batch": 16, "rate": "0.1"}, "A learning rate of '0.1' makes no sense"),
        ({"batch": {"alice": 4, "dora": 4}}, "dora owns `x.dora`, and"),
        ({"batch": BATCH_OF, "owners": {"labels": "bob"}}, "All rows of `labels` are bob's"),
        ({"batch": {"alice": 160, "bob": 1}}, "There are 160 rows of `x`, and a step takes 161"),
    ],
)
def test_batches_that_make_no_sense(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        veilgraph.compile_training(logistic(), DATA, loss="cross_entropy", steps=2, **options)


def test_samples_without_names() -> None:
    samples: Any = [X, Y]
    with pytest.raises(UsageError, match="Samples are given as one list, without names"):
        veilgraph.compile_training(logistic(), samples, loss="cross_entropy", batch=16)


def test_a_batch_is_a_number_of_any_type() -> None:
    size: Any = np.int64(16)
    plan, _ = veilgraph.compile_training(
        logistic(), DATA, loss="cross_entropy", batch=size, steps=2
    )
    assert "step" in plan.manifest.entries


def test_an_input_that_is_named_as_an_owners_rows() -> None:
    kind, shape = TensorProto.FLOAT, ["N", INPUTS]
    given = [helper.make_tensor_value_info(name, kind, shape) for name in ("x", "x.bob")]
    told = helper.make_tensor_value_info("output", kind, shape)
    weight = numpy_helper.from_array(np.ones(INPUTS, np.float32), "w")
    nodes = [
        helper.make_node("Add", ["x", "x.bob"], ["both"]),
        helper.make_node("Mul", ["both", "w"], ["output"]),
    ]
    model = helper.make_model(helper.make_graph(nodes, "two", given, [told], [weight]))
    rows = {"x": X, "x.bob": X, "labels": X}
    with pytest.raises(UsageError, match=r"an input `x.bob`, a name that the plan uses itself"):
        veilgraph.compile_training(model, rows, loss="mse", batch=BATCH_OF, steps=2)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (DATA, "Rows are given of x, labels, and a batch has those of alice, bob"),
        ({"alice": OWN["alice"]}, "Rows are given of alice, and"),
        ({"alice": X, "bob": X}, "Rows of alice have no names"),
    ],
)
def test_simulated_rows_of_nobody(data: Any, told: str) -> None:
    plan, weights = compiled("rep3")
    with pytest.raises(UsageError, match=told):
        veilgraph.simulate_training(plan, weights, data, rate=RATE)


def test_the_command_line_names_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.onnx").write_bytes(logistic().SerializeToString())
    np.savez("rows.npz", x=X, labels=Y)
    compiles = "compile model.onnx --train cross_entropy --calibrate rows.npz --rehearse 5 --batch"
    found = CliRunner().invoke(main, [*compiles.split(), "alice=10, bob=6"])
    assert found.exit_code == 0, found.output
    plan = veilgraph.Plan.load("model.plan")
    assert {t.name for t in plan.party("bob").inputs if "." in t.name} == {"x.bob", "labels.bob"}
    for batch in ("alice=", "10,6", "alice=3,alice=4", "alice=3,4", "many"):
        found = CliRunner().invoke(main, [*compiles.split(), batch, "--force"])
        assert found.exit_code == 2
        assert f"--batch {batch} says no number of rows." in found.output
