"""`veilgraph train`: three processes over TLS, two sessions; what is said, and what is refused."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from training_cases import BATCH, DATA, RATE, ROWS, X, by_torch, logistic, trained
from verbs import reason

import veilgraph
from veilgraph.commands import train
from veilgraph.measuring.processes import write_configs
from veilgraph.runtime.store.state_files import before
from veilgraph.runtime.store.weights import save_weights
from veilgraph.training.plan_steps import step_bytes

EPOCH = ROWS // BATCH
OWN = {
    "alice": ("--data", "alice.npz"),
    "bob": ("--data", "bob.npz", "--weights", "model.weights"),
    "carol": ("--rows", str(ROWS)),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plan, what each party owns, and a configuration for each."""
    monkeypatch.chdir(tmp_path)
    plan, weights = trained("logistic", "rep3")
    plan.save(Path("model.plan"))
    save_weights(weights, Path("model.weights"), plan.digest)
    np.savez("alice.npz", x=X.astype(np.float64))
    np.savez("bob.npz", labels=DATA["labels"])
    np.savez("both.npz", **DATA)
    write_configs(tmp_path, plan.manifest.parties)
    return tmp_path


def command(party: str, *more: object) -> list[str]:
    given = ("--party", party, "--config", f"{party}.yaml", *OWN[party])
    return ["train", "model.plan", *given, *map(str, more)]


def run_parties(**more: tuple[object, ...]) -> dict[str, tuple[int, str, str]]:
    """All parties at the same time; exit code, output and error of each."""
    return run_commands({party: command(party, *options) for party, options in more.items()})


def run_commands(commands: dict[str, list[str]]) -> dict[str, tuple[int, str, str]]:
    """The same of any verb."""
    processes = {
        party: subprocess.Popen(
            [sys.executable, "-m", "veilgraph.cli", *words],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for party, words in commands.items()
    }  # fmt: skip
    ended = {party: process.communicate(timeout=120) for party, process in processes.items()}
    return {party: (processes[party].returncode, *told) for party, told in ended.items()}


def test_three_parties_train_save_and_go_on(folder: Path) -> None:
    """An epoch in each of two sessions, at two rates: as torch trains."""
    rates = ("--rate", f"{RATE},{RATE / 2}@{EPOCH}")
    first = run_parties(**{p: (*rates, "--save", f"{p}.checkpoint") for p in OWN})
    assert [code for code, _, _ in first.values()] == [0, 0, 0], first
    _, out, err = first["alice"]
    assert out.startswith(f"{EPOCH} steps in ")
    assert "the mean loss of the last epoch is" in out
    assert "To go on: --resume and more --epochs, at every party." in err
    assert "loss" not in first["carol"][1]
    more = ("--reveal", "--json")
    again = {
        party: (*rates, "--save", f"{party}.checkpoint", "--resume", "--epochs", 2, *more)
        for party in OWN
    }
    again["alice"] = (*again["alice"], "--output", "found.safetensors")
    second = run_parties(**again)
    assert [code for code, _, _ in second.values()] == [0, 0, 0], second
    lines = {
        p: [json.loads(line) for line in out.splitlines()] for p, (_, out, _) in second.items()
    }
    assert [line["step"] for line in lines["bob"][:-1]] == list(range(EPOCH, 2 * EPOCH))
    losses, parameters = by_torch("logistic", [RATE] * EPOCH + [RATE / 2] * EPOCH)
    told = [line["loss"] for line in lines["bob"][:-1]]
    assert np.abs(np.array(told) - losses[EPOCH:]).max() < 0.1
    assert [line["loss"] for line in lines["carol"][:-1]] == [None] * EPOCH
    assert lines["bob"][-2]["seconds_left"] == 0
    plan, _ = trained("logistic", "rep3")
    last = lines["alice"][-1]
    assert (last["steps"], last["step_bytes"]) == (2 * EPOCH, step_bytes(plan))
    assert last["parameters"] == "found.safetensors"
    assert last["revealed"] == {"step": 2 * EPOCH, "audit": 2, "reveal": 1}
    found = load_file("found.safetensors")
    assert found.keys() == parameters.keys()
    for name, wanted in parameters.items():
        assert np.abs(found[name] - wanted).max() < 0.05


def test_other_epochs_than_a_peer(folder: Path) -> None:
    """All stop before the first step."""
    given = ("--rate", RATE, "--timeout", 10)
    ended = run_parties(alice=given, bob=(*given, "--epochs", 2), carol=(*given, "--epochs", 2))
    assert [code for code, _, _ in ended.values()] == [6, 6, 6], ended
    assert "alice trains with another number of steps than bob." in ended["bob"][2]


def test_ctrl_c_in_a_step_leaves_the_last_checkpoint(folder: Path) -> None:
    """130 at who is interrupted, 5 at the others; all go on from what stands."""
    given = ("--rate", RATE, "--epochs", 10_000, "--save-every", 1)
    processes = {
        party: subprocess.Popen(
            [sys.executable, "-m", "veilgraph.cli", *command(party, *given),
             "--save", f"{party}.checkpoint"],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for party in OWN
    }  # fmt: skip
    deadline = time.monotonic() + 100
    while not before(Path("alice.checkpoint")).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    processes["alice"].send_signal(signal.SIGINT)
    told = {party: process.communicate(timeout=100) for party, process in processes.items()}
    codes = {party: process.returncode for party, process in processes.items()}
    assert codes == {"alice": 130, "bob": 5, "carol": 5}, told
    again = run_parties(
        **{p: ("--rate", RATE, "--save", f"{p}.checkpoint", "--resume") for p in OWN}
    )
    assert [code for code, _, _ in again.values()] == [0, 0, 0], again
    assert "Going on after step" in again["alice"][2]


def test_steps_from_a_store_till_it_is_used_up(folder: Path) -> None:
    """7 at all parties, with a checkpoint of the last step; all go on without a store."""
    weights = {"bob": ("--weights", "model.weights")}
    prepared = run_commands(
        {
            party: [
                *("prepare", "model.plan", "--party", party, "--config", f"{party}.yaml"),
                *("--entry", "step", "--count", "4", "--store", f"{party}.store"),
                *weights.get(party, ()),
            ]
            for party in OWN
        }
    )
    assert [code for code, _, _ in prepared.values()] == [0, 0, 0], prepared
    own = {p: ("--rate", RATE, "--save", f"{p}.checkpoint") for p in OWN}
    first = run_parties(**{p: (*given, "--store", f"{p}.store") for p, given in own.items()})
    assert [code for code, _, _ in first.values()] == [7, 7, 7], first
    _, _, err = first["carol"]
    assert f"The store has 4 of the {EPOCH} steps to come." in err
    assert f"used up after step 4 of {EPOCH}. The checkpoint after step 4 is saved." in err
    second = run_parties(**{p: (*given, "--resume") for p, given in own.items()})
    assert [code for code, _, _ in second.values()] == [0, 0, 0], second
    assert second["alice"][1].startswith(f"{EPOCH - 4} steps in ")


def test_run_reads_a_checkpoint_and_training_goes_on(folder: Path) -> None:
    """It is as it was; what is revealed is counted with what a Trainer reveals."""
    saved = {p: ("--rate", RATE, "--save", f"{p}.checkpoint") for p in OWN}
    first = run_parties(**{p: (*given, "--save-every", 5) for p, given in saved.items()})
    assert [code for code, _, _ in first.values()] == [0, 0, 0], first
    was = {p: Path(f"{p}.checkpoint").read_bytes() for p in OWN}

    def run(entry: str, **more: tuple[str, ...]) -> dict[str, tuple[int, str, str]]:
        return run_commands(
            {
                party: [
                    *("run", "model.plan", "--party", party, "--config", f"{party}.yaml"),
                    *("--entry", entry, "--state-file", f"{party}.checkpoint", "--resume"),
                    *own[2:],
                    *more.get(party, ()),
                ]
                for party, own in OWN.items()
            }
        )

    np.save("x.npy", X[:BATCH])
    one = run("evaluate", alice=("--input", "x=@x.npy"), bob=("--output", "output=@y.npy"))
    assert [code for code, _, _ in one.values()] == [0, 0, 0], one
    two = run("reveal", alice=("--output", "w=@w.npy", "--output", "b=@b.npy"))
    assert [code for code, _, _ in two.values()] == [0, 0, 0], two
    x = np.load("x.npy")
    assert np.abs(np.load("y.npy") - (x @ np.load("w.npy") + np.load("b.npy"))).max() < 0.1
    refused = run("start")
    assert [code for code, _, _ in refused.values()] == [2, 2, 2], refused
    told = f"bob.checkpoint is a checkpoint of training after step {EPOCH}, and a run of `start`"
    assert told in refused["bob"][2]
    assert {p: Path(f"{p}.checkpoint").read_bytes() for p in OWN} == was
    again = run_parties(
        **{p: (*given, "--resume", "--epochs", 2, "--json") for p, given in saved.items()}
    )
    assert [code for code, _, _ in again.values()] == [0, 0, 0], again
    last = json.loads(again["carol"][1].splitlines()[-1])
    assert last["revealed"] == {"step": 2 * EPOCH, "audit": 3, "evaluate": 1, "reveal": 1}


def test_what_was_trained_is_evaluated_and_no_more(folder: Path) -> None:
    """With no epoch to come; who has no rows takes part, and who receives has each row's."""
    saved = {p: ("--rate", RATE, "--save", f"{p}.checkpoint") for p in OWN}
    first = run_parties(**saved)
    assert [code for code, _, _ in first.values()] == [0, 0, 0], first
    np.savez("rows.npz", x=X[: BATCH + 3])
    more = {p: (*given, "--resume", "--evaluate", "--reveal") for p, given in saved.items()}
    more["alice"] = (*more["alice"], "--evaluate-data", "rows.npz", "--output", "w.safetensors")
    more["bob"] = (*more["bob"], "--evaluation", "outputs.npz")
    found = run_parties(**more)
    assert [code for code, _, _ in found.values()] == [0, 0, 0], found
    assert "The outputs are in outputs.npz." in found["bob"][1]
    parameters = load_file("w.safetensors")
    wanted = X[: BATCH + 3] @ parameters["w"] + parameters["b"]
    outputs = np.load("outputs.npz")["output"]
    assert outputs.shape == wanted.shape
    assert np.abs(outputs - wanted).max() < 0.1


def test_correct_answers_are_counted(folder: Path) -> None:
    """Who receives the number is told it in a sentence; owners of rows and of labels give them."""
    plan, weights = veilgraph.compile_training(
        logistic(), DATA, loss="cross_entropy", batch=BATCH, rate=RATE, steps=12,
        reveal={"correct": "carol"}, owners={"labels": "bob"},
    )  # fmt: skip
    plan.save(Path("model.plan"))
    save_weights(weights, Path("model.weights"), plan.digest)
    code, told = reason(*command("bob", "--rate", RATE, "--evaluate"))
    assert code == 2
    assert "bob has rows of `labels` here.\nHint: Give its rows with --evaluate-data" in told
    given = ("--rate", RATE, "--evaluate")
    found = run_parties(
        alice=(*given, "--evaluate-data", "alice.npz"),
        bob=(*given, "--evaluate-data", "bob.npz", "--json"),
        carol=given,
    )
    assert [code for code, _, _ in found.values()] == [0, 0, 0], found
    assert re.search(rf"\d+ of {ROWS} answers are correct: [\d.]+%\.", found["carol"][1])
    assert "correct" not in found["alice"][1]
    last = json.loads(found["bob"][1].splitlines()[-1])
    assert (last["correct"], last["answers"]) == (None, ROWS)


def test_a_later_rate_that_the_plan_has_no_room_for(folder: Path) -> None:
    """Before the first step; alice owns the rate, and the others know it."""
    given = ("--rate", f"{RATE},5@6", "--timeout", 10)
    ended = run_parties(alice=given, bob=given, carol=given)
    assert [code for code, _, _ in ended.values()] == [2, 2, 2], ended
    for _, _, err in ended.values():
        assert "The rate 5 of step 6, after 0.1, is too large for this plan: step_size is" in err
        assert "Train with smaller rates" in err


def test_parties_of_which_one_reveals(folder: Path) -> None:
    """Told before the first step, and counted nowhere."""
    given = ("--rate", RATE, "--timeout", 10)
    ended = run_parties(alice=given, bob=(*given, "--reveal"), carol=given)
    assert [code for code, _, _ in ended.values()] == [6, 6, 6], ended
    assert "bob has --reveal, and alice has not." in ended["carol"][2]
    assert not [*folder.rglob("reveals-*")]


def test_progress_says_what_is_left() -> None:
    said: list[str] = []
    trainer: Any = SimpleNamespace(an_epoch=20, losses_an_epoch=20, step=25)
    run = train._Run(trainer, 65_700, 2, said.append, as_json=False)
    assert run.left == 15
    run.on_step(39, 0.25)
    assert said == ["step 40 of 40, 0 ms left, 65.7 kB a step, loss 0.25"]
    assert run.summary().startswith("15 steps in ")
    assert run.summary().endswith("; the mean loss of the last epoch is 0.25.")


# What is refused, before a peer is called


@pytest.mark.parametrize(
    ("party", "options", "told"),
    [
        ("alice", ("--resume",), "--resume goes on from checkpoints, and no file is named"),
        ("alice", ("--save", "bob.npz"), "bob.npz is a checkpoint already"),
        (
            "alice",
            ("--reveal",),
            "alice receives the parameters. Hint: Give --output FILE.safetensors",
        ),
        ("bob", ("--reveal", "--output", "b.npz"), "bob receives no parameters here"),
        ("alice", ("--output", "a.npz"), "alice receives no parameters here"),
        ("alice", ("--evaluate",), "Give its rows with --evaluate-data FILE.npz"),
        ("bob", ("--evaluate",), "bob receives the outputs. Hint: Give --evaluation FILE.npz"),
        ("carol", ("--evaluate", "--evaluation", "c.npz"), "Leave out --evaluation"),
        ("carol", ("--evaluate", "--evaluate-data", "alice.npz"), "owns no input of the model"),
        ("carol", ("--evaluation", "c.npz"), "Nothing is evaluated here"),
        ("alice", ("--data", "no.npz"), "no.npz can't be read"),
        ("alice", ("--data", "bob.npz"), "There are no rows of `x`"),
        ("alice", ("--data", "both.npz"), "Rows of `labels` are given, and alice owns no such"),
        ("alice", ("--seed", -1), "--seed: -1 is not at least 0"),
        ("alice", ("--party", "dave"), "dave is no party of this plan"),
        ("alice", ("--save", "alice.npz"), "alice.npz is read here"),
        ("carol", ("--rows", 4), "There are 4 rows, and a step takes 16"),
        ("alice", ("--rate", "0"), "`0` is no rate above 0"),
        ("alice", ("--resume", "--save", "bob.npz"), "bob.npz holds no shares at rest"),
    ],
)
def test_what_makes_no_sense_is_refused(
    party: str, options: tuple[object, ...], told: str, folder: Path
) -> None:
    code, found = reason(*command(party, "--rate", RATE, *options))
    assert code == 2
    assert told in " ".join(found.split())


def test_a_dealer_keeps_no_state(folder: Path) -> None:
    plan, _ = trained("logistic", "additive")
    plan.save(Path("model.plan"))
    code, told = reason(*command("carol", "--rate", RATE, "--save", "carol.state"))
    assert code == 2
    assert "carol keeps no state in this plan" in told


def test_plans_that_reveal_nothing_or_do_not_train(folder: Path) -> None:
    plan, _ = trained("logistic", "rep3", told=False)
    plan.save(Path("model.plan"))
    assert (
        "reveals its parameters to nobody" in reason(*command("carol", "--rate", 1, "--reveal"))[1]
    )
    plan, _ = veilgraph.compile(logistic(), calibrate={"x": X[:4, None]})
    plan.save(Path("model.plan"))
    assert "This plan does not train" in reason(*command("carol", "--rate", 1))[1]
