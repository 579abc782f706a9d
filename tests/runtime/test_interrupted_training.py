"""Training whose parties are killed at random points, again and again, and go on: as without."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import numpy as np
from three_parties import edit, write_parties
from training_cases import DATA, RATE, ROWS, by_torch, trained
from training_party import STEPS, train

from veilgraph.runtime.session.config import Config
from veilgraph.runtime.session.private_keys import secret_of
from veilgraph.runtime.store.state_files import load_state
from veilgraph.runtime.store.weights import save_weights
from veilgraph.training.checkpoints import Checkpoints, Progress

NAMES = ("alice", "bob", "carol")
KILLS = 20
PATIENCE = 2.0  # seconds that the others wait for who was killed before they had met
OWN: dict[str, Any] = {"alice": {"x": DATA["x"]}, "bob": {"labels": DATA["labels"]}, "carol": {}}


class Attempt:
    """Three processes that train, one of which may be killed."""

    def __init__(self, context: ForkServerContext, folder: Path) -> None:
        pipes = {name: context.Pipe(duplex=False) for name in NAMES}
        self.receivers = {name: receiver for name, (receiver, _) in pipes.items()}
        self.processes = {
            name: context.Process(target=train, args=(folder, name, OWN[name], ROWS, RATE, sender))
            for name, (_, sender) in pipes.items()
        }
        for name, process in self.processes.items():
            process.start()
            pipes[name][1].close()

    def told(self, name: str) -> Any:
        """What a party tells next; None at its end."""
        assert self.receivers[name].poll(60)
        try:
            return self.receivers[name].recv()
        except EOFError:
            return None

    def kill(self, name: str, seen: int, seconds: float) -> None:
        """Once it has told `seen` things, and some time after."""
        for _ in range(seen):
            self.told(name)
        time.sleep(seconds)
        self.processes[name].kill()

    def end(self) -> dict[str, list[Any]]:
        """All that each has still to tell, when all processes are gone."""
        found: dict[str, list[Any]] = {name: [] for name in NAMES}
        for name, process in self.processes.items():
            while (told := self.told(name)) is not None:
                found[name].append(told)
            process.join(60)
            assert process.exitcode is not None
        return found


def require_whole(folder: Path, plan: Any) -> None:
    """Every checkpoint opens to its last byte."""
    for name in NAMES:
        secret = secret_of(Config.load(folder / f"{name}.yaml").key)
        for file in Checkpoints(folder / f"{name}.checkpoint").files:
            saved = load_state(file, plan, name, secret)
            assert Progress.unpacked(saved.note, file).step <= STEPS


def test_parties_killed_at_random_points_train_as_without(tmp_path: Path) -> None:
    """Twenty times; the last attempt ends. No session comes twice, and each reveal is counted."""
    plan, weights = trained("logistic", "rep3")
    plan.save(tmp_path / "model.plan")
    save_weights(weights, tmp_path / "model.weights", plan.digest)
    files = write_parties(tmp_path, PATIENCE)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["veilgraph.training.trainer", "veilgraph.plans"])
    generator = np.random.default_rng(20)
    ids: list[bytes] = []
    steps: list[int] = []
    for _ in range(KILLS):
        attempt = Attempt(context, tmp_path)
        name = NAMES[generator.integers(3)]
        attempt.kill(name, int(generator.integers(5)), float(generator.uniform(0, 0.02)))
        found = attempt.end()
        require_whole(tmp_path, plan)
        for told in [each for every in found.values() for each in every]:
            assert told[0] != "refused", told
            if told[0] == "begins":
                ids.append(told[2])
                steps.append(told[1])
    for file in files.values():
        edit(file, lambda content: content.update(timeout_seconds=10.0))
    last = Attempt(context, tmp_path).end()
    (_, step, session), *_, (ends, parameters, revealed) = last["alice"]
    assert ends == "ends", last
    assert 0 < step < STEPS
    assert steps == sorted(steps)
    assert session not in ids
    losses, wanted = by_torch("logistic", [RATE] * STEPS)
    assert len(losses) == STEPS
    for name, array in wanted.items():
        assert np.abs(parameters[name] - array).max() < 0.05
    assert revealed["reveal"] == (1, 0)
    count, again = revealed["step"]
    assert count - again == STEPS  # a step cut off tells its loss again
    assert again > 0
    lines = (tmp_path / "state").glob("spent-sessions-alice")
    spent = next(iter(lines)).read_text().split()
    assert len(spent) == len(set(spent))
    assert not list(tmp_path.glob(".*.checkpoint.*"))
